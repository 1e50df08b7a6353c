"""Add a bias to each channel."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.dims import dim_equal
from tilewright.graphir.expr import Constant
from tilewright.graphir.layout_rewrite import broadcast_operand, reshape
from tilewright.graphir.meaning import Sum
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.calls import add
from tilewright.graphir.ops.common import NUMBERS, axis_index, check_dtype, compute_type, same_dtype, widened
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import Expr, Var, cast
from tilewright.tensorir.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class BiasAddAttrs:
    """``axis``: the axis of the channels."""

    axis: int = 1


@register_operator
class bias_add(Operator):
    """Add a vector along ``axis`` to ``data``."""

    name = "nn.bias_add"
    arguments = ("data", "bias")
    kind = "broadcast"
    Attrs = BiasAddAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: BiasAddAttrs) -> TensorType:
        data, bias = args
        same_dtype(self, args)
        check_dtype(self, 0, data, NUMBERS)
        axis = axis_index(self, attrs.axis, data.ndim)
        if bias.ndim != 1 or not dim_equal(bias.shape[0], data.shape[axis]):
            raise self.error(1, f"a shape ({data.shape[axis]},) to match axis {attrs.axis} of data", bias)
        return data

    def reference(self, args: Sequence[Any], attrs: BiasAddAttrs) -> Any:
        data, bias = args
        shape = [1] * data.ndim
        shape[attrs.axis] = -1
        return (widened(data) + widened(bias).reshape(shape)).astype(data.dtype, copy=False)

    def meaning(self, args: Sequence[GraphExpr], attrs: BiasAddAttrs) -> Sum:
        data, bias = args
        shape: list[Any] = [1] * data.ndim
        shape[attrs.axis] = bias.shape[0]
        return Sum(data, Constant(bias.data.reshape(shape)) if isinstance(bias, Constant) else reshape(bias, shape))

    def in_layout(
        self, args: Sequence[Any], blocked: Sequence[Any], attrs: BiasAddAttrs, plain: str, target: str
    ) -> Any:
        if blocked[0] is None:
            return None
        shape: list[Any] = [1] * args[0].ndim
        shape[attrs.axis] = args[1].shape[0]
        bias = broadcast_operand(reshape(args[1], shape), plain, target)
        return None if bias is None else add(blocked[0], bias)

    def compute(self, args: Sequence[Tensor], attrs: BiasAddAttrs, out: TensorType) -> Tensor:
        data, bias = args
        wide = compute_type(out.dtype)

        def element(*place: Var) -> Expr:
            return cast(out.dtype, cast(wide, data[place]) + cast(wide, bias[place[attrs.axis]]))

        return te.compute(out.shape, element, name="bias_add")
