"""Which places a row of scores sees: in causal attention a word sees those before it and itself."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from tilewright.passes.schedule.facts import Access, block_of, constant, loads, reductions, spatial, stores
from tilewright.tensorir.arith import Analyzer
from tilewright.tensorir.expr import (
    BinaryOp,
    Buffer,
    BufferLoad,
    Call,
    Compare,
    Expr,
    FloatImm,
    Select,
    Var,
    as_expr,
)
from tilewright.tensorir.functor import substitute, walk
from tilewright.tensorir.keys import SEEN, SEEN_ROW, SEEN_STEP
from tilewright.tensorir.schedule import BlockRef, LoopRef, Schedule
from tilewright.tensorir.schedule.indices import coefficient
from tilewright.tensorir.stmt import Block, BufferStore, For


def seen_offset(between: Iterable[Block], scores: Collection[Buffer], row: int) -> int | None:
    """How many places after its own number a row sees, where the stages between two products say so:

    they read ``scores[.., s, t]`` only as ``select(t <= s + offset, .., -inf)``, of which the greatest is taken, or
    which is shifted and raised to a power: what is not seen is zero then, and sums over it are what they are without.

    Args:
        row: which variable of a stage is ``s``.
    """
    found: set[int | None] = set()
    for block in between:
        if not any(load.buffer in scores for load in loads(block)):
            if reductions(block) and not _is_sum_of_load(block):
                return None
            continue
        chosen = _chosen(block)
        inside = [] if chosen is None else [node for node in walk(chosen) if isinstance(node, BufferLoad)]
        if chosen is None or any(load.buffer in scores and load not in inside for load in loads(block)):
            return None
        found.add(_offset(chosen, block, row))
    return found.pop() if len(found) == 1 else None


def _chosen(block: Block) -> Select | None:
    """What a stage takes the greatest of, or the power of its difference to something."""
    if not isinstance(block.body, BufferStore):
        return None
    value: Expr = block.body.value
    if reductions(block):
        if not isinstance(value, BinaryOp) or value.op != "max":
            return None
        value = value.b
    elif isinstance(value, Call) and value.name == "exp" and isinstance(value.args[0], BinaryOp):
        shifted = value.args[0]
        if shifted.op != "sub":
            return None
        value = shifted.a
    return value if isinstance(value, Select) else None


def _is_sum_of_load(block: Block) -> bool:
    value = block.body.value if isinstance(block.body, BufferStore) else None
    return isinstance(value, BinaryOp) and value.op == "add" and isinstance(value.b, BufferLoad)


def _offset(chosen: Select, block: Block, row: int) -> int | None:
    """``offset`` in ``select(t <= s + offset, .., -inf)``."""
    condition, lowest = chosen.condition, chosen.false_value
    if not isinstance(lowest, FloatImm) or lowest.value != -math.inf:
        return None
    if not isinstance(condition, Compare) or condition.op != "le":
        return None
    place = reductions(block)[-1].var if reductions(block) else spatial(block)[-1].var
    own = spatial(block)[row].var
    if condition.a is not place or coefficient(condition.b, own) != 1:
        return None
    return constant(Analyzer().simplify(substitute(condition.b, {own: as_expr(0)})))


def mark_seen(
    schedule: Schedule, ref: BlockRef, task: LoopRef, scores: Collection[Buffer], row: int, seen: int
) -> None:
    """Annotate the outermost loop of a stage over places, for the pass ``SkipUnseen``."""
    block = block_of(schedule, ref)
    values: dict[Var, Expr] = {item.var: item.value for item in block.iters}
    accesses: list[Access] = [*stores(block), *loads(block)]
    places = [substitute(access.indices[-1], values) for access in accesses if access.buffer in scores]
    own = schedule.get_loops(ref)
    for loop in own[own.index(task) + 1 :]:
        found = schedule.get(loop)
        assert isinstance(found, For)
        steps = {step for step in (coefficient(place, loop.var) for place in places) if step != 0}
        if not steps:
            continue
        step = steps.pop()
        if found.kind == "serial" and not steps and step is not None:
            schedule.annotate(loop, SEEN, seen)
            schedule.annotate(loop, SEEN_STEP, step)
            schedule.annotate(loop, SEEN_ROW, row)
        return
