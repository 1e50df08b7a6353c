"""How products of single rows with matrices are scheduled that follow one another: attention of one query.

Each element of the matrices is used once, so that what counts is to read them once, in order, and nothing else: no
tiles, no panels. A task computes all stages of a row::

    for row in parallel(..):
      for t: scores[t] = sum of query * key[t]            # along the key, a partial sum for each lane
      greatest score; powers; their sum                   # in vectors
      for t: result += powers[t] * value[t]               # vectors along the value, in registers

What moves elements of a matrix around (the concatenation of old and new keys) happens while it is read.
"""

from __future__ import annotations

from tilewright.passes.schedule.elementwise import vector_lanes
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
from tilewright.passes.schedule.loops import loop_kinds
from tilewright.passes.schedule.partial_results import (
    accumulate_results,
    is_row_reduction,
    split_partial_results,
    vectorize_stage,
)
from tilewright.passes.schedule.stages import epilogue_of, stays_in_row
from tilewright.tensorir.keys import PARTIAL_RESULTS
from tilewright.tensorir.schedule import BlockRef, LoopRef, Schedule
from tilewright.tensorir.stmt import Block
from tilewright.tensorir.target import Target

#: Vectors of results at most that accumulate in registers while a matrix is read.
_VECTORS = 8


def schedule_single_rows(schedule: Schedule, target: Target, reassociate: bool) -> bool:
    """Schedule a function whose stages work on rows that share no operand, the last of which sums rows of a matrix.

    Args:
        reassociate: whether sums of floats may be added up in another order.

    Returns:
        False, with the schedule unchanged, for any other function.
    """
    refs = reduction_blocks(schedule)
    sums = [ref for ref in refs if _sums_columns(block_of(schedule, ref))]
    if len(refs) < 2 or len(sums) != 1 or not _fits(schedule, refs, sums[0]):
        return False
    final = sums[0]
    block = block_of(schedule, final)
    last = epilogue_of(schedule, final)
    if last is None:
        last = schedule.cache_write(final, 0, "register")
    schedule.set_scope(final, 0, "register")
    for ref in refs:
        if ref != final:
            split_partial_results(schedule, ref, target, reassociate)
    *rows, column = schedule.get_loops(last)
    task = schedule.fuse(*rows) if len(rows) > 1 else rows[0]
    lanes = vector_lanes(block, target)
    columns, column = schedule.split(column, [None, _width(block, lanes)])
    schedule.compute_at(final, columns)
    stages = [ref for ref in schedule.get_blocks() if ref not in (final, last)]
    for ref in reversed(stages):
        partial = PARTIAL_RESULTS in block_of(schedule, ref).annotations
        schedule.compute_at(ref, _row(schedule, ref, task) if partial else task)
    for ref in accumulate_results(schedule, final, columns):
        _vectors(schedule, schedule.get_loops(ref)[-1], lanes)
    _vectors(schedule, column, lanes)
    for ref in stages:
        vectorize_stage(schedule, ref, _row(schedule, ref, task), target)
    schedule.parallel(task)
    return True


def _sums_columns(block: Block) -> bool:
    """Whether neighbouring results are sums of neighbouring elements."""
    return (
        len(reductions(block)) == 1
        and bool(spatial(block))
        and any(
            is_contiguous(load, spatial(block)[-1].var) and uses(load, reductions(block)[0].var)
            for load in loads(block)
        )
    )


def _fits(schedule: Schedule, refs: list[BlockRef], final: BlockRef) -> bool:
    blocks = {ref: block_of(schedule, ref) for ref in schedule.get_blocks()}
    count = len(spatial(blocks[final])) - 1
    outputs = set(schedule.func.buffers)
    if sum(store.buffer in outputs for block in blocks.values() for store in stores(block)) != 1 or count < 1:
        return False
    if any(len(schedule.get_loops(ref)) != len(block.iters) for ref, block in blocks.items()):
        return False
    if not all(is_row_reduction(blocks[ref]) for ref in refs if ref != final):
        return False
    extents = [constant(item.extent) or item.extent for item in spatial(blocks[final])[:count]]
    made = {store.buffer for block in blocks.values() for store in stores(block)} - outputs
    for block in blocks.values():
        if (
            not stays_in_row(block, count, made)
            or [constant(item.extent) or item.extent for item in spatial(block)[:count]] != extents
        ):
            return False
    products = [blocks[ref] for ref in refs if len(spatial(blocks[ref])) > count]
    return len(products) > 1 and all(map(_is_read_once, products))


def _is_read_once(block: Block) -> bool:
    """Whether no two results share an element of some operand."""
    varying = [item.var for item in block.iters if constant(item.extent) != 1]
    return any(all(uses(load, var) for var in varying) for load in loads(block))


def _width(block: Block, lanes: int) -> int:
    """How many neighbouring results accumulate at once."""
    extent = constant(spatial(block)[-1].extent)
    vectors = _VECTORS // 2 if extent is None else -(-extent // lanes)
    return lanes * (vectors if vectors <= _VECTORS else _VECTORS // 2)


def _row(schedule: Schedule, ref: BlockRef, task: LoopRef) -> LoopRef:
    """The loop over the results of a stage, of which each is a reduction, or one iteration of which is all of it."""
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
