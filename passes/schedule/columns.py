"""Schedule reductions along other dimensions than the contiguous one (pooling, a sum over the first axis).

Neighbouring results become the lanes of vectors, each of which accumulates in a register.
"""

from __future__ import annotations

from tilewright.passes.schedule.elementwise import vector_lanes
from tilewright.passes.schedule.facts import block_of, constant, spatial, stores
from tilewright.passes.schedule.partial_results import (
    accumulate_results,
)
from tilewright.passes.schedule.stages import epilogue_of
from tilewright.tensorir.schedule import BlockRef, Schedule
from tilewright.tensorir.target import Target


def schedule_columns(schedule: Schedule, ref: BlockRef, target: Target) -> None:
    """Schedule one reduction so that neighbouring results are the lanes of a vector that accumulates in a register."""
    block = block_of(schedule, ref)
    loops = schedule.get_loops(ref)
    if len(loops) != len(block.iters) or len(stores(block)) != 1 or not spatial(block):
        return
    last = epilogue_of(schedule, ref)
    if last is None:
        last = schedule.cache_write(ref, 0, "register")
    schedule.set_scope(ref, 0, "register")
    lanes = vector_lanes(block, target)
    own = schedule.get_loops(last)
    extent = constant(spatial(block)[-1].extent)
    outer, inner = own[:-1], own[-1]
    if extent is None or extent > lanes:
        vectors, inner = schedule.split(inner, [None, lanes])
        outer = [*outer, vectors]
    if not outer:
        return
    at = outer[-1]
    schedule.compute_at(ref, at)
    for stage in accumulate_results(schedule, ref, at):
        schedule.vectorize(schedule.get_loops(stage)[-1])
    if extent is None or extent > 1:
        schedule.vectorize(inner)
    schedule.parallel(schedule.fuse(*outer) if len(outer) > 1 else outer[0])
