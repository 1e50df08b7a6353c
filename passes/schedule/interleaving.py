"""Schedule formulas that put several rows side by side: a stack along the last axis, real and imaginary parts in turn.

The last dimension of such a block is short, and each position in it reads something else. Along it vectors would be
short, and select lane by lane. Instead vectors lie along the dimension before it, one for each position, which are
interleaved when they are stored::

    for vectors in parallel(..):
      for position in range(3):             # annotated "interleave"
        for row in vectorized(16): ...

The pass ``InterleaveStores`` shuffles the vectors of the annotated loop in registers.
"""

from __future__ import annotations

import dataclasses

from tilewright.passes.schedule.cost import vector_lanes
from tilewright.passes.schedule.facts import (
    Access,
    block_of,
    loads,
    mergeable,
    product_of_extents,
    spatial,
    stores,
)
from tilewright.passes.schedule.loops import are_lanes
from tilewright.passes.schedule.positions import interleaves
from tilewright.passes.schedule.rule import Declined, Nest, ScheduleRule, register_schedule_rule
from tilewright.tensorir.keys import INTERLEAVE
from tilewright.tensorir.schedule import BlockRef, Schedule
from tilewright.tensorir.stmt import Block


@dataclasses.dataclass(frozen=True)
class InterleavingPlan:
    """Compute a block in vectors along the dimension before the last."""

    block: str = dataclasses.field(metadata={"doc": "the block; the other settings apply only to it"})
    lanes: int = dataclasses.field(metadata={"doc": "lanes of a vector, a power of two", "least": 2})


@register_schedule_rule(before="elementwise")
class ScheduleInterleaving(ScheduleRule[InterleavingPlan]):
    """Interleave vectors in registers where each position of a short last dimension has a formula of its own."""

    name = "interleaving"
    plan = InterleavingPlan

    def match(self, nest: Nest) -> InterleavingPlan | Declined:
        """Plan a block whose positions along its last dimension read along the dimension before it."""
        assert nest.ref is not None
        block = nest.block
        if len(nest.schedule.get_loops(nest.ref)) != len(block.iters):
            return Declined(f"block {block.name} shares loops with other blocks")
        if not interleaves(block):
            return Declined(f"block {block.name} does not put vectors side by side along its last dimension")
        lanes = int(nest.given.get("lanes", 0)) or vector_lanes(block, nest.target)
        if not are_lanes(lanes):
            return Declined(f"no vector has {lanes} lanes")
        rows = product_of_extents(spatial(block)[_first_row(block) : -1])
        if rows is not None and rows < lanes:
            return Declined(f"block {block.name} has {rows} rows, fewer than the {lanes} lanes of a vector")
        return InterleavingPlan(block.name, lanes)

    def apply(self, schedule: Schedule, plan: InterleavingPlan) -> None:
        """Vectorize the rows, and run the vectors in parallel."""
        schedule_interleaving(schedule, schedule.get_block(plan.block), plan.lanes)


def _first_row(block: Block) -> int:
    """Return the number of the first of the dimensions before the last that can become one."""
    items = spatial(block)
    accesses: list[Access] = [*stores(block), *loads(block)]
    first = len(items) - 2
    while first > 0 and mergeable(accesses, items[first - 1], items[first]):
        first -= 1
    return first


def schedule_interleaving(schedule: Schedule, ref: BlockRef, lanes: int) -> None:
    """Schedule a block whose positions along the last dimension are vectors of their own."""
    first = _first_row(block_of(schedule, ref))
    *loops, position = schedule.get_loops(ref)
    rows = schedule.fuse(*loops[first:]) if first < len(loops) - 1 else loops[-1]
    vectors, row = schedule.split(rows, [None, lanes])
    schedule.reorder(position, row)
    schedule.vectorize(row)
    schedule.annotate(position, INTERLEAVE, True)
    schedule.parallel(schedule.fuse(*loops[:first], vectors) if first else vectors)
