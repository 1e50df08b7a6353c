"""Plan the tiles of sums of products.

A tile of accumulators stays in vector registers: ``rows`` elements along a dimension that only one operand has, by
``vectors`` vectors along a dimension that only the other has. Each step of the sum loads one vector for each of
``vectors`` and broadcasts one number for each of ``rows``; a tile of P rows by NV vectors needs P * NV + NV + 1
registers, and one more for the product where the target has no fused multiply-add.

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
    constant,
    contraction,
    is_contiguous,
    panel_width,
    reductions,
    shared_by,
    spatial,
    uses,
)
from tilewright.passes.schedule.rule import Declined
from tilewright.tensorir.expr import BufferLoad, Var
from tilewright.tensorir.stmt import Block, IterVar
from tilewright.tensorir.target import Target

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


def plan_tiling(block: Block, target: Target, reassociate: bool = False) -> Tiling | Declined:
    """How to tile a contraction; or why not: the result is empty, or its last dimension gives no vectors, as neither
    operand has it, or both do without lying along it in memory.

    Args:
        reassociate: whether sums of floats may be added up in another order.
    """
    found = contraction(block)
    if found is None:
        return Declined(f"block {block.name} sums no products of two loads")
    if not spatial(block) or any(constant(item.extent) == 0 for item in spatial(block)):
        return Declined(f"block {block.name} gives no elements, or a single one")
    column = spatial(block)[-1]
    operands = _operands(found, block)
    if operands is None:
        return Declined(f"no operand of block {block.name} has the last dimension of its result")
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
            return Declined(f"both operands of block {block.name} have the last dimension, and do not lie along it")
    elif panel is None and not is_contiguous(vector, column.var, behind):
        if axis_of(vector, column.var) is None:
            return Declined(f"{vector.buffer.name} can't be packed: no one dimension of it is the result's last one")
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
