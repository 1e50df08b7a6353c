"""ScheduleKernels: each kernel gets loops that fit the machine.

For the target ``numba``, whose source is there to be read, only the outermost loops change: they run in parallel.
Otherwise the rules are, first match: two sums of products with rows between them are computed in strips of rows
(``chained``), or row by row where rows share nothing (``single_rows``); a sum of products is tiled into registers
(``contraction``); reductions along rows run row by row (``rows``); formulas that are chosen by their
place are computed tile by tile (``cases``); what is left is scheduled block by block. A rule that does not fit leaves
a remark and the next one is tried, so that every kernel compiles, if not at its best.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.registry import register_pass
from tilewright.passes.schedule.cases import schedule_cases
from tilewright.passes.schedule.chained import schedule_chained
from tilewright.passes.schedule.columns import schedule_columns
from tilewright.passes.schedule.contraction import schedule_contraction
from tilewright.passes.schedule.elementwise import schedule_elementwise
from tilewright.passes.schedule.facts import block_of, contraction, reductions, schedule_of
from tilewright.passes.schedule.inline import inline_producers, reduction_blocks
from tilewright.passes.schedule.plain import schedule_plainly
from tilewright.passes.schedule.rows import schedule_rows
from tilewright.passes.schedule.single_rows import schedule_single_rows
from tilewright.tensorir.errors import ScheduleError
from tilewright.tensorir.schedule import LoopRef, Schedule
from tilewright.tensorir.stmt import For, PrimFunc
from tilewright.tensorir.target import Target


@register_pass
@primfunc_pass(opt_level=2, name="ScheduleKernels")
class ScheduleKernels(PrimFuncPass):
    """Tiles, vectorizes and parallelizes the loop nests of a kernel for the current target."""

    family = "schedule"

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """``func`` with scheduled loops."""
        target = Target.current()
        schedule = schedule_of(func, ctx)
        if schedule is None:
            return func
        inline_producers(schedule)
        if target.kind == "numba":
            return schedule_plainly(schedule).func
        reassociate = ctx.is_fast
        contractions = [ref for ref in reduction_blocks(schedule) if contraction(block_of(schedule, ref)) is not None]
        before = schedule
        for rule, apply in (("chained", schedule_chained), ("single rows", schedule_single_rows)):
            if schedule is before:
                schedule = self._try(schedule, ctx, rule, apply, target, reassociate)
        if schedule is not before:
            return schedule_rest(schedule, target, ctx).func
        for ref in contractions:
            schedule = self._try(schedule, ctx, "contraction", schedule_contraction, ref, target, reassociate)
        if not reduction_blocks(schedule):
            schedule = self._try(schedule, ctx, "cases", schedule_cases, target)
        elif not contractions:
            schedule = self._try(schedule, ctx, "rows", schedule_rows, target, reassociate)
        return schedule_rest(schedule, target, ctx).func

    def _try(
        self, schedule: Schedule, ctx: PassContext, rule: str, apply: Callable[..., bool], *arguments: object
    ) -> Schedule:
        """The schedule after a rule (``apply``), or as it was where the rule does not fit."""
        attempt = schedule.copy()
        try:
            if apply(attempt, *arguments):
                ctx.remark(f"scheduled by the rule {rule!r}", kind="applied")
                return attempt
        except ScheduleError as error:
            ctx.remark(f"the rule {rule!r} does not fit: {error.summary}", kind="missed")
        return schedule


def schedule_rest(schedule: Schedule, target: Target, ctx: PassContext) -> Schedule:
    """Schedule each block that still has its own plain loops, one by one; one that cannot be keeps them, with a
    remark that says why."""
    for ref in schedule.get_blocks():
        if ref.name not in {other.name for other in schedule.get_blocks()}:
            continue
        block = block_of(schedule, ref)
        loops = schedule.get_loops(ref)
        if not loops or any(_is_marked(schedule, loop) for loop in loops):
            continue
        attempt = schedule.copy()
        try:
            if reductions(block):
                schedule_columns(attempt, ref, target)
            else:
                schedule_elementwise(attempt, ref, target)
        except ScheduleError as error:
            ctx.remark(f"block {ref.name} keeps its plain loops: {error.summary}", kind="missed")
            continue
        schedule = attempt
    return schedule


def _is_marked(schedule: Schedule, loop: LoopRef) -> bool:
    found = schedule.get(loop)
    return isinstance(found, For) and found.kind != "serial"
