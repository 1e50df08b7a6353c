"""Schedule formulas that depend on the position of the element (``Choose``).

An element of such a block is ``choose(x, f0, f1, ...)``, where ``x`` is an index of the result or such an index
``% n``. Winograd's transforms are an example: their rows are different sums. The loops over such indices are unrolled,
so that each choice is resolved at build time, and all stages before the last are computed on the same tile, in
registers::

    for c, ty in parallel(..):
      for tx in range(..):
        for x in unrolled(..):
          patch: one vector for each y      (unrolled)
          rows:  one vector for each y      (unrolled; y chooses)
        for y, x in unrolled(..): out[y, x, c, ty, tx, lanes] = ...      (x chooses)

Tiles at a border share this code (``keep_whole``, see ``LoopPartition``): their conditions choose addresses, and stores
to leave out, which takes no time beside the sums. Copies of a tile for each side would double the time of all later
passes.
"""

from __future__ import annotations

import dataclasses
import math

from tilewright.passes.schedule.cost import MOST_UNROLLED, vector_lanes
from tilewright.passes.schedule.facts import (
    block_of,
    case_variables,
    constant,
    loads,
    loop_of,
    place_in_tile,
    reductions,
    spatial,
    stores,
)
from tilewright.passes.schedule.loops import are_lanes
from tilewright.passes.schedule.rule import Declined, Nest, ScheduleRule, register_schedule_rule
from tilewright.passes.schedule.settings import NOTHING, Given
from tilewright.passes.schedule.stages import has_one_result
from tilewright.tensorir.expr import Buffer, Var
from tilewright.tensorir.functor import uses_var
from tilewright.tensorir.keys import KEEP_WHOLE
from tilewright.tensorir.schedule import BlockRef, LoopRef, Schedule
from tilewright.tensorir.stmt import Block
from tilewright.tensorir.target import Target


@dataclasses.dataclass(frozen=True)
class CasesPlan:
    """Compute all stages tile by tile."""

    tile: tuple[int | None, ...] = dataclasses.field(
        metadata={
            "doc": "for each dimension of the result but the last, how many neighbouring places a tile has, which is "
            "unrolled; None: all of them, 1: the dimension has no part in the choice of a formula"
        }
    )
    lanes: int = dataclasses.field(metadata={"doc": "lanes of a vector, a power of two", "least": 2})


@register_schedule_rule(before="rows")
class ScheduleCases(ScheduleRule[CasesPlan]):
    """Compute formulas that depend on the position of the element tile by tile: Winograd's transforms."""

    name = "cases"
    scope = "kernel"
    plan = CasesPlan

    def match(self, nest: Nest) -> CasesPlan | Declined:
        """Plan a kernel whose stages choose formulas by position."""
        return plan_cases(nest.schedule, nest.target, nest.given)

    def apply(self, schedule: Schedule, plan: CasesPlan) -> None:
        """Unroll the loops over the choosing indices, with all stages inside."""
        schedule_cases(schedule, plan)


def plan_cases(schedule: Schedule, target: Target, given: Given = NOTHING) -> CasesPlan | Declined:
    """Plan the tiles of a function whose stages choose formulas by position; decline any other function."""
    refs = schedule.get_blocks()
    blocks = [block_of(schedule, ref) for ref in refs]
    if any(map(reductions, blocks)):
        return Declined("a block is a reduction")
    if not any(map(case_variables, blocks)):
        return Declined("no block selects one of several formulas by its indices")
    last = blocks[-1]
    if not has_one_result(schedule):
        return Declined("the kernel has several results")
    loops = schedule.get_loops(refs[-1])
    if len(loops) != len(last.iters) or len(loops) < 2:
        return Declined("the result has one dimension, or its block shares loops with others")
    chosen = _tile_sizes(blocks)
    tile = tuple([chosen.get(item.var, 1) for item in spatial(last)[:-1]])
    lanes = int(given.get("lanes", 0)) or vector_lanes(last, target)
    if not are_lanes(lanes):
        return Declined(f"no vector has {lanes} lanes")
    if "tile" in given:
        if len(given["tile"]) != len(tile) or not all(map(_is_size, given["tile"])):
            return Declined(f"a tile has {len(tile)} sizes, each positive or None, not {given['tile']}")
        tile = tuple(given["tile"])
    sizes = [size or constant(item.extent) for item, size in zip(spatial(last), tile, strict=False)]
    places = math.prod(size or math.inf for size in sizes)
    if places > MOST_UNROLLED:
        return Declined(f"a tile has {places} elements, more than the {MOST_UNROLLED} that are unrolled")
    if all(size is None for size in tile):
        return Declined("every dimension is unrolled, so that none is left for parallel tasks")
    return CasesPlan(tile, lanes)


def _is_size(size: object) -> bool:
    return size is None or (isinstance(size, int) and size > 0)


def schedule_cases(schedule: Schedule, plan: CasesPlan) -> None:
    """Schedule a function whose stages choose formulas by position."""
    refs = schedule.get_blocks()
    anchor = refs[-1]
    loops = schedule.get_loops(anchor)
    outer: list[LoopRef] = []
    unrolled: list[LoopRef] = []
    for size, loop in zip(plan.tile, loops[:-1], strict=True):
        if size == 1:
            outer.append(loop)
        elif size is None:
            unrolled.append(loop)
        else:
            over, inside = schedule.split(loop, [None, size])
            outer.append(over)
            unrolled.append(inside)
    schedule.reorder(*outer, *unrolled, loops[-1])
    _choosing_loops_last(schedule, anchor, outer[-1])
    plain = not case_variables(block_of(schedule, anchor))
    read = {load.buffer for load in loads(block_of(schedule, anchor))} if plain else set()
    for ref in reversed(refs[:-1]):
        place = _place(schedule, ref, refs, outer[-1])
        schedule.compute_at(ref, place)
        schedule.set_scope(ref, 0, "stack" if stores(block_of(schedule, ref))[0].buffer in read else "register")
        _choosing_loops_last(schedule, ref, place)
    for ref in refs:
        _finish(schedule, ref, _inside(schedule, ref, outer[-1]), plan.lanes, unroll=not plain or ref != anchor)
    tasks = outer[:-1] or outer
    task = schedule.fuse(*tasks) if len(tasks) > 1 else tasks[0]
    schedule.parallel(task)
    for loop in dict.fromkeys((task, outer[-1])):
        schedule.annotate(loop, KEEP_WHOLE, True)


def _tile_sizes(blocks: list[Block]) -> dict[Var, int | None]:
    """Return the tile sizes along the variables of the last block by which some stage chooses its formula; None for
    the whole extent."""
    chosen: dict[Buffer, dict[int, int | None]] = {}  # the sizes of tiles along axes
    sizes: dict[Var, int | None] = {}
    for block in blocks:
        sizes = case_variables(block)
        places = {item.var for item in spatial(block)}
        for load in loads(block):
            for axis, size in chosen.get(load.buffer, {}).items():
                found = place_in_tile(load.indices[axis], places)
                if found is not None:
                    var, part = found
                    sizes.setdefault(var, size if part is None else part)
        for store in stores(block):
            indices = enumerate(store.indices)
            chosen[store.buffer] = {
                axis: sizes[index] for axis, index in indices if isinstance(index, Var) and index in sizes
            }
    return sizes


def _inside(schedule: Schedule, ref: BlockRef, outermost: LoopRef) -> list[LoopRef]:
    """Return the loops around a block that lie inside ``outermost``."""
    own = schedule.get_loops(ref)
    return own[own.index(outermost) + 1 :]


def _choosing_loops_last(schedule: Schedule, ref: BlockRef, outermost: LoopRef) -> None:
    """Reorder the loops by which a block chooses its formula innermost, right outside of the loop over its lanes."""
    *places, _ = _inside(schedule, ref, outermost)
    ordered = sorted(places, key=lambda place: _chooses(schedule, ref, place))
    if ordered != places:
        schedule.reorder(*ordered)


def _place(schedule: Schedule, ref: BlockRef, refs: list[BlockRef], outermost: LoopRef) -> LoopRef:
    """Return the loop at which a block is computed.

    A block that chooses formulas needs all positions of the tile at once; its producers are best computed for one of
    its positions at a time, as the results then fit few registers. Earlier producers are computed for the whole tile
    or, where that is not possible, outside of the tiles: tiles overlap, so that much would be computed twice.
    """
    block = block_of(schedule, ref)
    written = {store.buffer for store in stores(block)}
    readers = [other for other in refs if any(load.buffer in written for load in loads(block_of(schedule, other)))]
    if case_variables(block) or len(readers) != 1 or not case_variables(block_of(schedule, readers[0])):
        return outermost
    *places, _ = _inside(schedule, readers[0], outermost)
    return [outermost, *(place for place in places if not _chooses(schedule, readers[0], place))][-1]


def _chooses(schedule: Schedule, ref: BlockRef, place: LoopRef) -> bool:
    """Return whether the variable of ``place`` chooses the block's formula."""
    block, loop = block_of(schedule, ref), loop_of(schedule, place)
    cases = case_variables(block)
    return any(item.var in cases and uses_var(item.value, {loop.var}) for item in block.iters)


def _finish(schedule: Schedule, ref: BlockRef, loops: list[LoopRef], lanes: int, unroll: bool) -> None:
    """Vectorize the last of the loops around a block that are still serial, and unroll the others if ``unroll``."""
    *others, column = [place for place in loops if loop_of(schedule, place).kind == "serial"]
    extent = constant(loop_of(schedule, column).extent)
    if extent is None or extent > lanes:
        vectors, column = schedule.split(column, [None, lanes])
        others.append(vectors)
    schedule.vectorize(column)
    for other in others if unroll else ():
        schedule.unroll(other)
