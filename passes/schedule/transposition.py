"""Formulas that read along another dimension than they write: transposes, and layouts with blocks of channels.

Neighbouring results lie next to each other in memory, but what they read does not: each vector would be gathered
element by element. A square tile, as wide as a vector in both directions, reads whole vectors along the one dimension
and writes whole vectors along the other; the pass ``TransposeTiles`` makes the exchange of rows and columns, in
registers, of the loop that is annotated ``transpose``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tilewright.passes.schedule.elementwise import vector_lanes
from tilewright.passes.schedule.facts import (
    Access,
    block_of,
    is_contiguous,
    loads,
    mergeable,
    panel_width,
    product_of_extents,
    reductions,
    spatial,
    stores,
    uses,
)
from tilewright.passes.schedule.rule import Declined, Nest, ScheduleRule, register_schedule_rule
from tilewright.tensorir.keys import TRANSPOSE
from tilewright.tensorir.schedule import BlockRef, LoopRef, Schedule
from tilewright.tensorir.stmt import Block, IterVar

#: A tile of fewer rows than this is not worth the exchange.
_LEAST_SIZE = 4
#: So many tasks along the other dimensions are enough for the threads.
_ENOUGH_TASKS = 8
#: Rows of a tile: each is in a register of its own.
_MOST_ROWS = 16


@dataclasses.dataclass(frozen=True)
class Transposition:
    """Dimensions of a tile, as ranges of the block's spatial variables that lie in memory like one.

    Attributes:
        rows: along which the operands lie in memory.
        columns: along which the result lies in memory; the last variables.
        size: rows and columns of a tile.
        block: the name of the block.
    """

    rows: range
    columns: range
    size: int
    block: str


@register_schedule_rule(before="elementwise")
class ScheduleTransposition(ScheduleRule[Transposition]):
    """Exchange rows and columns of square tiles in registers where a formula reads along another dimension than it
    writes."""

    name = "transposition"

    def match(self, nest: Nest) -> Transposition | Declined:
        """Plan for a formula whose operands lie along another dimension than its result."""
        assert nest.ref is not None
        block = nest.block
        if reductions(block):
            return Declined(f"block {block.name} reduces")
        if len(nest.schedule.get_loops(nest.ref)) != len(spatial(block)):
            return Declined(f"block {block.name} shares its loops")
        found = find_transposition(block, vector_lanes(block, nest.target))
        return found or Declined(
            f"block {block.name} reads along the dimension that it writes, or tiles would be small"
        )

    def apply(self, schedule: Schedule, plan: Transposition) -> None:
        """Tile the loops in both directions."""
        tile_transposition(schedule, schedule.get_block(plan.block), plan)


def find_transposition(block: Block, lanes: int) -> Transposition | None:
    """The tile for a formula that reads along another dimension than it writes; None for any other."""
    items = spatial(block)
    accesses: list[Access] = [*stores(block), *loads(block)]
    columns = _merged(accesses, items, len(items) - 1)
    inner = items[columns.start :]
    if not all(is_contiguous(store, items[-1].var) for store in stores(block)):
        return None
    strided = [
        load
        for load in loads(block)
        if any(uses(load, item.var) for item in inner) and not is_contiguous(load, items[-1].var)
    ]
    found = [{n for n in range(columns.start) if _walks(load, items[n])} for load in strided]
    common = set.intersection(*found) if found else set()
    if not common:
        return None
    rows = _merged(accesses, items, max(common))
    size = min(lanes, _MOST_ROWS)
    for part in (rows, columns):
        extent = product_of_extents(items[n] for n in part)
        while extent is not None and size > extent:
            size //= 2
    widths = [panel_width(load, items[rows[-1]].var) for load in strided]
    while any(width is not None and width % size for width in widths):
        size //= 2
    return Transposition(rows, columns, size, block.name) if size >= _LEAST_SIZE else None


def _walks(load: Access, item: IterVar) -> bool:
    """Whether neighbouring values of a variable are neighbours in memory, at least from panel to panel."""
    return is_contiguous(load, item.var) or panel_width(load, item.var) is not None


def _merged(accesses: Sequence[Access], items: Sequence[IterVar], last: int) -> range:
    """The variables up to number ``last`` that walk memory like one."""
    first = last
    while first > 0 and mergeable(accesses, items[first - 1], items[first]):
        first -= 1
    return range(first, last + 1)


def tile_transposition(schedule: Schedule, ref: BlockRef, plan: Transposition) -> None:
    """Tile the loops of a block, and run the tiles in parallel.

    The loops over other dimensions are the tasks, or those over tiles along the rows where the others are few. They
    are not fused with each other: what a fused variable is taken apart into no longer shows that neighbouring rows are
    neighbours in memory.
    """
    loops, items = schedule.get_loops(ref), spatial(block_of(schedule, ref))

    def whole(part: Sequence[int]) -> LoopRef:
        own = [loops[n] for n in part]
        return schedule.fuse(*own) if len(own) > 1 else own[0]

    others = [n for n in range(len(loops)) if n not in plan.rows and n not in plan.columns]
    count = product_of_extents(items[n] for n in others)
    if others and others[-1] > plan.rows.start:  # they become neighbours
        schedule.reorder(*[loops[n] for n in (*others, *plan.rows, *plan.columns)])
    outer = [whole(others)] if others else []
    row_tiles, row = schedule.split(whole(plan.rows), [None, plan.size])
    column_tiles, column = schedule.split(whole(plan.columns), [None, plan.size])
    tasks = [*outer, row_tiles] if count is None or count >= _ENOUGH_TASKS else [row_tiles, *outer]
    schedule.reorder(*tasks, column_tiles, row, column)
    schedule.annotate(row, TRANSPOSE, True)
    schedule.vectorize(column)
    schedule.parallel(tasks[0])
