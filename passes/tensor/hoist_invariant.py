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
)
from tilewright.tensorir.intrinsics import ADDRESSING
from tilewright.tensorir.node import Node
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


class _Contents:
    """The definitions, stores and expressions in the body of a loop.

    Attributes:
        changing: the variables that it defines, but for those of unrolled loops, and the buffers that it allocates or
            writes.
        unrolled: the loops in it that are unrolled later, by their variables, which are constant in each copy.
        calls_functions: whether it calls functions, which may write any buffer.
        named: the variables of lets, by their values: they move with those that are candidates.
        exprs: the expressions, in order, parts of which a loop around it may move, and whether each iteration evaluates
            them.
    """

    def __init__(self) -> None:
        self.changing: set[Node] = set()
        self.unrolled: dict[Var, For] = {}
        self.calls_functions = False
        self.named: dict[Expr, Var] = {}
        self.exprs: list[tuple[Expr, bool]] = []

    def include(self, inner: _Contents, unconditional: bool) -> None:
        """Add the contents of a loop in it, of which each iteration surely runs one if ``unconditional``."""
        self.changing |= inner.changing
        self.unrolled.update(inner.unrolled)
        self.calls_functions = self.calls_functions or inner.calls_functions
        for value, var in inner.named.items():
            self.named.setdefault(value, var)
        self.exprs += inner.exprs if unconditional else [(expr, False) for expr, _ in inner.exprs]

    def leave(self, found: list[tuple[Expr, bool]] | None, moved: dict[Expr, Expr], mover: _Mover | None) -> None:
        """Keep what concerns the loops around this one.

        Args:
            found: the candidates of this loop, if those of the loops around it are parts of them; else None.
            moved: the values that replace the candidates that have moved.
            mover: replaces them, if there are any.
        """
        left = self.exprs if found is None else [each for each in found if each[0] not in moved]
        if mover is None:
            self.exprs = left
            return
        self.exprs = [(mover.mutate(expr), unconditional) for expr, unconditional in left]
        self.named = {mover.mutate(value): var for value, var in self.named.items() if moved.get(value) is not var}


class _LoopFacts:
    """A loop and the contents of its body."""

    def __init__(self, loop: For, inside: _Contents) -> None:
        self.loop = loop
        self.inside = inside

    def is_invariant(self, expr: Expr) -> bool:
        """Return whether ``expr``, which has no effect, has the same value in all iterations, or one value for each
        copy made by unrolled loops."""
        found, inside = leaves(expr), self.inside
        if self.loop.var in found or not inside.changing.isdisjoint(found):
            return False
        return not (inside.calls_functions and accesses_buffers(expr))

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
        return [loop for var, loop in self.inside.unrolled.items() if uses_var(expr, {var})]


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
        inside = self.candidates.inside(new)
        facts = _LoopFacts(new, inside)
        bindings: dict[Expr, _Binding] = {}
        moved: dict[Expr, Expr] = {}
        runs: bool | None = None
        found = self.candidates.of(facts)
        for expr, unconditional in found:
            if expr in moved:
                continue
            if may_fail(expr):
                if runs is None:
                    runs = self._surely_runs(new)
                if not (runs and unconditional):
                    continue
            bindings[expr] = _Binding.of(expr, facts.copies(expr), inside.named.get(expr))
            moved[expr] = bindings[expr].value
        mover = _Mover(moved) if moved else None
        if mover is not None:
            body: Stmt = mover.mutate(new.body)
            new = For(new.var, new.min, new.extent, new.kind, body, new.annotations)
        # More changes in the loops around this one: what they can move is a candidate here, too. That is so unless this
        # one is unrolled: then its variable is constant for them, and less is worth moving.
        inside.leave(None if new.kind == "unrolled" else found, moved, mover)
        self.candidates.finished[new] = inside
        result: Stmt = new
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
        #: The contents of the loops that have been processed.
        self.finished: dict[For, _Contents] = {}
        #: The worthy parts of visited expressions (see :meth:`_worthy`). Most expressions are indices without any.
        self._parts: dict[Expr, list[Expr]] = {}
        #: For the present loop: its facts, the candidates found in its body, and the visited expressions, separately
        #: for those that each iteration evaluates and the others.
        self._facts: _LoopFacts | None = None
        self._found: list[tuple[Expr, bool]] = []
        self._met: dict[bool, set[Expr]] = {}

    def inside(self, loop: For) -> _Contents:
        """Return the contents of the body of ``loop``. Inner loops must have been processed already."""
        contents = _Contents()
        self._collect(loop.body, True, contents)
        return contents

    def of(self, facts: _LoopFacts) -> list[tuple[Expr, bool]]:
        """Return the candidates in the body of a loop, in order and without repetition, and whether each iteration
        evaluates them."""
        self._facts = facts
        self._found = []
        self._met = {True: set(), False: set()}
        for expr, unconditional in facts.inside.exprs:
            self._add_largest(expr, unconditional)
        return self._found

    def _collect(self, stmt: Stmt, unconditional: bool, contents: _Contents) -> None:
        """Add what is in ``stmt`` to the contents."""
        if isinstance(stmt, SeqStmt):
            for inner in stmt.stmts:
                self._collect(inner, unconditional, contents)
        elif isinstance(stmt, BufferStore):
            contents.changing.add(stmt.buffer)
            self._keep(stmt.parts(), unconditional, contents)
        elif isinstance(stmt, For):
            extent = stmt.extent
            if stmt.kind == "unrolled" and isinstance(stmt.min, IntImm) and isinstance(extent, IntImm):
                contents.unrolled[stmt.var] = stmt
            else:
                contents.changing.add(stmt.var)
            runs = unconditional and isinstance(extent, IntImm) and extent.value > 0
            finished = self.finished.get(stmt)
            if finished is not None:
                contents.include(finished, runs)
            else:
                self._collect(stmt.body, runs, contents)
        elif isinstance(stmt, LetStmt):
            contents.changing.add(stmt.var)
            contents.named.setdefault(stmt.value, stmt.var)
            self._keep((stmt.value,), unconditional, contents)
            self._collect(stmt.body, unconditional, contents)
        elif isinstance(stmt, Allocate):
            contents.changing.add(stmt.buffer)
            self._collect(stmt.body, unconditional, contents)
        elif isinstance(stmt, IfThenElse):
            self._keep((stmt.condition,), unconditional, contents)
            self._collect(stmt.then_body, False, contents)
            if stmt.else_body is not None:
                self._collect(stmt.else_body, False, contents)
        elif isinstance(stmt, Evaluate) and isinstance(stmt.value, Call) and stmt.value.name.startswith("@"):
            contents.calls_functions = True

    def _keep(self, exprs: tuple[Expr, ...], unconditional: bool, contents: _Contents) -> None:
        """Add the expressions of which a part may be worth moving to the contents."""
        for expr in self._worthy(exprs):
            contents.exprs.append((expr, unconditional))

    def _add_largest(self, expr: Expr, unconditional: bool) -> None:
        """Add ``expr`` if it is a candidate, else those among its parts."""
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
        found = self._parts.get(expr)
        if found is None:
            found = self._parts[expr] = self._worthy(expr.parts())
        for part in found:
            self._add_largest(part, unconditional)

    def _worthy(self, exprs: tuple[Expr, ...]) -> list[Expr]:
        """Return the expressions that may be worth moving, or have parts that may be."""
        worthy: list[Expr] = []
        for expr in exprs:
            if isinstance(expr, (Var, IntImm, FloatImm)):
                continue
            if not expr.dtype.is_float and not _is_division(expr):
                parts = self._parts.get(expr)
                if parts is None:
                    parts = self._parts[expr] = self._worthy(expr.parts())
                if not parts:
                    continue
            worthy.append(expr)
        return worthy


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
