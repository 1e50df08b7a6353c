"""Compute the remainder of a division into tiles in smaller tiles, so that loops inside tiles keep constant extents::

for i in range((n + 7) // 8):                   for i in range(n // 8):
    for j in range(8):                              for j in range(8):
        if i * 8 + j < n:               ->              b[i * 8 + j] = 0
            b[i * 8 + j] = 0                    for t in range((n % 8 + 1) // 2):
                                                    for j in range(2): ... from n // 8 * 8 + t * 2 on, where it is < n

The rule: a remainder of unknown size is computed in as many small tiles, of a quarter of the rows, as are needed; rows
of the last one beyond the end repeat the last row (see ``loop_clamping``). So there are two copies of a tile, together
1.25 times its size, without conditions in reductions. A remainder of known size becomes one tile of that many rows. A
long one (half a tile or more) in a loop over many more rows is computed in small tiles as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.passes.tensor.loop_clamping import clamped_rows, first_rows
from tilewright.passes.tensor.loop_guards import TRUE, Guard, find_guards, with_known
from tilewright.passes.tensor.scoped import ScopedMutator
from tilewright.tensorir.arith.analyzer import Analyzer
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import BufferLoad, Compare, Expr, IntImm, Var, all_of, compare, const, maximum, minimum
from tilewright.tensorir.functor import (
    Mutator,
    Visitor,
    copy_with_fresh_definitions,
    leaves,
    substitute,
    uses_var,
    walk_statements,
)
from tilewright.tensorir.keys import SPECIALIZE_TAIL
from tilewright.tensorir.node import Node
from tilewright.tensorir.stmt import Allocate, BufferStore, For, IfThenElse, Stmt, sequence

#: A remainder of known size is computed in small tiles if the loop has at least this many times as many rows in all.
_ROWS_PER_REST = 16


@dataclass(frozen=True)
class Tiles:
    """A loop over tiles of ``factor`` rows, ``total`` rows in all: its guards are ``var * factor + offset < total``.

    ``offsets`` maps the condition of each guard to the row within the tile that it checks.
    """

    loop: For
    factor: int
    total: Expr
    offsets: Mapping[Expr, Expr]


def find_tiles(loop: For, guards: Sequence[Guard], analyzer: Analyzer) -> Tiles | None:
    """Find the tiles of ``loop``, from the first of its guards that has this form and all equal ones."""
    if not (isinstance(loop.min, IntImm) and loop.min.value == 0):
        return None
    tile: tuple[int, Expr] | None = None
    offsets: dict[Expr, Expr] = {}
    for guard in guards:
        found = _tile_guard(loop, guard, analyzer)
        if found is None:
            continue
        factor, offset, total = found
        if tile is None:
            tile = factor, total
        if tile[0] == factor and analyzer.prove_equal(tile[1], total):
            offsets[guard.condition] = offset
    return None if tile is None else Tiles(loop, *tile, offsets)


def tile_conditions(stmt: Stmt, analyzer: Analyzer) -> set[Expr]:
    """Return the conditions on rows in ``stmt`` that are known in whole tiles once the remainder is split off."""
    found: set[Expr] = set()
    for loop in walk_statements(stmt):
        if isinstance(loop, For) and loop.kind == "serial" and loop.annotations.get(SPECIALIZE_TAIL):
            tiles = find_tiles(loop, find_guards(loop), analyzer)
            found.update(() if tiles is None else tiles.offsets)
    return found


def _tile_guard(loop: For, guard: Guard, analyzer: Analyzer) -> tuple[int, Expr, Expr] | None:
    """Match ``loop.var * factor + offset < total`` with the offset within a tile: factor, offset and total."""
    condition = guard.condition
    if not isinstance(condition, Compare) or condition.op != "lt" or condition.a.dtype is not INT64:
        return None
    form = analyzer.linear(condition.a) - analyzer.linear(condition.b)
    factor = form.terms.get(loop.var, 0)
    if factor < 2:
        return None
    inner = set(guard.inner)
    offset, total = const(0, INT64), const(-form.const, INT64)
    for term, coefficient in form.terms.items():
        if term is loop.var:
            continue
        if uses_var(term, {loop.var}):
            return None
        if uses_var(term, inner):
            offset = offset + term * coefficient
        else:
            total = total - term * coefficient
    with analyzer.scope():
        for var, (low, extent) in guard.inner.items():
            analyzer.bind(var, low, extent)
        if not (analyzer.prove(offset >= 0) and analyzer.prove(offset < factor)):
            return None
    return factor, analyzer.simplify(offset), analyzer.simplify(total)


def with_remainders(tiles: Tiles, parts: int, mutator: ScopedMutator) -> Stmt | None:
    """Build the loop over whole tiles and the tail, mutated by ``mutator``, which knows the facts at this place; None
    for a parallel loop over a part of the tiles. Small tiles have a ``parts``-th of the rows of a whole one."""
    loop, total = tiles.loop, tiles.total
    whole, rest = mutator.simplify(total // tiles.factor), mutator.simplify(total % tiles.factor)
    has_tail: Expr = TRUE
    if not mutator.analyzer.prove(loop.extent.equal((total + (tiles.factor - 1)) // tiles.factor)):
        if loop.kind == "parallel":
            return None
        # A part of the tiles may end before the last one, or begin after it.
        whole = mutator.simplify(maximum(minimum(whole, loop.extent), 0))
        has_tail = mutator.simplify(all_of(compare("lt", whole, loop.extent), compare("gt", total, 0)))
    main = with_known(loop.body, dict.fromkeys(tiles.offsets, TRUE))
    small = max(1, round(tiles.factor / parts))
    tail = _Tail(tiles, small, mutator, whole, rest, has_tail)
    annotations = {key: value for key, value in loop.annotations.items() if key != SPECIALIZE_TAIL}
    if loop.kind == "parallel":
        with mutator.analyzer.scope():
            mutator.analyzer.bind(loop.var, loop.min, loop.extent)
            both = IfThenElse(loop.var < whole, mutator.mutate(main), tail.written_out())
        return For(loop.var, loop.min, loop.extent, loop.kind, both, annotations)
    body = mutator.mutate_in_loop(loop.var, loop.min, whole, main)
    return sequence(For(loop.var, loop.min, whole, loop.kind, body, annotations), tail.written_out())


@dataclass(frozen=True)
class _Tail:
    """The ``rest`` rows after the ``whole`` tiles, if ``has_tail``. Small tiles have ``small`` rows."""

    tiles: Tiles
    small: int
    mutator: ScopedMutator
    whole: Expr
    rest: Expr
    has_tail: Expr

    def written_out(self) -> Stmt:
        """Return a statement for the remaining rows."""
        if isinstance(self.rest, IntImm) and not self._is_short(self.rest.value):
            exact = first_rows(self.tiles.loop.body, self.tiles.offsets, self.rest.value)
            tail = self._placed(exact) if self.rest.value else sequence()
        else:
            tail = self._small_tiles()
        return tail if self.has_tail is TRUE else IfThenElse(self.has_tail, tail)

    def _is_short(self, rest: int) -> bool:
        """Return whether small tiles for a remainder of known size save code and cost hardly any time."""
        total = self.tiles.total
        few = isinstance(total, IntImm) and rest * _ROWS_PER_REST <= total.value
        return few and rest >= 2 * self.small

    def _small_tiles(self) -> Stmt:
        """Return as many tiles of a few rows as are needed. If tiles of this body cannot begin at any row, return a
        single tile of all rows except one."""
        loop, factor, simplify = self.tiles.loop, self.tiles.factor, self.mutator.simplify
        finder = _PlaceFinder(self.tiles, self.mutator.analyzer)
        finder.visit(loop.body)
        if not finder.anywhere:
            return IfThenElse(self.rest > 0, self._placed(self._rows(factor - 1, self.rest)))
        count = self.small
        number, zero = Var(loop.var.name, INT64), const(0, INT64)
        first = simplify(self.tiles.total - self.rest + number * count)
        moved = _Moved(self.mutator.analyzer, loop.var, factor, first)
        body = moved.mutate(copy_with_fresh_definitions(self._rows(count, self.rest - number * count)))
        tiles = simplify((self.rest + (count - 1)) // count)
        return For(number, zero, tiles, "serial", self.mutator.mutate_in_loop(number, zero, tiles, body))

    def _rows(self, count: int, left: Expr) -> Stmt:
        """Return a tile of ``count`` rows, of which ``left`` exist."""
        body, offsets = self.tiles.loop.body, self.tiles.offsets
        return first_rows(body, offsets, 1) if count == 1 else clamped_rows(body, offsets, count, left)

    def _placed(self, body: Stmt) -> Stmt:
        """Move ``body`` to the beginning of the tail."""
        loop, body = self.tiles.loop, copy_with_fresh_definitions(body)
        body = body if loop.kind == "parallel" else substitute(body, {loop.var: self.whole})
        return self.mutator.mutate(body)  # type: ignore[no-any-return]


class _PlaceFinder(Visitor):
    """Check whether tiles may begin at any row: except in the conditions on rows and the indices of the tile's own
    buffers, ``var`` and the rows of a tile must be used only in ``var * factor + row``."""

    def __init__(self, tiles: Tiles, analyzer: Analyzer) -> None:
        self.analyzer, self.tiles = analyzer, tiles
        self.own = {node.buffer for node in walk_statements(tiles.loop.body) if isinstance(node, Allocate)}
        self.rows = [(analyzer.linear(row), leaves(row)) for row in set(tiles.offsets.values())]
        self.used = frozenset({tiles.loop.var}).union(*(names for _, names in self.rows))
        self.anywhere = True

    def visit(self, node: Node) -> None:
        if node in self.tiles.offsets:
            return
        if isinstance(node, Expr) and node.dtype is INT64:
            self.anywhere &= self._is_place(node)
        elif isinstance(node, (BufferLoad, BufferStore)) and node.buffer in self.own:
            for part in (*node.indices, node.predicate, node.value if isinstance(node, BufferStore) else None):
                if part is not None and (part not in node.indices or uses_var(part, {self.tiles.loop.var})):
                    self.visit(part)
        else:
            super().visit(node)

    def _is_place(self, expr: Expr) -> bool:
        if not leaves(expr) & self.used:
            return True
        form = self.analyzer.linear(expr)
        multiple, other = divmod(form.terms.get(self.tiles.loop.var, 0), self.tiles.factor)
        rest = form.without(self.tiles.loop.var)
        for row, names in self.rows:
            if leaves(expr) & names:
                rest = rest.combine(row, -multiple)
        return not other and not any(leaves(term) & self.used for term in rest.terms)


class _Moved(Mutator):
    """Move a tile: replace ``var * factor`` by ``first`` in all indices."""

    def __init__(self, analyzer: Analyzer, var: Var, factor: int, first: Expr) -> None:
        self.analyzer, self.var, self.factor = analyzer, var, factor
        self.first = analyzer.linear(first)

    def mutate(self, node: Any) -> Any:
        if not isinstance(node, Expr) or node.dtype is not INT64 or not uses_var(node, {self.var}):
            return super().mutate(node)
        form = self.analyzer.linear(node)
        multiple = form.terms.get(self.var, 0) // self.factor
        return self.analyzer.expr(form.without(self.var).combine(self.first, multiple))
