"""Differentiate activation functions. Where one has a kink, the derivative there is that of the side of smaller ``x``,
as in PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.graphir.base import call_operator
from tilewright.graphir.expr import Call, Expr
from tilewright.graphir.gradient import register_gradient
from tilewright.graphir.gradients.common import along, channel_sum, masked
from tilewright.graphir.ops import calls


def _sigmoid(x: Expr) -> Expr:
    return call_operator("sigmoid", x)


def _tanh(x: Expr) -> Expr:
    return call_operator("tanh", x)


def _gelu(x: Expr, y: Expr, attrs: Any) -> Expr:
    if attrs.approximate:
        slope = math.sqrt(2 / math.pi)
        tanh = _tanh((x + x * x * x * 0.044715) * slope)
        inner = (x * x * (3 * 0.044715) + 1.0) * slope
        return (tanh + 1.0) * 0.5 + x * 0.5 * (1.0 - tanh * tanh) * inner
    below = (call_operator("erf", x * math.sqrt(0.5)) + 1.0) * 0.5
    return below + x * calls.exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))


def _swish(x: Expr, beta: float) -> Expr:
    share = _sigmoid(x * beta)
    return share * (x * beta * (1.0 - share) + 1.0)


def _mish(x: Expr, y: Expr, attrs: Any) -> Expr:
    tanh = _tanh(call_operator("nn.softplus", x))
    return tanh + x * (1.0 - tanh * tanh) * _sigmoid(x)


def _softsign(x: Expr, y: Expr, attrs: Any) -> Expr:
    root = 1.0 / (call_operator("abs", x) + 1.0)
    return root * root


def _inside(x: Expr, low: float, high: float) -> Expr:
    return call_operator("logical_and", x > low, x < high)


#: The derivative of each function at ``x``, where it has the value ``y``, with its attributes.
DERIVATIVES: dict[str, Callable[[Expr, Expr, Any], Expr]] = {
    "nn.gelu": _gelu,
    "nn.silu": lambda x, y, attrs: _swish(x, 1.0),
    "nn.swish": lambda x, y, attrs: _swish(x, attrs.beta),
    "nn.softplus": lambda x, y, attrs: _sigmoid(x),
    "nn.softsign": _softsign,
    "nn.mish": _mish,
}


def _rule(derivative: Callable[[Expr, Expr, Any], Expr]) -> Callable[[Call, Expr], Sequence[Expr | None]]:
    def chain(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
        return (cotangent * derivative(call.args[0], call, call.attrs),)

    return chain


for _name, _derivative in DERIVATIVES.items():
    register_gradient(_name)(_rule(_derivative))


@register_gradient("nn.relu")
def relu(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Pass on the cotangents of positive results; the results are stored anyway, for the layer that reads them."""
    return (masked(call > 0.0, cotangent),)


@register_gradient("nn.leaky_relu")
def leaky_relu(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Multiply by the slope at or below 0."""
    return (calls.where(call.args[0] > 0.0, cotangent, cotangent * call.attrs.alpha),)


@register_gradient("nn.prelu")
def prelu(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Multiply by the slope at or below 0; sum what it is multiplied by for the slope."""
    data, alpha = call.args
    axis = call.attrs.axis
    positive = data > 0.0
    slope = along(alpha, data.ndim, axis)
    by_slope = calls.where(positive, 0.0, cotangent * data)
    return calls.where(positive, cotangent, cotangent * slope), channel_sum(by_slope, axis)


def _exponential(call: Call, cotangent: Expr, above: float, factor: float, rate: float) -> Expr:
    """Differentiate ``above * x`` above 0, and below a function whose derivative is ``factor * exp(rate * x)``; the
    argument of the exponential does not overflow where it is not used."""
    (x,) = call.args
    below = calls.exp(call_operator("minimum", x, 0.0) * rate) * factor
    return cotangent * calls.where(x > 0.0, above, below)


@register_gradient("nn.elu")
def elu(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Differentiate ``alpha * (exp(x) - 1)`` below 0."""
    return (_exponential(call, cotangent, 1.0, call.attrs.alpha, 1.0),)


@register_gradient("nn.celu")
def celu(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Differentiate ``alpha * (exp(x / alpha) - 1)`` below 0."""
    return (_exponential(call, cotangent, 1.0, 1.0, 1 / call.attrs.alpha),)


@register_gradient("nn.selu")
def selu(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Differentiate ``gamma * alpha * (exp(x) - 1)`` below 0."""
    attrs = call.attrs
    return (_exponential(call, cotangent, attrs.gamma, attrs.gamma * attrs.alpha, 1.0),)


@register_gradient("nn.hard_sigmoid")
def hard_sigmoid(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Multiply by the slope between the bounds."""
    (x,), attrs = call.args, call.attrs
    return (masked(_inside(x * attrs.alpha + attrs.beta, 0.0, 1.0), cotangent * attrs.alpha),)


@register_gradient("nn.hard_swish")
def hard_swish(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Differentiate ``x * (x / 6 + 1/2)`` between -3 and 3, and ``x`` above."""
    (x,) = call.args
    between = masked(x > -3.0, cotangent * (x * (1 / 3) + 0.5))
    return (calls.where(x >= 3.0, cotangent, between),)


@register_gradient("nn.thresholded_relu")
def thresholded_relu(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Pass on the cotangents of elements above the threshold."""
    return (masked(call.args[0] > float(call.attrs.alpha), cotangent),)


@register_gradient("nn.shrink")
def shrink(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Pass on the cotangents of elements that are moved."""
    (x,) = call.args
    return (masked(call_operator("abs", x) > float(call.attrs.lambd), cotangent),)
