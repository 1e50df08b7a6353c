"""Rate schedules by their use of registers, caches and threads, for all rules.

A rule enumerates the plans that the loops of a nest allow; the functions here rank them and choose their sizes. So
every number that rests on a measurement is defined here, with the measurement. Rules offer plans as iterators, and the
second best is computed only when the best does not fit the loops: a search or a learned cost model can replace
:func:`ranked_tiles` and the functions beside it without changing a rule.

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
#: Maximum number of result vectors that accumulate in registers while a matrix is read once.
_RESULT_VECTORS = 8


def vector_lanes(block: Block, target: Target) -> int:
    """Return the lanes of a block's vectors: those of its widest element type, so that no value needs two registers."""
    accesses: list[Access] = [*stores(block), *loads(block)]
    bits = [access.buffer.dtype.bits for access in accesses]
    widest = max((bits_ for bits_ in bits if bits_ > 8), default=32)
    return max(2, target.vector_bits // widest)


def partial_vectors(extent: int | None, lanes: int, most: int) -> int:
    """Return the number of vectors of partial results for a reduction over ``extent`` elements: several where each
    gets some steps."""
    return most if extent is None or extent >= 4 * lanes * most else 1


def width_of_results(extent: int | None, lanes: int) -> int:
    """Return the number of results that accumulate while a matrix is read: all, if there are registers for them."""
    vectors = _RESULT_VECTORS // 2 if extent is None else -(-extent // lanes)
    return lanes * (vectors if vectors <= _RESULT_VECTORS else _RESULT_VECTORS // 2)


# -- tiles of accumulators --------------------------------------------------------------------------------------------

#: From this many rows on, copying the vector operand into panels costs less than walking it with large strides.
_ROWS_WORTH_PACKING = 16
#: Cost of loading a vector (mostly from the L2 cache) relative to broadcasting a number (from the L1 cache): a taller
#: tile loads each vector for more rows.
VECTOR_COST = 1.5
#: Factors for tiles that leave a remainder of the rows or columns, which needs a second tile: two tiles are twice the
#: code, a seventh of the build time of a network of convolutions. With 32 registers all tiles with enough accumulators
#: run at the machine's peak. With 16, which hold at most 12 accumulators, tiles of 8 to 10 take 8 to 19 % longer (on a
#: Zen 3).
_WITH_REST, _WITH_REST_OF_FEW_REGISTERS = 0.85, 0.97
#: Minimum number of rows that fill a tile: each shared vector is then reused often enough.
_LEAST_ROWS = 4
#: Maximum number of vectors of a tile.
_MOST_VECTORS = 6


def is_worth_packing(rows: int | None) -> bool:
    """Return whether a vector operand with contiguous columns is worth packing into panels for ``rows`` rows."""
    return rows is None or rows >= _ROWS_WORTH_PACKING


def fills_a_tile(rows: int | None) -> bool:
    """Return whether a dimension of ``rows`` rows is long enough for the rows of a tile."""
    return rows is None or rows >= _LEAST_ROWS


def leaves_rest(rows: int | None, height: int) -> bool:
    """Return whether tiles of ``height`` rows may leave a remainder."""
    return rows is None or rows % height != 0


def tile_registers(rows: int, vectors: int) -> int:
    """Return the registers of a tile: its accumulators, the vectors of a step, and the number that is broadcast."""
    return rows * vectors + vectors + 1


@dataclasses.dataclass(frozen=True)
class TileSpace:
    """The tiles that a result of ``rows`` by ``columns`` may be divided into.

    Attributes:
        lanes: lanes of a vector, along the columns.
        registers: vector registers available to a tile.
        panel: vectors in a panel, where the operand is packed already.
        group: number of neighbouring rows that share the vector operand; a tile stays within such a group.
        blocks: where the vectors are blocks of channels, the number of neighbouring blocks that share the other
            operand; a tile's number of vectors divides it.
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
    """Return rows and vectors of the best register tile (see :class:`TileSpace`)."""
    return next(ranked_tiles(TileSpace(rows, columns, lanes, registers, panel, group, blocks)))


def ranked_tiles(space: TileSpace, rows: int | None = None, vectors: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield rows and vectors of register tiles, best first; at least one.

    Among the tiles that fit the registers, the first is the one with the least wasted work, then with the fewest loads
    per multiply-add (:data:`VECTOR_COST`). A tile that divides rows and columns is preferred to one with somewhat fewer
    loads that leaves a remainder (:data:`_WITH_REST`).

    Args:
        rows, vectors: fixed sizes of all tiles, where the user has set them.
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
    """Return the tiles that fit the registers, with their ratings."""
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
    """Return the numbers of rows for which tiles of ``vectors`` vectors fit the registers."""
    most = (space.registers - 1 - vectors) // vectors
    if space.rows is None:
        most = min(most, max(8, 16 // vectors))  # keep the remainder, which smaller tiles compute, small
        heights = list(range(1, most + 1))
    else:
        tiles = [-(-space.rows // height) for height in range(1, min(most, space.rows) + 1)]
        heights = [-(-space.rows // count) for count in tiles]  # nearly equal tiles
    return heights if space.group is None else [height for height in heights if space.group % height == 0]


def _worth(space: TileSpace, rows: int, vectors: int) -> float:
    """Rate a tile: the useful fraction of its work, times its utilization of the machine."""
    width = vectors * space.lanes
    used_rows = 1.0 if space.rows is None else space.rows / (-(-space.rows // rows) * rows)
    used_columns = 1.0 if space.columns is None else space.columns / (-(-space.columns // width) * width)
    accumulators = rows * vectors
    latency = min(1.0, accumulators / 8, 0.7 + accumulators / 40)  # as measured from 8 on: 8 only just hide it
    reuse = accumulators / (accumulators + rows + VECTOR_COST * vectors)
    rest = (space.rows is not None and space.rows % rows != 0) or (
        space.columns is not None and space.columns % width != 0
    )
    with_rest = _WITH_REST if space.registers >= 32 else _WITH_REST_OF_FEW_REGISTERS
    return used_rows * used_columns * latency * reuse * (with_rest if rest else 1.0)


# -- tasks of threads -------------------------------------------------------------------------------------------------

#: Tasks per thread, so that a late thread does not hold up the others for long.
_TASKS_PER_THREAD = 4
#: Number of tasks that is enough for the threads of any machine where tasks are alike and small.
_ENOUGH_TASKS = 8
#: Tiles per task where the number of rows is not known.
_TILES_PER_TASK = 8


def are_enough_tasks(count: int | None) -> bool:
    """Return whether ``count`` small tasks keep the threads busy."""
    return count is None or count >= _ENOUGH_TASKS


#: Maximum number of steps of a window whose line is a task, and of one whose steps are written out.
_STEPS_OF_A_WINDOW, _STEPS_WRITTEN_OUT = 64, 16


def is_line_a_task(lines: int, steps: int | None, target: Target) -> bool:
    """Return whether a task computes a whole line of windows of ``steps`` elements, rather than one vector of it, whose
    masks cost as much as such windows. (Means of 3x3 windows of 58x56x56 numbers, two apart, take 21 us instead of 57
    on a Zen 5, those of 16x300x300 numbers 347 us instead of 1,041.)

    Args:
        lines: the number of lines, at least.
    """
    return steps is not None and steps <= _STEPS_OF_A_WINDOW and lines >= _TASKS_PER_THREAD * target.num_threads


def is_window_written_out(steps: int | None) -> bool:
    """Return whether the ``steps`` elements of a window are written out rather than visited by loops. (3x3 windows take
    .38 to .95 of the time, and their builds .8 to 1.0; 5x5 windows of blocks of channels would take 1.1.)"""
    return steps is not None and steps <= _STEPS_WRITTEN_OUT


def tiles_per_task(tiles: int | None, parts: int, target: Target) -> int:
    """Return the number of ``tiles`` along the rows, sharing their columns, for one task: few enough that every thread
    gets several tasks, and a divisor of their number, so that no task is short.

    Args:
        parts: number of columns of tiles.
    """
    if tiles is None:
        return _TILES_PER_TASK
    wanted = -(-_TASKS_PER_THREAD * target.num_threads // parts)
    return next(tiles // count for count in range(min(wanted, tiles), tiles + 1) if tiles % count == 0)


#: Share of the L2 cache for the part of an image that is computed with all columns.
_SHARED_PART = 4


def tiles_with_all_columns(
    image: int, weight: int, tile: int, line: int, lines: int, columns: int, target: Target
) -> int:
    """Return the number of tiles along a line of an image that are computed with all columns before the next tiles are:
    an image that does not fit into the L2 cache is then read from memory once, and not for each column. 0: one column
    after the other is computed for the whole image, so that the weight is read once.

    (144 to 64 channels of 16x56x56 by 3x1x1 windows take 40 ms instead of 95 on a Zen 3, 256 to 64 of 56x56 by 1x1
    windows 1.03 ms instead of 1.25.)

    Args:
        image, weight: the sizes of the operands in bytes; 0: unknown.
        tile: bytes of the image that a tile reads.
        line, lines: the number of tiles of a line, and of lines.
        columns: the number of columns of tiles.
    """
    cache = target.cache_bytes(2)
    if columns < 2 or image <= cache or not weight:
        return 0
    tiles = nearly_equal(line, 1, max(1, cache // (_SHARED_PART * tile)))
    times = lines * -(-line // tiles) if weight > cache // 2 else 1
    return tiles if 2 * (image + weight * times) <= image * columns + weight else 0


def panels_for_threads(panels: int, target: Target) -> int:
    """Return the number of ``panels`` panels for one task, which packs them: as many as leave several tasks for every
    thread, and a divisor of their number, so that no task is short; 0 if there are no panels. (A product of 512 rows by
    a weight of 3072 x 768 takes 21.8 ms in this way, and 22.3 if all panels are packed first; 21.1 if they are packed
    when the model is built.)"""
    least = min(_TASKS_PER_THREAD * target.num_threads, panels)
    return next((panels // count for count in range(least, panels + 1) if count and panels % count == 0), 0)


#: Bytes of scores that a task of attention holds at once: they stay in the L2 cache, with the operands of a head.
_SCORE_BYTES = 128 << 10
#: Minimum number of rows of a strip of scores, even where it exceeds that size: the operand that all rows share is
#: reused from the L1 cache that often.
_LEAST_STRIP_ROWS = 24


def tiles_of_a_strip(rows: int | None, columns: int | None, height: int, heads: int, target: Target) -> int:
    """Return the number of tiles of ``height`` rows for a task of attention: as many as fit into the cache, but so few
    that every thread gets several tasks; all tasks get about equally many."""
    most = max(1, -(-_LEAST_STRIP_ROWS // height), _SCORE_BYTES // (4 * height * columns) if columns else 0)
    if rows is None:
        return most
    tiles = -(-rows // height)
    parts = max(-(-tiles // most), min(tiles, -(-_TASKS_PER_THREAD * target.num_threads // heads)))
    return -(-tiles // parts)


#: Maximum number of pixels of a line, and of bytes of the image with its border, that a task copies: they stay in the
#: L1 cache together with the task's results.
_STRIP_PIXELS = 64
#: Pixels of a line of unknown length: most are shorter than ``_STRIP_PIXELS``, and a strip has more lines instead.
_UNKNOWN_PIXELS = 32
_STRIP_BYTES = 24 << 10


def tiles_of_a_line(pixels: int | None, rows: int) -> int:
    """Return the number of tiles of ``rows`` pixels along a line of an image for one task."""
    return nearly_equal(pixels, rows, max(1, (_UNKNOWN_PIXELS if pixels is None else _STRIP_PIXELS) // rows))


def lines_in_cache(line_bytes: int) -> int:
    """Return the number of lines of ``line_bytes`` bytes each that fit into the L1 cache."""
    return _STRIP_BYTES // line_bytes


def nearly_equal(extent: int | None, size: int, most: int) -> int:
    """Return the number of pieces of ``size`` in a part of a dimension: at most ``most``, about equally many in all
    parts."""
    if extent is None:
        return most
    pieces = -(-extent // size)
    return -(-pieces // -(-pieces // most))


#: Elements of a row that one iteration of the parallel loop computes where rows are longer than this; it computes
#: several shorter rows.
CHUNK = 4096
#: Assumed value of an extent that is not known before the model is called.
_UNKNOWN_EXTENT = 64


def dims_of_tasks(extents: Sequence[int | None], length: int, chunk: int) -> int:
    """Return the number of dimensions, outside of a row of ``length`` elements, that are fused into tasks: at least
    one, and so many that a task has enough elements to outweigh the divisions that compute its indices."""
    tasks, elements = len(extents), length
    while tasks > 1:
        extent = extents[tasks - 1]
        elements *= _UNKNOWN_EXTENT if extent is None else extent
        if elements > chunk:
            break
        tasks -= 1
    return tasks


# -- formulas and code ------------------------------------------------------------------------------------------------

#: Maximum number of instructions of a cheap function: longer ones take much longer than a load.
_CHEAP_CALL = 4


def is_expensive(block: Block) -> bool:
    """Return whether computing an element costs much more than loading it."""
    if not kinds(block.body) & CALLS:
        return False
    return any(isinstance(node, Call) and _is_expensive_call(node.name) for node in walk_to(block.body, CALLS))


def _is_expensive_call(name: str) -> bool:
    found = INTRINSICS.get(name)
    return found is None or found.instructions > _CHEAP_CALL  # another PrimFunc may do anything


#: Maximum number of expression nodes of all copies together of a formula that is read more than once.
MOST_COPIED = 512
#: Maximum nesting depth of a formula: passes over expressions recurse, and approximations of functions nest ten times
#: as deep as the calls that they replace.
MOST_NESTED = 48

#: Maximum number of pieces of a concatenation that have loops of their own: each is a function, and a fork.
MOST_PIECES = 8

#: Maximum number of positions of a tile that is unrolled, stage by stage.
MOST_UNROLLED = 64

# -- transposed tiles -------------------------------------------------------------------------------------------------

#: Minimum number of rows of a tile that is worth transposing in registers.
_LEAST_EXCHANGED = 4
#: Maximum number of rows of such a tile: each is in a register of its own.
_MOST_EXCHANGED = 16


def exchanged_tiles(lanes: int) -> Iterator[int]:
    """Yield the sizes of square tiles that are transposed in registers, best first: the largest, as wide as a vector,
    leads."""
    size = min(lanes, _MOST_EXCHANGED)
    while size >= _LEAST_EXCHANGED:
        yield size
        size //= 2


def walks_rows(rows: int | None, columns: int | None) -> bool:
    """Return whether tiles follow each other along the rows, along which operands lie in memory, and not along the
    columns, along which the result does: whether the rows are longer. Measured in one process: packing a weight of
    3072 x 768 in panels of 48 outputs .94 ms instead of 1.36, an image of 64 x 56 x 56 in blocks of 16 channels 33 us
    instead of 51; with short rows it is the other way around, 136 us instead of 103 from 56 x 56 x 96 channels."""
    return columns is not None and columns < (_UNKNOWN_EXTENT if rows is None else rows)


def tiles_of_a_chunk(rows: int | None, size: int) -> int:
    """Return the number of tiles along ``rows`` rows for one task: as many as leave enough tasks."""
    return _TILES_PER_TASK if rows is None else max(1, rows // (size * _ENOUGH_TASKS))
