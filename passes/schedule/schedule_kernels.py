"""ScheduleKernels: schedule the loops of each kernel for the target.

Producers are inlined first (:mod:`.inline`). For the target ``numba``, whose source is meant to be read, only the
outermost loops change: they run in parallel. Otherwise pieces of concatenations get their own loops (:mod:`.pieces`),
and the rules (``rule.schedule_rules``) are tried in order. A rule of whole kernels schedules all blocks at once,
if nothing is scheduled yet. Consecutive rules of blocks form a group: each block is scheduled by the first rule of the
group that has a plan for it. Plans, reasons for declining, and plans that the loops do not allow are reported as
remarks; after the latter the next plan is tried, so that every kernel compiles, even if not with its best plan.

A function scheduled by hand (attribute ``schedule``: ``manual``) stays as it is, but for blocks that are
annotated with ``schedule``: ``auto``, to which the rules of blocks are offered.

Fields of plans that the user has set (:mod:`.settings`) are used where they fit. Where those of a context do not fit,
a remark says so, and the rule plans without them; those of a function's attributes must fit.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.properties import BLOCKS, SCHEDULED, UNSCHEDULED
from tilewright.passes.registry import register_pass
from tilewright.passes.schedule.facts import constant, is_manual, schedule_of
from tilewright.passes.schedule.inline import inline_producers
from tilewright.passes.schedule.pieces import separate_pieces
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
from tilewright.tensorir.functor import walk_statements
from tilewright.tensorir.keys import AUTO, SCHEDULE_MODE
from tilewright.tensorir.schedule import BlockRef, Schedule
from tilewright.tensorir.schedule.nests import blocks_in, walk_nests
from tilewright.tensorir.stmt import Allocate, Block, For, PrimFunc, SeqStmt, Stmt
from tilewright.tensorir.target import Target


@register_pass
@primfunc_pass(
    opt_level=2, name="ScheduleKernels", requires={BLOCKS, UNSCHEDULED}, provides={SCHEDULED}, invalidates={UNSCHEDULED}
)
class ScheduleKernels(PrimFuncPass):
    """Tile, vectorize and parallelize the loop nests of a kernel for the current target."""

    family = "schedule"

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """Return ``func`` with scheduled loops."""
        target = Target.current()
        if is_manual(func):
            return self._manual(func, target, ctx)
        schedule = schedule_of(func, ctx)
        if schedule is None:
            return func
        if SCHEDULE_MODE in func.attrs:
            ctx.remark(f"its loops are scheduled (attribute {SCHEDULE_MODE!r})", kind="note")
        for reason in inline_producers(schedule):
            ctx.remark(reason)
        if target.kind == "numba":
            return self._plain(schedule, ctx).func
        schedule, divided = separate_pieces(schedule)
        for reason in divided:
            ctx.remark(reason, kind="applied")
        scheduled = apply_rules(schedule, target, ctx).func
        _remark_on_single_lanes(scheduled, ctx)
        return _without_settings(scheduled)

    def _manual(self, func: PrimFunc, target: Target, ctx: PassContext) -> PrimFunc:
        """``func`` with the loops that it has, but for those of blocks that are annotated otherwise."""
        for name in func.attrs:
            if is_setting(name):
                raise PassError(f"attribute {name!r} of the function: its loops stay as they are ({SCHEDULE_MODE!r})")
        handed = [
            stmt.name
            for stmt in walk_statements(func.body)
            if isinstance(stmt, Block) and stmt.annotations.get(SCHEDULE_MODE) == AUTO
        ]
        but = f" but for those of {', '.join(handed)}" if handed else ""
        ctx.remark(f"keeps the loops that it was given{but} (attribute {SCHEDULE_MODE!r})", kind="applied")
        schedule = schedule_of(func, ctx) if handed else None
        if schedule is None:
            return func
        if target.kind == "numba":
            return self._plain(schedule, ctx, handed).func
        return apply_rules(schedule, target, ctx, handed).func

    def _plain(self, schedule: Schedule, ctx: PassContext, blocks: Sequence[str] | None = None) -> Schedule:
        """Schedule for readers: only the outermost loops change."""
        schedule, reasons = schedule_plainly(schedule, blocks)
        for reason in reasons:
            ctx.remark(reason, kind="missed")
        return schedule


def _without_settings(func: PrimFunc) -> PrimFunc:
    kept = {name: value for name, value in func.attrs.items() if not is_setting(name)}
    return func if len(kept) == len(func.attrs) else PrimFunc(func.name, func.params, func.body, kept)


def apply_rules(schedule: Schedule, target: Target, ctx: PassContext, blocks: Sequence[str] | None = None) -> Schedule:
    """Apply all rules; return the schedule.

    Args:
        blocks: the names of those that rules are for; None: all.

    Raises:
        PassError: an attribute of the function sets fields of a plan that fit none of its loops.
    """
    run = _Run(target, ctx, settings_of(schedule.func.attrs, ctx))
    first = schedule
    for scope, group in itertools.groupby(schedule_rules(), key=_scope):
        rules = list(group)
        if scope == "kernel" and blocks is not None:
            continue
        if scope == "kernel":
            schedule = run.apply_first(rules, schedule, None) if schedule is first else schedule
            continue
        for ref in schedule.get_blocks():
            if (blocks is None or ref.name in blocks) and run.has_plain_loops(schedule, ref):
                schedule = run.apply_first(rules, schedule, ref)
    for ref in schedule.get_blocks():
        if ref.name in run.failed and run.has_plain_loops(schedule, ref):
            ctx.remark(f"block {ref.name} not scheduled: {run.failed[ref.name]}", kind="missed")
    run.check_settings()
    return schedule


def _remark_on_single_lanes(func: PrimFunc, ctx: PassContext) -> None:
    """Say which blocks have vectors of one lane: code generation makes them plain loops."""
    found: dict[str, str] = {}
    for loop in walk_nests(func.body):
        if isinstance(loop, For) and loop.kind == "vectorized" and constant(loop.extent) == 1:
            found |= dict.fromkeys([block.name for block in blocks_in(loop.body)], loop.var.name)
    for block, name in found.items():
        ctx.remark(f"block {block} is not vectorized: its lane dimension {name} has extent 1", kind="missed")


def _scope(rule: ScheduleRule[Any]) -> str:
    return rule.scope


class _Run:
    """Try all rules on the nests of one function.

    Attributes:
        failed: reasons why plans of blocks did not fit, by the name of the block.
        refused: reasons why no plan with the settings of a rule fitted, by the rule's key.
        followed: keys of the rules whose settings some applied plan has.
    """

    def __init__(self, target: Target, ctx: PassContext, settings: FunctionSettings) -> None:
        self.target = target
        self.ctx = ctx
        self.settings = settings
        self.failed: dict[str, str] = {}
        self.refused: dict[str, str] = {}
        self.followed: set[str] = set()
        self._plain: tuple[Schedule, set[str]] | None = None

    def apply_first(self, rules: list[ScheduleRule[Any]], schedule: Schedule, ref: BlockRef | None) -> Schedule:
        """Apply the first of ``rules`` that fits; return the schedule, unchanged if none fits."""
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
        """Apply the first plan of a rule that fits; return the schedule, None if there is none, and the remarks."""
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

    def has_plain_loops(self, schedule: Schedule, ref: BlockRef) -> bool:
        """Return whether a block still exists and is enclosed in loops, none of which is scheduled."""
        if self._plain is None or self._plain[0] is not schedule:
            self._plain = schedule, _plain_blocks(schedule.func.body)
        return ref.name in self._plain[1]

    def check_settings(self) -> None:
        """Check that all settings in attributes of the function were used.

        Raises:
            PassError: a setting fits no loops.
        """
        for key in self.settings.own - self.followed:
            why = self.refused.get(key, "another rule schedules the function")
            raise PassError(
                f"attribute {key!r} of the function: {given_text(self.settings.given[key])} applies to none of its "
                f"blocks: {why}"
            )


def _plain_blocks(body: Stmt) -> set[str]:
    """Return the names of the blocks that are enclosed in loops, none of which is scheduled."""
    found: set[str] = set()
    waiting = [(body, False)]
    while waiting:
        stmt, is_inside = waiting.pop()
        if isinstance(stmt, For):
            if stmt.kind == "serial":
                waiting.append((stmt.body, True))
        elif isinstance(stmt, SeqStmt):
            waiting += [(part, is_inside) for part in stmt.stmts]
        elif isinstance(stmt, Allocate):
            waiting.append((stmt.body, is_inside))
        elif isinstance(stmt, Block) and is_inside:
            found.add(stmt.name)
    return found
