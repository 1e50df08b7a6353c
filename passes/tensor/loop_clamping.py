"""Tiles of fewer rows: of the first rows of a tile, and of rows some of which lie beyond the end::

for j in range(6):                              for j in range(2):
    if i * 6 + j < n:                   ->          t[j] = a[i * 6 + min(j, left - 1)]
        t[j] = a[i * 6 + j]                     for j in range(2):
for j in range(6):                                  if j < left:
    if i * 6 + j < n:                                   b[i * 6 + j] = t[j]
        b[i * 6 + j] = t[j]

A row beyond the end is computed as a copy of the last row, in the tile's own buffers, where it does no harm; only
stores to other memory check whether the row exists. So the reduction inside a tile has no conditions, for any number of
rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.passes.tensor.loop_guards import with_known
from tilewright.tensorir.conditions import conjuncts
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import Buffer, BufferLoad, Expr, Var, all_of, compare, const, minimum
from tilewright.tensorir.functor import Mutator, accesses_buffers, walk_statements, walk_to_loads
from tilewright.tensorir.stmt import Allocate, BufferStore, Evaluate, IfThenElse, Stmt


def first_rows(body: Stmt, offsets: Mapping[Expr, Expr], count: int) -> Stmt:
    """Return the ``body`` of a tile for its first ``count`` rows, all of which exist.

    Args:
        offsets: the row that each condition checks, by condition.
    """
    return with_known(body, {guard: compare("lt", row, const(count, INT64)) for guard, row in offsets.items()})


def clamped_rows(body: Stmt, offsets: Mapping[Expr, Expr], count: int, left: Expr) -> Stmt:
    """Return the ``body`` of a tile for its first ``count`` rows, of which ``left``, at least one, exist."""
    own = {node.buffer for node in walk_statements(body) if isinstance(node, Allocate)}
    clamped: Stmt = _Clamping(own, offsets, count, left).mutate(body)
    limit = minimum(left, count)
    return with_known(clamped, {guard: compare("lt", row, limit) for guard, row in offsets.items()})


class _Clamping(Mutator):
    """Let rows beyond the end repeat the last one, in statements that write only the tile's own buffers."""

    def __init__(self, own: set[Buffer], offsets: Mapping[Expr, Expr], count: int, left: Expr) -> None:
        self.own, self.offsets, self.count, self.left = own, offsets, count, left

    def mutate_IfThenElse(self, op: IfThenElse) -> Stmt:
        parts = conjuncts(op.condition)
        rows = {row for part in parts if (row := self.offsets.get(part)) is not None}
        row = next(iter(rows), None)
        if len(rows) != 1 or not isinstance(row, Var) or op.else_body is not None or not self._stays_inside(op):
            return self.generic_mutate(op)  # type: ignore[no-any-return]
        others = [part for part in parts if part not in self.offsets]
        repeat = _Repeated(self.own, {row: minimum(row, self.left - 1)})
        condition = all_of(compare("lt", row, const(self.count, INT64)), *map(repeat.mutate, others))
        return IfThenElse(condition, repeat.mutate(op.then_body))

    def _stays_inside(self, op: IfThenElse) -> bool:
        """Return whether a statement writes only the tile's own buffers."""
        for node in walk_to_loads(op.then_body):
            if isinstance(node, Evaluate) or (isinstance(node, BufferStore) and node.buffer not in self.own):
                return False
            if not isinstance(node, (BufferLoad, BufferStore)) or node.buffer not in self.own:
                continue
            if any(map(accesses_buffers, node.indices)):
                return False
        return True


class _Repeated(Mutator):
    """Replace one row by another, except in indices of the tile's own buffers."""

    def __init__(self, own: set[Buffer], rows: Mapping[Var, Expr]) -> None:
        self.own, self.rows = own, rows

    def mutate_Var(self, var: Var) -> Expr:
        return self.rows.get(var, var)

    def mutate_BufferLoad(self, op: BufferLoad) -> Any:
        if op.buffer not in self.own:
            return self.generic_mutate(op)
        return BufferLoad(op.buffer, op.indices, None if op.predicate is None else self.mutate(op.predicate))

    def mutate_BufferStore(self, op: BufferStore) -> Any:
        predicate = None if op.predicate is None else self.mutate(op.predicate)
        return BufferStore(op.buffer, self.mutate(op.value), op.indices, predicate)
