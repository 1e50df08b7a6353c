"""Analyze the stages of a function: find epilogues, stages that stay in a row, and results."""

from __future__ import annotations

from collections.abc import Collection

from tilewright.passes.schedule.facts import block_of, constant, loads, reductions, spatial, stores
from tilewright.tensorir.expr import Buffer, Expr
from tilewright.tensorir.schedule import BlockRef, Schedule
from tilewright.tensorir.stmt import Block, IterVar


def epilogue_of(schedule: Schedule, ref: BlockRef) -> BlockRef | None:
    """Return the epilogue of a block: its only consumer, if that computes elementwise from the block's results."""
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
    """Return whether a single store of a single block writes the function's results."""
    outputs = set(schedule.func.buffers)
    blocks = [block_of(schedule, ref) for ref in schedule.get_blocks()]
    return sum(store.buffer in outputs for block in blocks for store in stores(block)) == 1


def stays_in_row(block: Block, count: int, buffers: Collection[Buffer]) -> bool:
    """Return whether a block reads ``buffers`` in its own row only: their first ``count`` indices are its first
    variables."""
    own = spatial(block)[:count]
    return all(
        len(load.indices) >= count and all(map(is_position, load.indices[:count], own))
        for load in loads(block)
        if load.buffer in buffers
    )


def is_position(index: Expr, item: IterVar) -> bool:
    """Return whether an index is the variable ``item``, or 0 where ``item`` has a single value (a broadcast)."""
    return index is item.var or (constant(index) == 0 and constant(item.extent) == 1)
