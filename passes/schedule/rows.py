"""Schedule reductions along the contiguous dimension (softmax, layer norm, a sum over the last axis) row by row.

The rows run in parallel, all stages of a row are computed together, and each reduction keeps one partial result for
each lane of a few vectors.
"""

from __future__ import annotations

from tilewright.passes.schedule.facts import block_of, constant, spatial
from tilewright.passes.schedule.inline import reduction_blocks
from tilewright.passes.schedule.partial_results import (
    is_row_reduction,
    split_partial_results,
    vectorize_stage,
)
from tilewright.tensorir.expr import Expr
from tilewright.tensorir.schedule import BlockRef, LoopRef, Schedule
from tilewright.tensorir.target import Target


def schedule_rows(schedule: Schedule, target: Target, reassociate: bool) -> bool:
    """Schedule a function whose reductions all run along rows, all its stages row by row.

    Args:
        reassociate: whether sums of floats may be added up in another order.

    Returns:
        False, with the schedule unchanged, where the stages do not share their rows.
    """
    refs = reduction_blocks(schedule)
    count = _shared_rows(schedule, refs)
    if count is None:
        return False
    for ref in refs:
        split_partial_results(schedule, ref, target, reassociate)
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
    return True


def _shared_rows(schedule: Schedule, refs: list[BlockRef]) -> int | None:
    """How many leading dimensions all blocks of the function have in common: those of the reductions' results."""
    blocks = [block_of(schedule, ref) for ref in schedule.get_blocks()]
    reducing = [block_of(schedule, ref) for ref in refs]
    outputs = set(schedule.func.buffers)
    written = [region.buffer in outputs for block in blocks for region in block.writes]
    if not all(map(is_row_reduction, reducing)) or sum(written) != 1 or not written[-1]:
        return None
    extents = [[item.extent for item in spatial(block)] for block in reducing]
    count = min(len(_without_ones(row)) for row in extents)
    for block in blocks:
        own = [item.extent for item in spatial(block)][:count]
        if len(own) < count or not all(map(_same_extent, own, extents[0][:count])):
            return None
    return count


def _without_ones(extents: list[Expr]) -> list[Expr]:
    """The extents without those of kept (reduced) dimensions at the end."""
    end = len(extents)
    while end and constant(extents[end - 1]) == 1:
        end -= 1
    return extents[:end]


def _same_extent(a: Expr, b: Expr) -> bool:
    return a is b or (constant(a) is not None and constant(a) == constant(b))
