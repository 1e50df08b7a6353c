"""``UnrollLoop``: writes out the iterations of unrolled loops::

    for i in unrolled(3):               b[0] = a[0]
        b[i] = a[i]              ->     b[1] = a[1]
                                        b[2] = a[2]

The options decide what else is unrolled (short serial loops) and what is too long to be. A loop whose extent is not
constant, or that would grow beyond ``max_unroll`` statements, becomes serial, with a remark.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.config import register_config_option
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.registry import register_pass
from tilewright.tensorir.expr import Expr, IntImm, Var, const
from tilewright.tensorir.functor import Mutator, copy_with_fresh_definitions, walk_statements
from tilewright.tensorir.stmt import BufferStore, Evaluate, For, PrimFunc, Stmt, sequence


@register_config_option("tensorir.UnrollLoop")
@dataclass(frozen=True)
class UnrollLoopConfig:
    """Options of ``UnrollLoop``."""

    auto_max_step: int = dataclasses.field(
        default=0, metadata={"doc": "innermost serial loops of at most this many statements in all are unrolled too"}
    )
    max_unroll: int = dataclasses.field(
        default=1024, metadata={"doc": "loops that would become more statements than this stay loops"}
    )


class _Unroller(Mutator):
    def __init__(self, config: UnrollLoopConfig, ctx: PassContext) -> None:
        self.config, self.ctx = config, ctx

    def mutate_For(self, loop: For) -> Stmt:
        innermost = not any(isinstance(node, For) for node in walk_statements(loop.body))
        body: Stmt = self.mutate(loop.body)
        extent = loop.extent
        if loop.kind == "unrolled":
            if not isinstance(extent, IntImm):
                return self._keep(loop, body, f"its extent {extent!s} is not constant")
            steps = extent.value * count_steps(body)
            if steps > self.config.max_unroll:
                return self._keep(loop, body, f"{steps} statements are more than max_unroll = {self.config.max_unroll}")
            return unroll(loop.var, loop.min, extent.value, body)
        short = isinstance(extent, IntImm) and 0 < extent.value * count_steps(body) <= self.config.auto_max_step
        if isinstance(extent, IntImm) and loop.kind == "serial" and innermost and short:
            return unroll(loop.var, loop.min, extent.value, body)
        if body is loop.body:
            return loop
        return For(loop.var, loop.min, extent, loop.kind, body, loop.annotations)

    def _keep(self, loop: For, body: Stmt, reason: str) -> Stmt:
        self.ctx.remark(f"loop {loop.var.name} is not unrolled: {reason}", "missed")
        return For(loop.var, loop.min, loop.extent, "serial", body, loop.annotations)


def count_steps(stmt: Stmt) -> int:
    """Statements that a run of ``stmt`` executes, loops inside counted once."""
    return max(1, sum(isinstance(node, (BufferStore, Evaluate)) for node in walk_statements(stmt)))


def unroll(var: Var, low: Expr, extent: int, body: Stmt) -> Stmt:
    """``extent`` copies of ``body``, one for each value of ``var`` from ``low``, each with its own definitions."""
    numbers = [low + const(number, var.dtype) for number in range(extent)]
    return sequence(*[copy_with_fresh_definitions(body, values={var: number}) for number in numbers])


def unroll_loops(func: PrimFunc, ctx: PassContext | None = None) -> PrimFunc:
    """``func`` without unrolled loops."""
    ctx = ctx if ctx is not None else PassContext.current()
    return func.with_body(_Unroller(ctx.get_config("tensorir.UnrollLoop"), ctx).mutate(func.body))


@register_pass
@primfunc_pass(opt_level=0, name="UnrollLoop")
class UnrollLoop(PrimFuncPass):
    """See the module."""

    family = "schedule"
    essential = True

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """``func`` without unrolled loops."""
        return unroll_loops(func, ctx)
