"""Schedule reductions along the contiguous dimension (softmax, layer norm, a sum over the last axis) row by row.

The rows run in parallel, all stages of a row are computed together, and each reduction keeps one partial result for
each lane of a few vectors.
"""

from __future__ import annotations

import dataclasses

from tilewright.passes.schedule.cost import PARTIAL_VECTORS
from tilewright.passes.schedule.facts import block_of, constant, spatial
from tilewright.passes.schedule.inline import has_contraction, reduction_blocks
from tilewright.passes.schedule.partial_results import (
    is_row_reduction,
    split_partial_results,
    vectorize_stage,
)
from tilewright.passes.schedule.rule import Declined, Nest, ScheduleRule, register_schedule_rule
from tilewright.tensorir.errors import ScheduleError
from tilewright.tensorir.expr import Expr
from tilewright.tensorir.schedule import BlockRef, LoopRef, Schedule
from tilewright.tensorir.target import Target


@dataclasses.dataclass(frozen=True)
class RowsPlan:
    """Compute all stages row by row."""

    reassociate: bool = dataclasses.field(
        metadata={"doc": "whether sums of floats may be reassociated, which rounds differently"}
    )
    vectors: int = dataclasses.field(
        default=PARTIAL_VECTORS, metadata={"doc": "vectors of partial results that a long row has", "least": 1}
    )


@register_schedule_rule(before="columns")
class ScheduleRows(ScheduleRule[RowsPlan]):
    """Compute reductions along rows, with the stages around them, row by row: a softmax, sums over the last axis."""

    name = "rows"
    scope = "kernel"
    plan = RowsPlan

    def match(self, nest: Nest) -> RowsPlan | Declined:
        """Plan a kernel whose reductions all run along rows that its stages share."""
        refs = reduction_blocks(nest.schedule)
        if not refs:
            return Declined("the kernel has no reduction")
        if has_contraction(nest.schedule):
            return Declined("the kernel has a sum of products, which other rules tile")
        shared = _shared_rows(nest.schedule, refs)
        if isinstance(shared, Declined):
            return shared
        return RowsPlan(nest.reassociate)

    def apply(self, schedule: Schedule, plan: RowsPlan) -> None:
        """Run rows in parallel, with all stages inside."""
        schedule_rows(schedule, plan, Target.current())


def schedule_rows(schedule: Schedule, plan: RowsPlan, target: Target) -> None:
    """Schedule a function whose reductions all run along rows, all its stages row by row."""
    refs = reduction_blocks(schedule)
    count = _shared_rows(schedule, refs)
    if isinstance(count, Declined):
        raise ScheduleError(count.reason)
    for ref in refs:
        split_partial_results(schedule, ref, target, plan.reassociate, plan.vectors)
    blocks = schedule.get_blocks()
    anchor = blocks[-1]
    row: LoopRef | None = None
    if count:
        rows = schedule.get_loops(anchor)[:count]
        row = schedule.fuse(*rows) if len(rows) > 1 else rows[0]
        for ref in reversed(blocks[:-1]):
            schedule.compute_at(ref, row)
    for ref in blocks:
        vectorize_stage(schedule, ref, row, target)
    if row is not None:
        schedule.parallel(row)


def _shared_rows(schedule: Schedule, refs: list[BlockRef]) -> int | Declined:
    """Return the number of leading dimensions that all blocks have in common: those of the reductions' results."""
    blocks = [block_of(schedule, ref) for ref in schedule.get_blocks()]
    reducing = [block_of(schedule, ref) for ref in refs]
    outputs = set(schedule.func.buffers)
    written = [region.buffer in outputs for block in blocks for region in block.writes]
    if not all(map(is_row_reduction, reducing)):
        return Declined("a reduction is not along the last dimension of its operand")
    if sum(written) != 1 or not written[-1]:
        return Declined("a block other than the last one writes a result")
    extents = [[item.extent for item in spatial(block)] for block in reducing]
    count = min(len(_without_ones(row)) for row in extents)
    for block in blocks:
        own = [item.extent for item in spatial(block)][:count]
        if len(own) < count or not all(map(_same_extent, own, extents[0][:count])):
            return Declined(f"block {block.name} does not share the rows of the reductions")
    return count


def _without_ones(extents: list[Expr]) -> list[Expr]:
    """Return the extents without trailing ones, which are kept reduced dimensions."""
    end = len(extents)
    while end and constant(extents[end - 1]) == 1:
        end -= 1
    return extents[:end]


def _same_extent(a: Expr, b: Expr) -> bool:
    return a is b or (constant(a) is not None and constant(a) == constant(b))
