"""How formulas that are chosen by their place are scheduled.

An element of such a block is ``select(x == 0, f0, select(x == 1, f1, ...))`` with ``x`` an index of the result, or one
``% n``: Winograd's transforms, whose rows are different sums. The loops of such indices are unrolled, so that each
choice is made at build time, and all steps before the last one are computed on the same tile, in registers::

    for c, ty in parallel(..):
      for tx in range(..):
        patch: one vector for each y, x      (unrolled)
        rows:  one vector for each y, x      (unrolled; y chooses)
        for y, x in unrolled(..): out[y, x, c, ty, tx, lanes] = ...      (x chooses)
"""

from __future__ import annotations

import math

from tilewright.passes.schedule.elementwise import vector_lanes
from tilewright.passes.schedule.facts import (
    block_of,
    case_variables,
    constant,
    loads,
    place_in_tile,
    reductions,
    spatial,
    stores,
)
from tilewright.tensorir.expr import Buffer, Var
from tilewright.tensorir.schedule import LoopRef, Schedule
from tilewright.tensorir.stmt import Block, For, IterVar
from tilewright.tensorir.target import Target

#: Places of a tile at most: each is written out, stage by stage.
_MOST_UNROLLED = 64


def schedule_cases(schedule: Schedule, target: Target) -> bool:
    """Schedule a function whose stages choose formulas by place.

    Returns:
        False, with the schedule unchanged, for any other function.
    """
    refs = schedule.get_blocks()
    blocks = [block_of(schedule, ref) for ref in refs]
    if not any(map(case_variables, blocks)) or any(map(reductions, blocks)):
        return False
    anchor, last = refs[-1], blocks[-1]
    outputs = set(schedule.func.buffers)
    if sum(store.buffer in outputs for block in blocks for store in stores(block)) != 1:
        return False
    loops = schedule.get_loops(anchor)
    if len(loops) != len(last.iters) or len(loops) < 2:
        return False
    tile = _tile_sizes(blocks)
    counts = [size or constant(item.extent) for item, size in _sized(last, tile)]
    if math.prod(count or math.inf for count in counts) > _MOST_UNROLLED:
        return False
    outer: list[LoopRef] = []
    unrolled: list[LoopRef] = []
    for (item, size), loop in zip(_sized(last, tile), loops[:-1], strict=True):
        if item.var not in tile:
            outer.append(loop)
        elif size is None:
            unrolled.append(loop)
        else:
            over, inside = schedule.split(loop, [None, size])
            outer.append(over)
            unrolled.append(inside)
    if not outer:
        return False
    schedule.reorder(*outer, *unrolled, loops[-1])
    for ref in reversed(refs[:-1]):
        schedule.compute_at(ref, outer[-1])
        schedule.set_scope(ref, 0, "register")
    lanes = vector_lanes(last, target)
    for ref in refs:
        own = schedule.get_loops(ref)
        _unroll(schedule, own[own.index(outer[-1]) + 1 :], lanes)
    tasks = outer[:-1] or outer
    schedule.parallel(schedule.fuse(*tasks) if len(tasks) > 1 else tasks[0])
    return True


def _sized(block: Block, tile: dict[Var, int | None]) -> list[tuple[IterVar, int | None]]:
    """The variables of a block but its last one, with the size of a tile along each, 1 where there is none."""
    return [(item, tile.get(item.var, 1)) for item in spatial(block)[:-1]]


def _tile_sizes(blocks: list[Block]) -> dict[Var, int | None]:
    """For the variables of the last block by which some stage chooses its formula, how many neighbouring values make
    up a tile; None for all of them."""
    chosen: dict[Buffer, set[int]] = {}
    sizes: dict[Var, int | None] = {}
    for block in blocks:
        sizes = case_variables(block)
        places = {item.var for item in spatial(block)}
        for load in loads(block):
            for axis in chosen.get(load.buffer, ()):
                found = place_in_tile(load.indices[axis], places)
                if found is not None:
                    sizes.setdefault(*found)
        for store in stores(block):
            axes = {axis for axis, index in enumerate(store.indices) if isinstance(index, Var) and index in sizes}
            chosen[store.buffer] = axes
    return sizes


def _unroll(schedule: Schedule, loops: list[LoopRef], lanes: int) -> None:
    """Unroll loops, the last one by vectors."""
    *others, column = loops
    loop = schedule.get(column)
    assert isinstance(loop, For)
    extent = constant(loop.extent)
    if extent is None or extent > lanes:
        vectors, column = schedule.split(column, [None, lanes])
        others.append(vectors)
    schedule.vectorize(column)
    for other in others:
        schedule.unroll(other)
