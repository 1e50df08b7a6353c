"""Schedule reductions along other dimensions than the contiguous one (pooling, a sum over the first axis).

Neighbouring results become the lanes of vectors, each of which accumulates in a register.
"""

from __future__ import annotations

import dataclasses

from tilewright.passes.schedule.elementwise import vector_lanes
from tilewright.passes.schedule.facts import block_of, constant, reductions, spatial, stores
from tilewright.passes.schedule.partial_results import (
    accumulate_results,
)
from tilewright.passes.schedule.rule import Declined, Nest, ScheduleRule, register_schedule_rule
from tilewright.passes.schedule.stages import epilogue_of
from tilewright.tensorir.schedule import BlockRef, Schedule


@dataclasses.dataclass(frozen=True)
class ColumnsPlan:
    """Accumulate ``lanes`` neighbouring results of a block in a register."""

    block: str
    lanes: int


@register_schedule_rule(before="transposition")
class ScheduleColumns(ScheduleRule[ColumnsPlan]):
    """Let neighbouring results of a reduction be the lanes of a vector that accumulates in a register."""

    name = "columns"

    def match(self, nest: Nest) -> ColumnsPlan | Declined:
        """Plan for a reduction with results along some dimension."""
        assert nest.ref is not None
        block = nest.block
        if not reductions(block):
            return Declined(f"block {block.name} reduces nothing")
        if len(nest.schedule.get_loops(nest.ref)) != len(block.iters):
            return Declined(f"block {block.name} shares its loops")
        if len(stores(block)) != 1 or not spatial(block):
            return Declined(f"block {block.name} has a single result, or several buffers for them")
        return ColumnsPlan(block.name, vector_lanes(block, nest.target))

    def apply(self, schedule: Schedule, plan: ColumnsPlan) -> None:
        """Tile the results by vectors, sum inside."""
        schedule_columns(schedule, schedule.get_block(plan.block), plan.lanes)


def schedule_columns(schedule: Schedule, ref: BlockRef, lanes: int) -> None:
    """Schedule one reduction so that neighbouring results are the lanes of a vector that accumulates in a register."""
    block = block_of(schedule, ref)
    last = epilogue_of(schedule, ref)
    if last is None:
        last = schedule.cache_write(ref, 0, "register")
    schedule.set_scope(ref, 0, "register")
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
