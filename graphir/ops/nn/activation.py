"""Compute activation functions elementwise."""

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
from tilewright.tensorir.expr import Expr, Var, call, cast, const, maximum, minimum, select
from tilewright.tensorir.tensor import Tensor


@register_operator
class relu(Unary):
    """Rectify elementwise: ``max(x, 0)``; NaN stays NaN."""

    name = "nn.relu"
    idempotent = True
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
    """Apply the leaky ReLU elementwise: ``x`` above 0, ``alpha * x`` below."""

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
    """``axis``: the axis of the channels."""

    axis: int = 1


@register_operator
class prelu(Unary):
    """Apply the parametric ReLU elementwise: ``data`` above 0, ``alpha * data`` below, with one slope for each
    channel."""

    name = "nn.prelu"
    arguments = ("data", "alpha")
    kind = "broadcast"
    Attrs = PreluAttrs

    def in_layout(self, args: Sequence[Any], blocked: Sequence[Any], attrs: Any, plain: str, target: str) -> Any:
        return None  # the slopes belong to an axis of the plain layout

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
    """Apply the Gaussian error linear unit elementwise: ``x * P(X <= x)`` for a standard normal ``X``: Hendrycks and
    Gimpel, "Gaussian Error Linear Units", 2016."""

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
    """Apply the sigmoid linear unit elementwise: ``x * sigmoid(x)``."""

    name = "nn.silu"

    def evaluate(self, arrays: Sequence[np.ndarray[Any, Any]], attrs: Any) -> Any:
        x = arrays[0].astype(np.float64)
        return x / (1 + np.exp(-x))

    def scalar(self, x: Expr) -> Expr:
        return x * call("sigmoid", x)


@dataclasses.dataclass(frozen=True)
class SwishAttrs:
    """``beta``: the factor of ``x`` in the sigmoid."""

    beta: float = 1.0


@register_operator
class swish(Unary):
    """Apply swish elementwise: ``x * sigmoid(beta * x)``: Ramachandran et al., "Searching for Activation Functions",
    2017."""

    name = "nn.swish"
    Attrs = SwishAttrs

    def evaluate(self, arrays: Sequence[np.ndarray[Any, Any]], attrs: SwishAttrs) -> Any:
        x = arrays[0].astype(np.float64)
        return x / (1 + np.exp(-attrs.beta * x))

    def formula(self, values: Sequence[Expr], attrs: SwishAttrs) -> Expr:
        (x,) = values
        return x * call("sigmoid", x * const(attrs.beta, x.dtype))


@dataclasses.dataclass(frozen=True)
class AlphaAttrs:
    """``alpha``: minus the limit of the function far below 0, which also scales it there."""

    alpha: float = 1.0


@register_operator
class elu(Unary):
    """Apply the exponential linear unit elementwise: ``x`` above 0, ``alpha * (exp(x) - 1)`` below: Clevert et al.,
    "Fast and Accurate Deep Network Learning by Exponential Linear Units", 2016."""

    name = "nn.elu"
    Attrs = AlphaAttrs

    def evaluate(self, arrays: Sequence[np.ndarray[Any, Any]], attrs: AlphaAttrs) -> Any:
        x = arrays[0].astype(np.float64)
        return np.where(x > 0, x, attrs.alpha * np.expm1(x))

    def formula(self, values: Sequence[Expr], attrs: AlphaAttrs) -> Expr:
        (x,) = values
        return select(x > 0.0, x, const(attrs.alpha, x.dtype) * call("expm1", x))


@register_operator
class celu(Unary):
    """Apply the continuously differentiable exponential linear unit elementwise: ``x`` above 0,
    ``alpha * (exp(x / alpha) - 1)`` below: Barron, "Continuously Differentiable Exponential Linear Units", 2017."""

    name = "nn.celu"
    Attrs = AlphaAttrs

    def evaluate(self, arrays: Sequence[np.ndarray[Any, Any]], attrs: AlphaAttrs) -> Any:
        x = arrays[0].astype(np.float64)
        return np.where(x > 0, x, attrs.alpha * np.expm1(x / attrs.alpha))

    def formula(self, values: Sequence[Expr], attrs: AlphaAttrs) -> Expr:
        (x,) = values
        alpha = const(attrs.alpha, x.dtype)
        return select(x > 0.0, x, alpha * call("expm1", x / alpha))


@dataclasses.dataclass(frozen=True)
class SeluAttrs:
    """``alpha`` and ``gamma``: the defaults preserve mean and variance across a network's layers."""

    alpha: float = 1.6732632423543772
    gamma: float = 1.0507009873554805


@register_operator
class selu(Unary):
    """Apply the scaled exponential linear unit elementwise: ``gamma * x`` above 0, ``gamma * alpha * (exp(x) - 1)``
    below: Klambauer et al., "Self-Normalizing Neural Networks", 2017."""

    name = "nn.selu"
    Attrs = SeluAttrs

    def evaluate(self, arrays: Sequence[np.ndarray[Any, Any]], attrs: SeluAttrs) -> Any:
        x = arrays[0].astype(np.float64)
        return attrs.gamma * np.where(x > 0, x, attrs.alpha * np.expm1(x))

    def formula(self, values: Sequence[Expr], attrs: SeluAttrs) -> Expr:
        (x,) = values
        return const(attrs.gamma, x.dtype) * select(x > 0.0, x, const(attrs.alpha, x.dtype) * call("expm1", x))


@dataclasses.dataclass(frozen=True)
class HardSigmoidAttrs:
    """``alpha``: the slope; ``beta``: the value at 0."""

    alpha: float = 0.2
    beta: float = 0.5


def _limited(x: Expr, most: float) -> Expr:
    return minimum(maximum(x, const(0, x.dtype)), const(most, x.dtype))


@register_operator
class hard_sigmoid(Unary):
    """Apply the hard sigmoid elementwise: ``alpha * x + beta``, limited to ``[0, 1]``; NaN stays NaN."""

    name = "nn.hard_sigmoid"
    Attrs = HardSigmoidAttrs

    def evaluate(self, arrays: Sequence[np.ndarray[Any, Any]], attrs: HardSigmoidAttrs) -> Any:
        return np.clip(attrs.alpha * arrays[0].astype(np.float64) + attrs.beta, 0, 1)

    def formula(self, values: Sequence[Expr], attrs: HardSigmoidAttrs) -> Expr:
        (x,) = values
        return _limited(x * const(attrs.alpha, x.dtype) + const(attrs.beta, x.dtype), 1)


@register_operator
class hard_swish(Unary):
    """Apply hard swish elementwise: ``x * min(max(x + 3, 0), 6) / 6``: Howard et al., "Searching for MobileNetV3",
    2019. As in that formula, the result is exactly 0 up to -3, and ``x`` from 3 on."""

    name = "nn.hard_swish"

    def evaluate(self, arrays: Sequence[np.ndarray[Any, Any]], attrs: Any) -> Any:
        x = arrays[0].astype(np.float64)
        return x * (np.clip(x + 3, 0, 6) / 6)

    def scalar(self, x: Expr) -> Expr:
        return x * (_limited(x + const(3, x.dtype), 6) * const(1 / 6, x.dtype))  # no product that may overflow


def _softplus(x: Expr) -> Expr:
    return maximum(x, const(0, x.dtype)) + call("log1p", call("exp", -call("abs", x)))


@register_operator
class softplus(Unary):
    """Apply softplus elementwise: ``log(1 + exp(x))``, in a form that overflows for no ``x``."""

    name = "nn.softplus"

    def evaluate(self, arrays: Sequence[np.ndarray[Any, Any]], attrs: Any) -> Any:
        return np.logaddexp(arrays[0].astype(np.float64), 0)

    def scalar(self, x: Expr) -> Expr:
        return _softplus(x)


@register_operator
class softsign(Unary):
    """Apply softsign elementwise: ``x / (1 + abs(x))``."""

    name = "nn.softsign"

    def evaluate(self, arrays: Sequence[np.ndarray[Any, Any]], attrs: Any) -> Any:
        x = arrays[0].astype(np.float64)
        return x / (1 + np.abs(x))

    def scalar(self, x: Expr) -> Expr:
        return x / (call("abs", x) + const(1, x.dtype))


@register_operator
class mish(Unary):
    """Apply mish elementwise: ``x * tanh(softplus(x))``: Misra, "Mish: A Self Regularized Non-Monotonic Activation
    Function", 2019."""

    name = "nn.mish"

    def evaluate(self, arrays: Sequence[np.ndarray[Any, Any]], attrs: Any) -> Any:
        x = arrays[0].astype(np.float64)
        return x * np.tanh(np.logaddexp(x, 0))

    def scalar(self, x: Expr) -> Expr:
        return x * call("tanh", _softplus(x))


@dataclasses.dataclass(frozen=True)
class ThresholdAttrs:
    """``alpha``: the threshold."""

    alpha: float = 1.0


@register_operator
class thresholded_relu(Unary):
    """Apply a ReLU with a threshold elementwise: ``x`` above ``alpha``, else 0 (also for NaN)."""

    name = "nn.thresholded_relu"
    Attrs = ThresholdAttrs

    def evaluate(self, arrays: Sequence[np.ndarray[Any, Any]], attrs: ThresholdAttrs) -> Any:
        (x,) = arrays
        return np.where(x > np.asarray(attrs.alpha, x.dtype), x, np.zeros((), x.dtype))

    def formula(self, values: Sequence[Expr], attrs: ThresholdAttrs) -> Expr:
        (x,) = values
        return select(x > const(attrs.alpha, x.dtype), x, const(0, x.dtype))


@dataclasses.dataclass(frozen=True)
class ShrinkAttrs:
    """``bias``: the distance by which values move toward 0; ``lambd``: values up to this distance from 0 become 0."""

    bias: float = 0.0
    lambd: float = 0.5


@register_operator
class shrink(Unary):
    """Shrink values toward 0 elementwise: ``x - bias`` above ``lambd``, ``x + bias`` below ``-lambd``, else 0. This is
    the hard shrink function, and with ``bias`` equal to ``lambd`` the soft one."""

    name = "nn.shrink"
    Attrs = ShrinkAttrs

    def evaluate(self, arrays: Sequence[np.ndarray[Any, Any]], attrs: ShrinkAttrs) -> Any:
        (x,) = arrays
        bias, lambd = np.asarray(attrs.bias, x.dtype), np.asarray(attrs.lambd, x.dtype)
        return np.where(x > lambd, x - bias, np.where(x < -lambd, x + bias, np.zeros((), x.dtype)))

    def formula(self, values: Sequence[Expr], attrs: ShrinkAttrs) -> Expr:
        (x,) = values
        bias, lambd = const(attrs.bias, x.dtype), const(attrs.lambd, x.dtype)
        return select(x > lambd, x - bias, select(x < -lambd, x + bias, const(0, x.dtype)))
