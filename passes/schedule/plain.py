"""Loops that stay as they were written, but that the outermost of each nest runs in parallel and that sums start before
their loops instead of in the first step."""

from __future__ import annotations

from tilewright.passes.schedule.facts import block_of, spatial
from tilewright.passes.schedule.inline import reduction_blocks
from tilewright.passes.schedule.reduction import loop_kinds, uses_loop
from tilewright.tensorir.errors import ScheduleError
from tilewright.tensorir.schedule import Schedule


def schedule_plainly(schedule: Schedule) -> Schedule:
    """The schedule with the outermost loop of every nest parallel where its iterations are independent, and the start
    of every reduction in a statement of its own."""
    for ref in reduction_blocks(schedule):
        loops = schedule.get_loops(ref)
        attempt = schedule.copy()
        kinds = loop_kinds(schedule, ref, loops)
        reduced = [loop for loop in loops if kinds[loop] == "reduction"]
        try:
            attempt.decompose_reduction(ref, reduced[0])
        except ScheduleError:
            continue  # the start stays in the first step
        schedule = attempt
    for ref in schedule.get_blocks():
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
