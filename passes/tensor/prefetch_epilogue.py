"""``PrefetchEpilogue``: prefetch the operands of a tile's epilogue while its sum is computed::

    for k in range(768):
        c[...] = c[...] + broadcast(A[i * 768 + k], 16) * W[ramp(k * 16, 1, 16)]
        ...
    C[ramp(i * 64, 1, 16)] = c[ramp(0, 1, 16)] + X[ramp(i * 64, 1, 16)]
    C[ramp(i * 64 + 16, 1, 16)] = c[ramp(16, 1, 16)] + X[ramp(i * 64 + 16, 1, 16)]

    ->  for k in range(768):
            prefetch(X[i * 64 + min(k // 256, 1) * 16])
            ...

The addend of a residual connection is as large as the result and was computed several kernels before. Each tile reads a
few short pieces of it, one for each of its rows, which no hardware prefetcher predicts: the tile waits for all lines at
once, with nothing left to multiply. The sum before takes hundreds of steps, most of which have room for another load.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Iterator
from typing import NamedTuple

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.operands import known_bytes
from tilewright.passes.properties import FLAT, FORMULAS, TILES, VECTORS
from tilewright.passes.registry import register_pass
from tilewright.passes.tensor.large_operands import large_operands
from tilewright.passes.tensor.loops_in import has_inner_loops, is_written_out
from tilewright.passes.tensor.prefetch_panels import position
from tilewright.passes.tensor.scoped import ScopedMutator
from tilewright.tensorir.arith import Analyzer
from tilewright.tensorir.dtype import VOID
from tilewright.tensorir.expr import Buffer, BufferLoad, Call, Expr, IntImm, Ramp, Var, as_expr, minimum
from tilewright.tensorir.functor import (
    accesses_buffers,
    leaves,
    loads_and_stores,
    substitute,
    uses_var,
    walk_statements,
)
from tilewright.tensorir.node import Node
from tilewright.tensorir.stmt import Evaluate, For, IfThenElse, LetStmt, PrimFunc, SeqStmt, Stmt, sequence
from tilewright.tensorir.target import CACHE_LINE, Target

#: Lines are fetched in this first part of a sum, as the last ones take time to arrive.
_SOON = 3, 4


class _Row(NamedTuple):
    """Places at constant distances from each other.

    Attributes:
        first: one of them.
        distance: from the first place of all rows to ``first``.
        offsets: from ``first`` to each of them.
    """

    first: Expr
    distance: Expr
    offsets: list[int]


class _Prefetcher(ScopedMutator):
    """Insert prefetches. ``far`` holds the buffers that may have been evicted from L2 since they were written."""

    def __init__(self, func: PrimFunc, far: set[Buffer], ctx: PassContext) -> None:
        super().__init__(func)
        self.ctx, self.far = ctx, far
        self.sizes: set[Node] = set(func.variables)

    def mutate_For(self, loop: For) -> Stmt:
        return super().mutate_For(loop) if has_inner_loops(loop.body) else loop  # a sum is a loop that stays

    def mutate_SeqStmt(self, seq: SeqStmt) -> Stmt:
        stmts = list(seq.stmts)
        for place, stmt in enumerate(stmts):
            nest = _nest(stmt, self.sizes)
            if not nest:
                stmts[place] = self.mutate(stmt)
            elif stmt is not stmts[-1]:
                fetches = list(self._prefetches(nest, sequence(*stmts[place + 1 :])))
                if fetches:
                    stmts[place] = _with_body(nest, sequence(*fetches, nest[-1].body))
        return sequence(*stmts) if any(map(operator.is_not, stmts, seq.stmts)) else seq

    def _prefetches(self, nest: list[For], rest: Stmt) -> Iterator[Stmt]:
        """Yield the prefetches in the steps of a sum for the statements after it."""
        known = [loop for loop in nest if isinstance(loop.extent, IntImm)]
        for buffer, places in self._read(rest).items():
            rows = self._rows(places)
            if not rows:
                continue
            lines = list(_lines(sorted(rows[0].offsets), CACHE_LINE // buffer.dtype.bytes))
            if len(rows) == 1:
                # The number of steps may be unknown: then one of the first fetches each line.
                offset = _fetched(lines, nest, _SOON if len(known) == len(nest) else None)
            else:
                # The innermost loops fetch a row, and each iteration of the outer loops another one.
                inner = [loop for place, loop in enumerate(nest) if all(each in known for each in nest[place:])]
                outer = nest[: len(nest) - len(inner)]
                offset = _fetched(lines, inner, (1, 1)) if inner and outer else None
                if offset is not None:
                    offset = rows[1].distance * minimum(position(as_expr(0), outer), len(rows) - 1) + offset
            if offset is None:
                continue
            self.ctx.remark(
                f"prefetched, during a reduction, the elements of {buffer.name} that the epilogue reads", "applied"
            )
            with self.where(functools.partial(_bind, nest)):
                fetched = self.simplify(places[0] + offset)
            yield Evaluate(Call("prefetch", (BufferLoad(buffer, (fetched,)),), VOID))

    def _rows(self, places: list[Expr]) -> list[_Row]:
        """Group ``places`` into rows with constant distances inside, such as the rows of a tile in a tensor of unknown
        width; return an empty list unless all rows are alike and equally far apart."""
        rows: list[_Row] = []
        for place in places:
            for row in rows:
                offset = self.simplify(place - row.first)
                if isinstance(offset, IntImm):
                    row.offsets.append(offset.value)
                    break
            else:
                rows.append(_Row(place, self.simplify(place - places[0]), [0]))
        for number, row in enumerate(rows[1:], 1):
            expected = self.simplify(rows[1].distance * number)
            if sorted(row.offsets) != sorted(rows[0].offsets) or not self._same(row.distance, expected):
                return []
        return rows

    def _same(self, one: Expr, other: Expr) -> bool:
        distance = self.simplify(one - other)
        return isinstance(distance, IntImm) and distance.value == 0

    def _read(self, rest: Stmt) -> dict[Buffer, list[Expr]]:
        """Return the places of the vectors of large operands that are read unconditionally, by buffer."""
        found: dict[Buffer, list[Expr]] = {}
        lets: dict[Var, Expr] = {}
        copies: list[For] = []
        for stmt in walk_statements(rest):
            if isinstance(stmt, For) and is_written_out(stmt):
                copies.append(stmt)
            elif isinstance(stmt, (For, IfThenElse)):
                return {}
            elif isinstance(stmt, LetStmt):
                lets[stmt.var] = substitute(stmt.value, lets)
        for access in loads_and_stores(rest):
            if not isinstance(access, BufferLoad) or access.buffer not in self.far or len(access.indices) != 1:
                continue
            index = access.indices[0]
            if isinstance(index, Ramp) and isinstance(index.stride, IntImm) and index.stride.value == 1:
                place = substitute(index.base, lets)
                if not accesses_buffers(place):  # otherwise the sum may still change it
                    found.setdefault(access.buffer, []).extend(_copies(place, copies))
        return found


def _nest(stmt: Stmt, sizes: set[Node]) -> list[For]:
    """Return the perfectly nested serial loops of ``stmt``, outermost first, whose extents are constants or formulas of
    sizes that are parameters; an empty list if ``stmt`` is no such nest."""
    found: list[For] = []
    while isinstance(stmt, For):
        if stmt.kind != "serial" or not leaves(stmt.extent) <= sizes:
            return []
        found.append(stmt)
        stmt = stmt.body
    return [] if has_inner_loops(stmt) else found


def _copies(place: Expr, loops: list[For]) -> Iterator[Expr]:
    """Yield ``place`` for each of the copies that unrolled loops make of it."""
    moving = [loop for loop in loops if uses_var(place, {loop.var})]
    ranges = [range(loop.min.value, loop.min.value + loop.extent.value) for loop in moving]  # type: ignore[attr-defined]
    for numbers in itertools.product(*ranges):
        values: dict[Var, Expr] = {loop.var: as_expr(number) for loop, number in zip(moving, numbers, strict=True)}
        yield substitute(place, values)


def _bind(nest: list[For], analyzer: Analyzer) -> None:
    for loop in nest:
        analyzer.bind(loop.var, loop.min, loop.extent)


def _with_body(nest: list[For], body: Stmt) -> Stmt:
    for loop in reversed(nest):
        body = For(loop.var, loop.min, loop.extent, loop.kind, body, loop.annotations)
    return body


def _lines(places: list[int], line: int) -> Iterator[int]:
    """Yield one of the ascending places for each cache line."""
    last = None
    for place in places:
        if last is None or place - last >= line:
            yield place
            last = place


def _fetched(lines: list[int], nest: list[For], soon: tuple[int, int] | None) -> Expr | None:
    """Return a formula for the one of ``lines`` that an iteration of a nest fetches; None if there are too few or too
    many lines, or no formula.

    Args:
        soon: the part of a known number of iterations in which all lines are fetched; None: in the first iterations.
    """
    each = 1
    if soon is not None:
        steps = math.prod(loop.extent.value for loop in nest if isinstance(loop.extent, IntImm)) * soon[0] // soon[1]
        if len(lines) > steps:
            return None
        each = 1 << int(math.log2(steps // len(lines)))
    return _place(lines, minimum(position(as_expr(0), nest) // each, len(lines) - 1)) if len(lines) > 1 else None


def _place(lines: list[int], number: Expr) -> Expr | None:
    """Return a formula for ``lines[number]`` of equally long, equally spaced rows; None if they are not such rows."""
    inner = lines[1] - lines[0]
    width = next(
        (count for count, (one, next_one) in enumerate(itertools.pairwise(lines), 1) if next_one - one != inner),
        len(lines),
    )
    if width == len(lines):
        return lines[0] + number * inner
    outer = lines[width] - lines[0]
    if any(place != lines[0] + count // width * outer + count % width * inner for count, place in enumerate(lines)):
        return None
    return lines[0] + number // width * outer + number % width * inner


def prefetch_epilogue(func: PrimFunc, target: Target | None = None, ctx: PassContext | None = None) -> PrimFunc:
    """Return ``func`` with the operands of epilogues prefetched.

    Args:
        target: the machine; data that its L2 cache may still hold is not fetched. By default :meth:`Target.current`.
        ctx: takes the remarks; by default the current one.
    """
    target = target if target is not None else Target.current()
    if target.kind != "llvm":
        return func
    ctx = ctx if ctx is not None else PassContext.current()
    cache = target.cache_bytes(2)
    far = {buffer for buffer in large_operands(func) if not 0 < known_bytes(buffer) <= cache // 2}
    return func.with_body(_Prefetcher(func, far, ctx).mutate(func.body)) if far else func


@register_pass
@primfunc_pass(opt_level=2, name="PrefetchEpilogue", requires={FLAT, VECTORS, FORMULAS, TILES})
class PrefetchEpilogue(PrimFuncPass):
    """See the module. ``target``: default :meth:`Target.current`."""

    def __init__(self, target: Target | None = None) -> None:
        self.target = target

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """Return ``func`` with the operands of epilogues prefetched."""
        return prefetch_epilogue(func, self.target, ctx)
