"""Normalize batches at inference."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.dims import dim_equal
from tilewright.graphir.expr import const
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.calls import add, cast, divide, multiply, sqrt, subtract
from tilewright.graphir.ops.common import FLOATS, axis_index, check_dtype, is_half, same_dtype
from tilewright.graphir.ops.nn.layer_norm import along
from tilewright.graphir.types import TensorType


@dataclasses.dataclass(frozen=True)
class BatchNormAttrs:
    """Parameters of a batch normalization.

    Attributes:
        axis: the axis of the channels.
        epsilon: added to the variance.
        center: whether to add ``beta``.
        scale: whether to multiply by ``gamma``.
    """

    axis: int = 1
    epsilon: float = 1e-5
    center: bool = True
    scale: bool = True


@register_operator
class batch_norm(Operator):
    """Normalize each channel by moving statistics:
    ``(data - moving_mean) / sqrt(moving_var + epsilon) * gamma + beta``: Ioffe and Szegedy, "Batch Normalization",
    2015.

    This is the form for inference. TVM's operator of this name returns a tuple of the result and the moving mean and
    variance; here the result is the tensor alone.
    """

    name = "nn.batch_norm"
    arguments = ("data", "gamma", "beta", "moving_mean", "moving_var")
    kind = "broadcast"
    Attrs = BatchNormAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: BatchNormAttrs) -> TensorType:
        data = args[0]
        same_dtype(self, args)
        check_dtype(self, 0, data, FLOATS)
        axis = axis_index(self, attrs.axis, data.ndim)
        for number, arg in enumerate(args[1:], 1):
            if arg.ndim != 1 or not dim_equal(arg.shape[0], data.shape[axis]):
                raise self.error(number, f"a shape ({data.shape[axis]},) to match axis {attrs.axis} of data", arg)
        return data

    def decompose(self, args: Sequence[GraphExpr], attrs: BatchNormAttrs) -> GraphExpr:
        """Decompose into one multiplication and one addition of vectors, which fold if the statistics are constants."""
        dtype = args[0].dtype
        if is_half(dtype):
            args = [cast(arg, dtype="float32") for arg in args]
        data, gamma, beta, mean, variance = args
        deviation = sqrt(add(variance, attrs.epsilon))
        factor = divide(gamma if attrs.scale else const(1.0, data.dtype), deviation)
        shift = multiply(mean, factor)
        shift = subtract(beta, shift) if attrs.center else subtract(const(0.0, data.dtype), shift)
        factor, shift = [along(each, data.ndim, attrs.axis) for each in (factor, shift)]
        result = add(multiply(data, factor), shift)
        return cast(result, dtype=dtype) if is_half(dtype) else result

    def simplify_inference(self, args: Sequence[GraphExpr], attrs: BatchNormAttrs) -> GraphExpr:
        return self.decompose(args, attrs)
