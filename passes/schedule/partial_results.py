"""Accumulate partial results of row reductions in registers, one for each lane of a few vectors.

A stage is a block that is computed together with others row by row. A reduction that may be reassociated keeps partial
results in registers; all other stages are vectorized.
"""

from __future__ import annotations

from tilewright.passes.schedule.cost import partial_vectors, vector_lanes
from tilewright.passes.schedule.facts import block_of, constant, loads, reductions, spatial, stores
from tilewright.passes.schedule.loops import loop_kinds, vectorize_loop
from tilewright.tensorir.expr import BinaryOp
from tilewright.tensorir.functor import uses_var
from tilewright.tensorir.keys import PARTIAL_RESULTS
from tilewright.tensorir.schedule import BlockRef, LoopRef, Schedule
from tilewright.tensorir.schedule.dependence import is_exact_reduction
from tilewright.tensorir.stmt import Block, BufferStore
from tilewright.tensorir.target import Target


def is_row_reduction(block: Block) -> bool:
    """Return whether the innermost reduction variable alone indexes the last dimension of some operand (that of a
    window does not: it shares the index with a spatial variable)."""
    reduced = reductions(block)
    if not reduced:
        return False
    last = reduced[-1].var
    places = {item.var for item in spatial(block)}
    indices = [index for load in loads(block) for index in load.indices if uses_var(index, {last})]
    walked = any(load.indices and load.indices[-1] is last for load in loads(block))
    return walked and not any(uses_var(index, places) for index in indices)


def split_partial_results(schedule: Schedule, ref: BlockRef, target: Target, reassociate: bool, most: int) -> None:
    """Give a row reduction partial results, one for each lane, where it may be reassociated.

    Args:
        most: maximum number of vectors of partial results.
    """
    block = block_of(schedule, ref)
    if len(stores(block)) != 1 or not isinstance(block.body, BufferStore):
        return
    if not (reassociate or is_exact_reduction(block)) or not isinstance(block.body.value, BinaryOp):
        return
    lanes = vector_lanes(block, target)
    extent = constant(reductions(block)[-1].extent)
    if extent is not None and extent < 2 * lanes:
        return
    vectors = partial_vectors(extent, lanes, most)
    loop = schedule.get_loops(ref)[-1]
    _, inner = schedule.split(loop, [None, lanes * vectors])
    partial = schedule.rfactor(inner, 0, reassociate=reassociate)
    schedule.set_scope(partial, 0, "register")
    schedule.annotate(partial, PARTIAL_RESULTS, lanes)


def vectorize_stage(schedule: Schedule, ref: BlockRef, row: LoopRef | None, target: Target) -> None:
    """Vectorize the innermost loop of a stage where its iterations are independent or compute partial results."""
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
    elif is_exact_reduction(block) or PARTIAL_RESULTS in _producer_annotations(schedule, ref):
        kinds = loop_kinds(schedule, ref, inner)
        schedule.decompose_reduction(ref, next(loop for loop in inner if kinds[loop] == "reduction"))
        vectorize_loop(schedule, schedule.get_loops(ref)[-1], vector_lanes(block, target), reassociate=True)


def _producer_annotations(schedule: Schedule, ref: BlockRef) -> list[str]:
    producers = [block_of(schedule, producer) for producer in schedule.get_producers(ref)]
    return [key for producer in producers for key in producer.annotations]


def _accumulate_in_registers(schedule: Schedule, ref: BlockRef, inner: list[LoopRef], lanes: int) -> None:
    kinds = loop_kinds(schedule, ref, inner)
    reduced = [loop for loop in inner if kinds[loop] == "reduction"]
    partial = [loop for loop in inner if kinds[loop] == "spatial"]
    schedule.reorder(*reduced, *partial)
    # A sum of an unknown number of elements, at most as many as there are partial results, has a single step.
    start = schedule.decompose_reduction(ref, (*reduced, *partial)[0])
    for block in (start, ref):
        own = schedule.get_loops(block)[-len(partial) :]
        _vectorize_and_unroll(schedule, own, lanes)


def _vectorize_and_unroll(schedule: Schedule, loops: list[LoopRef], lanes: int) -> None:
    *outer, last = loops
    vectors, last = schedule.split(last, [None, lanes])
    schedule.vectorize(last)
    for loop in (*outer, vectors):
        schedule.unroll(loop)


def accumulate_results(schedule: Schedule, ref: BlockRef, at: LoopRef | None) -> list[BlockRef]:
    """Reorder a reduction's loops inside ``at`` (None: all loops): reduction loops outside of those over its results.

    Returns:
        the initialization and the reduction; none if there is a single result.
    """
    loops = schedule.get_loops(ref)
    inside = loops if at is None else loops[loops.index(at) + 1 :]
    kinds = loop_kinds(schedule, ref, inside)
    reduced = [loop for loop in inside if kinds[loop] == "reduction"]
    results = [loop for loop in inside if kinds[loop] == "spatial"]
    schedule.reorder(*reduced, *results)
    start = schedule.decompose_reduction(ref, reduced[0])
    return [start, ref] if results else []
