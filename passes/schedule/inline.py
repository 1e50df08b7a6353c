"""Inline producers whose elements are cheaper to recompute than to store."""

from __future__ import annotations

import itertools

from tilewright.passes.schedule.cost import MOST_COPIED, MOST_NESTED, is_expensive
from tilewright.passes.schedule.facts import (
    block_of,
    blocks_of,
    case_variables,
    constant,
    contraction,
    loads,
    reductions,
    spatial,
    stores,
    uses,
)
from tilewright.passes.schedule.positions import interleaves
from tilewright.tensorir.errors import ScheduleError
from tilewright.tensorir.expr import BufferLoad, Var
from tilewright.tensorir.functor import uses_var, walk
from tilewright.tensorir.node import Node
from tilewright.tensorir.schedule import BlockRef, Schedule
from tilewright.tensorir.stmt import Block, BufferStore


def inline_producers(schedule: Schedule) -> list[str]:
    """Inline every block that is no reduction into its consumers, last first, where that repeats no expensive work.

    Returns:
        for each other producer the reason why it keeps its own loops.

    A block stays where an element would be computed more than once and costs more than a load (an exponential read by
    a sum and a division), where a contraction would recompute it for each column of its other operand, where copies of
    a long formula would make the consumer's too long to compile quickly (the position of a sample, read by the weights
    of each of its sixteen neighbours), or where hundreds of operators would become one formula.
    """
    outputs = set(schedule.func.buffers)
    kept: list[str] = []
    for ref in reversed(schedule.get_blocks()):
        block = block_of(schedule, ref)
        if reductions(block) or any(store.buffer in outputs for store in stores(block)):
            continue
        consumers = [block_of(schedule, consumer) for consumer in schedule.get_consumers(ref)]
        if not consumers:
            continue
        reason = _repeated_work(block, consumers)
        if not reason and _leaves_lanes(block, consumers):
            reason = "a consumer masks lanes along a dimension that its own operands do not lie along"
        if not reason and _depth(block) + max(map(_depth, consumers)) > MOST_NESTED:
            reason = f"the formula would nest deeper than {MOST_NESTED}"
        if not reason:
            try:
                schedule.compute_inline(ref)
                continue
            except ScheduleError as error:
                reason = error.summary
        kept.append(f"block {block.name} not inlined: {reason}")
    return kept


def _repeated_work(block: Block, consumers: list[Block]) -> str:
    """Return the reason why inlining repeats work; empty if it repeats none that counts."""
    written = {store.buffer for store in stores(block)}
    is_formula_of_constants = not loads(block)
    if is_formula_of_constants and not is_expensive(block):
        return ""
    reads: list[BufferLoad] = []
    for consumer in consumers:
        for load in loads(consumer):
            if load.buffer not in written:
                continue
            reads.append(load)
            varying = [item.var for item in spatial(consumer) if constant(item.extent) != 1]
            if reductions(consumer) and not all(uses(load, var) for var in varying):
                return f"block {consumer.name} reads an element of it for several results"
            if contraction(consumer) is not None and _is_window(load, consumer):
                return f"windows of block {consumer.name} overlap, and read an element of it for several results"
    if len(reads) > 1 and (case_variables(block) or any(map(case_variables, consumers))):
        return "each of the formulas chosen by position would contain a copy of it"
    if len(reads) > 1 and is_expensive(block):
        return f"an element costs more than a load, and is read {len(reads)} times"
    if len(reads) > 1 and len(reads) * sum(1 for _ in walk(block.body)) > MOST_COPIED:
        return f"{len(reads)} copies of its formula would have more than {MOST_COPIED} nodes"
    return ""


def _leaves_lanes(block: Block, consumers: list[Block]) -> bool:
    """Return whether a consumer masks lanes of what ``block`` reads along another dimension: vectors of what ``block``
    stores are read under a mask, its own operands would be gathered."""
    for consumer in consumers:
        places = spatial(consumer)
        if not places:
            continue
        interleaved = None
        for load in loads(consumer):
            if load.predicate is None or not uses_var(load.predicate, {places[-1].var}):
                continue
            if interleaved is None:
                interleaved = interleaves(consumer)
            if interleaved:  # its vectors lie along another dimension
                break
            for store in stores(block):
                if store.buffer is load.buffer and not all(_is_along(store, read) for read in loads(block)):
                    return True
    return False


def _is_along(store: BufferStore, load: BufferLoad) -> bool:
    """Return whether the last index of ``load`` depends on the variable that is the last index of ``store``."""
    if not store.indices or not load.indices:
        return False
    last = store.indices[-1]
    return isinstance(last, Var) and uses_var(load.indices[-1], {last})


def _depth(block: Block) -> int:
    """Return the depth of the expressions that a block stores, at most one more than :data:`MOST_NESTED`."""
    depth = 0
    level: set[Node] = {store.value for store in stores(block)}
    while level and depth <= MOST_NESTED:
        depth += 1
        level = set(itertools.chain.from_iterable([node.parts() for node in level]))
    return depth


def _is_window(load: BufferLoad, consumer: Block) -> bool:
    """Return whether one index depends on both a spatial and a reduction variable, as in a sliding window."""
    places, steps = ({item.var for item in items} for items in (spatial(consumer), reductions(consumer)))
    return any(uses_var(index, places) and uses_var(index, steps) for index in load.indices)


def has_contraction(schedule: Schedule) -> bool:
    """Return whether some block sums products of elements that several results share. Where each result has elements of
    its own (the product of two images, summed for each channel), a tile of results would load as much as it
    multiplies."""
    return any(map(_shares_elements, blocks_of(schedule.func)))


def _shares_elements(block: Block) -> bool:
    found = contraction(block)
    if found is None:
        return False
    varying = [item.var for item in spatial(block) if constant(item.extent) != 1]
    return not all(uses(load, var) for load in (found.left, found.right) for var in varying)


def reduction_blocks(schedule: Schedule) -> list[BlockRef]:
    """Return the blocks that reduce, in program order."""
    refs = schedule.get_blocks()
    return [ref for ref, block in zip(refs, blocks_of(schedule.func), strict=True) if reductions(block)]
