"""Compute the determinant of square matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.dims import dim_equal
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import FLOATS, check_dtype, compute_type, widened
from tilewright.graphir.ops.loop_nests import loop, nest
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.dtype import BOOL, INT64, DataType
from tilewright.tensorir.expr import Buffer, Expr, Var, as_expr, call, cast, const, select
from tilewright.tensorir.stmt import Allocate, BufferStore, IfThenElse, LetStmt, Stmt, sequence
from tilewright.tensorir.tensor import Tensor

_FIRST = (as_expr(0),)


class _Elimination:
    """Statements that bring a matrix to triangular form by Gaussian elimination with partial pivoting (Golub and Van
    Loan, Matrix Computations, 3.4), whose determinant is the product of the pivots; 0 if one of them is, whatever the
    others are, as in NumPy."""

    def __init__(self, extent: Expr, dtype: DataType) -> None:
        self.extent = extent
        self.rows = Buffer("rows", (extent, extent), dtype, "arena")
        self.product = Buffer("product", (as_expr(1),), dtype, "register")
        self.pivot = Buffer("pivot", (as_expr(1),), INT64, "register")
        self.singular = Buffer("singular", (as_expr(1),), BOOL, "register")

    def around(self, start: Stmt, then: Stmt) -> Stmt:
        """Fill ``rows`` by ``start``, eliminate, then run ``then``."""
        one = BufferStore(self.product, const(1, self.product.dtype), _FIRST)
        regular = BufferStore(self.singular, const(False, BOOL), _FIRST)
        body = sequence(start, one, regular, loop(self.extent, self._column, "k"), then)
        for buffer in (self.singular, self.pivot, self.product, self.rows):
            body = Allocate(buffer, body)
        return body

    def result(self) -> Expr:
        """Return the determinant, behind the elimination."""
        product = self.product[0]
        return select(self.singular[0], const(0, product.dtype), product)

    def _column(self, k: Var) -> Stmt:
        found = self.rows[k, k]
        multiply = BufferStore(self.product, self.product[0] * found, _FIRST)
        eliminate = loop(self.extent - k - 1, lambda i: self._subtract(k, k + 1 + i), "i")
        return sequence(
            BufferStore(self.pivot, k, _FIRST),
            loop(self.extent - k - 1, lambda i: self._compare(k, k + 1 + i), "i"),
            IfThenElse(self.pivot[0].not_equal(k), self._exchange(k)),
            multiply,
            IfThenElse(found.not_equal(0.0), eliminate, BufferStore(self.singular, const(True, BOOL), _FIRST)),
        )

    def _compare(self, k: Expr, row: Expr) -> Stmt:
        larger = call("abs", self.rows[row, k]) > call("abs", self.rows[self.pivot[0], k])
        return IfThenElse(larger, BufferStore(self.pivot, row, _FIRST))

    def _exchange(self, k: Expr) -> Stmt:
        def step(j: Var) -> Stmt:
            upper = Var("upper", self.rows.dtype)
            stmt = sequence(
                BufferStore(self.rows, self.rows[self.pivot[0], j], (k, j)),
                BufferStore(self.rows, upper, (self.pivot[0], j)),
            )
            return LetStmt(upper, self.rows[k, j], stmt)

        return sequence(BufferStore(self.product, -self.product[0], _FIRST), loop(self.extent, step, "j"))

    def _subtract(self, k: Expr, row: Expr) -> Stmt:
        factor = Var("factor", self.rows.dtype)

        def step(j: Var) -> Stmt:
            column = k + 1 + j
            return BufferStore(self.rows, self.rows[row, column] - factor * self.rows[k, column], (row, column))

        return LetStmt(factor, self.rows[row, k] / self.rows[k, k], loop(self.extent - k - 1, step, "j"))


@register_operator
class det(Operator):
    """Compute the determinants of the square matrices in the last two dimensions; 1 for empty ones. Half types compute
    in float32."""

    name = "det"
    arguments = ("x",)

    def infer_type(self, args: Sequence[TensorType], attrs: Any) -> TensorType:
        (x,) = args
        check_dtype(self, 0, x, FLOATS)
        if x.ndim < 2 or not dim_equal(x.shape[-2], x.shape[-1]):
            raise self.error(0, "square matrices in the last two dimensions", x)
        return TensorType(x.shape[:-2], x.dtype)

    def reference(self, args: Sequence[Any], attrs: Any) -> Any:
        with np.errstate(all="ignore"):
            return np.asarray(np.linalg.det(widened(args[0]))).astype(args[0].dtype, copy=False)

    def compute(self, args: Sequence[Tensor], attrs: Any, out: TensorType) -> list[Tensor]:
        (x,) = args
        extent, wide = x.shape[-1], compute_type(x.dtype)

        def loops(outputs: list[Buffer]) -> Stmt:
            def matrix(place: list[Expr]) -> Stmt:
                steps = _Elimination(extent, wide)

                def fill(at: list[Expr]) -> Stmt:
                    return BufferStore(steps.rows, cast(wide, x(*place, *at)), tuple(at))

                emit = BufferStore(outputs[0], cast(out.dtype, steps.result()), tuple(place))
                return steps.around(nest([extent, extent], fill, parallel=False), emit)

            return nest(x.shape[:-2], matrix)

        return te.extern([(out.shape, out.dtype)], loops, "det")
