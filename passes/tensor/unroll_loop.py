"""``UnrollLoop``: replace unrolled loops by copies of their bodies::

    for i in unrolled(3):                         b[x * 64] = a[0] * 2.0
        b[x * 64 + i * 16] = a[i] * 2.0    ->     b[x * 64 + 16] = a[1] * 2.0
                                                  b[x * 64 + 32] = a[2] * 2.0

It runs last, so that the other passes process the body once, not each copy. The copies are folded as they are made
(:mod:`.copies`): selections by the loop's variable, branches, masks. The options decide which other loops are unrolled
(short serial loops) and which are too long. A loop whose extent is not constant, or that would grow beyond
``max_unroll`` statements, becomes serial, with a remark.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.config import register_config_option
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.properties import EFFECTIVE, FLAT, SIMPLE, TILES
from tilewright.passes.registry import register_pass
from tilewright.passes.tensor.copies import FoldingCopier
from tilewright.passes.tensor.lower_blocks import refuse_block
from tilewright.tensorir.expr import IntImm, const
from tilewright.tensorir.functor import walk_statements
from tilewright.tensorir.stmt import Block, BufferStore, Evaluate, For, PrimFunc, Stmt, sequence


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


class _Unroller(FoldingCopier):
    def __init__(self, func: PrimFunc, config: UnrollLoopConfig, ctx: PassContext) -> None:
        super().__init__(func)
        self.ctx = ctx
        #: The loops that are unrolled.
        self.written_out: set[For] = set()
        self._plan(func.body, config)

    def _plan(self, stmt: Stmt, config: UnrollLoopConfig) -> int:
        """Decide which loops in ``stmt`` are unrolled; return the resulting statements, loops counted once."""
        if not isinstance(stmt, For):
            if isinstance(stmt, (BufferStore, Evaluate)):
                return 1
            return sum([self._plan(part, config) for part in stmt.parts() if isinstance(part, Stmt)])
        steps = max(1, self._plan(stmt.body, config))
        if not isinstance(stmt.extent, IntImm):
            if stmt.kind == "unrolled":
                self._keep(stmt, f"its extent {stmt.extent!s} is not constant")
            return steps
        copies = steps * stmt.extent.value
        if stmt.kind == "unrolled" and copies > config.max_unroll:
            self._keep(stmt, f"{copies} statements are more than max_unroll = {config.max_unroll}")
        elif stmt.kind == "unrolled" or (
            stmt.kind == "serial" and 0 < copies <= config.auto_max_step and _is_innermost(stmt)
        ):
            for node in walk_statements(stmt.body):
                if isinstance(node, Block):  # copies would share its name
                    refuse_block(node)
            self.written_out.add(stmt)
            return copies
        return steps

    def _keep(self, loop: For, reason: str) -> None:
        self.ctx.remark(f"loop {loop.var.name} not unrolled: {reason}", "missed")

    def mutate_For(self, loop: For) -> Stmt:
        if loop not in self.written_out:
            return self.mutate_loop(loop, "serial" if loop.kind == "unrolled" else loop.kind)
        low, extent = self.mutate(loop.min), loop.extent
        assert isinstance(extent, IntImm)
        if isinstance(low, IntImm):
            return sequence(*self.copies(loop.body, loop.var, range(low.value, low.value + extent.value)))
        values = [low + const(number, loop.var.dtype) for number in range(extent.value)]
        return sequence(*self.copies(loop.body, loop.var, values))


def _is_innermost(loop: For) -> bool:
    return not any(isinstance(node, For) for node in walk_statements(loop.body))


def unroll_loops(func: PrimFunc, ctx: PassContext | None = None) -> PrimFunc:
    """Return ``func`` without unrolled loops."""
    ctx = ctx if ctx is not None else PassContext.current()
    return func.with_body(_Unroller(func, ctx.get_config("tensorir.UnrollLoop"), ctx).mutate(func.body))


@register_pass
@primfunc_pass(opt_level=0, name="UnrollLoop", requires={FLAT, SIMPLE, EFFECTIVE}, invalidates={TILES})
class UnrollLoop(PrimFuncPass):
    """See the module."""

    family = "schedule"
    essential = True

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """Return ``func`` without unrolled loops."""
        return unroll_loops(func, ctx)
