"""The product of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.dims import Dim, dim_equal, format_shape
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import (
    NUMBERS,
    broadcast_shapes,
    check_dtype,
    compute_type,
    read_broadcast,
    same_dtype,
    widened,
)
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import Expr, Var, cast
from tilewright.tensorir.tensor import Tensor


@register_operator
class matmul(Operator):
    """The matrix product over the last two axes, with NumPy's rules: leading axes broadcast; a vector on the left
    is a row, on the right a column, and its axis is dropped from the result. Half types accumulate in float32."""

    name = "matmul"
    arguments = ("a", "b")
    kind = "contraction"

    def infer_type(self, args: Sequence[TensorType], attrs: Any) -> TensorType:
        a, b = args
        dtype = same_dtype(self, args)
        check_dtype(self, 0, a, NUMBERS)
        for number, arg in enumerate(args):
            if arg.ndim == 0:
                raise self.error(number, "at least one dimension", arg)
        inner = b.shape[-2] if b.ndim > 1 else b.shape[0]
        if not dim_equal(a.shape[-1], inner):
            raise self.error(1, f"{a.shape[-1]} rows to match the columns of a, {format_shape(a.shape)}", b)
        batch: tuple[Dim, ...] = broadcast_shapes(self, [TensorType(a.shape[:-2]), TensorType(b.shape[:-2])])
        rows = a.shape[-2:-1] if a.ndim > 1 else ()
        columns = b.shape[-1:] if b.ndim > 1 else ()
        return TensorType((*batch, *rows, *columns), dtype)

    def reference(self, args: Sequence[Any], attrs: Any) -> Any:
        a, b = args
        return np.asarray(np.matmul(widened(a), widened(b))).astype(a.dtype, copy=False)

    def compute(self, args: Sequence[Tensor], attrs: Any, out: TensorType) -> Tensor:
        a, b = args
        wide = compute_type(a.dtype)
        k = te.reduce_axis(a.shape[-1], "k")

        def element(*place: Var) -> te.Reduction:
            rest: list[Expr] = list(place)
            column = [rest.pop()] if b.ndim > 1 else []
            row = [rest.pop()] if a.ndim > 1 else []
            left = read_broadcast(a, [*rest[max(0, len(rest) - max(0, a.ndim - 2)) :], *row, k])
            right = read_broadcast(b, [*rest[max(0, len(rest) - max(0, b.ndim - 2)) :], k, *column])
            return te.sum(cast(wide, left) * cast(wide, right), axis=k)

        product = te.compute(out.shape, element, name="matmul")
        if wide is out.dtype:
            return product
        return te.compute(out.shape, lambda *place: cast(out.dtype, product[place]), name="matmul_cast")
