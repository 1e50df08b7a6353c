"""Normalize each row of a tensor."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.dims import dim_equal
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.calls import expand_dims
from tilewright.graphir.ops.common import FLOATS, axis_index, check_dtype, compute_type, same_dtype, widened
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import Expr, Var, call, cast, const
from tilewright.tensorir.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class LayerNormAttrs:
    """``axis``: the normalized axis; ``epsilon``: added to the variance."""

    axis: int = -1
    epsilon: float = 1e-5


def along(vector: GraphExpr, ndim: int, axis: int) -> GraphExpr:
    """Append axes to ``vector``, so that it broadcasts along ``axis`` of a tensor with ``ndim`` dimensions."""
    behind = ndim - 1 - axis % ndim
    return expand_dims(vector, axis=1, num_newaxis=behind) if behind else vector


def check_vectors(op: Operator, args: Sequence[TensorType], axis: int) -> None:
    """Check that all arguments behind the first are vectors as long as ``axis`` of the first, of its element type.

    Raises:
        TypeInferenceError: otherwise.
    """
    data = args[0]
    same_dtype(op, args)
    check_dtype(op, 0, data, FLOATS)
    position = axis_index(op, axis, data.ndim)
    for number, arg in enumerate(args[1:], 1):
        if arg.ndim != 1 or not dim_equal(arg.shape[0], data.shape[position]):
            raise op.error(number, f"a shape ({data.shape[position]},) to match axis {axis} of data", arg)


@register_operator
class layer_norm(Operator):
    """Normalize along ``axis`` by its mean and variance: ``(data - mean) / sqrt(variance + epsilon) * gamma + beta``:
    Ba, Kiros and Hinton, "Layer Normalization", 2016.

    Stages: ``layer_norm_mean``, ``layer_norm_variance`` (of the distances from the mean, so that large means cost no
    accuracy) and ``layer_norm``, with a sum before each of the first two; half types compute in float32.
    """

    name = "nn.layer_norm"
    arguments = ("data", "gamma", "beta")
    kind = "reduction"
    Attrs = LayerNormAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: LayerNormAttrs) -> TensorType:
        check_vectors(self, args, attrs.axis)
        return args[0]

    def reference(self, args: Sequence[Any], attrs: LayerNormAttrs) -> Any:
        data, gamma, beta = [widened(arg) for arg in args]
        if not data.size:  # NumPy warns of a mean of nothing, also in a build that computes constants
            return args[0].copy()
        shape = [1] * data.ndim
        shape[attrs.axis] = -1
        with np.errstate(all="ignore"):
            centred = data - data.mean(axis=attrs.axis, keepdims=True)
            variance = np.square(centred).mean(axis=attrs.axis, keepdims=True)
            result = centred / np.sqrt(variance + data.dtype.type(attrs.epsilon))
            return (result * gamma.reshape(shape) + beta.reshape(shape)).astype(args[0].dtype, copy=False)

    def compute(self, args: Sequence[Tensor], attrs: LayerNormAttrs, out: TensorType) -> Tensor:
        data, gamma, beta = args
        wide = compute_type(out.dtype)
        axis = attrs.axis % data.ndim
        count = cast(wide, data.shape[axis])
        kept = [extent for number, extent in enumerate(data.shape) if number != axis]

        def at(row: Sequence[Expr], k: Expr) -> Expr:
            return cast(wide, data(*row[:axis], k, *row[axis:]))

        k = te.reduce_axis(data.shape[axis], "k")
        total = te.compute(kept, lambda *row: te.sum(at(row, k), axis=k), name="layer_norm_sum")
        mean = te.compute(kept, lambda *row: total[row] / count, name="layer_norm_mean")

        def squared(*row: Var) -> te.Reduction:
            distance = at(row, j) - mean[row]
            return te.sum(distance * distance, axis=j)

        j = te.reduce_axis(data.shape[axis], "k")
        squares = te.compute(kept, squared, name="layer_norm_squares")
        variance = te.compute(kept, lambda *row: squares[row] / count, name="layer_norm_variance")

        def element(*place: Var) -> Expr:
            row = (*place[:axis], *place[axis + 1 :])
            deviation = call("sqrt", variance[row] + const(attrs.epsilon, wide))
            normal = (cast(wide, data[place]) - mean[row]) / deviation
            channel = place[axis]
            return cast(out.dtype, normal * cast(wide, gamma[channel]) + cast(wide, beta[channel]))

        return te.compute(out.shape, element, name="layer_norm")
