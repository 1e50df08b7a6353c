"""ScheduleKernels: give each kernel loops that fit the machine.

For the target ``numba``, whose source is there to be read, only the outermost loops change: they run in parallel.
Otherwise the rules (``rule.schedule_rules``) are tried in order. A rule of whole kernels schedules all blocks at once,
if nothing is scheduled yet; neighbouring rules of blocks are offered one block after another, each to the first that
has a plan for it. What a rule plans, and why one declines, are remarks; so is a plan that the loops do not allow, and
the next one is tried, so that every kernel compiles, if not at its best.

Fields of plans that somebody has set (:mod:`.settings`) hold where they fit. Where those of a context do not, a remark
says so, and the rule plans without them; an attribute of a function must fit.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.properties import BLOCKS, SCHEDULED, UNSCHEDULED
from tilewright.passes.registry import register_pass
from tilewright.passes.schedule.facts import schedule_of
from tilewright.passes.schedule.inline import inline_producers
from tilewright.passes.schedule.plain import schedule_plainly
from tilewright.passes.schedule.rule import Declined, Nest, ScheduleRule, offered_plans, schedule_rules
from tilewright.passes.schedule.settings import (
    NOTHING,
    FunctionSettings,
    given_text,
    is_setting,
    option_key,
    plan_text,
    settings_of,
)
from tilewright.tensorir.errors import PassError, ScheduleError
from tilewright.tensorir.schedule import BlockRef, Schedule
from tilewright.tensorir.stmt import For, PrimFunc
from tilewright.tensorir.target import Target


@register_pass
@primfunc_pass(
    opt_level=2, name="ScheduleKernels", requires={BLOCKS, UNSCHEDULED}, provides={SCHEDULED}, invalidates={UNSCHEDULED}
)
class ScheduleKernels(PrimFuncPass):
    """Tile, vectorize and parallelize the loop nests of a kernel for the current target."""

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
        return _without_settings(apply_rules(schedule, target, ctx).func)


def _without_settings(func: PrimFunc) -> PrimFunc:
    kept = {name: value for name, value in func.attrs.items() if not is_setting(name)}
    return func if len(kept) == len(func.attrs) else PrimFunc(func.name, func.params, func.body, kept)


def apply_rules(schedule: Schedule, target: Target, ctx: PassContext) -> Schedule:
    """The schedule after all rules.

    Raises:
        PassError: what an attribute of the function sets for a rule's plan fits none of its loops.
    """
    run = _Run(target, ctx, settings_of(schedule.func.attrs, ctx))
    first = schedule
    for scope, group in itertools.groupby(schedule_rules(), key=_scope):
        rules = list(group)
        if scope == "kernel":
            schedule = run.apply_first(rules, schedule, None) if schedule is first else schedule
            continue
        for ref in schedule.get_blocks():
            if _has_plain_loops(schedule, ref):
                schedule = run.apply_first(rules, schedule, ref)
    for ref in schedule.get_blocks():
        if ref.name in run.failed and _has_plain_loops(schedule, ref):
            ctx.remark(f"block {ref.name} keeps its plain loops: {run.failed[ref.name]}", kind="missed")
    run.check_settings()
    return schedule


def _scope(rule: ScheduleRule[Any]) -> str:
    return rule.scope


class _Run:
    """All rules, tried on the nests of one function.

    Attributes:
        failed: why plans of blocks did not fit, by the name of the block.
        refused: why nothing had the settings of a rule, by the rule's key.
        followed: keys of the rules whose settings some plan has.
    """

    def __init__(self, target: Target, ctx: PassContext, settings: FunctionSettings) -> None:
        self.target = target
        self.ctx = ctx
        self.settings = settings
        self.failed: dict[str, str] = {}
        self.refused: dict[str, str] = {}
        self.followed: set[str] = set()

    def apply_first(self, rules: list[ScheduleRule[Any]], schedule: Schedule, ref: BlockRef | None) -> Schedule:
        """The schedule after the first of ``rules`` that fits, or as it was."""
        for rule in rules:
            given = self.settings.of(rule.name, None if ref is None else ref.name)
            nest = Nest(schedule, ref, self.target, self.ctx.is_fast, given)
            after, said = self._apply(rule, nest)
            if given and after is not None:
                self.followed.add(option_key(rule.name))
            elif given:
                reason = self.refused[option_key(rule.name)] = said[-1][1] if said else f"{rule.name} offered no plan"
                after, said = self._apply(rule, dataclasses.replace(nest, given=NOTHING))
                if after is not None:
                    said = [("missed", f"planned without {given_text(given)}: {reason}"), *said]
            for kind, message in said:
                self.ctx.remark(message, kind=kind)
            if after is not None:
                self.ctx.remark(f"scheduled by the rule {rule.name!r}", kind="applied")
                return after
        return schedule

    def _apply(self, rule: ScheduleRule[Any], nest: Nest) -> tuple[Schedule | None, list[tuple[str, str]]]:
        """The schedule after the first plan of a rule that fits, None if there is none; and what to say of it."""
        plans = offered_plans(rule, nest)
        if isinstance(plans, Declined):
            return None, [("declined", f"{rule.name} declined: {plans.reason}")]
        said: list[tuple[str, str]] = []
        for plan in plans:
            attempt = nest.schedule.copy()
            try:
                rule.apply(attempt, plan)
            except ScheduleError as error:
                reason = ("missed", f"the rule {rule.name!r} does not fit: {error.summary}")
                said += [reason] if reason not in said else []  # plans that differ in numbers often fail alike
                if nest.ref is not None:
                    self.failed[nest.ref.name] = error.summary
                continue
            return attempt, [*said, ("plan", f"plan of {rule.name}: {plan_text(plan, nest.given)}")]
        return None, said

    def check_settings(self) -> None:
        """Say what an attribute of the function sets in vain.

        Raises:
            PassError: there is such.
        """
        for key in self.settings.own - self.followed:
            why = self.refused.get(key, "another rule schedules the function")
            raise PassError(
                f"attribute {key!r} of the function: {given_text(self.settings.given[key])} fits nothing: {why}"
            )


def _has_plain_loops(schedule: Schedule, ref: BlockRef) -> bool:
    """Whether a block, if it is still there, has loops around it, none of which is scheduled."""
    if ref.name not in {other.name for other in schedule.get_blocks()}:
        return False
    loops = [schedule.get(loop) for loop in schedule.get_loops(ref)]
    return bool(loops) and all(isinstance(loop, For) and loop.kind == "serial" for loop in loops)
