"""Recognize blocks whose positions along the last dimension have formulas of their own (:mod:`.interleaving`)."""

from __future__ import annotations

from tilewright.passes.schedule.facts import constant, is_contiguous, mergeable, reductions, spatial, stores, uses
from tilewright.tensorir.arith import Analyzer
from tilewright.tensorir.expr import BufferLoad, Expr, IntImm, Select, Var
from tilewright.tensorir.functor import LOADS, substitute, uses_var, walk, walk_to
from tilewright.tensorir.intrinsics import can_interleave
from tilewright.tensorir.stmt import Block


def interleaves(block: Block) -> bool:
    """Return whether each position along the last dimension has a formula of its own, whose operands lie along the
    dimension before it."""
    items, written = spatial(block), stores(block)
    if reductions(block) or len(items) < 2 or len(written) != 1:
        return False
    row, position = items[-2].var, items[-1].var
    (store,) = written
    count = constant(items[-1].extent)
    if count is None or not can_interleave(count) or not mergeable([store], items[-2], items[-1]):
        return False
    choices = [node for node in walk(store.value) if isinstance(node, Select) and uses_var(node.condition, {position})]
    if not choices:
        return False
    read = [load for number in range(count) for load in _loads_of(_at(store.value, position, number))]
    return all(load.buffer is not store.buffer and (not uses(load, row) or _lies_along(load, row)) for load in read)


def _loads_of(value: Expr) -> list[BufferLoad]:
    return [node for node in walk_to(value, LOADS) if isinstance(node, BufferLoad)]


def _lies_along(load: BufferLoad, row: Var) -> bool:
    """Return whether neighbouring values of ``row`` are neighbours in memory, but for dimensions of one element."""
    shape = load.buffer.shape
    behind = next((n for n in range(len(shape)) if constant(shape[-1 - n]) != 1), 0)
    return not load.buffer.strides and is_contiguous(load, row, behind)


def _at(value: Expr, position: Var, number: int) -> Expr:
    return Analyzer().simplify(substitute(value, {position: IntImm(number, position.dtype)}))
