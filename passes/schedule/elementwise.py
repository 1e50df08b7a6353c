"""How formulas of one element are scheduled: neighbouring dimensions that lie in memory like one become one, its
elements become vectors, and the rest runs in parallel."""

from __future__ import annotations

from tilewright.passes.schedule.facts import (
    Access,
    block_of,
    constant,
    loads,
    mergeable,
    product_of_extents,
    spatial,
    stores,
)
from tilewright.passes.schedule.transposition import find_transposition, tile_transposition
from tilewright.tensorir.schedule import BlockRef, LoopRef, Schedule
from tilewright.tensorir.stmt import Block, IterVar
from tilewright.tensorir.target import Target

#: Elements of a row that one iteration of the parallel loop computes, where rows are longer than this; of shorter rows
#: it computes several.
_CHUNK = 4096
#: What an extent is taken for that is not known before the model is called.
_UNKNOWN_EXTENT = 64


def schedule_elementwise(schedule: Schedule, ref: BlockRef, target: Target) -> None:
    """Schedule a block that is no reduction and has its own loops."""
    block = block_of(schedule, ref)
    loops = list(schedule.get_loops(ref))
    items = spatial(block)
    if not loops or len(loops) != len(items):
        return
    lanes = vector_lanes(block, target)
    transposition = find_transposition(block, lanes)
    if transposition is not None:
        tile_transposition(schedule, ref, transposition)
        return
    accesses: list[Access] = [*stores(block), *loads(block)]
    first = len(items) - 1
    # A dimension in front of rows of unknown length would be found by a division for each lane.
    while first > 0 and product_of_extents(items[first:]) is not None:
        if not mergeable(accesses, items[first - 1], items[first]):
            break
        first -= 1
    length = product_of_extents(items[first:])
    row = schedule.fuse(*loops[first:]) if first < len(loops) - 1 else loops[-1]
    rows = loops[:first]
    if not rows:
        outer, inner = _split_vectors(schedule, row, length, lanes)
        _finish(schedule, outer, inner)
        return
    if length is not None and length <= _CHUNK:
        tasks = _outside_of_task(items[:first], length)
        outer = schedule.fuse(*rows[:tasks]) if tasks > 1 else rows[0]
        vectors, inner = _split_vectors(schedule, row, length, lanes)
        if vectors is None and inner is None:
            inner = row
        _finish(schedule, outer, inner)
        return
    chunks, vectors, inner = schedule.split(row, [None, _CHUNK // lanes, lanes])
    _finish(schedule, schedule.fuse(*rows, chunks), inner)


def _outside_of_task(items: list[IterVar], length: int) -> int:
    """How many of the dimensions outside of a row tasks are made of: at least one, and so many that a task has enough
    elements to be worth the divisions that find its place."""
    tasks, elements = len(items), length
    while tasks > 1:
        extent = constant(items[tasks - 1].extent)
        elements *= _UNKNOWN_EXTENT if extent is None else extent
        if elements > _CHUNK:
            break
        tasks -= 1
    return tasks


def _split_vectors(
    schedule: Schedule, row: LoopRef, length: int | None, lanes: int
) -> tuple[LoopRef | None, LoopRef | None]:
    """The loop over vectors and the loop over lanes; a row shorter than a vector is one (shorter) vector."""
    if length is not None and length <= lanes:
        return None, row if length > 1 else None
    outer, inner = schedule.split(row, [None, lanes])
    return outer, inner


def _finish(schedule: Schedule, outer: LoopRef | None, inner: LoopRef | None) -> None:
    if outer is not None:
        schedule.parallel(outer)
    if inner is not None:
        schedule.vectorize(inner)


def vector_lanes(block: Block, target: Target) -> int:
    """Lanes of a vector for a block: of its widest element type, so that no value needs two registers."""
    accesses: list[Access] = [*stores(block), *loads(block)]
    bits = [access.buffer.dtype.bits for access in accesses]
    widest = max((bits_ for bits_ in bits if bits_ > 8), default=32)
    return max(2, target.vector_bits // widest)
