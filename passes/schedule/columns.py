"""Schedule reductions along dimensions other than the contiguous one (pooling, a sum over the first axis).

Neighbouring results become the lanes of vectors, each of which accumulates in a register. Each vector is a task; there
is a single task where all results fit one vector. Where windows are small, a line of results is a task: only the
vectors at its ends have masks and a border. The elements of the smallest windows are written out: their loops would
take longer than they do, to run and to compile.

Where sums may be reassociated, a long one is the sum of sums of runs, each in a register of its own. Its error then
grows with the length of a run and the number of runs, rather than with the number of elements (Higham, The Accuracy of
Floating Point Summation, 1993): the variance of a million float32 rows keeps six digits rather than three.
"""

from __future__ import annotations

import dataclasses
import math

from tilewright.passes.schedule.cost import is_line_a_task, is_window_written_out, vector_lanes
from tilewright.passes.schedule.facts import (
    block_of,
    constant,
    loop_of,
    product_of_extents,
    reductions,
    spatial,
    stores,
)
from tilewright.passes.schedule.loops import are_lanes, loop_kinds
from tilewright.passes.schedule.partial_results import accumulate_results
from tilewright.passes.schedule.rule import Declined, Nest, ScheduleRule, register_schedule_rule
from tilewright.passes.schedule.stages import epilogue_of
from tilewright.tensorir.expr import BinaryOp
from tilewright.tensorir.schedule import BlockRef, LoopRef, Schedule
from tilewright.tensorir.schedule.dependence import is_exact_reduction
from tilewright.tensorir.stmt import Block, BufferStore

#: Elements of a run, about: as many additions one after another cost no digit that others count on.
_RUN = 256
#: From so many elements on a sum has runs.
_LONG = 4 * _RUN


@dataclasses.dataclass(frozen=True)
class ColumnsPlan:
    """Accumulate neighbouring results of a block in a register."""

    block: str = dataclasses.field(metadata={"doc": "the block that reduces; the other settings apply only to it"})
    lanes: int = dataclasses.field(metadata={"doc": "neighbouring results in a vector, a power of two", "least": 2})
    line: bool = dataclasses.field(
        default=False, metadata={"doc": "whether a task computes a line of results rather than one vector"}
    )
    reassociate: bool = dataclasses.field(
        default=False, metadata={"doc": "whether sums of floats may be reassociated, which rounds differently"}
    )


@register_schedule_rule(before="transposition")
class ScheduleColumns(ScheduleRule[ColumnsPlan]):
    """Make neighbouring results of a reduction the lanes of a vector that accumulates in a register."""

    name = "columns"
    plan = ColumnsPlan

    def match(self, nest: Nest) -> ColumnsPlan | Declined:
        """Plan a reduction with results along some dimension."""
        assert nest.ref is not None
        block = nest.block
        if not reductions(block):
            return Declined(f"block {block.name} is not a reduction")
        if len(nest.schedule.get_loops(nest.ref)) != len(block.iters):
            return Declined(f"block {block.name} shares loops with other blocks")
        if len(stores(block)) != 1 or not spatial(block):
            return Declined(f"block {block.name} has a scalar result, or several stores")
        lanes = int(nest.given.get("lanes", 0)) or vector_lanes(block, nest.target)
        if not are_lanes(lanes):
            return Declined(f"no vector has {lanes} lanes")
        steps = product_of_extents(reductions(block))
        line = bool(nest.given.get("line", is_line_a_task(_least_lines(block, lanes), steps, nest.target)))
        return ColumnsPlan(block.name, lanes, line, nest.reassociate)

    def apply(self, schedule: Schedule, plan: ColumnsPlan) -> None:
        """Tile the results by vectors and reduce inside."""
        schedule_columns(schedule, schedule.get_block(plan.block), plan)


def _least_lines(block: Block, lanes: int) -> int:
    """Return the least number of lines of vectors of results: along the contiguous dimension, or along the next one
    where that has a single vector, as in blocks of channels. Dimensions of unknown size may have a single element."""
    items = spatial(block)
    extent = constant(items[-1].extent)
    lines = items[:-1] if extent is None or extent > lanes else items[:-2]
    return math.prod(constant(item.extent) or 1 for item in lines)


def schedule_columns(schedule: Schedule, ref: BlockRef, plan: ColumnsPlan) -> None:
    """Schedule one reduction so that neighbouring results are the lanes of a vector that accumulates in a register."""
    lanes = plan.lanes
    block = block_of(schedule, ref)
    last = epilogue_of(schedule, ref)
    if last is None:
        last = schedule.cache_write(ref, 0, "register")
    schedule.set_scope(ref, 0, "register")
    own = schedule.get_loops(last)
    extent = constant(spatial(block)[-1].extent)
    outer, inner = own[:-1], own[-1]
    if extent is None or extent > lanes:
        vectors, inner = schedule.split(inner, [None, lanes])
        outer = [*outer, vectors]
    if not outer and extent == 1:
        return  # one result, in one register
    at = outer[-1] if outer else None
    if at is not None:
        schedule.compute_at(ref, at)
    runs = _split_runs(schedule, ref, at) if plan.reassociate else None
    stages = accumulate_results(schedule, ref, at)
    if runs is not None:
        own = schedule.get_loops(ref)
        kinds = loop_kinds(schedule, ref, own)
        run = next(loop for loop in own if kinds[loop] == "reduction")
        schedule.compute_at(runs, run)
        stages += accumulate_results(schedule, runs, run)
    for stage in stages:
        schedule.vectorize(schedule.get_loops(stage)[-1])
    if extent is None or extent > 1:
        schedule.vectorize(inner)
    if is_window_written_out(product_of_extents(reductions(block))):
        own = schedule.get_loops(ref)
        kinds = loop_kinds(schedule, ref, own)
        for loop in own:
            if kinds[loop] == "reduction":
                schedule.unroll(loop)
    if plan.line:
        outer = outer[:-1] or outer
    if outer:
        schedule.parallel(schedule.fuse(*outer) if len(outer) > 1 else outer[0])


def _split_runs(schedule: Schedule, ref: BlockRef, at: LoopRef | None) -> BlockRef | None:
    """Let a long sum of floats inside ``at`` sum up runs of its elements first; return the block of these sums, None if
    there are none."""
    block = block_of(schedule, ref)
    body = block.body
    if is_exact_reduction(block) or not isinstance(body, BufferStore) or not isinstance(body.value, BinaryOp):
        return None
    loops = schedule.get_loops(ref)
    inside = loops if at is None else loops[loops.index(at) + 1 :]
    kinds = loop_kinds(schedule, ref, inside)
    reduced = [loop for loop in inside if kinds[loop] == "reduction"]
    extents = {loop: constant(loop_of(schedule, loop).extent) or _LONG for loop in reduced}
    long = [loop for loop in reduced if extents[loop] > 1]
    if math.prod(extents.values()) < _LONG:
        return None
    run, below = long[0], math.prod(extents[loop] for loop in long[1:])
    schedule.reorder(*reduced, *(loop for loop in inside if kinds[loop] == "spatial"))
    if below < _RUN:
        run, _ = schedule.split(run, [None, -(-_RUN // below)])
    made = schedule.rfactor(run, 0, reassociate=True)
    schedule.set_scope(made, 0, "register")
    return made
