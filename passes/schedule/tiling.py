"""Plan the tiles of sums of products.

A tile of accumulators stays in vector registers: ``rows`` elements along a dimension that only one operand has, by
``vectors`` vectors along a dimension that only the other has. Each step of the sum loads ``vectors`` vectors and
broadcasts ``rows`` numbers; a tile of P rows by NV vectors needs P * NV + NV + 1 registers, and one more for the
product where the target has no fused multiply-add.

Where the target has an instruction that adds several neighbouring products of narrow numbers (bytes to int32, bfloat16
to float32), a step of the sum takes as many elements: they are interleaved in the vector operand's panels, and those of
a row are broadcast together. The pass ``DotProduct`` selects the instruction.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator

from tilewright.passes.schedule.cost import TileSpace, fills_a_tile, is_worth_packing, ranked_tiles, vector_lanes
from tilewright.passes.schedule.facts import (
    Contraction,
    axis_of,
    constant,
    contraction,
    is_contiguous,
    names_of,
    panel_width,
    reductions,
    shared_by,
    spatial,
    uses,
)
from tilewright.passes.schedule.loops import are_lanes
from tilewright.passes.schedule.rule import Declined
from tilewright.passes.schedule.settings import NOTHING, Given
from tilewright.tensorir.errors import ScheduleError
from tilewright.tensorir.expr import BufferLoad, Var
from tilewright.tensorir.stmt import Block, IterVar
from tilewright.tensorir.target import Target

#: Number of tiles offered for a contraction: where the best ones do not fit, the others rarely do.
_OFFERED = 4


@dataclasses.dataclass(frozen=True)
class Tile:
    """The plan of the tiles of one contraction. Neighbouring values of the result's last dimension are the lanes."""

    row: str = dataclasses.field(metadata={"doc": "the dimension along which the rows of a tile lie; '': none"})
    channels: str = dataclasses.field(
        metadata={"doc": "a dimension of blocks of channels along which the vectors lie; '': they lie side by side"}
    )
    lanes: int = dataclasses.field(metadata={"doc": "lanes of a vector, a power of two", "least": 2})
    rows: int = dataclasses.field(metadata={"doc": "rows of a tile", "least": 1})
    vectors: int = dataclasses.field(metadata={"doc": "vectors of a row of a tile", "least": 1})
    packed: bool = dataclasses.field(metadata={"doc": "whether the vector operand is copied into panels first"})
    neighbours: int = dataclasses.field(
        default=1, metadata={"doc": "steps of the sum that one instruction takes", "least": 1}
    )


@dataclasses.dataclass(frozen=True)
class Tiling:
    """A tile with the variables of the block that it is made of.

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
        """Number of elements of a tile along ``column``."""
        return self.lanes if self.block is not None else self.lanes * self.vectors


def tile_of(block: Block, tiling: Tiling) -> Tile:
    """Return the tile as plain data, with the names that variables have in ``block``."""
    items = spatial(block)
    names = dict(zip([item.var for item in items], names_of(items), strict=True))
    return Tile(
        "" if tiling.row is None else names[tiling.row.var],
        "" if tiling.block is None else names[tiling.block.var],
        tiling.lanes,
        tiling.rows,
        tiling.vectors,
        tiling.packed,
        tiling.neighbours,
    )


def tiling_of(block: Block, tile: Tile) -> Tiling:
    """Return the tile with the variables of ``block`` that it names.

    Raises:
        ScheduleError: the block is not a contraction with these variables.
    """
    found = contraction(block)
    operands = None if found is None else _operands(found, block)
    if operands is None:
        raise ScheduleError(f"block {block.name} is not a sum of products that can be tiled")
    items = spatial(block)
    named = dict(zip(names_of(items), items, strict=True))
    for name in (tile.row, tile.channels):
        if name and name not in named:
            raise ScheduleError(f"block {block.name} has no dimension {name}; it has {', '.join(named)}")
    return Tiling(
        items[-1],
        named.get(tile.row),
        named.get(tile.channels),
        tile.lanes,
        tile.rows,
        tile.vectors,
        operands[0],
        tile.packed,
        reductions(block)[-1] if tile.neighbours > 1 else None,
        tile.neighbours,
    )


def plan_tiling(block: Block, target: Target, reassociate: bool = False, given: Given = NOTHING) -> Tiling | Declined:
    """Return the best tiling of a contraction, or why there is none (see :func:`tilings`)."""
    found = tilings(block, target, reassociate, given)
    return found if isinstance(found, Declined) else next(found)


def tilings(
    block: Block, target: Target, reassociate: bool = False, given: Given = NOTHING
) -> Iterator[Tiling] | Declined:
    """Return the tilings of a contraction, best first, or why there is none: the result is empty, or its last dimension
    cannot be vectorized because neither operand has it, or both have it but neither is contiguous along it.

    Args:
        reassociate: whether sums of floats may be reassociated.
        given: fields of the :class:`Tile` that are set.
    """
    found = contraction(block)
    if found is None:
        return Declined(f"block {block.name} is not a sum of products of two loads")
    if not spatial(block) or any(constant(item.extent) == 0 for item in spatial(block)):
        return Declined(f"block {block.name} has an empty or a scalar result")
    column = spatial(block)[-1]
    operands = _operands(found, block)
    if operands is None:
        return Declined(f"neither operand of block {block.name} is indexed by the last dimension of its result")
    vector, scalar = operands
    lanes, columns = int(given.get("lanes", 0)) or _lanes(block, target), constant(column.extent)
    variables = _tile_variables(block, vector, scalar, lanes, given)
    if isinstance(variables, Declined):
        return variables
    row, rows, channel_block = variables
    types = vector.buffer.dtype, scalar.buffer.dtype
    step = reductions(block)[-1]
    side_by_side = panel_width(vector, step.var) == target.dot_products(*types, found.accumulator.dtype)
    behind = 1 if side_by_side else 0
    if channel_block is not None:
        block_extent = constant(channel_block.extent)
        columns = None if block_extent is None else block_extent * lanes
    panel = panel_width(vector, column.var, behind)
    if panel is not None and "lanes" not in given:
        lanes = math.gcd(lanes, panel)
    row_extent = constant(row.extent) if row is not None else 1
    packed = False
    if uses(scalar, column.var):
        if not rows or not (is_contiguous(vector, column.var) and is_contiguous(scalar, column.var)):
            return Declined(
                f"both operands of block {block.name} are indexed by the last dimension of its result, "
                "but are not contiguous along it or do not share rows"
            )
    elif panel is None and not is_contiguous(vector, column.var, behind):
        if axis_of(vector, column.var) is None:
            return Declined(
                f"{vector.buffer.name} can't be packed: none of its dimensions is the last dimension of the result"
            )
        packed = True
    elif channel_block is None and axis_of(vector, column.var) is not None:
        packed = is_worth_packing(row_extent)
    group = shared_by(vector, row.var) if rows and row is not None else None
    whole = None
    if channel_block is not None:
        whole = math.gcd(constant(channel_block.extent) or 0, shared_by(scalar, channel_block.var) or 0)
    if given:
        can_pack = (
            panel is None
            and channel_block is None
            and not uses(scalar, column.var)
            and axis_of(vector, column.var) is not None
        )
        reason = _misfit(given, row, lanes, panel, group, whole, can_pack)
        if reason:
            return Declined(f"block {block.name}: {reason}")
        packed = bool(given.get("packed", packed))
    tiling = Tiling(column, row, channel_block, lanes, 1, 1, vector, packed)
    if (not found.accumulator.dtype.is_float or reassociate) and given.get("neighbours") != 1:
        tiling = _in_groups(tiling, found, scalar, step, side_by_side, target)
    if given.get("neighbours", tiling.neighbours) != tiling.neighbours:
        return Declined(
            f"block {block.name}: an instruction sums {tiling.neighbours} neighbours, not {given['neighbours']}"
        )
    space = TileSpace(
        row_extent, columns, lanes, target.tile_registers, None if panel is None else panel // lanes, group, whole
    )
    return _offered(tiling, space, given)


def _offered(tiling: Tiling, space: TileSpace, given: Given) -> Iterator[Tiling]:
    """Yield the tilings with rows and vectors chosen, best first."""
    for rows, vectors in itertools.islice(ranked_tiles(space, given.get("rows"), given.get("vectors")), _OFFERED):
        yield dataclasses.replace(tiling, rows=rows, vectors=vectors)


def _misfit(
    given: Given,
    row: IterVar | None,
    lanes: int,
    panel: int | None,
    group: int | None,
    whole: int | None,
    can_pack: bool,
) -> str:
    """Return the reason why the settings of a tile do not fit; empty if they do.

    Args:
        panel: number of columns in a panel of the vector operand.
        group: number of neighbouring rows that share the vector operand; None: all of them.
        whole: number of neighbouring blocks of channels that share the other operand; None: there are no blocks, 0: all
            of them.
        can_pack: whether the vector operand can be copied into panels.
    """
    rows, vectors = given.get("rows", 1), given.get("vectors")
    if not are_lanes(lanes):
        return f"no vector has {lanes} lanes"
    if row is None and rows != 1:
        return "it has no dimension for the rows of a tile"
    if group is not None and group % rows:
        return f"the rows of a tile must divide {group}, the number that share a vector; {rows} do not"
    if panel is not None and (panel % lanes or (vectors or panel // lanes) * lanes != panel):
        return f"its operand is in panels of {panel} columns, and a tile must be as wide"
    if whole and vectors and whole % vectors:
        return f"the vectors of a tile must divide {whole}, the number that share a scalar; {vectors} do not"
    if given.get("packed") and not can_pack:
        return "its operand can't be packed"
    return ""


def _lanes(block: Block, target: Target) -> int:
    """Return the lanes of a vector of results: no more than the columns need."""
    lanes, extent = vector_lanes(block, target), constant(spatial(block)[-1].extent)
    while extent is not None and lanes // 2 >= extent and lanes > 2:
        lanes //= 2
    return lanes


def _tile_variables(
    block: Block, vector: BufferLoad, scalar: BufferLoad, lanes: int, given: Given
) -> tuple[IterVar | None, list[IterVar], IterVar | None] | Declined:
    """Return the variable along the rows of a tile, the candidates for it (they share the vectors), and the channel
    block."""
    *others, column = spatial(block)
    rows = [item for item in others if shared_by(scalar, item.var) == 1 and shared_by(vector, item.var) != 1]
    blocks = [item for item in others if shared_by(vector, item.var) == 1 and shared_by(scalar, item.var) != 1]
    of_channels = blocks if constant(column.extent) == lanes else []
    channel_block = of_channels[-1] if of_channels else None
    if "channels" in given:
        chosen = _named(block, given["channels"], of_channels, "blocks of channels")
        if isinstance(chosen, Declined):
            return chosen
        channel_block = chosen
    row = _longest_enough(rows) if rows else None
    # No operand is shared (a depthwise convolution): a tile of several rows hides the latency.
    otherwise = blocks if channel_block is None else []
    if "row" in given:
        chosen = _named(block, given["row"], rows or otherwise, "rows of a tile")
        return chosen if isinstance(chosen, Declined) else (chosen, rows, channel_block)
    if row is None and otherwise:
        row = otherwise[-1]
    return row, rows, channel_block


def _named(block: Block, name: str, candidates: list[IterVar], purpose: str) -> IterVar | Declined | None:
    """Return the variable called ``name``, which must be one of ``candidates``; None for the name ''."""
    items = spatial(block)
    named = {each: item for each, item in zip(names_of(items), items, strict=True) if item in candidates}
    if name and name not in named:
        listed = f"candidates are {', '.join(named)}" if named else "there is no candidate"
        return Declined(f"dimension {name} of block {block.name} can't be the {purpose}; {listed}")
    return named.get(name)


def _in_groups(
    tiling: Tiling, found: Contraction, scalar: BufferLoad, step: IterVar, side_by_side: bool, target: Target
) -> Tiling:
    """Return the tiling with as many steps at once as one instruction takes, where the operands of such steps are, or
    will be packed, next to each other."""
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
    """Return whether ``step`` indexes the last dimension, not counting that of ``column``."""
    axis, rows = axis_of(access, column), axis_of(access, step)
    last = len(access.indices) - 1
    return axis is not None and rows == (last - 1 if axis == last else last)


def _longest_enough(rows: list[IterVar]) -> IterVar:
    """Return the variable for the rows of a tile: among those that fill a tile the last one, whose elements are closest
    in memory; where none does, the longest. A sequence with one item per time step has its rows along the time
    steps."""
    extents = {item: constant(item.extent) for item in rows}
    enough = [item for item, extent in extents.items() if fills_a_tile(extent)]
    return enough[-1] if enough else max(reversed(rows), key=lambda item: extents[item] or 0)


def _operands(found: Contraction, block: Block) -> tuple[BufferLoad, BufferLoad] | None:
    """Return the operand whose vectors all rows of a tile share, and the other one, of which each row broadcasts its
    own element.

    Where both operands have ``column`` (a depthwise convolution: each lane is a channel of its own) each row has its
    own vector instead; the operand with fewer of the result's dimensions comes first.
    """
    column = spatial(block)[-1]
    left, right = uses(found.left, column.var), uses(found.right, column.var)
    if not left and not right:
        return None
    if left and right:
        extra = [sum(uses(load, item.var) for item in spatial(block)) for load in (found.left, found.right)]
        left = extra[0] < extra[1]
    return (found.left, found.right) if left else (found.right, found.left)
