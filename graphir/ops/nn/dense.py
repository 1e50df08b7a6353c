"""The fully connected layer."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.dims import dim_equal
from tilewright.graphir.layout_rewrite import reshape
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.calls import multiply
from tilewright.graphir.ops.common import NUMBERS, check_dtype, compute_type, same_dtype, widened
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import Var, cast
from tilewright.tensorir.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class DenseAttrs:
    """``units``: the number of outputs; checked against the weight if given."""

    units: int | None = None


@register_operator
class dense(Operator):
    """``data @ weight.T``: data ``[..., in]``, weight ``[units, in]``, result ``[..., units]``. Half types accumulate
    in float32."""

    name = "nn.dense"
    arguments = ("data", "weight")
    kind = "contraction"
    Attrs = DenseAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: DenseAttrs) -> TensorType:
        data, weight = args
        dtype = same_dtype(self, args)
        check_dtype(self, 0, data, NUMBERS)
        if data.ndim == 0:
            raise self.error(0, "at least one dimension", data)
        if weight.ndim != 2 or not dim_equal(weight.shape[1], data.shape[-1]):
            units = "units" if attrs.units is None else attrs.units
            raise self.error(1, f"a shape ({units}, {data.shape[-1]}) to match data of {data}", weight)
        if attrs.units is not None and not dim_equal(attrs.units, weight.shape[0]):
            raise self.error("units", f"{weight.shape[0]}, the rows of weight", attrs.units)
        return TensorType((*data.shape[:-1], weight.shape[0]), dtype)

    def reference(self, args: Sequence[Any], attrs: DenseAttrs) -> Any:
        data, weight = args
        return np.asarray(np.matmul(widened(data), widened(weight).T)).astype(data.dtype, copy=False)

    def channel_axis(self, argument: int, attrs: DenseAttrs) -> int | None:
        return -1

    def scale_weights(
        self, args: Sequence[GraphExpr], attrs: DenseAttrs, scale: GraphExpr, of_result: bool
    ) -> list[GraphExpr] | None:
        data, weight = args
        factors = reshape(scale, (weight.shape[0], 1) if of_result else (1, weight.shape[1]))
        return [data, multiply(weight, factors)]

    def compute(self, args: Sequence[Tensor], attrs: DenseAttrs, out: TensorType) -> Tensor:
        data, weight = args
        wide = compute_type(data.dtype)
        k = te.reduce_axis(weight.shape[1], "k")

        def element(*place: Var) -> te.Reduction:
            *row, unit = place
            return te.sum(cast(wide, data(*row, k)) * cast(wide, weight[unit, k]), axis=k)

        product = te.compute(out.shape, element, name="dense")
        if wide is out.dtype:
            return product
        return te.compute(out.shape, lambda *place: cast(out.dtype, product[place]), name="dense_cast")
