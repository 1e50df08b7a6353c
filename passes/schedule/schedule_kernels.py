"""ScheduleKernels: give each kernel loops that fit the machine.

For the target ``numba``, whose source is there to be read, only the outermost loops change: they run in parallel.
Otherwise the rules (``rule.schedule_rules``) are tried in order. A rule of whole kernels schedules all blocks at once,
if nothing is scheduled yet; neighbouring rules of blocks are offered one block after another, each to the first that
has a plan for it. What a rule plans, and why one declines, are remarks; so is a plan that the loops do not allow, and
the next one is tried, so that every kernel compiles, if not at its best.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.registry import register_pass
from tilewright.passes.schedule.facts import schedule_of
from tilewright.passes.schedule.inline import inline_producers
from tilewright.passes.schedule.plain import schedule_plainly
from tilewright.passes.schedule.rule import Declined, Nest, ScheduleRule, plan_text, schedule_rules
from tilewright.tensorir.errors import ScheduleError
from tilewright.tensorir.schedule import BlockRef, Schedule
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
        return apply_rules(schedule, target, ctx).func


def apply_rules(schedule: Schedule, target: Target, ctx: PassContext) -> Schedule:
    """The schedule after all rules."""
    first = schedule
    failed: dict[str, str] = {}
    for scope, group in itertools.groupby(schedule_rules(), key=_scope):
        rules = list(group)
        if scope == "kernel":
            schedule = _apply_first(rules, schedule, None, target, ctx, failed) if schedule is first else schedule
            continue
        for ref in schedule.get_blocks():
            if _has_plain_loops(schedule, ref):
                schedule = _apply_first(rules, schedule, ref, target, ctx, failed)
    for ref in schedule.get_blocks():
        if ref.name in failed and _has_plain_loops(schedule, ref):
            ctx.remark(f"block {ref.name} keeps its plain loops: {failed[ref.name]}", kind="missed")
    return schedule


def _scope(rule: ScheduleRule[Any]) -> str:
    return rule.scope


def _apply_first(
    rules: list[ScheduleRule[Any]],
    schedule: Schedule,
    ref: BlockRef | None,
    target: Target,
    ctx: PassContext,
    failed: dict[str, str],
) -> Schedule:
    """The schedule after the first of ``rules`` that fits, or as it was. ``failed`` is told why plans of blocks did not
    fit, by the name of the block."""
    nest = Nest(schedule, ref, target, ctx.is_fast)
    for rule in rules:
        found = rule.match(nest)
        if isinstance(found, Declined):
            ctx.remark(f"{rule.name} declined: {found.reason}", kind="declined")
            continue
        plans: Sequence[Any] = found if isinstance(found, Sequence) else (found,)
        for plan in plans:
            attempt = schedule.copy()
            try:
                rule.apply(attempt, plan)
            except ScheduleError as error:
                ctx.remark(f"the rule {rule.name!r} does not fit: {error.summary}", kind="missed")
                if ref is not None:
                    failed[ref.name] = error.summary
                continue
            ctx.remark(f"plan of {rule.name}: {plan_text(plan)}", kind="plan")
            ctx.remark(f"scheduled by the rule {rule.name!r}", kind="applied")
            return attempt
    return schedule


def _has_plain_loops(schedule: Schedule, ref: BlockRef) -> bool:
    """Whether a block, if it is still there, has loops around it, none of which is scheduled."""
    if ref.name not in {other.name for other in schedule.get_blocks()}:
        return False
    loops = [schedule.get(loop) for loop in schedule.get_loops(ref)]
    return bool(loops) and all(isinstance(loop, For) and loop.kind == "serial" for loop in loops)
