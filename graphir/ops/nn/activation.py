"""Activation functions, element by element."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.dims import dim_equal
from tilewright.graphir.op import register_operator
from tilewright.graphir.ops.common import NUMBERS, Unary, axis_index, check_dtype, compute_type, same_dtype, widened
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import Expr, Var, call, cast, const, maximum, select
from tilewright.tensorir.tensor import Tensor


@register_operator
class relu(Unary):
    """``max(x, 0)``; NaN stays NaN."""

    name = "nn.relu"
    commutes_with_scale = "positive"
    dtypes = NUMBERS

    def evaluate(self, arrays: Sequence[np.ndarray[Any, Any]], attrs: Any) -> Any:
        return np.maximum(arrays[0], np.zeros((), arrays[0].dtype))

    def scalar(self, x: Expr) -> Expr:
        return maximum(x, const(0, x.dtype))


@dataclasses.dataclass(frozen=True)
class LeakyReluAttrs:
    """``alpha``: the slope below 0."""

    alpha: float = 0.01


@register_operator
class leaky_relu(Unary):
    """``x`` above 0, ``alpha * x`` below."""

    name = "nn.leaky_relu"
    commutes_with_scale = "positive"
    Attrs = LeakyReluAttrs

    def evaluate(self, arrays: Sequence[np.ndarray[Any, Any]], attrs: LeakyReluAttrs) -> Any:
        (x,) = arrays
        return np.where(x > 0, x, x * np.asarray(attrs.alpha, x.dtype))

    def formula(self, values: Sequence[Expr], attrs: LeakyReluAttrs) -> Expr:
        (x,) = values
        return select(x > 0.0, x, x * const(attrs.alpha, x.dtype))


@dataclasses.dataclass(frozen=True)
class PreluAttrs:
    """``axis``: that of the channels."""

    axis: int = 1


@register_operator
class prelu(Unary):
    """``data`` above 0, ``alpha * data`` below, with one slope for each channel."""

    name = "nn.prelu"
    arguments = ("data", "alpha")
    kind = "broadcast"
    Attrs = PreluAttrs

    def in_layout(self, args: Sequence[Any], blocked: Sequence[Any], attrs: Any, plain: str, target: str) -> Any:
        return None  # the slopes go with an axis of the plain layout

    def infer_type(self, args: Sequence[TensorType], attrs: PreluAttrs) -> TensorType:
        data, alpha = args
        same_dtype(self, args)
        check_dtype(self, 0, data, self.dtypes)
        axis = axis_index(self, attrs.axis, data.ndim)
        if alpha.ndim != 1 or not dim_equal(alpha.shape[0], data.shape[axis]):
            raise self.error(1, f"a shape ({data.shape[axis]},) to match axis {attrs.axis} of data", alpha)
        return data

    def reference(self, args: Sequence[Any], attrs: PreluAttrs) -> Any:
        data, alpha = [widened(arg) for arg in args]
        shape = [1] * data.ndim
        shape[attrs.axis] = -1
        with np.errstate(all="ignore"):
            return np.where(data > 0, data, data * alpha.reshape(shape)).astype(args[0].dtype)

    def compute(self, args: Sequence[Tensor], attrs: PreluAttrs, out: TensorType) -> Tensor:
        data, alpha = args
        wide = compute_type(out.dtype)

        def element(*place: Var) -> Expr:
            x, slope = cast(wide, data[place]), cast(wide, alpha[place[attrs.axis]])
            return cast(out.dtype, select(x > 0.0, x, x * slope))

        return te.compute(out.shape, element, name="prelu")


@dataclasses.dataclass(frozen=True)
class GeluAttrs:
    """``approximate``: whether to use the form with ``tanh`` instead of that with ``erf``."""

    approximate: bool = False


_erf = np.vectorize(math.erf, otypes=[np.float64])


@register_operator
class gelu(Unary):
    """``x * P(X <= x)`` for a standard normal ``X``: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016."""

    name = "nn.gelu"
    Attrs = GeluAttrs

    def evaluate(self, arrays: Sequence[np.ndarray[Any, Any]], attrs: GeluAttrs) -> Any:
        x = arrays[0].astype(np.float64)
        if attrs.approximate:
            return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        return 0.5 * x * (1 + _erf(x / math.sqrt(2)))

    def formula(self, values: Sequence[Expr], attrs: GeluAttrs) -> Expr:
        (x,) = values
        if attrs.approximate:
            inner = math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))
            return 0.5 * x * (1.0 + call("tanh", inner))
        return 0.5 * x * (1.0 + call("erf", x * math.sqrt(0.5)))


@register_operator
class silu(Unary):
    """``x * sigmoid(x)``."""

    name = "nn.silu"

    def evaluate(self, arrays: Sequence[np.ndarray[Any, Any]], attrs: Any) -> Any:
        x = arrays[0].astype(np.float64)
        return x / (1 + np.exp(-x))

    def scalar(self, x: Expr) -> Expr:
        return x * call("sigmoid", x)
