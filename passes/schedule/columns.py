"""Schedule reductions along dimensions other than the contiguous one (pooling, a sum over the first axis).

Neighbouring results become the lanes of vectors, each of which accumulates in a register. Each vector is a task; there
is a single task where all results fit one vector.
"""

from __future__ import annotations

import dataclasses

from tilewright.passes.schedule.cost import vector_lanes
from tilewright.passes.schedule.facts import block_of, constant, reductions, spatial, stores
from tilewright.passes.schedule.loops import are_lanes
from tilewright.passes.schedule.partial_results import accumulate_results
from tilewright.passes.schedule.rule import Declined, Nest, ScheduleRule, register_schedule_rule
from tilewright.passes.schedule.stages import epilogue_of
from tilewright.tensorir.schedule import BlockRef, Schedule


@dataclasses.dataclass(frozen=True)
class ColumnsPlan:
    """Accumulate neighbouring results of a block in a register."""

    block: str = dataclasses.field(metadata={"doc": "the block that reduces; the other settings apply only to it"})
    lanes: int = dataclasses.field(metadata={"doc": "neighbouring results in a vector, a power of two", "least": 2})


@register_schedule_rule(before="transposition")
class ScheduleColumns(ScheduleRule[ColumnsPlan]):
    """Make neighbouring results of a reduction the lanes of a vector that accumulates in a register."""

    name = "columns"
    plan = ColumnsPlan

    def match(self, nest: Nest) -> ColumnsPlan | Declined:
        """Plan a reduction with results along some dimension."""
        assert nest.ref is not None
        block = nest.block
        if not reductions(block):
            return Declined(f"block {block.name} is not a reduction")
        if len(nest.schedule.get_loops(nest.ref)) != len(block.iters):
            return Declined(f"block {block.name} shares loops with other blocks")
        if len(stores(block)) != 1 or not spatial(block):
            return Declined(f"block {block.name} has a scalar result, or several stores")
        lanes = int(nest.given.get("lanes", 0)) or vector_lanes(block, nest.target)
        if not are_lanes(lanes):
            return Declined(f"no vector has {lanes} lanes")
        return ColumnsPlan(block.name, lanes)

    def apply(self, schedule: Schedule, plan: ColumnsPlan) -> None:
        """Tile the results by vectors and reduce inside."""
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
    if not outer and extent == 1:
        return  # one result, in one register
    at = outer[-1] if outer else None
    if at is not None:
        schedule.compute_at(ref, at)
    for stage in accumulate_results(schedule, ref, at):
        schedule.vectorize(schedule.get_loops(stage)[-1])
    if extent is None or extent > 1:
        schedule.vectorize(inner)
    if outer:
        schedule.parallel(schedule.fuse(*outer) if len(outer) > 1 else outer[0])
