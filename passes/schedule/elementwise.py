"""How formulas of one element are scheduled: neighbouring dimensions that lie in memory like one become one, its
elements become vectors, and the rest runs in parallel."""

from __future__ import annotations

import dataclasses

from tilewright.passes.schedule.facts import (
    Access,
    block_of,
    constant,
    loads,
    mergeable,
    product_of_extents,
    reductions,
    spatial,
    stores,
)
from tilewright.passes.schedule.rule import Declined, Nest, ScheduleRule, register_schedule_rule
from tilewright.tensorir.schedule import LoopRef, Schedule
from tilewright.tensorir.stmt import Block, IterVar
from tilewright.tensorir.target import Target

#: Elements of a row that one iteration of the parallel loop computes, where rows are longer than this; of shorter rows
#: it computes several.
_CHUNK = 4096
#: What an extent is taken for that is not known before the model is called.
_UNKNOWN_EXTENT = 64


@dataclasses.dataclass(frozen=True)
class ElementwisePlan:
    """Compute the elements of a block in vectors.

    Attributes:
        lanes: of a vector.
        rows: how many leading dimensions stay apart; the others walk memory like one.
        chunk: elements of a long row that one iteration of the parallel loop computes.
    """

    block: str
    lanes: int
    rows: int
    chunk: int = _CHUNK


@register_schedule_rule()
class ScheduleElementwise(ScheduleRule[ElementwisePlan]):
    """Compute formulas of one element in vectors, and in parallel."""

    name = "elementwise"

    def match(self, nest: Nest) -> ElementwisePlan | Declined:
        """Plan for a block that is no reduction and has its own loops."""
        assert nest.ref is not None
        block = nest.block
        items = spatial(block)
        if reductions(block):
            return Declined(f"block {block.name} reduces")
        if not items or len(nest.schedule.get_loops(nest.ref)) != len(items):
            return Declined(f"block {block.name} has one element, or shares its loops")
        return ElementwisePlan(block.name, vector_lanes(block, nest.target), _separate_rows(block))

    def apply(self, schedule: Schedule, plan: ElementwisePlan) -> None:
        """Make vectors of rows, and tasks of what is around them."""
        schedule_elementwise(schedule, plan)


def _separate_rows(block: Block) -> int:
    """How many leading dimensions do not walk memory like one with those behind."""
    items = spatial(block)
    accesses: list[Access] = [*stores(block), *loads(block)]
    first = len(items) - 1
    # A dimension in front of rows of unknown length would be found by a division for each lane.
    while first > 0 and product_of_extents(items[first:]) is not None:
        if not mergeable(accesses, items[first - 1], items[first]):
            break
        first -= 1
    return first


def schedule_elementwise(schedule: Schedule, plan: ElementwisePlan) -> None:
    """Schedule a block that is no reduction and has its own loops."""
    ref = schedule.get_block(plan.block)
    loops = list(schedule.get_loops(ref))
    items, lanes, first = spatial(block_of(schedule, ref)), plan.lanes, plan.rows
    length = product_of_extents(items[first:])
    row = schedule.fuse(*loops[first:]) if first < len(loops) - 1 else loops[-1]
    rows = loops[:first]
    if not rows:
        outer, inner = _split_vectors(schedule, row, length, lanes)
        _finish(schedule, outer, inner)
        return
    if length is not None and length <= plan.chunk:
        tasks = _outside_of_task(items[:first], length, plan.chunk)
        outer = schedule.fuse(*rows[:tasks]) if tasks > 1 else rows[0]
        vectors, inner = _split_vectors(schedule, row, length, lanes)
        if vectors is None and inner is None:
            inner = row
        _finish(schedule, outer, inner)
        return
    chunks, vectors, inner = schedule.split(row, [None, plan.chunk // lanes, lanes])
    _finish(schedule, schedule.fuse(*rows, chunks), inner)


def _outside_of_task(items: list[IterVar], length: int, chunk: int) -> int:
    """How many of the dimensions outside of a row tasks are made of: at least one, and so many that a task has enough
    elements to be worth the divisions that find its place."""
    tasks, elements = len(items), length
    while tasks > 1:
        extent = constant(items[tasks - 1].extent)
        elements *= _UNKNOWN_EXTENT if extent is None else extent
        if elements > chunk:
            break
        tasks -= 1
    return tasks


def _split_vectors(
    schedule: Schedule, row: LoopRef, length: int | None, lanes: int
) -> tuple[LoopRef | None, LoopRef | None]:
    """The loop over vectors and the loop over lanes; a row shorter than a vector is one (shorter) vector."""
    if length is not None and length <= lanes:
        return None, row if length > 1 else None
    outer, inner = schedule.split(row, [None, lanes])
    return outer, inner


def _finish(schedule: Schedule, outer: LoopRef | None, inner: LoopRef | None) -> None:
    if outer is not None:
        schedule.parallel(outer)
    if inner is not None:
        schedule.vectorize(inner)


def vector_lanes(block: Block, target: Target) -> int:
    """Lanes of a vector for a block: of its widest element type, so that no value needs two registers."""
    accesses: list[Access] = [*stores(block), *loads(block)]
    bits = [access.buffer.dtype.bits for access in accesses]
    widest = max((bits_ for bits_ in bits if bits_ > 8), default=32)
    return max(2, target.vector_bits // widest)
