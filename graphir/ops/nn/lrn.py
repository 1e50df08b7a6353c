"""Compute local response normalization."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.dims import Dim, as_dim
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import FLOATS, axis_index, check_dtype, compute_type, guarded, widened
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.errors import ArgumentValueError
from tilewright.tensorir.expr import Expr, Var, all_of, call, cast, const
from tilewright.tensorir.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class LRNAttrs:
    """Parameters of the divisor ``(bias + alpha / size * sum of squares) ** beta``.

    Attributes:
        size: the number of neighbours along ``axis`` that are summed, the element itself included.
        axis: the axis of the channels.
        alpha, beta, bias: the other parameters.
    """

    size: int
    axis: int = 1
    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ArgumentValueError(f"size: expected at least 1, found {self.size}")


def _neighbours(size: int, channels: Dim) -> tuple[int, int]:
    """Return the numbers of channels before and behind one that are summed: ``size`` in all, as far as they exist."""
    before = (size - 1) // 2
    after = size - 1 - before
    most = max(channels - 1, 0) if isinstance(channels, int) else after
    return min(before, most), min(after, most)


@register_operator
class lrn(Operator):
    """Normalize by neighbouring channels: ``x / (bias + alpha / size * sum(x ** 2)) ** beta`` with the sum over the
    nearest ``size`` channels, of which those outside count as zero: Krizhevsky, Sutskever and Hinton, "ImageNet
    Classification with Deep Convolutional Neural Networks", 2012."""

    name = "nn.lrn"
    arguments = ("data",)
    kind = "reduction"
    contiguous_reads = True
    Attrs = LRNAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: LRNAttrs) -> TensorType:
        check_dtype(self, 0, args[0], FLOATS)
        axis_index(self, attrs.axis, args[0].ndim)
        return args[0]

    def channel_axis(self, argument: int, attrs: LRNAttrs) -> int | None:
        return attrs.axis

    def reference(self, args: Sequence[Any], attrs: LRNAttrs) -> Any:
        data = np.moveaxis(widened(args[0]), attrs.axis, 0)
        before, after = _neighbours(attrs.size, len(data))
        squares = np.pad(np.square(data), [(before, after), *[(0, 0)] * (data.ndim - 1)])
        total = np.zeros_like(data)
        with np.errstate(all="ignore"):
            for offset in range(before + 1 + after):
                total += squares[offset : offset + len(data)]
            number = data.dtype.type
            result = data / (number(attrs.bias) + number(attrs.alpha / attrs.size) * total) ** number(attrs.beta)
        return np.moveaxis(result, 0, attrs.axis).astype(args[0].dtype)

    def compute(self, args: Sequence[Tensor], attrs: LRNAttrs, out: TensorType) -> Tensor:
        (data,) = args
        wide = compute_type(data.dtype)
        axis = attrs.axis % data.ndim
        before, after = _neighbours(attrs.size, as_dim(data.shape[axis]))
        neighbour = te.reduce_axis(before + 1 + after, "k")

        def total(*place: Var) -> te.Reduction:
            at = place[axis] + neighbour - before
            inside = all_of(at >= 0, at < data.shape[axis])
            value = cast(wide, guarded(inside, data(*place[:axis], at, *place[axis + 1 :]), 0))
            return te.sum(value * value, axis=neighbour)

        squares = te.compute(out.shape, total, name="lrn_squares")

        def element(*place: Var) -> Expr:
            size = const(attrs.bias, wide) + const(attrs.alpha / attrs.size, wide) * squares[place]
            return cast(out.dtype, cast(wide, data[place]) / call("pow", size, const(attrs.beta, wide)))

        return te.compute(out.shape, element, name="lrn")
