"""Weigh schedules: what registers, caches and threads make of a plan, for all rules.

A rule says which plans the loops of a nest allow; the functions here say which of them are best, in which order they
are offered, and how large their parts are. So every number that rests on a measurement stands here, with what was
measured. Rules offer plans as iterators, and the second best is made when the best does not fit the loops: a search, or
a model that is learned, takes the place of :func:`ranked_tiles` and its neighbours, and no rule changes.

What a call of an intrinsic such as ``exp`` costs is stated in its declaration in ``tensorir/intrinsics.py``.

Extents that are not known before a model is called are None.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from tilewright.passes.schedule.facts import Access, loads, stores
from tilewright.tensorir.expr import Call
from tilewright.tensorir.functor import CALLS, kinds, walk_to
from tilewright.tensorir.intrinsics import INTRINSICS
from tilewright.tensorir.stmt import Block
from tilewright.tensorir.target import Target

# -- vectors ----------------------------------------------------------------------------------------------------------

#: Vectors of partial results that a long row reduction keeps, to hide the latency of one addition.
PARTIAL_VECTORS = 4
#: Vectors of results at most that accumulate in registers while a matrix is read once.
_RESULT_VECTORS = 8


def vector_lanes(block: Block, target: Target) -> int:
    """Lanes of a vector for a block: of its widest element type, so that no value needs two registers."""
    accesses: list[Access] = [*stores(block), *loads(block)]
    bits = [access.buffer.dtype.bits for access in accesses]
    widest = max((bits_ for bits_ in bits if bits_ > 8), default=32)
    return max(2, target.vector_bits // widest)


def partial_vectors(extent: int | None, lanes: int, most: int = PARTIAL_VECTORS) -> int:
    """Vectors of partial results for a reduction over ``extent`` elements: several where each gets some steps."""
    return most if extent is None or extent >= 4 * lanes * most else 1


def width_of_results(extent: int | None, lanes: int) -> int:
    """The number of results that accumulate while a matrix is read: all, if there are registers for them."""
    vectors = _RESULT_VECTORS // 2 if extent is None else -(-extent // lanes)
    return lanes * (vectors if vectors <= _RESULT_VECTORS else _RESULT_VECTORS // 2)


# -- tiles of accumulators --------------------------------------------------------------------------------------------

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
#: Vectors of a tile at most.
_MOST_VECTORS = 6


def is_worth_packing(rows: int | None) -> bool:
    """Whether a vector operand whose columns are neighbours is copied into panels for so many rows."""
    return rows is None or rows >= _ROWS_WORTH_PACKING


def fills_a_tile(rows: int | None) -> bool:
    """Whether a dimension of so many rows is long enough for the rows of a tile."""
    return rows is None or rows >= _LEAST_ROWS


def leaves_rest(rows: int | None, height: int) -> bool:
    """Whether rows may be left over by tiles of that height."""
    return rows is None or rows % height != 0


def tile_registers(rows: int, vectors: int) -> int:
    """Registers of a tile: its accumulators, the vectors of a step, and a number that is broadcast."""
    return rows * vectors + vectors + 1


@dataclasses.dataclass(frozen=True)
class TileSpace:
    """The tiles that a result of ``rows`` by ``columns`` may be divided into.

    Attributes:
        lanes: of a vector, along the columns.
        registers: that a tile has.
        panel: the number of vectors, where the operand is packed in panels of so many already.
        group: so many neighbouring rows share the vector operand, and a tile stays in such a group.
        blocks: the vectors are blocks of channels, of which so many neighbouring ones share the other operand; tiles
            have a number of vectors that divides it.
    """

    rows: int | None
    columns: int | None
    lanes: int
    registers: int
    panel: int | None = None
    group: int | None = None
    blocks: int | None = None


def choose_tile(
    rows: int | None,
    columns: int | None,
    lanes: int,
    registers: int,
    panel: int | None = None,
    group: int | None = None,
    blocks: int | None = None,
) -> tuple[int, int]:
    """Rows and vectors of the best register tile (see :class:`TileSpace`)."""
    return next(ranked_tiles(TileSpace(rows, columns, lanes, registers, panel, group, blocks)))


def ranked_tiles(space: TileSpace, rows: int | None = None, vectors: int | None = None) -> Iterator[tuple[int, int]]:
    """Rows and vectors of register tiles, best first; at least one.

    Among the tiles that fit the registers, the first is the one with the least wasted work, then the least loads for
    each multiply-add (:data:`VECTOR_COST`). One that divides rows and columns is preferred to one with somewhat fewer
    loads that leaves a rest (:data:`_WITH_REST`).

    Args:
        rows, vectors: those of all tiles, where somebody has set them.
    """
    scored = _scored_tiles(space, rows, vectors)
    best = (-1.0, rows or 1, vectors or 1)
    for found in scored:
        if found[0] > best[0] + 1e-9:
            best = found
    yield best[1], best[2]
    scored.sort(key=_negative_score)
    offered = {(best[1], best[2])}
    for _, height, width in scored:
        if (height, width) not in offered:
            offered.add((height, width))
            yield height, width


def _negative_score(scored: tuple[float, int, int]) -> float:
    return -scored[0]


def _scored_tiles(space: TileSpace, rows: int | None, vectors: int | None) -> list[tuple[float, int, int]]:
    """The tiles that fit the registers, with what they are worth."""
    found: list[tuple[float, int, int]] = []
    if vectors is not None:
        widths: Sequence[int] = (vectors,)
    else:
        widths = range(1, _MOST_VECTORS + 1) if space.panel is None else (space.panel,)
    for width in widths:
        if vectors is None:
            if space.blocks and space.blocks % width:
                continue
            if space.panel is None and space.columns is not None and 1 < width > -(-space.columns // space.lanes):
                break
        for height in _heights(space, width) if rows is None else (rows,):
            if rows is None or tile_registers(height, width) <= space.registers:
                found.append((_worth(space, height, width), height, width))
    return found


def _heights(space: TileSpace, vectors: int) -> Iterable[int]:
    """Rows of tiles of so many vectors that fit the registers."""
    most = (space.registers - 1 - vectors) // vectors
    if space.rows is None:
        most = min(most, max(8, 16 // vectors))  # rows that are left over, which smaller tiles take, stay few
        heights = list(range(1, most + 1))
    else:
        tiles = [-(-space.rows // height) for height in range(1, min(most, space.rows) + 1)]
        heights = [-(-space.rows // count) for count in tiles]  # nearly equal tiles
    return heights if space.group is None else [height for height in heights if space.group % height == 0]


def _worth(space: TileSpace, rows: int, vectors: int) -> float:
    """Rate a tile: the part of its work that is used, times how well it keeps the machine busy."""
    width = vectors * space.lanes
    used_rows = 1.0 if space.rows is None else space.rows / (-(-space.rows // rows) * rows)
    used_columns = 1.0 if space.columns is None else space.columns / (-(-space.columns // width) * width)
    accumulators = rows * vectors
    latency = min(1.0, accumulators / 8, 0.7 + accumulators / 40)  # from 8 on as measured: 8 only just hide it
    reuse = accumulators / (accumulators + rows + VECTOR_COST * vectors)
    rest = (space.rows is not None and space.rows % rows != 0) or (
        space.columns is not None and space.columns % width != 0
    )
    with_rest = _WITH_REST if space.registers >= 32 else _WITH_REST_OF_FEW_REGISTERS
    return used_rows * used_columns * latency * reuse * (with_rest if rest else 1.0)


# -- tasks of threads -------------------------------------------------------------------------------------------------

#: Tasks for each thread, so that a thread that is late does not hold up the others for long.
_TASKS_PER_THREAD = 4
#: So many tasks are enough for the threads of any machine where tasks are alike and small.
_ENOUGH_TASKS = 8
#: Tiles that a task goes through where the number of rows is not known.
_TILES_PER_TASK = 8


def are_enough_tasks(count: int | None) -> bool:
    """Whether so many small tasks keep the threads busy."""
    return count is None or count >= _ENOUGH_TASKS


def tiles_per_task(tiles: int | None, parts: int, target: Target) -> int:
    """The number of ``tiles`` along the rows, sharing their columns, for one task: few enough that every thread gets
    several tasks, and a divisor of their number, so that no task is short.

    Args:
        parts: how many rows of tiles there are beside each other.
    """
    if tiles is None:
        return _TILES_PER_TASK
    wanted = -(-_TASKS_PER_THREAD * target.num_threads // parts)
    return next(tiles // count for count in range(min(wanted, tiles), tiles + 1) if tiles % count == 0)


#: Bytes of scores that a task of attention has at once: they stay in the second cache, with the operands of a head.
_SCORE_BYTES = 128 << 10
#: Rows that a strip of scores has even where it is larger than that: so often is what all rows share used from the
#: first cache.
_LEAST_STRIP_ROWS = 24


def tiles_of_a_strip(rows: int | None, columns: int | None, height: int, heads: int, target: Target) -> int:
    """The number of tiles of ``height`` rows for a task of attention: as many as fit into the cache, but so few that
    every thread gets several tasks; all tasks have about as many."""
    most = max(1, -(-_LEAST_STRIP_ROWS // height), _SCORE_BYTES // (4 * height * columns) if columns else 0)
    if rows is None:
        return most
    tiles = -(-rows // height)
    parts = max(-(-tiles // most), min(tiles, -(-_TASKS_PER_THREAD * target.num_threads // heads)))
    return -(-tiles // parts)


#: Pixels of a line, and bytes of the image with its border, that a task copies at most: they stay in the first cache
#: with what the task writes.
_STRIP_PIXELS = 64
#: Pixels of a line of unknown length: most are shorter than those, and a strip has more lines instead.
_UNKNOWN_PIXELS = 32
_STRIP_BYTES = 24 << 10


def tiles_of_a_line(pixels: int | None, rows: int) -> int:
    """The number of tiles of ``rows`` pixels that a task takes of a line of an image."""
    return nearly_equal(pixels, rows, max(1, (_UNKNOWN_PIXELS if pixels is None else _STRIP_PIXELS) // rows))


def lines_in_cache(line_bytes: int) -> int:
    """The number of lines of so many bytes each that fit into the first cache."""
    return _STRIP_BYTES // line_bytes


def nearly_equal(extent: int | None, size: int, most: int) -> int:
    """The number of pieces of ``size`` in a part of a dimension: at most ``most``, about equally many in all parts."""
    if extent is None:
        return most
    pieces = -(-extent // size)
    return -(-pieces // -(-pieces // most))


#: Elements of a row that one iteration of the parallel loop computes, where rows are longer than this; of shorter rows
#: it computes several.
CHUNK = 4096
#: What an extent is taken for that is not known before the model is called.
_UNKNOWN_EXTENT = 64


def dims_of_tasks(extents: Sequence[int | None], length: int, chunk: int) -> int:
    """The number of dimensions outside of a row of ``length`` elements that tasks are made of: at least one, and so
    many that a task has enough elements to be worth the divisions that find its place."""
    tasks, elements = len(extents), length
    while tasks > 1:
        extent = extents[tasks - 1]
        elements *= _UNKNOWN_EXTENT if extent is None else extent
        if elements > chunk:
            break
        tasks -= 1
    return tasks


# -- formulas and code ------------------------------------------------------------------------------------------------

#: Functions of more instructions take much longer than a load.
_CHEAP_CALL = 4


def is_expensive(block: Block) -> bool:
    """Whether computing an element costs much more than loading it."""
    if not kinds(block.body) & CALLS:
        return False
    return any(isinstance(node, Call) and _is_expensive_call(node.name) for node in walk_to(block.body, CALLS))


def _is_expensive_call(name: str) -> bool:
    found = INTRINSICS.get(name)
    return found is None or found.instructions > _CHEAP_CALL  # another PrimFunc may do anything


#: Copies of a formula that is read more than once may have this many parts together.
MOST_COPIED = 512
#: A formula nests so deep at most: passes over expressions recurse, and approximations of functions nest ten times as
#: deep as the call in their place.
MOST_NESTED = 48

#: Places of a tile at most, where each is written out, stage by stage.
MOST_UNROLLED = 64

# -- tiles that are exchanged -----------------------------------------------------------------------------------------

#: A tile of fewer rows than this is not worth the exchange of its rows and columns.
_LEAST_EXCHANGED = 4
#: Rows of such a tile at most: each is in a register of its own.
_MOST_EXCHANGED = 16


def exchanged_tiles(lanes: int) -> Iterator[int]:
    """Sizes of square tiles whose rows and columns change over in registers, best first: the largest, as wide as a
    vector."""
    size = min(lanes, _MOST_EXCHANGED)
    while size >= _LEAST_EXCHANGED:
        yield size
        size //= 2
