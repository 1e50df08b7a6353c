"""Derive the reasons for a kernel's speed: each is a fact, and what would change it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence

from tilewright.passes.diagnostics import Remark
from tilewright.runtime.build_settings import BuildSettings
from tilewright.runtime.observe.explain.loops import LoopFacts, Tail
from tilewright.runtime.observe.profile.profile import CallProfile
from tilewright.tensorir.expr import Var
from tilewright.tensorir.known_numbers import integer_value
from tilewright.tensorir.target import Target

#: Fraction of a roof from which on the roof is what limits a kernel.
AT_ROOF = 0.5

#: Time of the busiest thread, as a multiple of the mean of all, from which on it is said.
UNBALANCED = 1.25

_SCHEDULE, _PARALLEL, _VECTORS = "ScheduleKernels", "ParallelizeLoop", "VectorizeLoop"
_TOO_LITTLE_WORK = re.compile(r"(\d+) operations are less than min_work = (\d+)")
_LEVEL_OF_SCHEDULES, _FAST_LEVEL = 2, 3


@dataclasses.dataclass(frozen=True)
class Reason:
    """A fact about the speed of a kernel.

    Attributes:
        kind: ``"roof"``, ``"vectors"``, ``"tail"``, ``"threads"``, ``"copy"`` or ``"rule"``.
        text: a part of a sentence.
        change: the setting, layout or size that would change it; empty if there is none.
    """

    kind: str
    text: str
    change: str = ""


@dataclasses.dataclass(frozen=True)
class KernelFacts:
    """The known facts about a kernel.

    Attributes:
        remarks: the remarks of passes on it.
        loops: facts about its lowered loops.
        vector_bits: width of the vectors that do most of its work; 0 for none.
        sizes: its integer parameters, as far as they are known.
        target: the machine that it is compiled for.
        settings: the settings of the build.
        measured: its calls in a profile, merged; None if they were not measured.
    """

    remarks: Sequence[Remark]
    loops: LoopFacts
    vector_bits: int
    sizes: Mapping[Var, int]
    target: Target
    settings: BuildSettings
    measured: CallProfile | None

    def said(self, name: str, kind: str) -> list[str]:
        """Return the messages of a pass, of one kind."""
        return [remark.message for remark in self.remarks if remark.pass_name == name and remark.kind == kind]


def reasons(facts: KernelFacts) -> Iterator[Reason]:
    """Yield the reasons for a kernel's speed, the limit first."""
    call = facts.measured
    if call is not None and call.roof:
        yield _roof(call, facts.settings)
    scalar = facts.target.kind == "llvm" and not facts.vector_bits and facts.loops.has_loops
    if scalar:
        yield _no_vectors(facts)
    for tail in facts.loops.tails:
        yield _tail(tail)
    one_thread = _one_thread(facts)
    if one_thread is not None:
        yield one_thread
    elif call is not None and call.imbalance is not None and call.imbalance >= UNBALANCED:
        yield _unbalanced(call, call.imbalance)
    if scalar or (call is not None and call.roof and call.of_roof < AT_ROOF):
        yield from _rule(facts)


def _roof(call: CallProfile, settings: BuildSettings) -> Reason:
    percent = f"{100 * call.of_roof:.0f} %"
    where = f" (its data fit {call.level})" if call.bound == "memory" and call.level != "memory" else ""
    if call.of_roof < AT_ROOF:
        return Reason("roof", f"reaches {percent} of its {call.bound} roof{where}")
    change = "fewer bytes: a smaller type, or a larger batch for the same weights"
    if call.bound == "compute":
        faster = ", or opt_level 3, which may round differently" if settings.opt_level < _FAST_LEVEL else ""
        change = f"fewer or cheaper operations: a smaller type{faster}"
    return Reason("roof", f"{call.bound}-bound at {percent} of the roof{where}", change)


def _no_vectors(facts: KernelFacts) -> Reason:
    reason, change = _why_no_vectors(facts)
    return Reason("vectors", f"not vectorized, because {reason}", change)


def _why_no_vectors(facts: KernelFacts) -> tuple[str, str]:
    settings = facts.settings
    if _SCHEDULE in settings.disabled_pass:
        return "the pass ScheduleKernels is disabled", "leaving out disabled_pass=['ScheduleKernels']"
    if settings.opt_level < _LEVEL_OF_SCHEDULES and _SCHEDULE not in settings.required_pass:
        return f"loops are not scheduled at opt_level {settings.opt_level}", "opt_level 2 or 3"
    for message in facts.said(_SCHEDULE, "missed"):
        block, found, reason = message.partition(" is not vectorized: its lane dimension ")
        if found:
            name, _, extent = reason.partition(" has extent ")
            return (
                f"the lane dimension {name} of {block.removeprefix('block ')} has extent {extent}",
                f"a layout or a shape whose last dimension is longer than {extent}",
            )
    if not _is_enabled(settings):
        return "VectorizeLoop is told not to", "config tensorir.VectorizeLoop.enable=true"
    for message in facts.said(_VECTORS, "missed"):
        return message.replace(" is not vectorized: ", " cannot be: ", 1), ""
    for message in facts.said(_SCHEDULE, "missed"):
        return message, ""
    if any(message.startswith("keeps the loops") for message in facts.said(_SCHEDULE, "applied")):
        return "its loops were written by hand", "Schedule.vectorize, or the attribute schedule='auto'"
    if facts.loops.sums and settings.opt_level < _FAST_LEVEL:
        return (
            f"sums of floats keep their order at opt_level {settings.opt_level}",
            "opt_level 3, which may reorder sums",
        )
    return "no rule made vectors of its loops", ""


def _is_enabled(settings: BuildSettings) -> bool:
    with settings.context() as context:
        return bool(context.get_config("tensorir.VectorizeLoop").enable)


def _tail(tail: Tail) -> Reason:
    return Reason(
        "tail",
        f"masked tail of {tail.used} of {tail.lanes} lanes in {tail.buffer}",
        f"rows of {tail.buffer} whose length is a multiple of {tail.lanes}",
    )


def _one_thread(facts: KernelFacts) -> Reason | None:
    """Return why a kernel runs on one thread; None if it does not, or has no loops to share."""
    if not facts.loops.has_loops:
        return None
    if facts.target.num_threads == 1:
        return Reason("threads", "one thread, because the target has one", "Target(num_threads=) or --threads")
    if facts.loops.parallel:
        conditions = [condition for condition in facts.loops.parallel if condition is not None]
        if len(conditions) < len(facts.loops.parallel):
            return None
        held = [integer_value(condition, facts.sizes) for condition in conditions]
        if any(held):
            return None
        text = " or ".join(dict.fromkeys(str(condition) for condition in conditions))
        known = ", ".join(
            f"{var.name} = {value}" for var, value in facts.sizes.items() if re.search(rf"\b{var.name}\b", text)
        )
        change = f"sizes with {text}, or a smaller config tensorir.ParallelizeLoop.min_work"
        if any(value is None for value in held):
            return Reason("threads", f"one thread unless {text}", change)
        return Reason("threads", f"one thread, because the work is below the threshold {text} ({known})", change)
    missed = facts.said(_PARALLEL, "missed")
    works = [found for message in missed if (found := _TOO_LITTLE_WORK.search(message))]
    if works:
        most = max(int(found[1]) for found in works)
        return Reason(
            "threads",
            f"one thread, because the work of {most:,} operations is below the threshold of {int(works[0][2]):,}",
            "a larger batch, or a smaller config tensorir.ParallelizeLoop.min_work",
        )
    for message in missed:
        return Reason("threads", f"one thread, because {message.partition(': ')[2]}")
    change = "opt_level 2 or 3" if facts.settings.opt_level < _LEVEL_OF_SCHEDULES else ""
    return Reason("threads", "one thread, because none of its loops is parallel", change)


def _unbalanced(call: CallProfile, imbalance: float) -> Reason:
    change = "a larger batch, or cores that no other program uses"
    if call.threads == 1:
        return Reason("threads", "its loops are parallel, but one thread did all of the work", change)
    return Reason(
        "threads", f"its busiest thread works {imbalance:.1f} times as long as the mean of all threads", change
    )


def _rule(facts: KernelFacts) -> Iterator[Reason]:
    """Yield which rule scheduled a kernel, and why the one before it did not."""
    applied = [message for message in facts.said(_SCHEDULE, "applied") if message.startswith("scheduled by")]
    declined = facts.said(_SCHEDULE, "declined")
    if applied and declined:
        name, _, why = declined[-1].partition(" declined: ")
        yield Reason("rule", f"{applied[-1]}, after the rule {name!r} declined ({why})")
