"""Schedule chained products of single rows with matrices: attention of one query.

Each element of the matrices is used once, so that tiles and panels gain nothing: it suffices to read the matrices once,
in order. A task computes all stages of a row::

    for row in parallel(..):
      for t: scores[t] = sum of query * key[t]            # along the key, a partial sum for each lane
      maximum; exponentials; their sum                    # in vectors
      for t: result += weights[t] * value[t]              # vectors along the value, in registers

Blocks that only move elements of a matrix (the concatenation of old and new keys) are computed while it is read.
"""

from __future__ import annotations

import dataclasses

from tilewright.passes.schedule.cost import PARTIAL_VECTORS, vector_lanes, width_of_results
from tilewright.passes.schedule.facts import (
    block_of,
    constant,
    is_contiguous,
    loads,
    reductions,
    spatial,
    stores,
    uses,
)
from tilewright.passes.schedule.inline import reduction_blocks
from tilewright.passes.schedule.loops import are_lanes, loop_kinds
from tilewright.passes.schedule.partial_results import (
    accumulate_results,
    is_row_reduction,
    split_partial_results,
    vectorize_stage,
)
from tilewright.passes.schedule.rule import Declined, Nest, ScheduleRule, register_schedule_rule
from tilewright.passes.schedule.stages import epilogue_of, has_one_result, stays_in_row
from tilewright.tensorir.keys import PARTIAL_RESULTS
from tilewright.tensorir.schedule import BlockRef, LoopRef, Schedule
from tilewright.tensorir.stmt import Block
from tilewright.tensorir.target import Target


@dataclasses.dataclass(frozen=True)
class SingleRowsPlan:
    """Compute all stages of a row in a task."""

    final: str = dataclasses.field(metadata={"doc": "the block that sums rows of a matrix"})
    width: int = dataclasses.field(
        metadata={"doc": "neighbouring results of it that accumulate at once, whole vectors", "least": 1}
    )
    lanes: int = dataclasses.field(metadata={"doc": "lanes of a vector, a power of two", "least": 2})
    reassociate: bool = dataclasses.field(
        metadata={"doc": "whether sums of floats may be reassociated, which rounds differently"}
    )
    vectors: int = dataclasses.field(
        default=PARTIAL_VECTORS, metadata={"doc": "vectors of partial results that a long row has", "least": 1}
    )


@register_schedule_rule(before="contraction")
class ScheduleSingleRows(ScheduleRule[SingleRowsPlan]):
    """Read each matrix once in chained products of single rows: attention of one query."""

    name = "single rows"
    scope = "kernel"
    plan = SingleRowsPlan

    def match(self, nest: Nest) -> SingleRowsPlan | Declined:
        """Plan a kernel whose stages compute rows that share no operand; the last one sums rows of a matrix."""
        schedule = nest.schedule
        refs = reduction_blocks(schedule)
        sums = [ref for ref in refs if _sums_columns(block_of(schedule, ref))]
        if len(refs) < 2 or len(sums) != 1:
            return Declined(
                f"found {len(refs)} reductions, {len(sums)} of which sum rows of a matrix; "
                "expected several, one of which does"
            )
        reason = _unfit(schedule, refs, sums[0])
        if reason:
            return Declined(reason)
        block = block_of(schedule, sums[0])
        given = nest.given
        if given.get("final", block.name) != block.name:
            return Declined(f"the block that sums rows of a matrix is {block.name}, not {given['final']}")
        lanes = int(given.get("lanes", 0)) or vector_lanes(block, nest.target)
        width = int(given.get("width", 0)) or width_of_results(constant(spatial(block)[-1].extent), lanes)
        if not are_lanes(lanes):
            return Declined(f"no vector has {lanes} lanes")
        if width % lanes:
            return Declined(f"width {width} is not a multiple of {lanes} lanes")
        return SingleRowsPlan(block.name, width, lanes, nest.reassociate)

    def apply(self, schedule: Schedule, plan: SingleRowsPlan) -> None:
        """Run rows in parallel, with all stages inside."""
        schedule_single_rows(schedule, plan, Target.current())


def schedule_single_rows(schedule: Schedule, plan: SingleRowsPlan, target: Target) -> None:
    """Schedule a function whose stages compute rows that share no operand; the last one sums rows of a matrix."""
    refs, final = reduction_blocks(schedule), schedule.get_block(plan.final)
    last = epilogue_of(schedule, final)
    if last is None:
        last = schedule.cache_write(final, 0, "register")
    schedule.set_scope(final, 0, "register")
    for ref in refs:
        if ref != final:
            split_partial_results(schedule, ref, target, plan.reassociate, plan.vectors)
    *rows, column = schedule.get_loops(last)
    task = schedule.fuse(*rows) if len(rows) > 1 else rows[0]
    columns, column = schedule.split(column, [None, plan.width])
    schedule.compute_at(final, columns)
    stages = [ref for ref in schedule.get_blocks() if ref not in (final, last)]
    for ref in reversed(stages):
        partial = PARTIAL_RESULTS in block_of(schedule, ref).annotations
        schedule.compute_at(ref, _row(schedule, ref, task) if partial else task)
    for ref in accumulate_results(schedule, final, columns):
        _vectors(schedule, schedule.get_loops(ref)[-1], plan.lanes)
    _vectors(schedule, column, plan.lanes)
    for ref in stages:
        vectorize_stage(schedule, ref, _row(schedule, ref, task), target)
    schedule.parallel(task)


def _sums_columns(block: Block) -> bool:
    """Return whether neighbouring results are sums of neighbouring elements."""
    return (
        len(reductions(block)) == 1
        and bool(spatial(block))
        and any(
            is_contiguous(load, spatial(block)[-1].var) and uses(load, reductions(block)[0].var)
            for load in loads(block)
        )
    )


def _unfit(schedule: Schedule, refs: list[BlockRef], final: BlockRef) -> str:
    """Return the reason why the stages cannot be computed row by row; empty if they can."""
    blocks = {ref: block_of(schedule, ref) for ref in schedule.get_blocks()}
    count = len(spatial(blocks[final])) - 1
    if not has_one_result(schedule) or count < 1:
        return "the kernel has several results, or its result has no rows"
    if any(len(schedule.get_loops(ref)) != len(block.iters) for ref, block in blocks.items()):
        return "some blocks share loops"
    if not all(is_row_reduction(blocks[ref]) for ref in refs if ref != final):
        return "another reduction is not along the last dimension of its operand"
    extents = [constant(item.extent) or item.extent for item in spatial(blocks[final])[:count]]
    made = {store.buffer for block in blocks.values() for store in stores(block)} - set(schedule.func.buffers)
    for block in blocks.values():
        if (
            not stays_in_row(block, count, made)
            or [constant(item.extent) or item.extent for item in spatial(block)[:count]] != extents
        ):
            return f"block {block.name} reads other rows of intermediate results than it computes, or has other rows"
    products = [blocks[ref] for ref in refs if len(spatial(blocks[ref])) > count]
    once = len(products) > 1 and all(map(_is_read_once, products))
    return "" if once else "rows share elements of a matrix, so that tiling is faster"


def _is_read_once(block: Block) -> bool:
    """Return whether some operand has no element that two results share."""
    varying = [item.var for item in block.iters if constant(item.extent) != 1]
    return any(all(uses(load, var) for var in varying) for load in loads(block))


def _row(schedule: Schedule, ref: BlockRef, task: LoopRef) -> LoopRef:
    """Return the loop that encloses all of one result of a reduction stage; for other stages the loop over tasks."""
    block = block_of(schedule, ref)
    readers = schedule.get_consumers(ref)
    if PARTIAL_RESULTS in block.annotations and len(readers) == 1:
        return _row(schedule, readers[0], task)
    own = schedule.get_loops(ref)
    own = own[own.index(task) :]
    kinds = loop_kinds(schedule, ref, own)
    return [loop for loop in own if kinds[loop] == "spatial"][-1] if reductions(block) else task


def _vectors(schedule: Schedule, column: LoopRef, lanes: int) -> None:
    vectors, column = schedule.split(column, [None, lanes])
    schedule.vectorize(column)
    schedule.unroll(vectors)
