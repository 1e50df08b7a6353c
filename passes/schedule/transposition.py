"""Schedule formulas that read along a different dimension than they write: transposes, layouts with channel blocks.

Neighbouring results are contiguous in memory, but their operands are not: each vector would be gathered element by
element. A square tile, as wide as a vector in both directions, reads whole vectors along one dimension and writes whole
vectors along the other::

    for task in parallel(..):              # other dimensions, or tiles along the rows
      for columns:                         # tiles along the dimension in which the result lies
        for row in range(8):               # annotated "transpose"
          for column in vectorized(8): ...

The innermost loop over tiles is that along the longer dimension: along the columns it writes a few rows of the result
from their beginning to their end, along the rows it reads so.

The pass ``TransposeTiles`` turns the annotated loop into a transpose in registers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from tilewright.passes.schedule.cost import (
    are_enough_tasks,
    exchanged_tiles,
    tiles_of_a_chunk,
    vector_lanes,
    walks_rows,
)
from tilewright.passes.schedule.facts import (
    Access,
    block_of,
    constant,
    is_contiguous,
    loads,
    mergeable,
    names_of,
    panel_width,
    product_of_extents,
    reductions,
    spatial,
    stores,
    uses,
)
from tilewright.passes.schedule.rule import Declined, Nest, ScheduleRule, register_schedule_rule
from tilewright.tensorir.errors import ScheduleError
from tilewright.tensorir.expr import BufferLoad, Var
from tilewright.tensorir.keys import TRANSPOSE
from tilewright.tensorir.schedule import BlockRef, LoopRef, Schedule
from tilewright.tensorir.stmt import Block, IterVar


@dataclasses.dataclass(frozen=True)
class Transposition:
    """Compute a block in square tiles. Their columns lie along the last dimension of the result."""

    block: str = dataclasses.field(metadata={"doc": "the block; the other settings apply only to it"})
    row: str = dataclasses.field(metadata={"doc": "the dimension of the result along which operands lie in memory"})
    size: int = dataclasses.field(metadata={"doc": "rows and columns of a tile, a power of two", "least": 2})


@register_schedule_rule(before="interleaving")
class ScheduleTransposition(ScheduleRule[Transposition]):
    """Transpose square tiles in registers where a formula reads along a different dimension than it writes."""

    name = "transposition"
    plan = Transposition

    def match(self, nest: Nest) -> Iterator[Transposition] | Declined:
        """Plan a formula whose operands are contiguous along a different dimension than its result."""
        assert nest.ref is not None
        block = nest.block
        if reductions(block):
            return Declined(f"block {block.name} is a reduction")
        if not spatial(block) or len(nest.schedule.get_loops(nest.ref)) != len(spatial(block)):
            return Declined(f"block {block.name} has a scalar result, or shares loops with other blocks")
        return plan_transposition(nest)

    def apply(self, schedule: Schedule, plan: Transposition) -> None:
        """Tile the loops, and run the tiles in parallel."""
        tile_transposition(schedule, schedule.get_block(plan.block), plan)


def plan_transposition(nest: Nest) -> Iterator[Transposition] | Declined:
    """Return tiles for a formula that reads along a different dimension than it writes, best first; or why there are
    none."""
    block, given = nest.block, nest.given
    items, columns = spatial(block), _columns(block)
    inner = items[columns.start :]
    if not all(is_contiguous(store, items[-1].var) for store in stores(block)):
        return Declined(f"block {block.name} does not write contiguously along its last dimension")
    strided = [
        load
        for load in loads(block)
        if any(uses(load, item.var) for item in inner) and not _is_vector(load, items[-1].var)
    ]
    found = [{n for n in range(columns.start) if _walks(load, items[n])} for load in strided]
    common = set.intersection(*found) if found else set()
    if not common:
        return Declined(
            f"block {block.name} reads along the dimension that it writes, or along no common other dimension"
        )
    names = names_of(items)
    row = max(common)
    if "row" in given:
        candidates = [n for n in sorted(common) if names[n] == given["row"]]
        if not candidates:
            listed = ", ".join(names[n] for n in sorted(common))
            return Declined(f"operands of block {block.name} are contiguous along {listed}, not along {given['row']}")
        row = candidates[0]
    sizes = [int(given["size"])] if "size" in given else list(exchanged_tiles(vector_lanes(block, nest.target)))
    room = [product_of_extents([items[n] for n in part]) for part in (_merged(block, row), columns)]
    widths = [panel_width(load, items[row].var) for load in strided]
    fitting = [size for size in sizes if size & (size - 1) == 0 and _fits(size, room, widths)]
    if not fitting:
        return Declined(
            f"no tile of {' or '.join(map(str, sizes)) or 'so few'} rows and columns fits block {block.name}"
        )
    return _tiles(block, names[row], fitting)


def _is_vector(load: BufferLoad, column: Var) -> bool:
    """Return whether neighbouring columns of a load are neighbours in memory: a factor of each channel may have
    dimensions of one element behind that of the channels."""
    behind = 0
    if not load.buffer.strides:
        while behind < len(load.indices) - 1 and constant(load.buffer.shape[-1 - behind]) == 1:
            behind += 1
    return is_contiguous(load, column, behind)


def _tiles(block: Block, row: str, sizes: Sequence[int]) -> Iterator[Transposition]:
    for size in sizes:
        yield Transposition(block.name, row, size)


def _fits(size: int, room: Sequence[int | None], widths: Sequence[int | None]) -> bool:
    """Return whether rows and columns are long enough for a tile, and its size divides the widths of all panels."""
    has_room = all(extent is None or size <= extent for extent in room)
    return has_room and all(width is None or width % size == 0 for width in widths)


def _walks(load: Access, item: IterVar) -> bool:
    """Return whether neighbouring values of a variable are neighbours in memory, at least within a panel."""
    return is_contiguous(load, item.var) or panel_width(load, item.var) is not None


def _columns(block: Block) -> range:
    """Return the range of trailing variables that can be fused into one."""
    return _merged(block, len(spatial(block)) - 1)


def _merged(block: Block, last: int) -> range:
    """Return the range of variables, up to number ``last``, that can be fused into one."""
    accesses: list[Access] = [*stores(block), *loads(block)]
    items, first = spatial(block), last
    while first > 0 and mergeable(accesses, items[first - 1], items[first]):
        first -= 1
    return range(first, last + 1)


def tile_transposition(schedule: Schedule, ref: BlockRef, plan: Transposition) -> None:
    """Tile the loops of a block, and run the tiles in parallel.

    The loops over other dimensions are the tasks or, where they have too few iterations, those over tiles along the
    rows, or chunks of such tiles. They are not fused with each other: the indices derived from a fused variable no
    longer show that neighbouring rows are neighbours in memory.

    Raises:
        ScheduleError: the block has no dimension ``plan.row``, or it is one of the columns.
    """
    block = block_of(schedule, ref)
    loops, items, names = schedule.get_loops(ref), spatial(block), names_of(spatial(block))
    columns = _columns(block)
    if plan.row not in names[: columns.start]:
        raise ScheduleError(f"row: expected one of {', '.join(names[: columns.start])}, found {plan.row}")
    rows = _merged(block, names.index(plan.row))
    others = [n for n in range(len(loops)) if n not in rows and n not in columns]
    count = product_of_extents([items[n] for n in others])
    if others and others[-1] > rows.start:  # they become neighbours
        schedule.reorder(*[loops[n] for n in (*others, *rows, *columns)])
    outer = [_fused(schedule, [loops[n] for n in others])] if others else []
    row_tiles, row = schedule.split(_fused(schedule, [loops[n] for n in rows]), [None, plan.size])
    column_tiles, column = schedule.split(_fused(schedule, [loops[n] for n in columns]), [None, plan.size])
    enough = are_enough_tasks(count)
    row_count, column_count = (product_of_extents([items[n] for n in part]) for part in (rows, columns))
    tiles = tiles_of_a_chunk(row_count, plan.size)
    if not walks_rows(row_count, column_count) or (tiles == 1 and not enough):
        tasks, walked = [*outer, row_tiles] if enough else [row_tiles, *outer], column_tiles
    elif enough:
        tasks, walked = [*outer, column_tiles], row_tiles
    else:
        chunks, walked = schedule.split(row_tiles, [None, tiles])
        tasks = [chunks, *outer, column_tiles]
    schedule.reorder(*tasks, walked, row, column)
    schedule.annotate(row, TRANSPOSE, True)
    schedule.vectorize(column)
    schedule.parallel(tasks[0])


def _fused(schedule: Schedule, loops: Sequence[LoopRef]) -> LoopRef:
    return schedule.fuse(*loops) if len(loops) > 1 else loops[0]
