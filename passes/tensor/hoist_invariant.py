"""``HoistInvariant``: hoist costly loop-invariant expressions out of loops::

    for i in range(8):                              let invariant: float32 = sqrt(v[0])
        b[i] = a[i] / sqrt(v[0])             ->     for i in range(8):
                                                        b[i] = a[i] / invariant

Only costly expressions move: divisions, calls, and loads, inside of those or alone, of scalars that do not change in
the loop. An expression that reads memory, or divides integers, moves only out of a loop that surely runs, and never out
of a condition, so that nothing is evaluated that was not evaluated before. Invariant lets inside the loop move by the
same rules. Index arithmetic stays, because code generators hoist it themselves, except for divisions by numbers that
are not constant, which take longer than the computation that they serve.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.properties import FORMULAS, NAMED, TILES, VECTORS
from tilewright.passes.registry import register_pass
from tilewright.passes.tensor.parallelize_loop import expression_cost
from tilewright.passes.tensor.remove_no_op import has_effect
from tilewright.passes.tensor.scoped import ScopedMutator
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import (
    BinaryOp,
    Buffer,
    BufferLoad,
    Call,
    Expr,
    FloatImm,
    IntImm,
    Ramp,
    Select,
    Var,
    const,
)
from tilewright.tensorir.functor import (
    CALLS,
    DIVISIONS,
    INTEGER_DIVISIONS,
    LOADS,
    Mutator,
    accesses_buffers,
    copy_with_fresh_definitions,
    kinds,
    leaves,
    uses_var,
    walk_statements,
)
from tilewright.tensorir.intrinsics import ADDRESSING
from tilewright.tensorir.stmt import (
    Allocate,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    sequence,
)
from tilewright.tensorir.target import CACHE_LINE

#: An expression that costs less than this is not worth a register for the length of a loop.
_MIN_COST = 1
#: The same for an expression that the copies of an unrolled loop share.
_MIN_COST_OF_COPIES = 5


class _LoopFacts:
    """The definitions and stores in a loop body.

    Attributes:
        unrolled: the inner loops that are unrolled later, by their variables, which are constant in each copy.
    """

    def __init__(self, loop: For) -> None:
        self.loop = loop
        self.variables: set[Var] = {loop.var}
        self.unrolled: dict[Var, For] = {}
        self.buffers: set[Buffer] = set()
        self.calls_functions = False
        for stmt in walk_statements(loop.body):
            if isinstance(stmt, For):
                if stmt.kind == "unrolled" and isinstance(stmt.min, IntImm) and isinstance(stmt.extent, IntImm):
                    self.unrolled[stmt.var] = stmt
                else:
                    self.variables.add(stmt.var)
            elif isinstance(stmt, LetStmt):
                self.variables.add(stmt.var)
            elif isinstance(stmt, (Allocate, BufferStore)):
                self.buffers.add(stmt.buffer)
            elif isinstance(stmt, Evaluate) and isinstance(stmt.value, Call) and stmt.value.name.startswith("@"):
                self.calls_functions = True

    def is_invariant(self, expr: Expr) -> bool:
        """Return whether ``expr``, which has no effect, has the same value in all iterations, or one value for each
        copy made by unrolled loops."""
        found = leaves(expr)
        if not found.isdisjoint(self.variables) or not found.isdisjoint(self.buffers):
            return False
        return not (self.calls_functions and accesses_buffers(expr))

    def pays(self, expr: Expr) -> bool:
        """Return whether hoisting ``expr`` saves time. An unrolled loop has no overhead: an expression that its copies
        share is hoisted only if it costs more than plain arithmetic."""
        if not expr.dtype.is_float:
            return _is_division(expr)
        if self.loop.kind != "unrolled":
            return expression_cost(expr) >= _MIN_COST
        return is_costly(expr) and expression_cost(expr) >= _MIN_COST_OF_COPIES

    def chooses(self, condition: Expr) -> bool:
        """Return whether ``condition`` is decided in each copy of the unrolled loop."""
        return self.loop.kind == "unrolled" and uses_var(condition, {self.loop.var})

    def copies(self, expr: Expr) -> list[For]:
        """Return the unrolled loops that give ``expr`` one value for each copy, outermost first."""
        return [loop for var, loop in self.unrolled.items() if uses_var(expr, {var})]


def is_costly(expr: Expr) -> bool:
    """Return whether ``expr`` is, at its top, a division or a call."""
    return isinstance(expr, Call) or (isinstance(expr, BinaryOp) and expr.op == "div")


def may_fail(expr: Expr) -> bool:
    """Return whether evaluating ``expr`` where the program does not could trap."""
    return bool(kinds(expr) & (LOADS | DIVISIONS))


class _Hoister(ScopedMutator):
    def __init__(self, func: PrimFunc) -> None:
        super().__init__(func)
        self.candidates = _Candidates()

    def mutate_For(self, loop: For) -> Stmt:
        new = super().mutate_For(loop)
        if not isinstance(new, For) or new.kind == "parallel":
            return new  # a shared value would have to be passed to all threads
        facts = _LoopFacts(new)
        bindings: dict[Expr, _Binding] = {}
        moved: dict[Expr, Expr] = {}
        runs: bool | None = None
        for expr, unconditional in self.candidates.of(new, facts):
            if expr in moved:
                continue
            if may_fail(expr):
                if runs is None:
                    runs = self._surely_runs(new)
                if not (runs and unconditional):
                    continue
            bindings[expr] = _Binding.of(expr, facts.copies(expr), self.candidates.named.get(expr))
            moved[expr] = bindings[expr].value
        if not moved:
            return new
        body = _Mover(moved).mutate(new.body)
        result: Stmt = For(new.var, new.min, new.extent, new.kind, body, new.annotations)
        for binding in reversed(bindings.values()):
            result = binding.around(result)
        return result

    def _surely_runs(self, loop: For) -> bool:
        """Return whether ``loop`` at this place provably has an iteration."""
        if isinstance(loop.extent, IntImm):
            return loop.extent.value > 0
        return self.analyzer.prove(loop.extent > 0)


@dataclasses.dataclass(frozen=True, eq=False)
class _Binding:
    """The variable or register buffer that keeps the value of an expression.

    Attributes:
        expr: the expression.
        loops: the unrolled loops that give it one value for each copy, outermost first.
        place: a variable, or a register buffer for several values.
        value: the replacement of the expression.
    """

    expr: Expr
    loops: list[For]
    place: Var | Buffer
    value: Expr

    @classmethod
    def of(cls, expr: Expr, loops: list[For], name: Var | None = None) -> _Binding:
        """Create the binding of ``expr``, to ``name`` if given, else to a new place."""
        if not loops:
            var = Var("invariant", expr.dtype) if name is None else name
            return cls(expr, loops, var, var)
        lanes = expr.dtype.lanes
        shape = [loop.extent for loop in loops] + ([const(lanes, INT64)] if lanes > 1 else [])
        indices = [loop.var - loop.min for loop in loops]
        if lanes > 1:
            indices.append(Ramp(const(0, INT64), const(1, INT64), lanes))
        alignment = CACHE_LINE if lanes > 1 else 0
        buffer = Buffer("invariant", tuple(shape), expr.dtype.element, "register", (), alignment)
        return cls(expr, loops, buffer, BufferLoad(buffer, tuple(indices)))

    def around(self, body: Stmt) -> Stmt:
        """Wrap ``body`` in the definition of the place."""
        if isinstance(self.place, Var):
            return LetStmt(self.place, self.expr, body)
        assert isinstance(self.value, BufferLoad)
        made: Stmt = BufferStore(self.place, self.expr, self.value.indices)
        for loop in reversed(self.loops):
            made = For(loop.var, loop.min, loop.extent, "unrolled", made)
        return Allocate(self.place, sequence(copy_with_fresh_definitions(made), body))


class _Candidates:
    """Find the largest invariant expressions of loop bodies that are worth moving."""

    def __init__(self) -> None:
        #: For each visited expression, whether any part of it may be worth moving. The same expressions are visited for
        #: each loop around them, and most are indices without such parts.
        self._holds: dict[Expr, bool] = {}
        #: The variables of lets in the present loop, by their values: they move with those that are candidates.
        self.named: dict[Expr, Var] = {}
        #: For the present loop: its facts, the candidates found in its body, and the visited expressions, separately
        #: for those that each iteration evaluates and the others.
        self._facts: _LoopFacts | None = None
        self._found: list[tuple[Expr, bool]] = []
        self._met: dict[bool, set[Expr]] = {}

    def of(self, loop: For, facts: _LoopFacts) -> list[tuple[Expr, bool]]:
        """Return the candidates in the body of ``loop``, in order and without repetition, and whether each iteration
        evaluates them. Inner loops must have been processed already."""
        self._facts = facts
        self._found = []
        self.named = {}
        self._met = {True: set(), False: set()}
        self._collect(loop.body, True)
        return self._found

    def _collect(self, stmt: Stmt, unconditional: bool) -> None:
        if isinstance(stmt, SeqStmt):
            for inner in stmt.stmts:
                self._collect(inner, unconditional)
        elif isinstance(stmt, BufferStore):
            self._add_largest_of(stmt.parts(), unconditional)
        elif isinstance(stmt, LetStmt):
            self.named.setdefault(stmt.value, stmt.var)
            self._add_largest_of((stmt.value,), unconditional)
            self._collect(stmt.body, unconditional)
        elif isinstance(stmt, Allocate):
            self._collect(stmt.body, unconditional)
        elif isinstance(stmt, For):
            runs = isinstance(stmt.extent, IntImm) and stmt.extent.value > 0
            self._collect(stmt.body, unconditional and runs)
        elif isinstance(stmt, IfThenElse):
            self._add_largest_of((stmt.condition,), unconditional)
            self._collect(stmt.then_body, False)
            if stmt.else_body is not None:
                self._collect(stmt.else_body, False)

    def _add_largest_of(self, exprs: tuple[Expr, ...], unconditional: bool) -> None:
        """Add the candidates among expressions and their parts."""
        known = self._holds
        for expr in exprs:
            holds = known.get(expr)
            if self._may_hold(expr) if holds is None else holds:
                self._add_largest(expr, unconditional)

    def _add_largest(self, expr: Expr, unconditional: bool) -> None:
        met = self._met[unconditional]
        if expr in met or (isinstance(expr, Call) and expr.name in ADDRESSING):
            return
        met.add(expr)
        facts = self._facts
        assert facts is not None
        if facts.is_invariant(expr) and facts.pays(expr) and not has_effect(expr):
            if not _is_constant(expr):
                self._found.append((expr, unconditional))
            return
        if isinstance(expr, Select) and facts.chooses(expr.condition):
            return
        self._add_largest_of(expr.parts(), unconditional)

    def _may_hold(self, expr: Expr) -> bool:
        found = self._holds.get(expr)
        if found is None:
            found = self._holds[expr] = not isinstance(expr, (Var, IntImm, FloatImm)) and (
                expr.dtype.is_float or _is_division(expr) or any(map(self._may_hold, expr.parts()))
            )
        return found


def _is_division(expr: Expr) -> bool:
    """Return whether ``expr`` is a division of scalar integers by a non-constant."""
    if not isinstance(expr, BinaryOp) or expr.op not in INTEGER_DIVISIONS or expr.dtype.lanes > 1:
        return False
    return not isinstance(expr.b, IntImm)


def _is_constant(expr: Expr) -> bool:
    return not leaves(expr) and not kinds(expr) & CALLS


class ExprReplacer(Mutator):
    """Replace expressions, for instance by variables that hold them. An element whose address is taken is not
    replaced."""

    def __init__(self, replaced: Mapping[Expr, Expr]) -> None:
        self.replaced = replaced

    def mutate(self, node: Any) -> Any:
        found = self.replaced.get(node) if isinstance(node, Expr) else None
        return found if found is not None else super().mutate(node)

    def mutate_Call(self, call: Call) -> Expr:
        if call.name not in ADDRESSING:
            return self.generic_mutate(call)  # type: ignore[no-any-return]
        args = (self.generic_mutate(call.args[0]), *self.mutate_all(call.args[1:]))
        return call if args == call.args else Call(call.name, args, call.dtype)


class _Mover(ExprReplacer):
    """Replace expressions, and remove lets whose variable is a place that is now defined outside of the loop."""

    def mutate_LetStmt(self, op: LetStmt) -> Stmt:
        if self.replaced.get(op.value) is op.var:
            return self.mutate(op.body)  # type: ignore[no-any-return]
        return self.generic_mutate(op)  # type: ignore[no-any-return]


def hoist_invariants(func: PrimFunc) -> PrimFunc:
    """Return ``func`` with invariant expressions in front of their loops."""
    return func.with_body(_Hoister(func).mutate(func.body))


@register_pass
@primfunc_pass(opt_level=1, name="HoistInvariant", requires={VECTORS, NAMED, FORMULAS, TILES})
class HoistInvariant(PrimFuncPass):
    """See the module."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """Return ``func`` with invariant expressions in front of their loops."""
        return hoist_invariants(func)
