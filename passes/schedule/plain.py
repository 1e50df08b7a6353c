"""Run the outermost loop of each nest in parallel and leave all other loops as written."""

from __future__ import annotations

from collections.abc import Collection

from tilewright.passes.schedule.facts import block_of, loop_of, spatial
from tilewright.passes.schedule.loops import uses_loop
from tilewright.tensorir.errors import ScheduleError
from tilewright.tensorir.schedule import Schedule


def schedule_plainly(schedule: Schedule, blocks: Collection[str] | None = None) -> tuple[Schedule, list[str]]:
    """Return the schedule with the outermost loop of every nest parallel where its iterations are independent, and the
    reasons why other such loops are not.

    Args:
        blocks: the names of those whose loops may change; None: all.
    """
    reasons: list[str] = []
    for ref in schedule.get_blocks():
        if blocks is not None and ref.name not in blocks:
            continue
        loops = schedule.get_loops(ref)
        block = block_of(schedule, ref)
        if not loops or loop_of(schedule, loops[0]).kind == "parallel":
            continue
        if not any(uses_loop(item.value, loops[0]) for item in spatial(block)):
            reasons.append(f"block {ref.name} is not parallel: its outermost loop is a reduction")
            continue
        attempt = schedule.copy()
        try:
            attempt.parallel(loops[0])
        except ScheduleError as error:  # several blocks share the loop, and one carries a value over its iterations
            reasons.append(f"block {ref.name} is not parallel: {error.summary}")
            continue
        schedule = attempt
    return schedule, reasons
