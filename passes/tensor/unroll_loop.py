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
from tilewright.passes.tensor.loops_in import loops_in
from tilewright.passes.tensor.lower_blocks import refuse_block
from tilewright.tensorir.expr import IntImm, Var, const
from tilewright.tensorir.stmt import Block, BufferStore, Evaluate, For, PrimFunc, SeqStmt, Stmt, sequence


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
        #: The loops that are unrolled, and those that neither change nor contain one that does.
        self.written_out: set[For] = set()
        self.unchanged: set[For] = set()
        #: The number of loops that change, and the blocks, among the statements planned so far.
        self.changes = 0
        self._blocks: list[Block] = []
        self._plan(func.body, config)

    def _plan(self, stmt: Stmt, config: UnrollLoopConfig) -> int:
        """Decide which loops in ``stmt`` are unrolled; return the resulting statements, loops counted once."""
        if type(stmt) is BufferStore or type(stmt) is Evaluate:
            return 1
        if type(stmt) is For:
            return self._plan_loop(stmt, config)
        if type(stmt) is SeqStmt:
            return sum([self._plan(part, config) for part in stmt.stmts])
        if type(stmt) is Block:
            self._blocks.append(stmt)
        return sum([self._plan(part, config) for part in stmt.parts() if isinstance(part, Stmt)])

    def _plan_loop(self, loop: For, config: UnrollLoopConfig) -> int:
        changes, blocks = self.changes, len(self._blocks)
        steps = max(1, self._plan(loop.body, config))
        is_unrolled = loop.kind == "unrolled"
        if type(loop.extent) is not IntImm:
            if is_unrolled:
                self._keep(loop, f"its extent {loop.extent!s} is not constant")
        else:
            copies = steps * loop.extent.value
            if is_unrolled and copies > config.max_unroll:
                self._keep(loop, f"{copies} statements are more than max_unroll = {config.max_unroll}")
            elif is_unrolled or (loop.kind == "serial" and 0 < copies <= config.auto_max_step and _is_innermost(loop)):
                if len(self._blocks) > blocks:  # copies would share its name
                    refuse_block(self._blocks[blocks])
                self.written_out.add(loop)
                self.changes += 1
                return copies
        if self.changes == changes:
            self.unchanged.add(loop)
        return steps

    def _keep(self, loop: For, reason: str) -> None:
        self.changes += 1
        self.ctx.remark(f"loop {loop.var.name} not unrolled: {reason}", "missed")

    def mutate_For(self, loop: For) -> Stmt:
        if loop not in self.written_out:
            if loop in self.unchanged and not self.values:  # nothing in it is replaced
                return loop
            return self.mutate_loop(loop, "serial" if loop.kind == "unrolled" else loop.kind)
        copies = self._stores(loop)
        if copies is not None:
            return copies[0] if len(copies) == 1 else SeqStmt(tuple(copies))
        low, extent = self.mutate(loop.min), loop.extent
        assert isinstance(extent, IntImm)
        if isinstance(low, IntImm):
            return sequence(*self.copies(loop.body, loop.var, range(low.value, low.value + extent.value)))
        values = [low + const(number, loop.var.dtype) for number in range(extent.value)]
        return sequence(*self.copies(loop.body, loop.var, values))

    def _stores(self, loop: For) -> list[Stmt] | None:
        """Return the copies of a store that is all the body of unrolled loops with constant bounds; None if there is no
        such store, or if one of its copies has to be made from another statement at a time."""
        nest: dict[Var, range] = {}
        body: Stmt = loop
        while type(body) is For and body in self.written_out:
            low, extent = body.min, body.extent
            if type(low) is not IntImm or type(extent) is not IntImm or extent.value < 1:
                return None
            nest[body.var] = range(low.value, low.value + extent.value)
            body = body.body
        return self.store_copies(body, nest) if type(body) is BufferStore else None


def _is_innermost(loop: For) -> bool:
    return not any(loops_in(loop.body))


def unroll_loops(func: PrimFunc, ctx: PassContext | None = None) -> PrimFunc:
    """Return ``func`` without unrolled loops."""
    ctx = ctx if ctx is not None else PassContext.current()
    unroller = _Unroller(func, ctx.get_config("tensorir.UnrollLoop"), ctx)
    return func.with_body(unroller.mutate(func.body)) if unroller.changes else func


@register_pass
@primfunc_pass(opt_level=0, name="UnrollLoop", requires={FLAT, SIMPLE, EFFECTIVE}, invalidates={TILES})
class UnrollLoop(PrimFuncPass):
    """See the module."""

    family = "schedule"
    essential = True

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """Return ``func`` without unrolled loops."""
        return unroll_loops(func, ctx)
