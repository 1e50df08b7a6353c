"""Schedule elementwise formulas: fuse contiguous dimensions into rows, vectorize these and run the rest in parallel."""

from __future__ import annotations

import dataclasses

from tilewright.passes.schedule.cost import CHUNK, dims_of_tasks, vector_lanes
from tilewright.passes.schedule.facts import (
    Access,
    block_of,
    constant,
    loads,
    mergeable,
    product_of_extents,
    reductions,
    spatial,
    stores,
)
from tilewright.passes.schedule.loops import are_lanes
from tilewright.passes.schedule.rule import Declined, Nest, ScheduleRule, register_schedule_rule
from tilewright.tensorir.schedule import LoopRef, Schedule
from tilewright.tensorir.stmt import Block


@dataclasses.dataclass(frozen=True)
class ElementwisePlan:
    """Compute the elements of a block in vectors."""

    block: str = dataclasses.field(metadata={"doc": "the block; the other settings apply only to it"})
    lanes: int = dataclasses.field(metadata={"doc": "lanes of a vector, a power of two", "least": 2})
    rows: int = dataclasses.field(
        metadata={"doc": "leading dimensions that stay apart; the others become one", "least": 0}
    )
    chunk: int = dataclasses.field(
        default=CHUNK,
        metadata={"doc": "elements of a long row that one iteration of the parallel loop computes", "least": 2},
    )


@register_schedule_rule()
class ScheduleElementwise(ScheduleRule[ElementwisePlan]):
    """Vectorize and parallelize elementwise formulas."""

    name = "elementwise"
    plan = ElementwisePlan

    def match(self, nest: Nest) -> ElementwisePlan | Declined:
        """Plan a block that is no reduction and has its own loops."""
        assert nest.ref is not None
        block = nest.block
        items = spatial(block)
        if reductions(block):
            return Declined(f"block {block.name} is a reduction")
        if not items or len(nest.schedule.get_loops(nest.ref)) != len(items):
            return Declined(f"block {block.name} has a scalar result, or shares loops with other blocks")
        given = nest.given
        lanes = int(given.get("lanes", 0)) or vector_lanes(block, nest.target)
        chunk = int(given.get("chunk", CHUNK))
        if not are_lanes(lanes):
            return Declined(f"no vector has {lanes} lanes")
        if chunk % lanes:
            return Declined(f"chunk {chunk} is not a multiple of {lanes} lanes")
        if given.get("rows", 0) >= len(items):
            return Declined(
                f"block {block.name} has {len(items)} dimensions; rows must be fewer, found {given['rows']}"
            )
        return ElementwisePlan(block.name, lanes, int(given.get("rows", _separate_rows(block))), chunk)

    def apply(self, schedule: Schedule, plan: ElementwisePlan) -> None:
        """Vectorize the rows and fuse the loops around them into tasks."""
        schedule_elementwise(schedule, plan)


def _separate_rows(block: Block) -> int:
    """Return the number of leading dimensions that cannot be fused with the trailing contiguous ones."""
    items = spatial(block)
    accesses: list[Access] = [*stores(block), *loads(block)]
    first = len(items) - 1
    # Fusing a dimension with rows of unknown length would need a division for each lane.
    while first > 0 and product_of_extents(items[first:]) is not None:
        if not mergeable(accesses, items[first - 1], items[first]):
            break
        first -= 1
    return first


def schedule_elementwise(schedule: Schedule, plan: ElementwisePlan) -> None:
    """Schedule a block that is no reduction and has its own loops."""
    ref = schedule.get_block(plan.block)
    loops = list(schedule.get_loops(ref))
    items, lanes, first = spatial(block_of(schedule, ref)), plan.lanes, plan.rows
    length = product_of_extents(items[first:])
    row = schedule.fuse(*loops[first:]) if first < len(loops) - 1 else loops[-1]
    rows = loops[:first]
    if not rows:
        outer, inner = _split_vectors(schedule, row, length, lanes)
        _finish(schedule, outer, inner)
        return
    if length is not None and length <= plan.chunk:
        tasks = dims_of_tasks([constant(item.extent) for item in items[:first]], length, plan.chunk)
        outer = schedule.fuse(*rows[:tasks]) if tasks > 1 else rows[0]
        vectors, inner = _split_vectors(schedule, row, length, lanes)
        if vectors is None and inner is None:
            inner = row
        _finish(schedule, outer, inner)
        return
    chunks, vectors, inner = schedule.split(row, [None, plan.chunk // lanes, lanes])
    _finish(schedule, schedule.fuse(*rows, chunks), inner)


def _split_vectors(
    schedule: Schedule, row: LoopRef, length: int | None, lanes: int
) -> tuple[LoopRef | None, LoopRef | None]:
    """Split a row; return the loop over vectors and the loop over lanes. A row shorter than a vector is one (shorter)
    vector."""
    if length is not None and length <= lanes:
        return None, row if length > 1 else None
    outer, inner = schedule.split(row, [None, lanes])
    return outer, inner


def _finish(schedule: Schedule, outer: LoopRef | None, inner: LoopRef | None) -> None:
    if outer is not None:
        schedule.parallel(outer)
    if inner is not None:
        schedule.vectorize(inner)
