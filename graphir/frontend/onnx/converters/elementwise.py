"""Convert elementwise operators: arithmetic, comparisons, logic and functions of one tensor."""

from __future__ import annotations

import functools

from tilewright.graphir.expr import Expr
from tilewright.graphir.frontend.onnx.node import Node
from tilewright.graphir.frontend.onnx.registry import converter
from tilewright.graphir.known_values import known_values
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import cast, divide, reshape, where
from tilewright.tensorir.dtype import FLOAT32, FLOAT64, INT64

#: Unary operators that exist in the graph under another name.
_UNARY = {
    "Abs": "abs",
    "Acos": "acos",
    "Acosh": "acosh",
    "Asin": "asin",
    "Asinh": "asinh",
    "Atan": "atan",
    "Atanh": "atanh",
    "BitwiseNot": "bitwise_not",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "IsNaN": "isnan",
    "Log": "log",
    "Neg": "negative",
    "Not": "logical_not",
    "Reciprocal": "reciprocal",
    "Round": "round",
    "Sign": "sign",
    "Sin": "sin",
    "Sinh": "sinh",
    "Sqrt": "sqrt",
    "Tan": "tan",
    "Tanh": "tanh",
}

#: Binary operators of that kind; those that had attributes for broadcasting before opset 7.
_BINARY = {
    "Add": "add",
    "And": "logical_and",
    "Equal": "equal",
    "Greater": "greater",
    "Less": "less",
    "Mul": "multiply",
    "Or": "logical_or",
    "Sub": "subtract",
    "Xor": "logical_xor",
}
_BROADCASTING_BINARY = {
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
    "GreaterOrEqual": "greater_equal",
    "LessOrEqual": "less_equal",
}

#: Variadic operators, which are binary in the graph.
_VARIADIC = {"Max": "maximum", "Min": "minimum", "Sum": "add"}


def _second(node: Node) -> Expr:
    """Return the second input; before opset 7 its dimensions may begin at ``axis`` of the first."""
    axis = node.attribute("axis")
    if axis is None:
        return node[1]
    rank, shape = len(node.shape(0)), node.shape(1)
    behind = rank - (axis % max(rank, 1)) - len(shape)
    return reshape(node[1], newshape=shape + (1,) * behind) if behind > 0 else node[1]


def _direct(node: Node) -> Expr:
    return get_operator({**_UNARY, **_BROADCASTING_BINARY, **_BINARY}[node.op_type])(node[0], *node.inputs[1:])


def _legacy(node: Node) -> Expr:
    return get_operator(_BINARY[node.op_type])(node[0], _second(node))


def _fold(node: Node) -> Expr:
    """Combine the inputs two at a time."""
    combine = get_operator(_VARIADIC[node.op_type])
    return functools.reduce(combine, [node[number] for number in range(len(node.inputs))])


for _name in (*_UNARY, *_BROADCASTING_BINARY):
    converter(_name)(_direct)
for _name in _BINARY:
    converter(_name)(_legacy)
    converter(_name, since=7)(_direct)


def _in_float32(node: Node, values: list[Expr]) -> list[Expr]:
    """Convert half types to float32, the type of sums of several values."""
    return [cast(value, dtype=FLOAT32) for value in values] if node.type().dtype.bits == 16 else values


for _name in ("Max", "Min"):
    converter(_name)(_fold)


@converter("Sum")
def sum_of_inputs(node: Node) -> Expr:
    """Add the inputs."""
    return _sum(node, mean=False)


@converter("Mean")
def mean_of_inputs(node: Node) -> Expr:
    """Average the inputs."""
    return _sum(node, mean=True)


def _sum(node: Node, mean: bool) -> Expr:
    values = _in_float32(node, [node[number] for number in range(len(node.inputs))])
    total = functools.reduce(get_operator("add"), values)
    if mean and len(values) > 1:
        total = divide(total, float(len(values)))
    return total if values[0] is node[0] else cast(total, dtype=node.type().dtype)


@converter("Div")
def div_with_axis(node: Node) -> Expr:
    """Convert before opset 7, with attributes for broadcasting."""
    return _div(node, _second(node))


@converter("Div", since=7)
def div(node: Node) -> Expr:
    """Divide; integer quotients are rounded toward zero."""
    return _div(node, node[1])


def _div(node: Node, divisor: Expr) -> Expr:
    name = "divide" if node.type().dtype.is_float else "trunc_divide"
    return get_operator(name)(node[0], divisor)


@converter("Mod", since=10)
def mod(node: Node) -> Expr:
    """Take the remainder, with the sign of the divisor, or with ``fmod`` that of the dividend."""
    return get_operator("trunc_mod" if node.attribute("fmod", 0) else "floor_mod")(node[0], node[1])


@converter("Pow")
def pow_with_axis(node: Node) -> Expr:
    """Convert before opset 7, with attributes for broadcasting."""
    return _pow(node, _second(node))


@converter("Pow", since=7)
def pow(node: Node) -> Expr:
    """Raise to a power; the result has the type of the base."""
    return _pow(node, node[1])


def _pow(node: Node, exponent: Expr) -> Expr:
    base, power = node[0], get_operator("power")
    result, other = node.type(0).dtype, node.type(1).dtype
    if result is other:
        return power(base, exponent)
    if result.is_float and (other.is_integer or other.bits <= result.bits):
        return power(base, cast(exponent, dtype=result))
    # Integers wrap, so that the low bits of a wide power are the narrow power.
    wide = FLOAT64 if result.is_float or other.is_float else INT64
    return cast(power(cast(base, dtype=wide), cast(exponent, dtype=wide)), dtype=result)


@converter("BitShift", since=11)
def bit_shift(node: Node) -> Expr:
    """Shift bits to the left or right."""
    direction = node.required("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise node.unsupported(f"direction {direction!r}")
    return get_operator("left_shift" if direction == "LEFT" else "right_shift")(node[0], node[1])


@converter("Where", since=9)
def where_(node: Node) -> Expr:
    """Select between two tensors."""
    return where(node[0], node[1], node[2])


@converter("IsInf", since=10)
def is_inf(node: Node) -> Expr:
    """Detect infinities of either sign, or of one."""
    positive, negative = node.attribute("detect_positive", 1), node.attribute("detect_negative", 1)
    if positive and negative:
        return get_operator("isinf")(node[0])
    if positive or negative:
        return get_operator("isposinf" if positive else "isneginf")(node[0])
    return get_operator("full")(shape=node.shape(), fill=False, dtype="bool")


@converter("Clip")
def clip_by_attributes(node: Node) -> Expr:
    """Convert before opset 11, where the bounds are attributes."""
    return get_operator("clip")(node[0], a_min=node.attribute("min"), a_max=node.attribute("max"))


@converter("Clip", since=11)
def clip_by_inputs(node: Node) -> Expr:
    """Clip to bounds that are scalars and may be omitted."""
    bounds = [node.optional(1), node.optional(2)]
    known = {bound: known_values(bound) for bound in bounds if bound is not None}
    if any(value is not None and value.size != 1 for value in known.values()):
        raise node.wrong("expected bounds of one element each")
    if all(value is not None and value.dtype != object for value in known.values()):
        low, high = [None if bound is None else known[bound].reshape(()) for bound in bounds]  # type: ignore[union-attr]
        return get_operator("clip")(node[0], a_min=low, a_max=high)
    result = node[0]
    for name, bound in zip(("maximum", "minimum"), bounds, strict=True):
        result = result if bound is None else get_operator(name)(result, reshape(bound, newshape=()))
    return result
