"""``PrefetchPanels``: prefetch the panel of a matrix that the next tiles read while the present tiles are computed::

    for o in range(12):
        for t in range(16):
            for k in range(768):
                ... w[ramp(o * 24576 + k * 32, 1, 16)], w[ramp(o * 24576 + k * 32 + 16, 1, 16)] ...

    ->          for k in range(768):
                    prefetch(w[o * 24576 + 24576 + (t * 768 + k) * 11 // 4])
                    ...

The panel of ``o`` is read again for every ``t``, from L2; the first time it comes from memory, and the multiply-adds of
that ``t`` wait for it, because the hardware prefetcher detects a new panel only once it is read. The weights of a
network do not fit into any cache, so each layer waits, for a tenth of its time with 128 rows and longer with fewer. The
same holds for the rows of a tile if the other operand does not fit, as they come in separate pieces, and for rows that
are read several times (a softmax, a layer norm), where memory is idle after the first time.

Here every iteration fetches a few bytes of the panel of ``o + 1``, so many that the whole panel has arrived when three
quarters of ``t`` are done. Places beyond the last panel do no harm: a prefetch is a hint.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.properties import FLAT, FORMULAS, TILES, VECTORS
from tilewright.passes.registry import register_pass
from tilewright.passes.tensor.large_operands import large_operands
from tilewright.passes.tensor.loops_in import has_inner_loops, is_written_out
from tilewright.passes.tensor.panels import Panel, PanelFinder
from tilewright.tensorir.dtype import INT64, VOID
from tilewright.tensorir.expr import Buffer, BufferLoad, Call, Expr, IntImm, as_expr, cast, minimum
from tilewright.tensorir.stmt import Evaluate, For, PrimFunc, Stmt, sequence
from tilewright.tensorir.target import CACHE_LINE, Target

#: The amount that an iteration fetches is rounded up to this precision: data after the next panel is not needed yet.
_PRECISION = 16

#: Smaller panels, in bytes, arrive before a prefetch could help.
LEAST_PANEL = 2 << 10


class _Prefetcher(PanelFinder):
    def __init__(self, func: PrimFunc, large: Mapping[Buffer, int], target: Target, ctx: PassContext) -> None:
        super().__init__(func, large, target)
        self.ctx = ctx

    def mutate_For(self, loop: For) -> Stmt:
        if is_written_out(loop):  # reads of its copies are at constant distances
            return super().mutate_For(loop) if has_inner_loops(loop.body) else loop
        self.loops.append(loop)
        try:
            if has_inner_loops(loop.body):
                return super().mutate_For(loop)
            fetched = [stmt for panel in self.panels(loop.body) for stmt in self._prefetches(panel)]
            if not fetched:
                return loop
            return For(loop.var, loop.min, loop.extent, loop.kind, sequence(*fetched, loop.body), loop.annotations)
        finally:
            self.loops.pop()

    def _prefetches(self, panel: Panel) -> list[Stmt]:
        element = panel.buffer.dtype.bytes
        steps, parts = self.iterations(panel.walked), self.iterations(panel.fixed)
        # This panel and the next one have to fit into L2; kernels of symbolic sizes assume that they do.
        whole = self.simplify(parts * panel.size * element)
        if isinstance(whole, IntImm) and not LEAST_PANEL <= whole.value <= self.cache // 2:
            return []
        tiles = panel.sharing
        tile = position((panel.outer.var - panel.outer.min) % panel.sharing, panel.repeated)
        for loop in panel.repeated:
            tiles = self.simplify(tiles * cast(INT64, loop.extent))
        line = CACHE_LINE // element
        if isinstance(tiles, IntImm):
            if isinstance(panel.size, IntImm) and isinstance(steps, IntImm):
                size, times = panel.size.value, tiles.value * steps.value
                soon = times * 3 // 4  # as the last ones take time to arrive
            else:  # for each step, in quarters
                share = self.share(panel.size, steps)
                assert share is not None
                size, times, soon = share * 4, tiles.value * 4, tiles.value * 3
            fraction = 0
            while size << fraction < _PRECISION * soon:
                fraction += 1
            total = -(-(size << fraction) // soon)
            lines = -(-size // (times * line))  # but not for another line in each iteration
            total = min(total, lines * line << fraction)
            offset = position(tile, panel.walked) * total // (1 << fraction)
        else:  # a line in each step of the first tiles, however many there are
            total, fraction = line, 0
            offset = minimum(tile * (steps * line), panel.size) + position(as_expr(0), panel.walked) * line
        place = cast(INT64, panel.following) + offset
        self.ctx.remark(
            f"prefetched the panel of {panel.buffer.name} for the next iteration of loop {panel.outer.var.name}",
            "applied",
        )
        return [
            Evaluate(Call("prefetch", (BufferLoad(panel.buffer, (self.simplify(place + ahead),)),), VOID))
            for ahead in range(0, -(-total >> fraction), line)
        ]


def position(start: Expr, loops: list[For]) -> Expr:
    """Return the number of an iteration of nested loops, inside iteration ``start`` of the loops around them."""
    for loop in loops:
        start = start * cast(INT64, loop.extent) + cast(INT64, loop.var - loop.min)
    return start


def prefetch_panels(func: PrimFunc, target: Target | None = None, ctx: PassContext | None = None) -> PrimFunc:
    """Return ``func`` with the next panels of large operands prefetched.

    Args:
        target: the machine in whose L2 cache two panels have to fit; by default :meth:`Target.current`.
        ctx: takes the remarks; by default the current one.
    """
    target = target if target is not None else Target.current()
    if target.kind != "llvm":
        return func
    ctx = ctx if ctx is not None else PassContext.current()
    large = large_operands(func)
    return func.with_body(_Prefetcher(func, large, target, ctx).mutate(func.body)) if large else func


@register_pass
@primfunc_pass(opt_level=2, name="PrefetchPanels", requires={FLAT, VECTORS, FORMULAS, TILES})
class PrefetchPanels(PrimFuncPass):
    """See the module. ``target``: default :meth:`Target.current`."""

    def __init__(self, target: Target | None = None) -> None:
        self.target = target

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """Return ``func`` with the next panels of large operands prefetched."""
        return prefetch_panels(func, self.target, ctx)
