"""Compute statistics over axes: mean, variance, standard deviation."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops import calls
from tilewright.graphir.ops.common import FLOATS, Reduce, ReduceAttrs, compute_type, is_half
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import Expr, as_expr, cast
from tilewright.tensorir.tensor import Tensor


def _count(x: Tensor, axes: Sequence[int], correction: int = 0) -> Expr:
    """Return the number of elements that each result is computed from, less ``correction``."""
    count = as_expr(1)
    for axis in axes:
        count = count * x.shape[axis]
    return count - correction


@register_operator
class mean(Reduce):
    """Compute the mean of floats over axes; NaN over none."""

    name = "mean"
    dtypes = FLOATS

    def evaluate(self, x: np.ndarray[Any, Any], axes: tuple[int, ...], attrs: Any) -> Any:
        count = np.prod([x.shape[axis] for axis in axes], dtype=np.int64)
        return np.sum(x, axis=axes, keepdims=attrs.keepdims) / x.dtype.type(count)

    def compute(self, args: Sequence[Tensor], attrs: ReduceAttrs, out: TensorType) -> Tensor:
        (x,) = args
        wide = compute_type(x.dtype)
        axes = self.axes(x.ndim, attrs)
        total = self.stage(x, axes, attrs, out, "mean_sum", lambda place, value: cast(wide, value), te.sum)
        count = cast(wide, _count(x, axes))
        return te.compute(out.shape, lambda *place: cast(out.dtype, total[place] / count), name="mean")


@dataclasses.dataclass(frozen=True)
class VarianceAttrs(ReduceAttrs):
    """As :class:`ReduceAttrs`; ``unbiased`` divides by the number of elements less one."""

    unbiased: bool = False


@register_operator
class variance(Reduce):
    """Compute the variance over axes: the mean squared distance of floats from their mean. It is computed from the
    distances, so that a large mean costs no accuracy."""

    name = "variance"
    dtypes = FLOATS
    Attrs = VarianceAttrs

    def evaluate(self, x: np.ndarray[Any, Any], axes: tuple[int, ...], attrs: Any) -> Any:
        count = np.prod([x.shape[axis] for axis in axes], dtype=np.int64)
        centre = np.sum(x, axis=axes, keepdims=True) / x.dtype.type(count)
        squares = np.sum(np.square(x - centre), axis=axes, keepdims=attrs.keepdims)
        return squares / x.dtype.type(count - attrs.unbiased)

    def compute(self, args: Sequence[Tensor], attrs: VarianceAttrs, out: TensorType) -> Tensor:
        (x,) = args
        wide = compute_type(x.dtype)
        axes = self.axes(x.ndim, attrs)
        total = self.stage(x, axes, attrs, out, "variance_sum", lambda place, value: cast(wide, value), te.sum)
        count = cast(wide, _count(x, axes))
        centre = te.compute(out.shape, lambda *place: total[place] / count, name="variance_mean")

        def squared(place: Sequence[Expr], value: Expr) -> Expr:
            distance = cast(wide, value) - centre[tuple(place)]
            return distance * distance

        squares = self.stage(x, axes, attrs, out, "variance_squares", squared, te.sum)
        divisor = cast(wide, _count(x, axes, int(attrs.unbiased)))
        return te.compute(out.shape, lambda *place: cast(out.dtype, squares[place] / divisor), name="variance")


@register_operator
class std(Reduce):
    """Compute the standard deviation over axes: the square root of ``variance``."""

    name = "std"
    dtypes = FLOATS
    Attrs = VarianceAttrs
    # The decomposition defines it.
    compute = None  # type: ignore[assignment]
    reference = Operator.reference

    def decompose(self, args: Sequence[GraphExpr], attrs: VarianceAttrs) -> GraphExpr:
        (x,) = args
        dtype = x.dtype
        wide = calls.cast(x, dtype="float32") if is_half(dtype) else x
        result = calls.sqrt(calls.variance(wide, axis=attrs.axis, keepdims=attrs.keepdims, unbiased=attrs.unbiased))
        return calls.cast(result, dtype=dtype) if is_half(dtype) else result
