"""``TransposeTiles``: transpose tiles in registers that are read along columns and written along rows.

Before::

    for i in range(4) annotations {"transpose": True} {
      for j in vectorized(4) {
        b[i, j] = a[j, i] * 2.0
      }
    }

After::

    let a_0: float32x4 = a[0, ramp(0, 1, 4)]
    ...
    let a_3: float32x4 = a[3, ramp(0, 1, 4)]
    let a_4: float32x4 = interleave_low(a_0, a_2)           # elements 00 20 01 21
    let a_5: float32x4 = interleave_high(a_0, a_2)          # elements 02 22 03 23
    ...
    tile[0, ramp(0, 1, 4)] = a_8                            # elements 00 10 20 30
    ...
    for i in unrolled(4) {
      for j in vectorized(4) {
        b[i, j] = tile[i, j] * 2.0
      }
    }

Of several operands that are read along columns, not each is transposed, but the result, where it can be computed along
columns: other operands are the same in a column, as the factors of channels are.

Otherwise the elements of each vector would be gathered one by one. The number of rows is a power of two, ``n``; each of
``log2(n)`` steps interleaves vector ``k`` with vector ``k + n / 2``, the perfect shuffle of all rows, and ``log2(n)``
perfect shuffles of ``n * n`` elements are the transposition (Stone, "Parallel processing with the perfect shuffle",
IEEE Transactions on Computers, 1971). It runs before ``VectorizeLoop``, which vectorizes the remaining loops. A partial
tile at a border stays a loop nest, and a remark says so.
"""

from __future__ import annotations

import functools
from typing import cast

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.properties import PARTITIONED, STATEMENTS, VECTOR_LOOPS
from tilewright.passes.registry import register_pass
from tilewright.passes.tensor.flatten_buffer import element_strides
from tilewright.passes.tensor.hoist_invariant import ExprReplacer
from tilewright.passes.tensor.intents import IntentLowering, states
from tilewright.tensorir.arith import Analyzer
from tilewright.tensorir.arith.iter_map import coefficient
from tilewright.tensorir.expr import Buffer, BufferLoad, Expr, IntImm, Ramp, Var, as_expr, call
from tilewright.tensorir.functor import LOADS, substitute, uses_var, walk_to
from tilewright.tensorir.keys import TRANSPOSE
from tilewright.tensorir.stmt import Allocate, BufferStore, For, LetStmt, PrimFunc, Stmt, sequence


@register_pass
@primfunc_pass(opt_level=2, name="TransposeTiles", requires={STATEMENTS, PARTITIONED, VECTOR_LOOPS})
class TransposeTiles(PrimFuncPass):
    """Transpose tiles in registers, where a schedule requests it."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """Return ``func`` with tiles that are loaded and stored in whole vectors."""
        if not states(func.body, TRANSPOSE):
            return func
        tiles = _Tiles(func)
        body = tiles.mutate(func.body)
        tiles.tell(ctx, "transposed {} tiles in registers")
        return func.with_body(body)


class _Tiles(IntentLowering):
    def __init__(self, func: PrimFunc) -> None:
        super().__init__(func, TRANSPOSE)

    def lower(self, rows: For) -> Stmt | str:
        """Return the loop over the rows of a tile with its operands transposed, or a reason."""
        columns, size = rows.body, _value(rows.extent)
        if size is None or size < 2 or size & (size - 1) or _value(rows.min) != 0:
            return "its extent is not a power of two from 2 on, or it does not start at 0"
        if not isinstance(columns, For) or columns.kind != "vectorized" or not isinstance(columns.body, BufferStore):
            return "its body is not a vectorized loop around a single store"
        if _value(columns.min) != 0 or _value(columns.extent) != size:
            return "the tile is not square: the two loops have different bounds"
        store, i, j = columns.body, rows.var, columns.var
        with self.analyzer.scope():
            self.analyzer.bind(i, 0, size)
            self.analyzer.bind(j, 0, size)
            loads = [node for node in walk_to(store.value, LOADS) if isinstance(node, BufferLoad)]
            operands = [load for load in loads if _is_transposed(load, i, j, self.analyzer)]
        if not operands:
            return "no operand is contiguous along the rows"
        if any(node.buffer is store.buffer for node in loads):
            return "it reads the buffer that it writes"
        parts: list[tuple[str, Expr]] = [(load.buffer.name, load) for load in operands]
        if len(parts) > 1 and not any(load not in operands and _depends(load, i) for load in loads):
            # Along the rows the other operands are the same number: the result can be computed there, and exchanged.
            parts = [(store.buffer.name, store.value)]
        tiles = [Buffer(f"{name}_tile", (as_expr(size), as_expr(size)), part.dtype, "register") for name, part in parts]
        exchanged: dict[Expr, Expr] = {
            part: BufferLoad(tile, (i, j)) for (_, part), tile in zip(parts, tiles, strict=True)
        }
        columns = cast(Stmt, ExprReplacer(exchanged).mutate(columns))
        result: Stmt = For(i, rows.min, rows.extent, "unrolled", columns)
        for (name, part), tile in zip(parts, tiles, strict=True):
            result = Allocate(tile, sequence(_exchange(name, part, i, j, tile, size), result))
        return result


def _depends(load: BufferLoad, var: Var) -> bool:
    return any(uses_var(part, {var}) for part in (*load.indices, load.predicate) if part is not None)


def _is_transposed(load: BufferLoad, i: Var, j: Var, analyzer: Analyzer) -> bool:
    """Return whether the load is contiguous along ``i`` and not along ``j``."""
    if load.predicate is not None and uses_var(load.predicate, {i, j}):
        return False
    place = analyzer.simplify(_offset(load))
    return coefficient(place, i) == 1 and uses_var(place, {j}) and coefficient(place, j) != 1


def _offset(load: BufferLoad) -> Expr:
    steps = zip(load.indices, element_strides(load.buffer), strict=True)
    return functools.reduce(lambda total, step: total + step[0] * step[1], steps, as_expr(0))


def _exchange(called: str, operand: Expr, i: Var, j: Var, tile: Buffer, size: int) -> Stmt:
    """Compute ``size`` vectors along ``i``, one for each ``j``, and store them into ``tile`` transposed."""
    made: list[tuple[Var, Expr]] = []

    def name(value: Expr) -> Var:
        made.append((Var(f"{called}_{len(made)}", value.dtype), value))
        return made[-1][0]

    def row(number: int) -> tuple[Expr, Expr]:
        return as_expr(number), Ramp(as_expr(0), as_expr(1), size)

    # The loops of the tile with columns outside; variables are fresh because each is bound once.
    fresh: dict[Var, Expr] = {var: Var(var.name, var.dtype) for var in (i, j)}
    row_at, column_at = cast(Var, fresh[i]), cast(Var, fresh[j])
    load = BufferStore(tile, substitute(operand, fresh), (column_at, row_at))
    read = For(row_at, as_expr(0), as_expr(size), "vectorized", load)
    vectors = [name(BufferLoad(tile, row(number))) for number in range(size)]
    for _ in range(size.bit_length() - 1):
        halves = zip(vectors[: size // 2], vectors[size // 2 :], strict=True)
        vectors = [name(call(f"interleave_{part}", a, b)) for a, b in halves for part in ("low", "high")]
    body = sequence(*(BufferStore(tile, vector, row(number)) for number, vector in enumerate(vectors)))
    for var, value in reversed(made):
        body = LetStmt(var, value, body)
    return sequence(For(column_at, as_expr(0), as_expr(size), "unrolled", read), body)


def _value(expr: Expr) -> int | None:
    return expr.value if isinstance(expr, IntImm) else None
