"""Declare schedule rules: objects that plan the schedule of a loop nest, tried in an order that users can extend.

A rule matches a nest and offers a plan, which is a frozen dataclass of numbers, names and flags, or several, best
first; or it declines with a reason. The pass ``ScheduleKernels`` applies the first plan that the loops allow::

    @dataclass(frozen=True)
    class ScanPlan:
        block: str
        lanes: int = field(metadata={"doc": "lanes of a vector", "least": 2})

    @register_schedule_rule(before="contraction")
    class ScheduleScans(ScheduleRule[ScanPlan]):
        \"\"\"Run a sum along each row, row by row.\"\"\"

        name = "scans"
        plan = ScanPlan

        def match(self, nest: Nest) -> ScanPlan | Declined:
            if not is_scan(nest.block):
                return Declined(f"block {nest.block.name} is no running sum")
            return ScanPlan(nest.block.name, lanes=nest.given.get("lanes", nest.target.lanes(FLOAT32)))

        def apply(self, schedule: Schedule, plan: ScanPlan) -> None:
            schedule.parallel(schedule.get_loops(schedule.get_block(plan.block))[0])

Users can set fields of plans (:mod:`.settings`): ``nest.given`` holds those that are set, for rules that derive other
fields from them; the plan that is applied always has them. Plans, declined nests and plans that the loops did not
allow are reported as remarks (kinds ``"plan"``, ``"declined"`` and ``"missed"``).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Generic, TypeVar, cast

from tilewright.passes.schedule.settings import Given, declare_settings, forget_settings, with_settings
from tilewright.tensorir.errors import PassError
from tilewright.tensorir.lazy import Registry
from tilewright.tensorir.schedule import BlockRef, Schedule
from tilewright.tensorir.stmt import Block
from tilewright.tensorir.target import Target


@dataclasses.dataclass(frozen=True)
class Declined:
    """The answer of a rule that has no plan for a nest, with the reason."""

    reason: str


@dataclasses.dataclass(frozen=True)
class Nest:
    """The blocks that a rule matches: all of a kernel that is not scheduled yet, or one in loops of its own.

    Attributes:
        ref: the block; None for rules of whole kernels.
        reassociate: whether sums of floats may be reassociated.
        given: fields of the plan that are set.
    """

    schedule: Schedule
    ref: BlockRef | None
    target: Target
    reassociate: bool
    given: Given = dataclasses.field(default_factory=dict)

    @property
    def block(self) -> Block:
        """The block that a rule of blocks matches."""
        assert self.ref is not None, "a rule for whole kernels has no block"
        found = self.schedule.get(self.ref)
        assert isinstance(found, Block)
        return found


P = TypeVar("P")


class ScheduleRule(Generic[P]):
    """A way to schedule nests of loops.

    Attributes:
        name: its name in remarks and options.
        plan: the class of its plans.
        scope: ``"kernel"`` for rules that schedule all blocks of a kernel at once, ``"block"`` for others.
    """

    name: ClassVar[str]
    plan: ClassVar[type[Any]]
    scope: ClassVar[str] = "block"

    def match(self, nest: Nest) -> P | Iterable[P] | Declined:
        """Return a plan for a nest, or several, best first; or decline. The schedule must not be changed.

        Further plans of an iterator are computed only when the earlier ones do not fit.
        """
        raise NotImplementedError(f"{type(self).__name__}.match")

    def apply(self, schedule: Schedule, plan: P) -> None:
        """Apply ``plan`` to ``schedule``, a copy of the nest's. ``Target.current()`` is the nest's target.

        Raises:
            ScheduleError: the loops do not allow the plan. The copy is dropped then, and the next plan is tried.
        """
        raise NotImplementedError(f"{type(self).__name__}.apply")


def offered_plans(rule: ScheduleRule[P], nest: Nest) -> Iterator[P] | Declined:
    """Return the plans of a rule for a nest, best first, with the fields that are set; or why there are none."""
    found = rule.match(nest)
    if isinstance(found, Declined):
        return found
    plans = cast("Iterable[P]", (found,) if dataclasses.is_dataclass(found) else found)
    return (with_settings(plan, nest.given) for plan in plans)


R = TypeVar("R", bound="type[ScheduleRule[Any]]")

#: The rules in order of registration, each with the name of the rule that it goes before.
_RULES: Registry[str, tuple[ScheduleRule[Any], str | None]] = Registry("tilewright.passes.schedule.all_rules")


def register_schedule_rule(*, before: str | None = None) -> Callable[[R], R]:
    """Register a rule that ``ScheduleKernels`` tries, and the fields of its plans as configuration. Registering a name
    again replaces the rule.

    Args:
        before: name of the rule that it goes right before; None: it becomes the last.

    Raises:
        PassError: the rule's plans are no dataclass of plain data.
    """

    def register(rule: R) -> R:
        known = _RULES.registered(rule.name, rule.__module__)
        if known is not None:
            forget_settings(rule.name, known[0].plan)
        declare_settings(rule.name, getattr(rule, "plan", None))
        _RULES[rule.name] = rule(), before
        return rule

    return register


def unregister_schedule_rule(name: str) -> None:
    """Remove a rule and its settings, for tests and notebooks.

    Raises:
        PassError: no rule of that name is registered.
    """
    if name not in _RULES:
        raise PassError(f"no schedule rule {name!r}; registered: {', '.join(rule.name for rule in schedule_rules())}")
    forget_settings(name, _RULES[name][0].plan)
    del _RULES[name]


def schedule_rules() -> list[ScheduleRule[Any]]:
    """Return the rules in the order in which they are tried.

    Raises:
        PassError: a rule goes before one that is not registered, or the order has a cycle.
    """
    return list(_in_order(tuple(_RULES.values())))


@functools.lru_cache(maxsize=8)
def _in_order(rules: tuple[tuple[ScheduleRule[Any], str | None], ...]) -> tuple[ScheduleRule[Any], ...]:
    """Return registered rules in the order in which they are tried; raises as :func:`schedule_rules` does."""
    waiting = list(rules)
    ordered: list[ScheduleRule[Any]] = []
    while waiting:
        names = [rule.name for rule in ordered]
        placed = [entry for entry in waiting if entry[1] is None or entry[1] in names]
        if not placed:
            unknown = ", ".join(f"{rule.name!r} before {before!r}" for rule, before in waiting)
            raise PassError(f"schedule rules before an unknown rule, or in a cycle: {unknown}")
        for rule, before in placed:
            place = len(ordered) if before is None else [other.name for other in ordered].index(before)
            ordered.insert(place, rule)
        waiting = [entry for entry in waiting if entry not in placed]
    return tuple(ordered)
