"""``Simplify``: simplify expressions and conditions by the loop ranges and conditions around them::

    for i in range(4):                              for i in range(4):
        for j in range(16):                             for j in range(16):
            if i * 16 + j < 64:              ->             b[i * 16 + j] = a[i]
                b[i * 16 + j] = a[(i * 16 + j) // 16]

Loops of one iteration and decided conditions are removed, nested conditions are merged, and expressions are brought to
canonical form. Float arithmetic keeps its rounding below opt_level 3; there, ``assumes_finite`` decides whether rules
apply that are wrong for infinities and NaN, such as ``x * 0 -> 0``.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.config import register_config_option
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.properties import FORMULAS, SIMPLE, TILES
from tilewright.passes.registry import register_pass
from tilewright.passes.tensor.scoped import ScopedMutator
from tilewright.tensorir.expr import BinaryOp, Broadcast, Compare, Expr, IntImm, all_of, const
from tilewright.tensorir.functor import CALLS, DIVISIONS, LOADS, kinds, substitute
from tilewright.tensorir.node import notes_on
from tilewright.tensorir.stmt import Block, BufferStore, For, IfThenElse, PrimFunc, SeqStmt, Stmt, sequence


class _Simplifier(ScopedMutator):
    def mutate(self, node: Any) -> Any:
        if not isinstance(node, Expr):
            return super().mutate(node)
        if type(node) is IntImm:
            return node
        found = self.analyzer.canonical(node)
        return self._split_least(found) if type(found) is Compare else found

    def _split_least(self, expr: Compare) -> Expr:
        """Rewrite ``i * 4 + j == 0`` with nonnegative terms as ``i == 0 and j == 0``, by which loops can be split."""
        if expr.op != "eq" or not isinstance(expr.b, IntImm) or expr.b.value != 0:
            return expr
        terms = _summands(expr.a)
        if len(terms) < 2 or not all(self.analyzer.bounds(term).lower >= 0 for term in terms):
            return expr
        zero = const(0, expr.a.dtype)
        return all_of(*(self.simplify(Compare("eq", term, zero)) for term in terms))

    def mutate_SeqStmt(self, op: SeqStmt) -> Stmt:
        stmts = self.mutate_all(op.stmts)
        if stmts is op.stmts and len(stmts) != 1 and not any(isinstance(stmt, SeqStmt) for stmt in stmts):
            return op
        return sequence(*stmts)

    def mutate_BufferStore(self, op: BufferStore) -> Stmt:
        value, indices, predicate = self.mutate(op.value), self.analyzer.all_canonical(op.indices), op.predicate
        if predicate is not None:
            predicate = self.mutate(predicate)
            known = predicate.value if isinstance(predicate, Broadcast) else predicate
            if isinstance(known, IntImm):
                return BufferStore(op.buffer, value, indices) if known.value else sequence()
        if predicate is not op.predicate:
            return BufferStore(op.buffer, value, indices, predicate)
        return op if value is op.value and indices is op.indices else op.with_operands(value, indices)

    def mutate_For(self, loop: For) -> Stmt:
        low = loop.min if type(loop.min) is IntImm else self.mutate(loop.min)
        extent = loop.extent if type(loop.extent) is IntImm else self.mutate(loop.extent)
        if isinstance(extent, IntImm):
            if extent.value == 1:
                return self.mutate(substitute(loop.body, {loop.var: low}))  # type: ignore[no-any-return]
            if extent.value <= 0:
                return sequence()
        elif self.analyzer.prove(extent <= 0):
            return sequence()
        body = self.mutate_in_loop(loop.var, low, extent, loop.body)
        if is_empty(body):
            return body
        if low is loop.min and extent is loop.extent:
            return loop.with_body(body)
        return For(loop.var, low, extent, loop.kind, body, loop.annotations)

    def mutate_IfThenElse(self, op: IfThenElse) -> Stmt:
        condition = self.mutate(op.condition)
        if isinstance(condition, IntImm):
            chosen = op.then_body if condition.value else op.else_body
            return sequence() if chosen is None else self.mutate(chosen)
        result = super().mutate_IfThenElse(op if condition is op.condition else _with_condition(op, condition))
        if not isinstance(result, IfThenElse):
            return result
        then_body, else_body = result.then_body, result.else_body
        if else_body is not None and is_empty(else_body):
            else_body = None
        if is_empty(then_body) and else_body is None:
            return sequence()
        if else_body is None and isinstance(then_body, IfThenElse) and _may_merge(then_body):
            return IfThenElse(all_of(result.condition, then_body.condition), then_body.then_body)
        if then_body is result.then_body and else_body is result.else_body:
            return result
        return IfThenElse(result.condition, then_body, else_body)

    def mutate_Block(self, op: Block) -> Stmt:
        with self.analyzer.scope():
            for item in op.iters:
                self.analyzer.bind(item.var, item.min, item.extent)
            return self.generic_mutate(op)  # type: ignore[no-any-return]


def _may_merge(inner: IfThenElse) -> bool:
    """Return whether ``inner`` has no else and its condition may be evaluated where the one around it does not hold."""
    return inner.else_body is None and not _reads(inner.condition)


def _with_condition(op: IfThenElse, condition: Expr) -> IfThenElse:
    return IfThenElse(condition, op.then_body, op.else_body)


def _reads(condition: Expr) -> bool:
    """Return whether the condition reads memory or divides, which the outer condition may guard."""
    return bool(kinds(condition) & (LOADS | CALLS | DIVISIONS))


def _summands(expr: Expr) -> list[Expr]:
    if isinstance(expr, BinaryOp) and expr.op == "add":
        return _summands(expr.a) + _summands(expr.b)
    return [expr]


def is_empty(stmt: Stmt) -> bool:
    """Return whether ``stmt`` is an empty sequence."""
    return isinstance(stmt, SeqStmt) and all(is_empty(inner) for inner in stmt.stmts)


def simplify(func: PrimFunc, *, fast: bool = False) -> PrimFunc:
    """Return ``func`` simplified; ``fast`` allows float arithmetic to round differently."""
    return func.with_body(_Simplifier(func, fast=fast).mutate(func.body))


@register_config_option("tensorir.Simplify")
@dataclasses.dataclass(frozen=True)
class SimplifyConfig:
    """Options of ``Simplify``."""

    assumes_finite: bool = dataclasses.field(
        default=True,
        metadata={"doc": "whether from opt_level 3 on floats are simplified as if none were infinite or NaN"},
    )


@register_pass
@primfunc_pass(opt_level=0, name="Simplify", requires={FORMULAS, TILES}, provides={SIMPLE})
class Simplify(PrimFuncPass):
    """See the module."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """Return ``func`` simplified."""
        config: SimplifyConfig = ctx.get_config("tensorir.Simplify")
        fast = ctx.is_fast and config.assumes_finite
        if notes_on(func).get(Simplify) is fast:  # no pass has changed it since the last run
            return func
        result = simplify(func, fast=fast)
        notes_on(result)[Simplify] = fast
        return result
