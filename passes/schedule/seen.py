"""Find the positions that a row of scores sees: in causal attention, a token sees itself and those before it."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tilewright.passes.schedule.facts import Access, block_of, constant, loads, loop_of, spatial, stores
from tilewright.tensorir.arith import Analyzer
from tilewright.tensorir.arith.iter_map import coefficient
from tilewright.tensorir.expr import Buffer, Compare, Expr, Var, as_expr
from tilewright.tensorir.functor import substitute
from tilewright.tensorir.keys import SEEN, SEEN_ROW, SEEN_STEP
from tilewright.tensorir.schedule import BlockRef, LoopRef, Schedule
from tilewright.tensorir.stmt import Block


def seen_offset(blocks: Iterable[Block], scores: Collection[Buffer], row: int) -> int | None:
    """Return how many positions beyond its own index a row sees, where all blocks that write or read
    ``scores[.., s, t]`` declare that they are needed only for ``t <= s + offset``; None where one does not.

    Args:
        row: position of ``s`` among the variables of a block.
    """
    found: set[int | None] = set()
    for block in blocks:
        accesses: list[Access] = [*stores(block), *loads(block)]
        places = {access.indices[-1] for access in accesses if access.buffer in scores}
        if places:
            found.add(_offset(block, places, row))
    return found.pop() if len(found) == 1 else None


def _offset(block: Block, places: Collection[Expr], row: int) -> int | None:
    """Return ``offset`` where a block is needed for ``t <= s + offset``, with ``t`` the only one of ``places``."""
    needed = block.needed
    if not isinstance(needed, Compare) or needed.op != "le" or set(places) != {needed.a}:
        return None
    own = spatial(block)[row].var
    if coefficient(needed.b, own) != 1:
        return None
    return constant(Analyzer().simplify(substitute(needed.b, {own: as_expr(0)})))


def mark_seen(
    schedule: Schedule, ref: BlockRef, task: LoopRef, scores: Collection[Buffer], row: int, seen: int
) -> None:
    """Annotate the outermost loop of a stage over positions, for the pass ``SkipUnseen``."""
    block = block_of(schedule, ref)
    values: dict[Var, Expr] = {item.var: item.value for item in block.iters}
    accesses: list[Access] = [*stores(block), *loads(block)]
    places = [substitute(access.indices[-1], values) for access in accesses if access.buffer in scores]
    own = schedule.get_loops(ref)
    for loop in own[own.index(task) + 1 :]:
        steps = {step for step in (coefficient(place, loop.var) for place in places) if step != 0}
        if not steps:
            continue
        step = steps.pop()
        if loop_of(schedule, loop).kind == "serial" and not steps and step is not None:
            schedule.annotate(loop, SEEN, seen)
            schedule.annotate(loop, SEEN_STEP, step)
            schedule.annotate(loop, SEEN_ROW, row)
        return
