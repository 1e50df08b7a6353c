"""Declare schedule rules: objects that plan how a nest of loops runs, tried in an order that users extend.

A rule looks at a nest and offers a plan, which is a frozen dataclass of numbers, names and flags, or several, best
first; or it declines and says why. The pass ``ScheduleKernels`` applies the first plan that the loops allow::

    @register_schedule_rule(before="contraction")
    class ScheduleScans(ScheduleRule[ScanPlan]):
        \"\"\"Run a sum along each row, row by row.\"\"\"

        name = "scans"

        def match(self, nest: Nest) -> ScanPlan | Declined:
            if not is_scan(nest.block):
                return Declined(f"block {nest.block.name} is no running sum")
            return ScanPlan(nest.block.name, lanes=nest.target.lanes(FLOAT32))

        def apply(self, schedule: Schedule, plan: ScanPlan) -> None:
            schedule.parallel(schedule.get_loops(schedule.get_block(plan.block))[0])

What a plan is, what was declined, and which plan the loops did not allow are remarks (kinds ``"plan"``, ``"declined"``
and ``"missed"``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from tilewright.tensorir.errors import PassError
from tilewright.tensorir.expr import BufferLoad
from tilewright.tensorir.lazy import Registry
from tilewright.tensorir.schedule import BlockRef, Schedule
from tilewright.tensorir.stmt import Block, IterVar
from tilewright.tensorir.target import Target


@dataclasses.dataclass(frozen=True)
class Declined:
    """Why a rule has no plan for a nest."""

    reason: str


def plan_text(plan: Any) -> str:
    """Return a plan, a frozen dataclass of numbers, names, flags and parts of the same kind, as a line of text."""
    fields = [field for field in dataclasses.fields(plan) if getattr(plan, field.name) != field.default]
    return ", ".join(f"{field.name} {_shown(getattr(plan, field.name))}" for field in fields)


def _shown(value: Any) -> str:
    if isinstance(value, IterVar):
        return value.var.name
    if isinstance(value, BufferLoad):
        return value.buffer.name
    if dataclasses.is_dataclass(value) and not isinstance(value, BlockRef):
        return f"({plan_text(value)})"
    return str(value)


@dataclasses.dataclass(frozen=True)
class Nest:
    """What a rule looks at: all blocks of a kernel that nothing has scheduled yet, or one block in loops of its own.

    Attributes:
        ref: the block; None for rules of whole kernels.
        reassociate: whether sums of floats may be added up in another order.
    """

    schedule: Schedule
    ref: BlockRef | None
    target: Target
    reassociate: bool

    @property
    def block(self) -> Block:
        """The one block."""
        assert self.ref is not None, "rules of whole kernels have no one block"
        found = self.schedule.get(self.ref)
        assert isinstance(found, Block)
        return found


P = TypeVar("P")


class ScheduleRule(Generic[P]):
    """A way to schedule nests of loops.

    Attributes:
        name: what remarks call it.
        scope: ``"kernel"`` for rules that schedule all blocks of a kernel at once, ``"block"`` for others.
    """

    name: ClassVar[str]
    scope: ClassVar[str] = "block"

    def match(self, nest: Nest) -> P | Sequence[P] | Declined:
        """Return a plan for a nest, or several, best first; or why there is none. The schedule stays as it is."""
        raise NotImplementedError(f"{type(self).__name__}.match")

    def apply(self, schedule: Schedule, plan: P) -> None:
        """Change ``schedule``, a copy of the nest's, as ``plan`` says. ``Target.current()`` is the nest's target.

        Raises:
            ScheduleError: the loops do not allow it. The copy is dropped then, and the next plan is tried.
        """
        raise NotImplementedError(f"{type(self).__name__}.apply")


R = TypeVar("R", bound="type[ScheduleRule[Any]]")

#: The rules with the name of the rule that each goes before, as they were registered.
_RULES: Registry[str, tuple[ScheduleRule[Any], str | None]] = Registry("tilewright.passes.schedule.all_rules")


def register_schedule_rule(*, before: str | None = None) -> Callable[[R], R]:
    """Add a rule to those that ``ScheduleKernels`` tries. Registering a name again replaces the rule.

    Args:
        before: the rule that it goes right before; None: it is the last.
    """

    def register(rule: R) -> R:
        _RULES[rule.name] = rule(), before
        return rule

    return register


def unregister_schedule_rule(name: str) -> None:
    """Take a rule out again, for tests and notebooks.

    Raises:
        PassError: there is none of that name.
    """
    if name not in _RULES:
        raise PassError(f"no schedule rule {name!r}; registered: {', '.join(rule.name for rule in schedule_rules())}")
    del _RULES[name]


def schedule_rules() -> list[ScheduleRule[Any]]:
    """The rules in the order in which they are tried.

    Raises:
        PassError: a rule goes before one that is not registered, or several before each other in a circle.
    """
    waiting = list(_RULES.values())
    ordered: list[ScheduleRule[Any]] = []
    while waiting:
        names = [rule.name for rule in ordered]
        placed = [entry for entry in waiting if entry[1] is None or entry[1] in names]
        if not placed:
            unknown = ", ".join(f"{rule.name!r} before {before!r}" for rule, before in waiting)
            raise PassError(f"schedule rules without a place: {unknown}")
        for rule, before in placed:
            place = len(ordered) if before is None else [other.name for other in ordered].index(before)
            ordered.insert(place, rule)
        waiting = [entry for entry in waiting if entry not in placed]
    return ordered
