"""Pack the vector operand of a sum of products into panels as wide as a tile, which it reads in order.

All panels are packed first, in parallel, or each by the task whose tiles read it, just before them: if the operand is
large, and no other task reads the panel. A task packs several panels, one after the other, into the same memory, which
stays in the cache::

    for task in parallel(4):
      for panel in range(16):
        .. pack panel task * 16 + panel ..
        for rows in range(64):
          .. a tile ..
"""

from __future__ import annotations

import math

from tilewright.passes.operands import known_bytes
from tilewright.passes.schedule.cost import panels_for_threads
from tilewright.passes.schedule.facts import axis_of, block_of, constant, is_contiguous, loads, reductions, spatial
from tilewright.passes.schedule.tiling import Tiling
from tilewright.tensorir.expr import Expr, Var
from tilewright.tensorir.keys import INTERLEAVE, TRANSPOSE
from tilewright.tensorir.schedule import BlockRef, LoopRef, Schedule
from tilewright.tensorir.schedule.index_map import IndexMap
from tilewright.tensorir.stmt import Block
from tilewright.tensorir.target import Target


def pack(schedule: Schedule, ref: BlockRef, tiling: Tiling) -> BlockRef:
    """Pack the vector operand into panels as wide as a tile, in the order in which the sum reads them; columns beyond
    the operand's are padded with zeros. ``[.., k, j]`` and ``[.., j, k]`` both become
    ``[.., j // width, k, j % width]``; where one instruction takes ``n`` steps,
    ``[.., j // width, k // n, j % width, k % n]``. Return the block that packs."""
    buffer = tiling.vector_operand.buffer
    axis = axis_of(tiling.vector_operand, tiling.column.var)
    assert axis is not None
    width = tiling.width
    panel = schedule.cache_read(ref, buffer, "arena")
    index = tuple([Var(f"i{number}") for number in range(len(buffer.shape))])
    layout = IndexMap(index, _place_in_panel(index, axis, width, tiling.neighbours))
    schedule.transform_layout(panel, 0, layout, pad_value=0)
    if tiling.neighbours > 1 and is_contiguous(tiling.vector_operand, tiling.column.var):
        # Vectors of neighbouring columns, interleaved in memory: the steps that one instruction takes are innermost.
        *outer, column, steps = schedule.get_loops(panel)
        if width > tiling.lanes:
            _, column = schedule.split(column, [None, tiling.lanes])
        schedule.vectorize(column)
        schedule.annotate(steps, INTERLEAVE, True)
        schedule.parallel(schedule.fuse(*outer) if len(outer) > 1 else outer[0])
    return panel


def _place_in_panel(index: tuple[Var, ...], axis: int, width: int, neighbours: int) -> tuple[Expr, ...]:
    column = index[axis]
    rest: list[Expr] = [value for position, value in enumerate(index) if position != axis]
    if neighbours == 1:
        return (*rest[:-1], column // width, *rest[-1:], column % width)
    *outer, step = rest
    return (*outer, column // width, step // neighbours, column % width, step % neighbours)


def most_panels(block: Block, tiling: Tiling, tiles: int) -> int:
    """Return the number of panels of a sum of products of which each is read by one task, whose ``tiles`` tiles cover
    all rows; 0 if tasks share them, if the operand is no plain matrix, or stack of matrices, or if the last panel is
    padded and the operand is transposed on the way, which takes conditions in the middle of its tiles."""
    operand, column, row, steps = tiling.vector_operand, tiling.column, tiling.row, reductions(block)
    columns, rows = constant(column.extent), None if row is None else constant(row.extent)
    if not tiling.packed or tiling.neighbours > 1 or rows is None or tiles * tiling.rows < rows:
        return 0
    if columns is None or len(steps) > 1:
        return 0
    others = [item for item in spatial(block) if item is not column and item is not row]
    extents = [constant(item.extent) for item in others]
    padded = columns % tiling.width != 0
    in_order = any(is_contiguous(operand, item.var) for item in ((column,) if padded else (column, *steps)))
    plain = set(operand.indices) == {item.var for item in (column, *steps, *others)}
    if not in_order or not plain or any(extent is None for extent in extents):
        return 0
    return math.prod([-(-columns // tiling.width), *filter(None, extents)])


def panels_of_a_task(block: Block, tiling: Tiling, tiles: int, target: Target) -> int:
    """Return how many panels a task of ``tiles`` tiles packs for itself; 0 if all are packed first: an operand that the
    cache holds is packed as fast as it is read."""
    if not tiling.packed or known_bytes(tiling.vector_operand.buffer) <= target.cache_bytes(2) // 2:
        return 0
    each = panels_for_threads(most_panels(block, tiling, tiles), target)
    return each if each > 1 else 0


def pack_inside(schedule: Schedule, panel: BlockRef, task: LoopRef, tiling: Tiling) -> None:
    """Pack a panel inside of the loop ``task``, whose iterations read one panel each."""
    schedule.compute_at(panel, task)
    loops = schedule.get_loops(panel)
    step, column = loops[-2:]
    block = block_of(schedule, panel)
    if is_contiguous(loads(block)[0], spatial(block)[-1].var):
        if tiling.width > tiling.lanes:
            _, column = schedule.split(column, [None, tiling.lanes])
    else:
        steps, step = schedule.split(step, [None, tiling.lanes])
        columns, column = schedule.split(column, [None, tiling.lanes])
        schedule.reorder(columns, steps, step, column)
        schedule.annotate(step, TRANSPOSE, True)
    schedule.vectorize(column)
