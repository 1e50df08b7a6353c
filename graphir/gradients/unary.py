"""Differentiate functions of one tensor."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilewright.graphir.base import call_operator
from tilewright.graphir.expr import Call, Expr
from tilewright.graphir.gradient import register_gradient
from tilewright.graphir.gradients.common import masked
from tilewright.graphir.ops import calls


def _sign(x: Expr) -> Expr:
    return call_operator("sign", x)


#: The derivative of each function at ``x``, where it has the value ``y``.
DERIVATIVES: dict[str, Callable[[Expr, Expr], Expr]] = {
    "exp": lambda x, y: y,
    "exp2": lambda x, y: y * math.log(2),
    "expm1": lambda x, y: y + 1.0,
    "log": lambda x, y: 1.0 / x,
    "log2": lambda x, y: (1 / math.log(2)) / x,
    "log10": lambda x, y: (1 / math.log(10)) / x,
    "log1p": lambda x, y: 1.0 / (x + 1.0),
    "sqrt": lambda x, y: 0.5 / y,
    "rsqrt": lambda x, y: y * y * y * -0.5,
    "sin": lambda x, y: call_operator("cos", x),
    "cos": lambda x, y: -call_operator("sin", x),
    "tan": lambda x, y: y * y + 1.0,
    "asin": lambda x, y: call_operator("rsqrt", (1.0 - x) * (1.0 + x)),
    "acos": lambda x, y: -call_operator("rsqrt", (1.0 - x) * (1.0 + x)),
    "atan": lambda x, y: 1.0 / (x * x + 1.0),
    "sinh": lambda x, y: call_operator("cosh", x),
    "cosh": lambda x, y: call_operator("sinh", x),
    "tanh": lambda x, y: 1.0 - y * y,
    "asinh": lambda x, y: call_operator("rsqrt", x * x + 1.0),
    "acosh": lambda x, y: call_operator("rsqrt", (x - 1.0) * (x + 1.0)),
    "atanh": lambda x, y: 1.0 / ((1.0 - x) * (1.0 + x)),
    "sigmoid": lambda x, y: y * (1.0 - y),
    "erf": lambda x, y: calls.exp(-(x * x)) * (2 / math.sqrt(math.pi)),
    "abs": lambda x, y: _sign(x),
    "square": lambda x, y: x * 2.0,
    "reciprocal": lambda x, y: -(y * y),
}


def _rule(derivative: Callable[[Expr, Expr], Expr]) -> Callable[[Call, Expr], Sequence[Expr | None]]:
    def chain(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
        return (cotangent * derivative(call.args[0], call),)

    return chain


for _name, _derivative in DERIVATIVES.items():
    register_gradient(_name)(_rule(_derivative))


@register_gradient("negative")
def negative(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Negate."""
    return (-cotangent,)


@register_gradient("copy")
def copy(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Pass the cotangent on."""
    return (cotangent,)


@register_gradient("floor", "ceil", "trunc", "round", "sign", "zeros_like", "ones_like", "stop_gradient")
def constant(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """State that a function is constant but for its steps: its derivative is 0."""
    return (None,)


@register_gradient("cast")
def cast(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Convert back."""
    return (calls.cast(cotangent, dtype=call.args[0].dtype),)


@register_gradient("clip")
def clip(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Pass on the cotangents of elements within the bounds, on them included."""
    (x,) = call.args
    low, high = call.attrs.a_min, call.attrs.a_max
    if low is not None:
        cotangent = masked(x >= float(low), cotangent)
    if high is not None:
        cotangent = masked(x <= float(high), cotangent)
    return (cotangent,)
