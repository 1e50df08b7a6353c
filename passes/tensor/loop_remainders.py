"""The rest of a division into tiles, written out so that the loops inside a tile keep constant extents::

for i in range((n + 5) // 6):                   for i in range(n // 6):
    for j in range(6):                              for j in range(6):
        if i * 6 + j < n:               ->              b[i * 6 + j] = 0
            b[i * 6 + j] = 0                    if n % 6 >= 3:
                                                    for j in range(3):
                                                        b[n // 6 * 6 + j] = 0
                                                if n % 3 == 1: one row from n - n % 3 on, elif n % 3 == 2: two
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.passes.tensor.loop_guards import TRUE, Guard, with_known
from tilewright.passes.tensor.scoped import ScopedMutator
from tilewright.tensorir.arith.analyzer import Analyzer
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import Compare, Expr, IntImm, Var, all_of, compare, const, maximum, minimum
from tilewright.tensorir.functor import Mutator, copy_with_fresh_definitions, substitute, uses_var
from tilewright.tensorir.stmt import For, IfThenElse, Stmt, sequence

TAIL_ANNOTATION = "specialize_tail"


@dataclass(frozen=True)
class Tiles:
    """A loop over tiles of ``factor`` rows, ``total`` rows together: its guards say ``var * factor + offset < total``.

    ``offsets`` holds the row within the tile that each guard asks for, by its condition.
    """

    loop: For
    factor: int
    total: Expr
    offsets: Mapping[Expr, Expr]


def find_tiles(loop: For, guards: Sequence[Guard], analyzer: Analyzer) -> Tiles | None:
    """The tiles that ``loop`` runs over, by the first of its guards that says so and all that say the same."""
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


def _tile_guard(loop: For, guard: Guard, analyzer: Analyzer) -> tuple[int, Expr, Expr] | None:
    """``loop.var * factor + offset < total`` with the offset within a tile: factor, offset and total."""
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


def with_remainders(tiles: Tiles, mutator: ScopedMutator) -> Stmt | None:
    """The loop over whole tiles and the tail written out, mutated by ``mutator``, which knows what holds around; None
    for a parallel loop over a part of the tiles."""
    loop, total = tiles.loop, tiles.total
    whole, rest = mutator.simplify(total // tiles.factor), mutator.simplify(total % tiles.factor)
    has_tail: Expr = TRUE
    if not mutator.analyzer.prove(loop.extent.equal((total + (tiles.factor - 1)) // tiles.factor)):
        if loop.kind == "parallel":
            return None
        # One of several parts of the tiles: it may end before the last one, or begin behind it.
        whole = mutator.simplify(maximum(minimum(whole, loop.extent), 0))
        has_tail = mutator.simplify(all_of(compare("lt", whole, loop.extent), compare("gt", total, 0)))
    main = with_known(loop.body, dict.fromkeys(tiles.offsets, TRUE))
    tail = _Tail(tiles, mutator, whole, rest, has_tail)
    annotations = {key: value for key, value in loop.annotations.items() if key != TAIL_ANNOTATION}
    if loop.kind == "parallel":
        with mutator.analyzer.scope():
            mutator.analyzer.bind(loop.var, loop.min, loop.extent)
            both = IfThenElse(loop.var < whole, mutator.mutate(main), tail.written_out())
        return For(loop.var, loop.min, loop.extent, loop.kind, both, annotations)
    body = mutator.mutate_in_loop(loop.var, loop.min, whole, main)
    return sequence(For(loop.var, loop.min, whole, loop.kind, body, annotations), tail.written_out())


@dataclass(frozen=True)
class _Tail:
    """What is left behind the ``whole`` tiles: ``rest`` rows, if ``has_tail``."""

    tiles: Tiles
    mutator: ScopedMutator
    whole: Expr
    rest: Expr
    has_tail: Expr

    def written_out(self) -> Stmt:
        """A statement for the rows that are left."""
        chain = self._halved() or self._remainders(self.rest, self.tiles.factor, None)
        if chain is None:
            return sequence()
        return chain if self.has_tail is TRUE else IfThenElse(self.has_tail, chain)

    def _halved(self) -> Stmt | None:
        """Half a tile and what is left then: much less code than a tile for each remainder, and half a tile is about as
        fast for each of its rows. None if the body does not allow it, or the tail has one size."""
        factor = self.tiles.factor
        half = (factor + 1) // 2
        if half < 2 or isinstance(self.rest, IntImm):
            return None
        counted = self.tiles.total if factor % half == 0 else self.rest
        left = self.mutator.simplify(counted % half)
        first = self._rows(half, None)
        second = self._remainders(left, half, self.mutator.simplify(self.tiles.total - left))
        if first is None or second is None:
            return None
        return sequence(IfThenElse(self.rest >= half, first), second)

    def _remainders(self, rest: Expr, end: int, first: Expr | None) -> Stmt | None:
        """The tail of ``rest`` rows, fewer than ``end``, a tile of its own for each number of rows."""
        chain: Stmt | None = None
        for count in range(end - 1, 0, -1):
            body = self._rows(count, first)
            if body is None:
                return None
            chain = IfThenElse(rest.equal(count), body, chain)
        return chain

    def _rows(self, count: int, first: Expr | None) -> Stmt | None:
        """A tile of ``count`` rows from ``first`` on (None: from where the last tile begins)."""
        loop = self.tiles.loop
        known = {guard: compare("lt", offset, const(count, INT64)) for guard, offset in self.tiles.offsets.items()}
        body = copy_with_fresh_definitions(with_known(loop.body, known))
        if first is None:
            body = body if loop.kind == "parallel" else substitute(body, {loop.var: self.whole})
        else:
            moved = _Moved(self.mutator.analyzer, loop.var, self.tiles.factor, first)
            body = moved.mutate(body)
            if moved.failed:
                return None
        return self.mutator.mutate(body)  # type: ignore[no-any-return]


class _Moved(Mutator):
    """Lets tiles begin anywhere: ``var * factor`` becomes ``first`` in all indices. ``failed`` says that ``var`` is
    used in another way."""

    def __init__(self, analyzer: Analyzer, var: Var, factor: int, first: Expr) -> None:
        self.analyzer, self.var, self.factor = analyzer, var, factor
        self.first = analyzer.linear(first)
        self.failed = False

    def mutate(self, node: Any) -> Any:
        if not isinstance(node, Expr) or node.dtype is not INT64 or not uses_var(node, {self.var}):
            return super().mutate(node)
        form = self.analyzer.linear(node)
        multiple, other = divmod(form.terms.get(self.var, 0), self.factor)
        rest = form.without(self.var)
        if other or any(uses_var(term, {self.var}) for term in rest.terms):
            self.failed = True
            return node
        return self.analyzer.expr(rest.combine(self.first, multiple))
