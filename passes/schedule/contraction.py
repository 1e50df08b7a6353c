"""How sums of products are scheduled: matrix products, dense layers, convolutions.

The result is tiled so that a tile of accumulators stays in vector registers: ``rows`` elements along a dimension that
only one operand has, by ``vectors`` vectors along a dimension that only the other has. Each step of the sum loads one
vector for each of ``vectors`` and broadcasts one number for each of ``rows``; a tile of P rows by NV vectors needs
P * NV + NV + 1 registers, and one more for the product where the target has no fused multiply-add.

Where the target adds several neighbouring products of narrow numbers at once (bytes to int32, bfloat16 to float32), a
step of the sum is as many elements: they lie side by side in the vector operand's panels, and a row's are broadcast
together. The pass ``DotProduct`` makes the instruction of them.
"""

from __future__ import annotations

import dataclasses
import math

from tilewright.passes.schedule.elementwise import vector_lanes
from tilewright.passes.schedule.facts import (
    Contraction,
    axis_of,
    block_of,
    constant,
    contraction,
    is_contiguous,
    is_expensive,
    loads,
    panel_width,
    reductions,
    shared_by,
    spatial,
    stores,
    uses,
)
from tilewright.passes.schedule.loops import uses_loop
from tilewright.passes.schedule.stages import epilogue_of
from tilewright.passes.schedule.strip import Strip, copy_strip, find_strip
from tilewright.tensorir.expr import BufferLoad, Expr, Var
from tilewright.tensorir.keys import OUTLINE, SPECIALIZE_TAIL
from tilewright.tensorir.schedule import BlockRef, LoopRef, Schedule
from tilewright.tensorir.schedule.index_map import IndexMap
from tilewright.tensorir.stmt import Block, For, IterVar
from tilewright.tensorir.target import Target

#: Tiles that a task goes through where the number of rows is not known.
_TILES_PER_TASK = 8
#: Tasks for each thread, so that a thread that is late does not hold up the others for long.
TASKS_PER_THREAD = 4
#: From this many rows on, copying the vector operand into panels costs less than walking it with large strides.
_ROWS_WORTH_PACKING = 16
#: What it costs to load a vector, which mostly comes from the second cache, if a number that is broadcast, which comes
#: from the first, costs 1: a taller tile loads each vector for more rows.
VECTOR_COST = 1.5

#: What a tile is worth that leaves a rest of the rows or columns, for which there is a second one: two are twice the
#: code, a seventh of the build of a network of convolutions. With 32 registers all tiles with accumulators enough run
#: at the machine's peak. 16 hold 12 accumulators at most, and tiles of 8 to 10 take 8 to 19 % longer (on a Zen 3).
_WITH_REST, _WITH_REST_OF_FEW_REGISTERS = 0.85, 0.97

#: So many rows are enough for a tile: the vectors that they share are loaded often enough.
_LEAST_ROWS = 4


@dataclasses.dataclass(frozen=True)
class Tiling:
    """The plan for one contraction.

    Attributes:
        column: the variable whose neighbouring values are the lanes of a vector.
        row: the variable along which a tile has ``rows`` elements; None if no such variable exists.
        block: a second variable of the vector operand along which a tile has ``vectors`` vectors (channel blocks);
            None if the vectors lie along ``column``.
        step: the variable of the sum of which one instruction takes ``neighbours`` values; None if it takes one.
    """

    column: IterVar
    row: IterVar | None
    block: IterVar | None
    lanes: int
    rows: int
    vectors: int
    vector_operand: BufferLoad
    packed: bool
    step: IterVar | None = None
    neighbours: int = 1

    @property
    def width(self) -> int:
        """Elements of a tile along ``column``."""
        return self.lanes if self.block is not None else self.lanes * self.vectors


def plan_tiling(block: Block, target: Target, reassociate: bool = False) -> Tiling | None:
    """How to tile a contraction; None if the result is empty, or its last dimension gives no vectors: neither operand
    has it, or both do without lying along it in memory.

    Args:
        reassociate: whether sums of floats may be added up in another order.
    """
    found = contraction(block)
    if found is None or not spatial(block) or any(constant(item.extent) == 0 for item in spatial(block)):
        return None
    column = spatial(block)[-1]
    operands = _operands(found, block)
    if operands is None:
        return None
    vector, scalar = operands
    row, rows, channel_block = _tile_variables(block, vector, scalar, target)
    types = vector.buffer.dtype, scalar.buffer.dtype
    step = reductions(block)[-1]
    side_by_side = panel_width(vector, step.var) == target.dot_products(*types, found.accumulator.dtype)
    behind = 1 if side_by_side else 0
    lanes, columns = _lanes(block, target), constant(column.extent)
    if channel_block is not None:
        block_extent = constant(channel_block.extent)
        columns = None if block_extent is None else block_extent * lanes
    panel = panel_width(vector, column.var, behind)
    if panel is not None:
        lanes = math.gcd(lanes, panel)
    row_extent = constant(row.extent) if row is not None else 1
    group = shared_by(vector, row.var) if rows and row is not None else None
    whole = None
    if channel_block is not None:
        whole = math.gcd(constant(channel_block.extent) or 0, shared_by(scalar, channel_block.var) or 0)
    height, vectors = choose_tile(
        row_extent, columns, lanes, target.tile_registers, None if panel is None else panel // lanes, group, whole
    )
    packed = False
    if uses(scalar, column.var):
        if not rows or not (is_contiguous(vector, column.var) and is_contiguous(scalar, column.var)):
            return None
    elif panel is None and not is_contiguous(vector, column.var, behind):
        if axis_of(vector, column.var) is None:
            return None
        packed = True
    elif channel_block is None and axis_of(vector, column.var) is not None:
        packed = row_extent is None or row_extent >= _ROWS_WORTH_PACKING
    tiling = Tiling(column, row, channel_block, lanes, height, vectors, vector, packed)
    is_ordered = found.accumulator.dtype.is_float and not reassociate
    return tiling if is_ordered else _in_groups(tiling, found, scalar, step, side_by_side, target)


def _lanes(block: Block, target: Target) -> int:
    """Lanes of a vector of results: no more than the columns need."""
    lanes, extent = vector_lanes(block, target), constant(spatial(block)[-1].extent)
    while extent is not None and lanes // 2 >= extent and lanes > 2:
        lanes //= 2
    return lanes


def _tile_variables(
    block: Block, vector: BufferLoad, scalar: BufferLoad, target: Target
) -> tuple[IterVar | None, list[IterVar], IterVar | None]:
    """The variable along the rows of a tile, those that could be it (they share the vectors), and the channel block."""
    *others, column = spatial(block)
    rows = [item for item in others if shared_by(scalar, item.var) == 1 and shared_by(vector, item.var) != 1]
    blocks = [item for item in others if shared_by(vector, item.var) == 1 and shared_by(scalar, item.var) != 1]
    channel_block = blocks[-1] if blocks and constant(column.extent) == _lanes(block, target) else None
    row = _longest_enough(rows) if rows else None
    if row is None and channel_block is None and blocks:
        row = blocks[-1]  # no operand is shared (a depthwise convolution); a tile of several rows hides the latency
    return row, rows, channel_block


def _in_groups(
    tiling: Tiling, found: Contraction, scalar: BufferLoad, step: IterVar, side_by_side: bool, target: Target
) -> Tiling:
    """The plan with as many steps at once as one instruction takes, where the operands of such steps lie, or will be
    packed, side by side."""
    vector, steps = tiling.vector_operand, constant(step.extent)
    total = found.accumulator.dtype.with_lanes(tiling.lanes)
    neighbours = target.dot_products(vector.buffer.dtype, scalar.buffer.dtype, total)
    packs = tiling.packed and _walks_rows(vector, step.var, tiling.column.var)
    if neighbours == 1 or not is_contiguous(scalar, step.var) or not (side_by_side or packs):
        return tiling
    if steps is None or steps % neighbours:
        return tiling
    return dataclasses.replace(tiling, step=step, neighbours=neighbours)


def _walks_rows(access: BufferLoad, step: Var, column: Var) -> bool:
    """Whether the last dimension but for that of ``column`` is walked by ``step``."""
    axis, rows = axis_of(access, column), axis_of(access, step)
    last = len(access.indices) - 1
    return axis is not None and rows == (last - 1 if axis == last else last)


def _longest_enough(rows: list[IterVar]) -> IterVar:
    """The variable for the rows of a tile: the last one, whose elements are nearest in memory, of those that fill a
    tile; where none does, the longest. A sequence with one item to a step has its rows along the steps."""
    extents = {item: constant(item.extent) for item in rows}
    enough = [item for item, extent in extents.items() if extent is None or extent >= _LEAST_ROWS]
    return enough[-1] if enough else max(reversed(rows), key=lambda item: extents[item] or 0)


def _operands(found: Contraction, block: Block) -> tuple[BufferLoad, BufferLoad] | None:
    """The operand whose vectors all rows of a tile share, and the other one, of which each row has its own number.

    Where both operands have ``column`` (a depthwise convolution: each lane is a channel of its own) each row has its
    own vector instead; the first operand is the one with fewer of the result's dimensions.
    """
    column = spatial(block)[-1]
    left, right = uses(found.left, column.var), uses(found.right, column.var)
    if not left and not right:
        return None
    if left and right:
        extra = [sum(uses(load, item.var) for item in spatial(block)) for load in (found.left, found.right)]
        left = extra[0] < extra[1]
    return (found.left, found.right) if left else (found.right, found.left)


def choose_tile(
    rows: int | None,
    columns: int | None,
    lanes: int,
    registers: int,
    panel: int | None = None,
    group: int | None = None,
    blocks: int | None = None,
) -> tuple[int, int]:
    """Rows and vectors of the register tile for a result of ``rows`` by ``columns`` (None: not known).

    ``panel``: the number of vectors, where the operand is packed in panels of so many already.
    ``group``: so many neighbouring rows share the vector operand, and a tile stays in such a group.
    ``blocks``: the vectors are blocks of channels, of which so many neighbouring ones share the other operand; tiles
    have a number of vectors that divides it.

    Among the tiles that fit the registers, the one with the least wasted work, then the least loads for each
    multiply-add (:data:`VECTOR_COST`). One that divides rows and columns is preferred to one with somewhat fewer loads
    that leaves a rest (:data:`_WITH_REST`).
    """
    best = (-1.0, 1, 1)
    with_rest = _WITH_REST if registers >= 32 else _WITH_REST_OF_FEW_REGISTERS
    for vectors in range(1, 7) if panel is None else (panel,):
        if blocks and blocks % vectors:
            continue
        most = (registers - 1 - vectors) // vectors
        if panel is None and columns is not None and vectors > 1 and (vectors - 1) * lanes >= columns:
            break
        for limit in range(1, most + 1):
            height = limit
            if rows is not None:
                if limit > rows:
                    break
                tiles = -(-rows // limit)
                height = -(-rows // tiles)  # nearly equal tiles
            used_rows = 1.0 if rows is None else rows / (-(-rows // height) * height)
            width = vectors * lanes
            used_columns = 1.0 if columns is None else columns / (-(-columns // width) * width)
            if group is not None and group % height:
                continue
            if rows is None and height > max(8, 16 // vectors):
                continue  # the rows that are left of an unknown number, which smaller tiles take, stay few
            accumulators = height * vectors
            latency = min(1.0, accumulators / 8, 0.7 + accumulators / 40)  # from 8 on as measured: 8 only just hide it
            reuse = accumulators / (accumulators + height + VECTOR_COST * vectors)
            rest = (rows is not None and leaves_rest(rows, height)) or (columns is not None and columns % width != 0)
            whole = with_rest if rest else 1.0
            score = used_rows * used_columns * latency * reuse * whole
            if score > best[0] + 1e-9:
                best = (score, height, vectors)
    return best[1], best[2]


def leaves_rest(rows: int | None, height: int) -> bool:
    """Whether rows (None: not known how many) may be left over by tiles of that height."""
    return rows is None or rows % height != 0


def schedule_contraction(schedule: Schedule, ref: BlockRef, target: Target, reassociate: bool = False) -> bool:
    """Tile a contraction and its epilogue into registers.

    An epilogue that costs much (an exponential is some 30 instructions) is a loop over the rows of the tile, which then
    lies on the stack: to store and load it costs little beside that, and the formula is there once instead of once for
    each row and vector. These loops become a function of their own (``codegen.llvm.outlined``).

    Args:
        reassociate: whether sums of floats may be added up in another order.

    Returns:
        False, with the schedule unchanged, if the block is none that can be tiled so.
    """
    block = block_of(schedule, ref)
    tiling = plan_tiling(block, target, reassociate)
    if tiling is None or len(schedule.get_loops(ref)) != len(block.iters) or len(spatial(block)) < 2:
        return False
    if tiling.packed:
        pack(schedule, ref, tiling)
    last = epilogue_of(schedule, ref)
    kept: BlockRef | None = None
    if last is None:
        last = schedule.cache_write(ref, 0, "register")
    elif tiling.row is not None and is_expensive(block_of(schedule, last)):
        kept = schedule.cache_read(last, stores(block)[0].buffer, "stack")
    schedule.set_scope(ref, 0, "register")
    strip = find_strip(schedule, ref, tiling.row, tiling.rows, tiling.lanes)
    tasks, rows, tile = _tile_result(schedule, last, block, tiling, target, strip)
    at = rows if rows is not None else tasks[-1]
    if kept is not None:
        schedule.compute_at(kept, at)
        own = schedule.get_loops(kept)
        mark_tile(schedule, own[own.index(at) + 1 :], tiling)
    schedule.compute_at(ref, at)
    if strip is not None:
        copy_strip(schedule, strip, tasks[-1], target)
    accumulate(schedule, ref, block, at, tiling)
    if kept is None:
        mark_tile(schedule, [tile[name] for name in ("block", "row", "column") if name in tile], tiling)
    else:
        _vectorize(schedule, tile["column"], tiling)
        schedule.annotate(next(tile[name] for name in ("block", "row") if name in tile), OUTLINE, True)
    if rows is not None and tiling.row is not None and leaves_rest(constant(tiling.row.extent), tiling.rows):
        schedule.annotate(rows, SPECIALIZE_TAIL, True)
    schedule.parallel(schedule.fuse(*tasks) if len(tasks) > 1 else tasks[0])
    return True


def pack(schedule: Schedule, ref: BlockRef, tiling: Tiling) -> None:
    """Copy the vector operand into panels as wide as a tile, in the order in which the sum reads them; columns beyond
    the operand's are zero. ``[.., k, j]`` and ``[.., j, k]`` both become ``[.., j // width, k, j % width]``;
    where one instruction takes ``n`` steps, ``[.., j // width, k // n, j % width, k % n]``."""
    buffer = tiling.vector_operand.buffer
    axis = axis_of(tiling.vector_operand, tiling.column.var)
    assert axis is not None
    width = tiling.width
    panel = schedule.cache_read(ref, buffer, "arena")
    index = tuple([Var(f"i{number}") for number in range(len(buffer.shape))])
    layout = IndexMap(index, _place_in_panel(index, axis, width, tiling.neighbours))
    schedule.transform_layout(panel, 0, layout, pad_value=0)
    if tiling.neighbours > 1 and is_contiguous(tiling.vector_operand, tiling.column.var):
        # Vectors of neighbouring columns, which take turns in memory: the steps that lie side by side are innermost.
        *outer, column, _ = schedule.get_loops(panel)
        if width > tiling.lanes:
            _, column = schedule.split(column, [None, tiling.lanes])
        schedule.vectorize(column)
        schedule.parallel(schedule.fuse(*outer) if len(outer) > 1 else outer[0])


def _place_in_panel(index: tuple[Var, ...], axis: int, width: int, neighbours: int) -> tuple[Expr, ...]:
    column = index[axis]
    rest: list[Expr] = [value for position, value in enumerate(index) if position != axis]
    if neighbours == 1:
        return (*rest[:-1], column // width, *rest[-1:], column % width)
    *outer, step = rest
    return (*outer, column // width, step // neighbours, column % width, step % neighbours)


def _tile_result(
    schedule: Schedule, ref: BlockRef, block: Block, tiling: Tiling, target: Target, strip: Strip | None
) -> tuple[list[LoopRef], LoopRef | None, dict[str, LoopRef]]:
    """Split the loops of the block that writes the result.

    Returns:
        The loops over tasks, outermost first; the loop over a task's tiles along the rows (None without rows); and by
        name the loops inside a tile.
    """
    loops = dict(zip(spatial(block), schedule.get_loops(ref), strict=True))
    tile: dict[str, LoopRef] = {}
    tasks: list[LoopRef] = []
    chunk: LoopRef | None = None
    rows: LoopRef | None = None
    lines: LoopRef | None = None
    separate: set[LoopRef] = set()
    found = contraction(block)
    for item, loop in loops.items():
        extent = constant(item.extent)
        if item is tiling.row:
            tiles = _tiles_per_task(block, tiling, target) if strip is None else strip.tiles
            chunk, rows, tile["row"] = schedule.split(loop, [None, tiles, tiling.rows])
        elif strip is not None and item is strip.lines:
            over, lines = schedule.split(loop, [None, strip.height])
            tasks.append(over)
        elif item is tiling.block:
            over, tile["block"] = schedule.split(loop, [None, tiling.vectors])
            tasks.append(over)
        elif item is not tiling.column:
            tasks.append(loop)
            if found is not None and uses(found.left, item.var) and uses(found.right, item.var):
                separate.add(loop)
        elif extent is not None and extent <= tiling.width:
            tile["column"] = loop
        else:
            over, tile["column"] = schedule.split(loop, [None, tiling.width])
            tasks.append(over)
    if chunk is not None:
        tasks.append(chunk)
    inside = [tile[name] for name in ("block", "row", "column") if name in tile]
    # Independent products come one after the other, so that the operands of one stay in the caches.
    tasks.sort(key=lambda loop: loop not in separate)
    schedule.reorder(*tasks, *[loop for loop in (lines, rows) if loop is not None], *inside)
    return tasks, rows, tile


def accumulate(schedule: Schedule, ref: BlockRef, original: Block, at: LoopRef, tiling: Tiling) -> None:
    """Order the loops of the sum inside a tile: reduction outside, then row, block and lanes; the latter unrolled. A
    row's number is broadcast once for all blocks, and need not stay in a register while other rows are computed. Steps
    that one instruction takes are innermost."""
    inside = schedule.get_loops(ref)
    inside = inside[inside.index(at) + 1 :]
    by_item = loops_by_item(schedule, ref, inside)
    names = [item.var.name for item in original.iters]
    reduced = [by_item[names.index(item.var.name)] for item in reductions(original)]
    wanted = [item for item in (tiling.row, tiling.block, tiling.column) if item is not None]
    tile = [by_item[names.index(item.var.name)] for item in wanted]
    steps = [
        part
        for loop, item in zip(reduced, reductions(original), strict=True)
        if loop is not None
        for part in _along_blocks(schedule, loop, item, original, tiling)
    ]
    together = [steps.pop()] if tiling.step is not None else []
    elements = [loop for loop in tile if loop is not None]
    rest = [loop for loop in inside if loop not in reduced and loop not in elements]
    schedule.reorder(*rest, *steps, *elements, *together)
    stages = [schedule.decompose_reduction(ref, steps[0])] if steps else []
    for stage, behind in (*((start, 0) for start in stages), (ref, len(together))):
        own = schedule.get_loops(stage)
        last = len(own) - behind
        mark_tile(schedule, own[last - len(elements) : last], tiling)


def _along_blocks(schedule: Schedule, loop: LoopRef, item: IterVar, block: Block, tiling: Tiling) -> list[LoopRef]:
    """The loop over a reduction variable; over blocks and over the places of a block, where some operand has such; and,
    innermost, over the steps that one instruction takes."""
    count = tiling.neighbours if item is tiling.step else 1
    widths = [panel_width(load, item.var) for load in loads(block)]
    width = next((width for width in widths if width not in (None, count)), None)
    extent = constant(item.extent)
    parts = [loop]
    if width is not None and extent is not None and extent > width:
        parts = schedule.split(loop, [None, width])
    return [*parts[:-1], *schedule.split(parts[-1], [None, count])] if count > 1 else parts


def loops_by_item(schedule: Schedule, ref: BlockRef, loops: list[LoopRef]) -> list[LoopRef | None]:
    """For each iteration variable of a block, the one of ``loops`` that drives it; None if it does not vary."""
    found: list[LoopRef | None] = []
    for item in block_of(schedule, ref).iters:
        driving = [loop for loop in loops if uses_loop(item.value, loop)]
        found.append(driving[0] if driving else None)
    return found


def mark_tile(schedule: Schedule, loops: list[LoopRef], tiling: Tiling) -> None:
    """Unroll the loops inside a tile and make its lanes vectors; the last loop is the one over columns."""
    if not loops:
        return
    *others, column = loops
    vectors = _vectorize(schedule, column, tiling)
    for other in others if vectors is None else (*others, vectors):
        schedule.unroll(other)


def _vectorize(schedule: Schedule, column: LoopRef, tiling: Tiling) -> LoopRef | None:
    """Make vectors of a loop over columns; the loop over these, if there are several."""
    loop = schedule.get(column)
    assert isinstance(loop, For)
    extent = constant(loop.extent)
    vectors = None
    if extent is None or extent > tiling.lanes:
        vectors, column = schedule.split(column, [None, tiling.lanes])
    schedule.vectorize(column)
    return vectors


def _tiles_per_task(block: Block, tiling: Tiling, target: Target) -> int:
    """How many tiles along the rows, sharing their columns, one task takes: few enough that every thread gets several
    tasks, and a divisor of their number, so that no task is short."""
    assert tiling.row is not None
    extent = constant(tiling.row.extent)
    if extent is None:
        return _TILES_PER_TASK
    tiles = -(-extent // tiling.rows)
    columns = constant(tiling.column.extent)
    others = [constant(item.extent) for item in spatial(block) if item is not tiling.row and item is not tiling.column]
    known = math.prod(extent for extent in others if extent is not None)  # an unknown batch may be one
    parts = known * (1 if columns is None else -(-columns // tiling.width))
    wanted = -(-TASKS_PER_THREAD * target.num_threads // parts)
    return next(tiles // count for count in range(min(wanted, tiles), tiles + 1) if tiles % count == 0)
