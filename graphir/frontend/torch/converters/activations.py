"""Convert activation functions."""

from __future__ import annotations

import math
from typing import Any

from tilewright.graphir.expr import Expr
from tilewright.graphir.frontend.torch.node import Node, cast_to, dtype_of, shape_of, with_shape
from tilewright.graphir.frontend.torch.registry import converter
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import add, divide, exp, multiply, reshape, subtract, where
from tilewright.tensorir.dtype import DataType

# Functions without parameters.

_PLAIN = {
    "relu": "nn.relu",
    "silu": "nn.silu",
    "mish": "nn.mish",
    "hardswish": "nn.hard_swish",
    "selu": "nn.selu",
    "softsign": "nn.softsign",
}


def _register(overload: str, name: str) -> None:
    def convert(node: Node, x: Expr) -> Expr:
        return get_operator(name)(x)

    convert.__qualname__ = f"activation_{overload}"
    converter(f"aten.{overload}.default")(convert)


for _overload, _name in _PLAIN.items():
    _register(_overload, _name)


@converter("aten.relu6.default")
def relu6(node: Node, x: Expr) -> Expr:
    """Limit the elements to ``[0, 6]``."""
    return get_operator("clip")(x, a_min=0, a_max=6)


@converter("aten.gelu.default")
def gelu(node: Node, x: Expr, approximate: str) -> Expr:
    """Weight the elements by the normal distribution, exactly or by tanh."""
    return get_operator("nn.gelu")(x, approximate=approximate == "tanh")


@converter("aten.leaky_relu.default")
def leaky_relu(node: Node, x: Expr, slope: float) -> Expr:
    """Multiply negative elements by a slope."""
    return get_operator("nn.leaky_relu")(x, alpha=float(node.number(slope, "a slope")))


@converter("aten.elu.default")
def elu(node: Node, x: Expr, alpha: float, scale: float, input_scale: float) -> Expr:
    """Return ``scale * x`` above 0 and ``scale * alpha * (exp(input_scale * x) - 1)`` below."""
    if scale == 1 and input_scale == 1:
        return get_operator("nn.elu")(x, alpha=float(alpha))
    below = multiply(
        get_operator("expm1")(multiply(x, node.tensor(float(input_scale)))), node.tensor(float(alpha) * scale)
    )
    return where(get_operator("greater")(x, 0.0), multiply(x, node.tensor(float(scale))), below)


@converter("aten.celu.default")
def celu(node: Node, x: Expr, alpha: float) -> Expr:
    """Return ``x`` above 0 and ``alpha * (exp(x / alpha) - 1)`` below."""
    return get_operator("nn.celu")(x, alpha=float(alpha))


@converter("aten.softplus.default")
def softplus(node: Node, x: Expr, beta: Any, threshold: Any) -> Expr:
    """Return ``log(1 + exp(beta * x)) / beta``; ``x`` itself where ``beta * x`` is above a threshold."""
    scaled = multiply(x, node.tensor(beta))
    soft = divide(
        get_operator("log1p")(exp(get_operator("minimum")(scaled, node.tensor(threshold)))), node.tensor(beta)
    )
    return where(get_operator("greater")(scaled, node.tensor(threshold)), x, soft)


@converter("aten.hardsigmoid.default")
def hard_sigmoid(node: Node, x: Expr) -> Expr:
    """Return ``x / 6 + 1 / 2``, limited to ``[0, 1]``."""
    shifted = get_operator("clip")(add(x, node.tensor(3.0)), a_min=0, a_max=6)
    return divide(shifted, node.tensor(6.0))


@converter("aten.log_sigmoid.default", "aten.log_sigmoid_forward.default")
def log_sigmoid(node: Node, x: Expr) -> list[Expr] | Expr:
    """Return ``log(sigmoid(x))``, shifted so that nothing overflows; the second result is only for gradients."""
    least = get_operator("minimum")(x, node.tensor(0.0))
    power = exp(get_operator("negative")(get_operator("abs")(x)))
    result = subtract(least, get_operator("log1p")(power))
    if not isinstance(node.value, (list, tuple)):
        return result
    shape = node.result(1).shape
    if len(shape) == len(node.value[0].shape):
        return [result, power]
    return [result, get_operator("zeros")(shape=shape, dtype=dtype_of(x))]  # on other devices it has no elements


@converter("aten.prelu.default", "aten._prelu_kernel.default")
def prelu(node: Node, x: Expr, weight: Expr) -> Expr:
    """Multiply negative elements by a slope that is a parameter, for each channel."""
    found = weight
    if len(shape_of(weight)) == 1 and len(shape_of(x)) > 1 and shape_of(weight)[0] != 1:
        behind = len(shape_of(x)) - 2
        found = reshape(weight, newshape=(shape_of(weight)[0], *(1,) * behind))
    elif len(shape_of(weight)) == 1 and len(shape_of(x)) == 0:
        found = reshape(weight, newshape=())
    return where(get_operator("greater")(x, 0.0), x, multiply(x, found))


@converter("aten.hardshrink.default")
def hard_shrink(node: Node, x: Expr, bound: Any) -> Expr:
    """Set the elements in ``[-bound, bound]`` to 0."""
    outside = get_operator("greater")(get_operator("abs")(x), node.tensor(bound))
    kept = get_operator("logical_or")(outside, get_operator("isnan")(x))
    return where(kept, x, node.tensor(0.0))


@converter("aten.softshrink.default")
def soft_shrink(node: Node, x: Expr, bound: Any) -> Expr:
    """Move the elements toward 0 by ``bound``, no further than 0."""
    limit = node.tensor(bound)
    above = where(get_operator("greater")(x, limit), subtract(x, limit), multiply(x, node.tensor(0.0)))
    return where(get_operator("less")(x, get_operator("negative")(limit)), add(x, limit), above)


@converter("aten.threshold.default")
def threshold(node: Node, x: Expr, bound: Any, value: Any) -> Expr:
    """Replace the elements that are not above a bound."""
    return where(get_operator("less_equal")(x, node.tensor(bound)), node.tensor(value), x)


@converter("aten.glu.default")
def glu(node: Node, x: Expr, dim: int) -> Expr:
    """Multiply the first half along an axis by the sigmoid of the second."""
    axis = node.axis(dim, len(shape_of(x)))
    half = node.shape[axis]
    first = get_operator("slice")(x, begin=(0,), end=(half,), axes=(axis,))
    second = get_operator("slice")(x, begin=(half,), end=(None,), axes=(axis,))
    return multiply(first, get_operator("sigmoid")(with_shape(second, shape_of(first))))


@converter("aten.softmax.int", "aten._softmax.default", "aten.special_softmax.int", "aten._safe_softmax.default")
def softmax(node: Node, x: Expr, dim: int, *_: Any) -> Expr:
    """Return the shares of exponentials along an axis; the safe form gives 0 where all are minus infinity."""
    made = _along(node, "nn.softmax", x, dim)
    if not node.label.startswith("aten._safe_softmax"):
        return made
    axis = node.axis(dim, len(shape_of(x)))
    nothing = get_operator("all")(get_operator("equal")(x, -math.inf), axis=(axis,), keepdims=True)
    return where(nothing, node.tensor(0.0), made)


@converter("aten.log_softmax.int", "aten._log_softmax.default", "aten.special_log_softmax.int")
def log_softmax(node: Node, x: Expr, dim: int, *_: Any) -> Expr:
    """Return the logarithms of the shares of exponentials along an axis."""
    return _along(node, "nn.log_softmax", x, dim)


def _along(node: Node, name: str, x: Expr, dim: int) -> Expr:
    """Apply a function along an axis, as a float32 function for halves; a single element is a row of one."""
    value = cast_to(x, node.dtype)
    if not shape_of(value):
        return reshape(get_operator(name)(reshape(value, newshape=(1,)), axis=0), newshape=())
    return get_operator(name)(value, axis=node.axis(dim, len(shape_of(value))))


@converter("aten.dropout.default", "aten.native_dropout.default", "aten.alpha_dropout.default")
@converter("aten.feature_dropout.default", "aten.feature_alpha_dropout.default")
def dropout(node: Node, x: Expr, p: float, train: bool | None) -> Expr | list[Expr]:
    """Return the elements as they are, as at inference."""
    if train is not False and p:
        raise node.unsupported("dropout while training")
    if not isinstance(node.value, (list, tuple)):
        return x
    return [x, get_operator("full")(shape=shape_of(x), fill=True, dtype=DataType("bool"))]
