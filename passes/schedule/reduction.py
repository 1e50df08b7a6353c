"""How reductions are scheduled.

* Along the contiguous dimension (softmax, layer norm, a sum over the last axis): the rows run in parallel, all stages
  of a row are computed together, and each reduction keeps one partial result for each lane of a few vectors.
* Along other dimensions (pooling, a sum over the first axis): neighbouring results become vectors, each of which
  accumulates in a register.
"""

from __future__ import annotations

from collections.abc import Collection

from tilewright.passes.context import PassContext
from tilewright.passes.schedule.elementwise import schedule_elementwise, vector_lanes
from tilewright.passes.schedule.facts import (
    block_of,
    constant,
    loads,
    reductions,
    spatial,
    stores,
)
from tilewright.passes.schedule.inline import reduction_blocks
from tilewright.tensorir.errors import ScheduleError
from tilewright.tensorir.expr import BinaryOp, Buffer, Expr
from tilewright.tensorir.functor import uses_var
from tilewright.tensorir.keys import PARTIAL_RESULTS
from tilewright.tensorir.schedule import BlockRef, LoopRef, Schedule
from tilewright.tensorir.stmt import Block, BufferStore, For, IterVar
from tilewright.tensorir.target import Target

#: Vectors of partial results that a long row reduction keeps, to hide the latency of one addition.
PARTIAL_VECTORS = 4


def is_row_reduction(block: Block) -> bool:
    """Whether the innermost reduction variable alone walks the last dimension of some operand (a window does not: it
    shares the dimension with a result's position)."""
    reduced = reductions(block)
    if not reduced:
        return False
    last = reduced[-1].var
    places = {item.var for item in spatial(block)}
    indices = [index for load in loads(block) for index in load.indices if uses_var(index, {last})]
    walked = any(load.indices and load.indices[-1] is last for load in loads(block))
    return walked and not any(uses_var(index, places) for index in indices)


def schedule_rows(schedule: Schedule, target: Target, reassociate: bool) -> bool:
    """Schedule a function whose reductions all run along rows, all its stages row by row.

    Args:
        reassociate: whether sums of floats may be added up in another order.

    Returns:
        False, with the schedule unchanged, where the stages do not share their rows.
    """
    refs = reduction_blocks(schedule)
    count = _shared_rows(schedule, refs)
    if count is None:
        return False
    for ref in refs:
        split_partial_results(schedule, ref, target, reassociate)
    blocks = schedule.get_blocks()
    anchor = blocks[-1]
    row: LoopRef | None = None
    if count:
        rows = schedule.get_loops(anchor)[:count]
        row = schedule.fuse(*rows) if len(rows) > 1 else rows[0]
        for ref in reversed(blocks[:-1]):
            schedule.compute_at(ref, row)
    for ref in blocks:
        vectorize_stage(schedule, ref, row, target)
    if row is not None:
        schedule.parallel(row)
    return True


def _shared_rows(schedule: Schedule, refs: list[BlockRef]) -> int | None:
    """How many leading dimensions all blocks of the function have in common: those of the reductions' results."""
    blocks = [block_of(schedule, ref) for ref in schedule.get_blocks()]
    reducing = [block_of(schedule, ref) for ref in refs]
    outputs = set(schedule.func.buffers)
    written = [region.buffer in outputs for block in blocks for region in block.writes]
    if not all(map(is_row_reduction, reducing)) or sum(written) != 1 or not written[-1]:
        return None
    extents = [[item.extent for item in spatial(block)] for block in reducing]
    count = min(len(_without_ones(row)) for row in extents)
    for block in blocks:
        own = [item.extent for item in spatial(block)][:count]
        if len(own) < count or not all(map(_same_extent, own, extents[0][:count])):
            return None
    return count


def _without_ones(extents: list[Expr]) -> list[Expr]:
    """The extents without those of kept (reduced) dimensions at the end."""
    end = len(extents)
    while end and constant(extents[end - 1]) == 1:
        end -= 1
    return extents[:end]


def _same_extent(a: Expr, b: Expr) -> bool:
    return a is b or (constant(a) is not None and constant(a) == constant(b))


def is_exact(block: Block) -> bool:
    """Whether the reduction gives the same bits in any order: greatest, least, and sums of integers."""
    body = block.body
    if not isinstance(body, BufferStore) or not isinstance(body.value, BinaryOp):
        return False
    return body.value.op in ("min", "max", "and", "or") or not body.buffer.dtype.is_float


def split_partial_results(schedule: Schedule, ref: BlockRef, target: Target, reassociate: bool) -> None:
    """Give a row reduction partial results, one for each lane, where it may be added up in another order."""
    block = block_of(schedule, ref)
    if len(stores(block)) != 1 or not isinstance(block.body, BufferStore):
        return
    if not (reassociate or is_exact(block)) or not isinstance(block.body.value, BinaryOp):
        return
    lanes = vector_lanes(block, target)
    extent = constant(reductions(block)[-1].extent)
    if extent is not None and extent < 2 * lanes:
        return
    vectors = PARTIAL_VECTORS if extent is None or extent >= 4 * lanes * PARTIAL_VECTORS else 1
    loop = schedule.get_loops(ref)[-1]
    _, inner = schedule.split(loop, [None, lanes * vectors])
    partial = schedule.rfactor(inner, 0)
    schedule.set_scope(partial, 0, "register")
    schedule.annotate(partial, PARTIAL_RESULTS, lanes)


def vectorize_stage(schedule: Schedule, ref: BlockRef, row: LoopRef | None, target: Target) -> None:
    """Make the innermost loop of a stage a vector loop, where its iterations are independent or partial results."""
    block = block_of(schedule, ref)
    loops = schedule.get_loops(ref)
    inner = loops[loops.index(row) + 1 :] if row in loops else loops
    if not inner:
        return
    lanes = block.annotations.get(PARTIAL_RESULTS)
    if lanes is not None:
        _accumulate_in_registers(schedule, ref, inner, int(lanes))
    elif not reductions(block):
        vectorize_loop(schedule, inner[-1], vector_lanes(block, target))
    elif is_exact(block) or PARTIAL_RESULTS in _producer_annotations(schedule, ref):
        kinds = loop_kinds(schedule, ref, inner)
        schedule.decompose_reduction(ref, next(loop for loop in inner if kinds[loop] == "reduction"))
        vectorize_loop(schedule, schedule.get_loops(ref)[-1], vector_lanes(block, target), reassociate=True)


def vectorize_loop(schedule: Schedule, loop: LoopRef, lanes: int, reassociate: bool = False) -> None:
    """Make a loop one of vectors: itself if its extent is constant, else its inner part of ``lanes`` iterations."""
    found = schedule.get(loop)
    assert isinstance(found, For)
    if constant(found.extent) is None:
        _, loop = schedule.split(loop, [None, lanes])
    schedule.vectorize(loop, reassociate=reassociate)


def _producer_annotations(schedule: Schedule, ref: BlockRef) -> list[str]:
    producers = [block_of(schedule, producer) for producer in schedule.get_producers(ref)]
    return [key for producer in producers for key in producer.annotations]


def _accumulate_in_registers(schedule: Schedule, ref: BlockRef, inner: list[LoopRef], lanes: int) -> None:
    kinds = loop_kinds(schedule, ref, inner)
    reduced = [loop for loop in inner if kinds[loop] == "reduction"]
    partial = [loop for loop in inner if kinds[loop] == "spatial"]
    schedule.reorder(*reduced, *partial)
    start = schedule.decompose_reduction(ref, reduced[0])
    for block in (start, ref):
        own = schedule.get_loops(block)[-len(partial) :]
        _vectorize_and_unroll(schedule, own, lanes)


def _vectorize_and_unroll(schedule: Schedule, loops: list[LoopRef], lanes: int) -> None:
    *outer, last = loops
    vectors, last = schedule.split(last, [None, lanes])
    schedule.vectorize(last)
    for loop in (*outer, vectors):
        schedule.unroll(loop)


def loop_kinds(schedule: Schedule, ref: BlockRef, loops: list[LoopRef]) -> dict[LoopRef, str]:
    """For each loop, the kind of the iteration variable that it drives (``spatial`` if it drives none)."""
    block = block_of(schedule, ref)
    kinds = {}
    for loop in loops:
        kinds[loop] = "spatial"
        for item in block.iters:
            if uses_loop(item.value, loop):
                kinds[loop] = item.kind
                break
    return kinds


def uses_loop(expr: Expr, loop: LoopRef) -> bool:
    """Whether ``expr`` depends on the variable of ``loop``."""
    return uses_var(expr, {loop.var})


def schedule_columns(schedule: Schedule, ref: BlockRef, target: Target) -> None:
    """Schedule one reduction so that neighbouring results are the lanes of a vector that accumulates in a register."""
    block = block_of(schedule, ref)
    loops = schedule.get_loops(ref)
    if len(loops) != len(block.iters) or len(stores(block)) != 1 or not spatial(block):
        return
    last = epilogue_of(schedule, ref)
    if last is None:
        last = schedule.cache_write(ref, 0, "register")
    schedule.set_scope(ref, 0, "register")
    lanes = vector_lanes(block, target)
    own = schedule.get_loops(last)
    extent = constant(spatial(block)[-1].extent)
    outer, inner = own[:-1], own[-1]
    if extent is None or extent > lanes:
        vectors, inner = schedule.split(inner, [None, lanes])
        outer = [*outer, vectors]
    if not outer:
        return
    at = outer[-1]
    schedule.compute_at(ref, at)
    for stage in accumulate_results(schedule, ref, at):
        schedule.vectorize(schedule.get_loops(stage)[-1])
    if extent is None or extent > 1:
        schedule.vectorize(inner)
    schedule.parallel(schedule.fuse(*outer) if len(outer) > 1 else outer[0])


def accumulate_results(schedule: Schedule, ref: BlockRef, at: LoopRef) -> list[BlockRef]:
    """Inside of ``at``, let a reduction's steps be outside of the loops over its results.

    Returns:
        the start and the reduction; none, if there is a single result.
    """
    loops = schedule.get_loops(ref)
    inside = loops[loops.index(at) + 1 :]
    kinds = loop_kinds(schedule, ref, inside)
    reduced = [loop for loop in inside if kinds[loop] == "reduction"]
    results = [loop for loop in inside if kinds[loop] == "spatial"]
    schedule.reorder(*reduced, *results)
    start = schedule.decompose_reduction(ref, reduced[0])
    return [start, ref] if results else []


def epilogue_of(schedule: Schedule, ref: BlockRef) -> BlockRef | None:
    """The one consumer of a block that computes, element for element, from the block's results: its epilogue."""
    consumers = schedule.get_consumers(ref)
    if len(consumers) != 1:
        return None
    block, consumer = block_of(schedule, ref), block_of(schedule, consumers[0])
    if reductions(consumer) or len(spatial(consumer)) != len(spatial(block)):
        return None
    target = stores(block)[0].buffer
    place = spatial(consumer)
    for load in loads(consumer):
        if load.buffer is not target:
            continue
        if len(load.indices) != len(place) or not all(map(is_position, load.indices, place)):
            return None
    return consumers[0]


def stays_in_row(block: Block, count: int, buffers: Collection[Buffer]) -> bool:
    """Whether a block reads ``buffers`` in its own row only: their first ``count`` indices are its first variables."""
    own = spatial(block)[:count]
    return all(
        len(load.indices) >= count and all(map(is_position, load.indices[:count], own))
        for load in loads(block)
        if load.buffer in buffers
    )


def is_position(index: Expr, item: IterVar) -> bool:
    """Whether an index is a variable; along one of a single value a broadcast reads element 0."""
    return index is item.var or (constant(index) == 0 and constant(item.extent) == 1)


def schedule_rest(schedule: Schedule, target: Target, ctx: PassContext) -> Schedule:
    """Schedule each block that still has its own plain loops, one by one; one that cannot be keeps them, with a
    remark that says why."""
    for ref in schedule.get_blocks():
        if ref.name not in {other.name for other in schedule.get_blocks()}:
            continue
        block = block_of(schedule, ref)
        loops = schedule.get_loops(ref)
        if not loops or any(_is_marked(schedule, loop) for loop in loops):
            continue
        attempt = schedule.copy()
        try:
            if reductions(block):
                schedule_columns(attempt, ref, target)
            else:
                schedule_elementwise(attempt, ref, target)
        except ScheduleError as error:
            ctx.remark(f"block {ref.name} keeps its plain loops: {error.summary}", kind="missed")
            continue
        schedule = attempt
    return schedule


def _is_marked(schedule: Schedule, loop: LoopRef) -> bool:
    found = schedule.get(loop)
    return isinstance(found, For) and found.kind != "serial"
