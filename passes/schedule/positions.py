"""Recognize blocks whose positions along the last dimension have formulas of their own (:mod:`.interleaving`)."""

from __future__ import annotations

from tilewright.passes.schedule.facts import constant, is_contiguous, mergeable, reductions, spatial, stores, uses
from tilewright.tensorir.arith import Analyzer
from tilewright.tensorir.expr import BufferLoad, Expr, IntImm, Select, Var
from tilewright.tensorir.functor import LOADS, SELECTIONS, substitute, uses_var, walk_to
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
    selections = walk_to(store.value, SELECTIONS)
    if not any(isinstance(node, Select) and uses_var(node.condition, {position}) for node in selections):
        return False
    analyzer = Analyzer()
    places = (*range(count // 2, count), *range(count // 2))  # those at the ends of a padded row read nothing
    formulas = (substitute(store.value, {position: IntImm(number, position.dtype)}) for number in places)
    return all(
        load.buffer is not store.buffer and (not uses(load, row) or _lies_along(load, row))
        for formula in formulas  # most blocks fail at the first place, whose formula alone is made then
        for load in _loads_of(analyzer.simplify(formula))
    )


def _loads_of(value: Expr) -> list[BufferLoad]:
    return [node for node in walk_to(value, LOADS) if isinstance(node, BufferLoad)]


def _lies_along(load: BufferLoad, row: Var) -> bool:
    """Return whether neighbouring values of ``row`` are neighbours in memory, but for dimensions of one element."""
    shape = load.buffer.shape
    behind = next((n for n in range(len(shape)) if constant(shape[-1 - n]) != 1), 0)
    return not load.buffer.strides and is_contiguous(load, row, behind)
