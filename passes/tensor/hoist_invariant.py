"""``HoistInvariant``: computes before a loop what is the same in all of its iterations::

    for i in range(8):                              let invariant: float32 = sqrt(v[0])
        b[i] = a[i] / sqrt(v[0])             ->     for i in range(8):
                                                        b[i] = a[i] / invariant

Only what costs something moves: divisions, calls, and loads where they are part of it or stand alone, of scalars that
do not change in the loop. An expression that reads memory, or divides integers, moves only out of a loop that surely
runs, and never out of a condition, so that nothing is evaluated that was not evaluated before. Lets inside the loop
that do not depend on it move with the same rules. Index arithmetic stays, as code generators move that themselves, but
for divisions by numbers that are not constant, which take longer than what they would be repeated for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.registry import register_pass
from tilewright.passes.tensor.parallelize_loop import expression_cost
from tilewright.passes.tensor.remove_no_op import has_effect
from tilewright.passes.tensor.scoped import ScopedMutator
from tilewright.passes.tensor.simplify import INTEGER_DIVISIONS
from tilewright.tensorir.expr import BinaryOp, Buffer, BufferLoad, Call, Expr, FloatImm, IntImm, Var
from tilewright.tensorir.functor import Mutator, accesses_buffers, leaves, walk
from tilewright.tensorir.stmt import Allocate, BufferStore, For, IfThenElse, LetStmt, PrimFunc, SeqStmt, Stmt
from tilewright.tensorir.structural import structural_equal, structural_hash

#: An expression that costs less than this is not worth a register for the length of a loop.
_MIN_COST = 1


class _LoopFacts:
    """What a loop body defines and writes."""

    def __init__(self, loop: For) -> None:
        self.variables: set[Var] = {loop.var}
        self.buffers: set[Buffer] = set()
        self.calls_functions = False
        for node in walk(loop.body):
            if isinstance(node, (For, LetStmt)):
                self.variables.add(node.var)
            elif isinstance(node, (Allocate, BufferStore)):
                self.buffers.add(node.buffer)
            elif isinstance(node, Call) and node.name.startswith("@"):
                self.calls_functions = True

    def is_invariant(self, expr: Expr) -> bool:
        """Whether ``expr`` has one value in all iterations."""
        found = leaves(expr)
        if not found.isdisjoint(self.variables) or not found.isdisjoint(self.buffers):
            return False
        return not (self.calls_functions and accesses_buffers(expr)) and not has_effect(expr)


def may_fail(expr: Expr) -> bool:
    """Whether evaluating ``expr`` where the program does not could trap."""
    return any(
        isinstance(node, BufferLoad) or (isinstance(node, BinaryOp) and node.op in INTEGER_DIVISIONS)
        for node in walk(expr)
    )


class _Hoister(ScopedMutator):
    def mutate_For(self, loop: For) -> Stmt:
        new = super().mutate_For(loop)
        if not isinstance(new, For) or new.kind == "parallel":
            return new  # one value for all threads would be one more thing to hand over to them
        facts = _LoopFacts(new)
        surely_runs = self.analyzer.prove(new.extent > 0)
        by_hash: dict[int, list[tuple[Expr, Var]]] = {}
        moved: dict[Expr, Var] = {}
        bindings: list[tuple[Expr, Var]] = []
        for expr, unconditional in _candidates(new.body, facts):
            if expr in moved or (may_fail(expr) and not (surely_runs and unconditional)):
                continue
            same = by_hash.setdefault(structural_hash(expr), [])
            binding = next((known for known in same if structural_equal(expr, known[0])), None)
            if binding is None:
                binding = (expr, Var("invariant", expr.dtype))
                same.append(binding)
                bindings.append(binding)
            moved[expr] = binding[1]
        if not moved:
            return new
        body = ExprReplacer(moved).mutate(new.body)
        result: Stmt = For(new.var, new.min, new.extent, new.kind, body, new.annotations)
        for expr, var in reversed(bindings):
            result = LetStmt(var, expr, result)
        return result


def _candidates(stmt: Stmt, facts: _LoopFacts, unconditional: bool = True) -> Iterator[tuple[Expr, bool]]:
    """The largest invariant expressions of a loop body that are worth moving, and whether each iteration evaluates
    them. Inner loops have had their own turn."""
    if isinstance(stmt, SeqStmt):
        for inner in stmt.stmts:
            yield from _candidates(inner, facts, unconditional)
    elif isinstance(stmt, BufferStore):
        for expr in (stmt.value, *stmt.indices, *([stmt.predicate] if stmt.predicate is not None else [])):
            for found in _largest(expr, facts):
                yield found, unconditional
    elif isinstance(stmt, LetStmt):
        for found in _largest(stmt.value, facts):
            yield found, unconditional
        yield from _candidates(stmt.body, facts, unconditional)
    elif isinstance(stmt, Allocate):
        yield from _candidates(stmt.body, facts, unconditional)
    elif isinstance(stmt, For):
        runs = isinstance(stmt.extent, IntImm) and stmt.extent.value > 0
        yield from _candidates(stmt.body, facts, unconditional and runs)
    elif isinstance(stmt, IfThenElse):
        for found in _largest(stmt.condition, facts):
            yield found, unconditional
        yield from _candidates(stmt.then_body, facts, unconditional=False)
        if stmt.else_body is not None:
            yield from _candidates(stmt.else_body, facts, unconditional=False)


def _largest(expr: Expr, facts: _LoopFacts) -> Iterator[Expr]:
    if isinstance(expr, (Var, IntImm, FloatImm)):
        return
    if isinstance(expr, Call) and expr.name in ("address_of", "prefetch"):
        return
    costly = expression_cost(expr) >= _MIN_COST if expr.dtype.is_float else _is_division(expr)
    if costly and facts.is_invariant(expr):
        if not _is_constant(expr):
            yield expr
        return
    for part in expr.parts():
        yield from _largest(part, facts)


def _is_division(expr: Expr) -> bool:
    """Whether ``expr`` is a division of scalar integers by what is not constant."""
    if not isinstance(expr, BinaryOp) or expr.op not in INTEGER_DIVISIONS or expr.dtype.lanes > 1:
        return False
    return not isinstance(expr.b, IntImm)


def _is_constant(expr: Expr) -> bool:
    return not any(isinstance(node, (Var, BufferLoad, Call)) for node in walk(expr))


class ExprReplacer(Mutator):
    """Puts others in place of expressions (the very nodes): variables that hold them, for instance."""

    def __init__(self, replaced: Mapping[Expr, Expr]) -> None:
        self.replaced = replaced

    def mutate(self, node: Any) -> Any:
        found = self.replaced.get(node) if isinstance(node, Expr) else None
        return found if found is not None else super().mutate(node)


def hoist_invariants(func: PrimFunc) -> PrimFunc:
    """``func`` with invariant expressions in front of their loops."""
    return func.with_body(_Hoister(func).mutate(func.body))


@register_pass
@primfunc_pass(opt_level=1, name="HoistInvariant")
class HoistInvariant(PrimFuncPass):
    """See the module."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """``func`` with invariant expressions in front of their loops."""
        return hoist_invariants(func)
