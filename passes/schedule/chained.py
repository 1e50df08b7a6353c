"""Schedule two contractions, the second of which sums over the results of the first, row by row: attention.

The first computes a row of scores for each row of its left operand; stages in between turn a row into weights (softmax:
the maximum, exponentials, their sum); the second sums rows of another matrix with these weights. A task computes a
strip of a few rows through all stages, so that the strip stays in the cache and the whole matrix of scores is never
stored::

    for task in parallel(..):                # a head, and a few rows
      for columns, rows: scores              # tiles of accumulators in registers
      for row: maximum; exponentials         # in vectors
               their sum
      for columns, rows: results             # tiles of accumulators in registers; the epilogue on the tile

The operands whose vectors all rows share are copied into panels first, as in other contractions.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterable

from tilewright.passes.schedule.contraction import accumulate, mark_tile
from tilewright.passes.schedule.cost import PARTIAL_VECTORS, choose_tile, is_expensive, tiles_of_a_strip, vector_lanes
from tilewright.passes.schedule.facts import (
    block_of,
    constant,
    contraction,
    loads,
    reductions,
    spatial,
    stores,
)
from tilewright.passes.schedule.inline import reduction_blocks
from tilewright.passes.schedule.loops import vectorize_loop
from tilewright.passes.schedule.packing import pack
from tilewright.passes.schedule.partial_results import (
    is_row_reduction,
    split_partial_results,
    vectorize_stage,
)
from tilewright.passes.schedule.rule import Declined, Nest, ScheduleRule, register_schedule_rule
from tilewright.passes.schedule.seen import mark_seen, seen_offset
from tilewright.passes.schedule.settings import NOTHING, Given, part_of
from tilewright.passes.schedule.stages import epilogue_of, has_one_result, stays_in_row
from tilewright.passes.schedule.tiling import Tile, Tiling, plan_tiling, tile_of, tiling_of
from tilewright.tensorir.errors import ScheduleError
from tilewright.tensorir.expr import Buffer, BufferLoad
from tilewright.tensorir.keys import SPECIALIZE_TAIL
from tilewright.tensorir.schedule import BlockRef, LoopRef, Schedule
from tilewright.tensorir.stmt import Block, BufferStore
from tilewright.tensorir.target import Target


@dataclasses.dataclass(frozen=True)
class ChainedPlan:
    """Compute two contractions, the stages between them and the epilogue strip by strip."""

    first: Tile
    second: Tile
    tiles: int = dataclasses.field(metadata={"doc": "tiles of the first sum along the rows of a strip", "least": 1})
    reassociate: bool = dataclasses.field(
        metadata={"doc": "whether sums of floats may be reassociated, which rounds differently"}
    )
    vectors: int = dataclasses.field(
        default=PARTIAL_VECTORS, metadata={"doc": "vectors of partial results that a long row has", "least": 1}
    )


@dataclasses.dataclass(frozen=True)
class Chain:
    """Two contractions, each with its tiling, and the stages between them.

    Attributes:
        row: position of the variable over the rows of a strip among the leading variables that all stages share.
        dims: number of leading variables that all stages share.
        between: the stages that turn the rows of the first contraction into the weights of the second, in order.
    """

    first: BlockRef
    second: BlockRef
    first_tiling: Tiling
    second_tiling: Tiling
    row: int
    dims: int
    between: tuple[BlockRef, ...]


@register_schedule_rule(before="single rows")
class ScheduleChained(ScheduleRule[ChainedPlan]):
    """Compute two sums of products with rows between them in strips of a few rows: attention."""

    name = "chained"
    scope = "kernel"
    plan = ChainedPlan

    def match(self, nest: Nest) -> ChainedPlan | Declined:
        """Plan a kernel of two contractions with row-wise stages between them."""
        return plan_chain(nest)

    def apply(self, schedule: Schedule, plan: ChainedPlan) -> None:
        """Compute all stages of a strip in a task."""
        schedule_chained(schedule, plan, Target.current())


def plan_chain(nest: Nest) -> ChainedPlan | Declined:
    """Plan two contractions with row-wise stages between them; decline any other function."""
    schedule, given = nest.schedule, nest.given
    chain = find_chain(schedule, nest.target, nest.reassociate, given)
    if isinstance(chain, Declined):
        return chain
    first, second = block_of(schedule, chain.first), block_of(schedule, chain.second)
    rows = chain.first_tiling.rows
    tiles = int(given.get("tiles", 0)) or _tiles_of_a_strip(first, chain, nest.target)
    tiling = chain.second_tiling
    if "second.rows" not in given:
        tiling = _tiling_in_strip(tiling, tiles * rows, nest.target)
    reassociate = bool(given.get("reassociate", nest.reassociate))
    return ChainedPlan(tile_of(first, chain.first_tiling), tile_of(second, tiling), tiles, reassociate)


def find_chain(
    schedule: Schedule, target: Target, reassociate: bool = False, given: Given = NOTHING
) -> Chain | Declined:
    """Find two contractions, the second of which sums over the columns of the first, with row-wise stages between
    them; decline any other function."""
    refs = reduction_blocks(schedule)
    products = [ref for ref in refs if contraction(block_of(schedule, ref)) is not None]
    if len(products) != 2:
        return Declined(f"found {len(products)} sums of products, expected two")
    first, second = products
    blocks = {ref: block_of(schedule, ref) for ref in schedule.get_blocks()}
    if not has_one_result(schedule):
        return Declined("the kernel has several results")
    if any(len(schedule.get_loops(ref)) != len(block.iters) for ref, block in blocks.items()):
        return Declined("some blocks share loops")
    reassociate = bool(given.get("reassociate", reassociate))
    planned = [
        plan_tiling(blocks[ref], target, reassociate, part_of(given, name))
        for ref, name in zip(products, ("first", "second"), strict=True)
    ]
    tilings = [tiling for tiling in planned if isinstance(tiling, Tiling)]
    if len(tilings) < 2:
        return next(tiling for tiling in planned if isinstance(tiling, Declined))
    rows = [_position(blocks[ref], tiling) for ref, tiling in zip(products, tilings, strict=True)]
    dims = len(spatial(blocks[second])) - 1
    if rows[0] is None or rows[0] != rows[1] or any(tiling.block is not None for tiling in tilings):
        return Declined("the sums have no rows in common")
    between = _between(schedule, first, second)
    steps = reductions(blocks[second])
    if not between or len(steps) != 1 or len(spatial(blocks[first])) != dims + 1:
        return Declined("the second sum does not reduce a dimension that the first one computes")
    rows_of = {store.buffer for ref in (first, *between) for store in stores(blocks[ref])}
    if not all(stays_in_row(blocks[ref], dims, rows_of) for ref in (*between, second)):
        return Declined("a stage after the first sum reads other rows of it than it computes")
    read = [load for load in loads(blocks[second]) if load.buffer in rows_of]
    if len(read) != 1 or read[0].buffer is tilings[1].vector_operand.buffer or read[0].indices[-1] is not steps[0].var:
        return Declined("the second sum does not reduce along the rows of the first one's result")
    strip = (spatial(blocks[first])[rows[0]], spatial(blocks[first])[-1])
    if any(constant(item.extent) == 1 for item in strip):
        return Declined("the result of the first sum has a single row or column")
    extents = [constant(item.extent) or item.extent for item in spatial(blocks[second])[:dims]]
    for ref in (first, *between):
        own = [constant(item.extent) or item.extent for item in spatial(blocks[ref])[:dims]]
        if own != extents or (ref in refs and ref is not first and not is_row_reduction(blocks[ref])):
            return Declined(f"block {ref.name} does not have the rows of the second sum")
    return Chain(first, second, tilings[0], tilings[1], rows[0], dims, between)


def _chain_of(schedule: Schedule, plan: ChainedPlan) -> Chain:
    """Return the two contractions that a plan was made for."""
    refs = reduction_blocks(schedule)
    products = [ref for ref in refs if contraction(block_of(schedule, ref)) is not None]
    if len(products) != 2:
        raise ScheduleError(f"found {len(products)} sums of products, expected two")
    first, second = products
    tilings = [
        tiling_of(block_of(schedule, ref), tile) for ref, tile in zip(products, (plan.first, plan.second), strict=True)
    ]
    rows = [_position(block_of(schedule, ref), tiling) for ref, tiling in zip(products, tilings, strict=True)]
    if rows[0] is None or rows[0] != rows[1]:
        raise ScheduleError("the sums have no rows in common")
    dims = len(spatial(block_of(schedule, second))) - 1
    return Chain(first, second, tilings[0], tilings[1], rows[0], dims, _between(schedule, first, second))


def _position(block: Block, tiling: Tiling) -> int | None:
    return None if tiling.row is None else spatial(block).index(tiling.row)


def _between(schedule: Schedule, first: BlockRef, second: BlockRef) -> tuple[BlockRef, ...]:
    """Return the blocks on a path of data flow from ``first`` to ``second``."""

    def reach(ref: BlockRef, more: object) -> set[BlockRef]:
        assert callable(more)
        found: set[BlockRef] = set()
        todo = [ref]
        while todo:
            new = set(more(todo.pop())) - found
            found |= new
            todo.extend(new)
        return found

    inside = reach(first, schedule.get_consumers) & reach(second, schedule.get_producers)
    return tuple(ref for ref in schedule.get_blocks() if ref in inside)


def schedule_chained(schedule: Schedule, plan: ChainedPlan, target: Target) -> None:
    """Schedule a function of two contractions with row-wise stages between them."""
    chain = _chain_of(schedule, plan)
    first, second = block_of(schedule, chain.first), block_of(schedule, chain.second)
    seen = _seen(schedule, chain)
    for ref, tiling in ((chain.first, chain.first_tiling), (chain.second, chain.second_tiling)):
        if tiling.packed:
            pack(schedule, ref, tiling)
    _read_while_packing(schedule)
    stored = schedule.cache_write(chain.first, 0, "register")
    last = epilogue_of(schedule, chain.second)
    if last is None:
        last = schedule.cache_write(chain.second, 0, "register")
    schedule.set_scope(chain.second, 0, "register")
    for ref in _between(schedule, stored, last):
        if reductions(block_of(schedule, ref)) and ref != chain.second:
            split_partial_results(schedule, ref, target, plan.reassociate, plan.vectors)
    stages = [ref for ref in schedule.get_blocks() if ref in set(_between(schedule, chain.first, last))]
    rows = chain.first_tiling.rows
    loops = schedule.get_loops(last)
    chunk, row = schedule.split(loops[chain.row], [None, plan.tiles * rows])
    tasks = [*loops[: chain.row], *loops[chain.row + 1 : chain.dims], chunk]
    schedule.reorder(*tasks, row, loops[-1])
    task = schedule.fuse(*tasks) if len(tasks) > 1 else tasks[0]
    at = _tile(schedule, last, [row, loops[-1]], chain.second_tiling)
    schedule.compute_at(chain.second, at)
    alone = [ref for ref in stages if ref not in (chain.first, stored, chain.second, last)]
    for ref in reversed(stages):
        if ref not in (chain.first, chain.second, last):
            readers = schedule.get_consumers(ref)
            alone_read = ref != stored and len(readers) == 1 and readers[0] in alone
            schedule.compute_at(ref, _inside(schedule, readers[0], task)[0] if alone_read else task)
    accumulate(schedule, chain.second, second, at, chain.second_tiling)
    at = _tile(schedule, stored, _inside(schedule, stored, task), chain.first_tiling)
    schedule.compute_at(chain.first, at)
    accumulate(schedule, chain.first, first, at, chain.first_tiling)
    _copy_rows(schedule, chain, first, task, target)
    for ref in alone:
        row = _inside(schedule, ref, task)[0]
        if seen is not None and not reductions(block_of(schedule, ref)):
            _split_vectors(schedule, ref, plan.vectors, target)
        vectorize_stage(schedule, ref, row, target)
    if seen is not None:
        made = _results(schedule, [chain.first, stored, *chain.between])
        scores = {buffer for buffer in made if buffer.ndim > chain.dims}
        for ref in (stored, *alone, chain.second):
            mark_seen(schedule, ref, task, scores, chain.row, seen)
    schedule.parallel(task)


def _seen(schedule: Schedule, chain: Chain) -> int | None:
    """Return how many positions beyond its own index a row sees; None where it may see all."""
    made = _results(schedule, [chain.first, *chain.between])
    scores = {buffer for buffer in made if buffer.ndim > chain.dims}
    return seen_offset([block_of(schedule, ref) for ref in schedule.get_blocks()], scores, chain.row)


def _results(schedule: Schedule, refs: Iterable[BlockRef]) -> set[Buffer]:
    return {store.buffer for ref in refs for store in stores(block_of(schedule, ref))}


def _split_vectors(schedule: Schedule, ref: BlockRef, vectors: int, target: Target) -> None:
    """Split the loop over a row into chunks of ``vectors`` vectors, so that the last ones can be skipped."""
    block = block_of(schedule, ref)
    extent, part = constant(spatial(block)[-1].extent), vectors * vector_lanes(block, target)
    if extent is None or extent > part:
        schedule.split(schedule.get_loops(ref)[-1], [None, part])


def _read_while_packing(schedule: Schedule) -> None:
    """Inline blocks that only move elements of operands (transposes, concatenations) where only packing reads them, so
    that the panels are packed directly from the original operand."""
    outputs = set(schedule.func.buffers)
    for ref in reversed(schedule.get_blocks()):
        readers = [block_of(schedule, reader) for reader in schedule.get_consumers(ref)]
        block = block_of(schedule, ref)
        if not readers or any(reductions(reader) for reader in [block, *readers]):
            continue
        if any(store.buffer in outputs for store in stores(block)):
            continue
        if not is_expensive(block) and all(map(_is_copy, readers)):
            with contextlib.suppress(ScheduleError):  # not a plain formula of one element; it keeps its own loops
                schedule.compute_inline(ref)


def _is_copy(block: Block) -> bool:
    return isinstance(block.body, BufferStore) and isinstance(block.body.value, BufferLoad)


def _copy_rows(schedule: Schedule, chain: Chain, first: Block, task: LoopRef, target: Target) -> None:
    """Compute the rows of the left operand that a strip reads in its task, where a block produces them."""
    rows = {load.buffer for load in loads(first)} - {chain.first_tiling.vector_operand.buffer}
    for ref in schedule.get_producers(chain.first):
        block = block_of(schedule, ref)
        if schedule.get_consumers(ref) == [chain.first] and any(store.buffer in rows for store in stores(block)):
            schedule.compute_at(ref, task)
            vectorize_loop(schedule, schedule.get_loops(ref)[-1], vector_lanes(block, target))


def _tiles_of_a_strip(first: Block, chain: Chain, target: Target) -> int:
    """Return the number of tiles along the rows of a task."""
    row, columns = spatial(first)[chain.row], constant(spatial(first)[-1].extent)
    others = [constant(item.extent) for item in spatial(first)[: chain.dims] if item is not row]
    heads = max(1, math.prod(extent for extent in others if extent is not None))  # an unknown batch may be one
    return tiles_of_a_strip(constant(row.extent), columns, chain.first_tiling.rows, heads, target)


def _tiling_in_strip(tiling: Tiling, rows: int, target: Target) -> Tiling:
    """Return the tiling of the second contraction within a strip of ``rows`` rows."""
    panel = tiling.vectors if tiling.packed else None
    height, _ = choose_tile(rows, tiling.width, tiling.lanes, target.tile_registers, panel or tiling.vectors)
    return dataclasses.replace(tiling, rows=height)


def _inside(schedule: Schedule, ref: BlockRef, outermost: LoopRef) -> list[LoopRef]:
    """Return the loops around a block that lie inside ``outermost``."""
    own = schedule.get_loops(ref)
    return own[own.index(outermost) + 1 :]


def _tile(schedule: Schedule, ref: BlockRef, loops: list[LoopRef], tiling: Tiling) -> LoopRef:
    """Tile the rows and columns of a strip; return the loop over the tiles that share their columns."""
    row, column = loops
    rows, row = schedule.split(row, [None, tiling.rows])
    columns, column = schedule.split(column, [None, tiling.width])
    schedule.reorder(columns, rows, row, column)
    mark_tile(schedule, [row, column], tiling)
    schedule.annotate(rows, SPECIALIZE_TAIL, True)
    return rows
