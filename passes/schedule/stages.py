"""Ask how stages of a function depend on each other: which is an epilogue, which stay in a row, which give results."""

from __future__ import annotations

from collections.abc import Collection

from tilewright.passes.schedule.facts import block_of, constant, loads, reductions, spatial, stores
from tilewright.tensorir.expr import Buffer, Expr
from tilewright.tensorir.schedule import BlockRef, Schedule
from tilewright.tensorir.stmt import Block, IterVar


def epilogue_of(schedule: Schedule, ref: BlockRef) -> BlockRef | None:
    """The one consumer of a block that computes, element for element, from the block's results: its epilogue."""
    consumers = schedule.get_consumers(ref)
    if len(consumers) != 1:
        return None
    block, consumer = block_of(schedule, ref), block_of(schedule, consumers[0])
    if reductions(consumer) or len(spatial(consumer)) != len(spatial(block)):
        return None
    target = stores(block)[0].buffer
    place = spatial(consumer)
    for load in loads(consumer):
        if load.buffer is not target:
            continue
        if len(load.indices) != len(place) or not all(map(is_position, load.indices, place)):
            return None
    return consumers[0]


def has_one_result(schedule: Schedule) -> bool:
    """Whether a single store of a single block writes what the function gives."""
    outputs = set(schedule.func.buffers)
    blocks = [block_of(schedule, ref) for ref in schedule.get_blocks()]
    return sum(store.buffer in outputs for block in blocks for store in stores(block)) == 1


def stays_in_row(block: Block, count: int, buffers: Collection[Buffer]) -> bool:
    """Whether a block reads ``buffers`` in its own row only: their first ``count`` indices are its first variables."""
    own = spatial(block)[:count]
    return all(
        len(load.indices) >= count and all(map(is_position, load.indices[:count], own))
        for load in loads(block)
        if load.buffer in buffers
    )


def is_position(index: Expr, item: IterVar) -> bool:
    """Whether an index is a variable; along one of a single value a broadcast reads element 0."""
    return index is item.var or (constant(index) == 0 and constant(item.extent) == 1)
