"""Run the outermost loop of each nest in parallel and leave all other loops as written."""

from __future__ import annotations

from collections.abc import Collection

from tilewright.passes.schedule.facts import block_of, spatial
from tilewright.passes.schedule.loops import uses_loop
from tilewright.tensorir.errors import ScheduleError
from tilewright.tensorir.schedule import Schedule


def schedule_plainly(schedule: Schedule, blocks: Collection[str] | None = None) -> Schedule:
    """Return the schedule with the outermost loop of every nest parallel where its iterations are independent.

    Args:
        blocks: the names of those whose loops may change; None: all.
    """
    for ref in schedule.get_blocks():
        if blocks is not None and ref.name not in blocks:
            continue
        loops = schedule.get_loops(ref)
        block = block_of(schedule, ref)
        if not loops or not any(uses_loop(item.value, loops[0]) for item in spatial(block)):
            continue
        attempt = schedule.copy()
        try:
            attempt.parallel(loops[0])
        except ScheduleError:
            continue  # several blocks share the loop, and one of them carries a value over its iterations
        schedule = attempt
    return schedule
