"""Convert arithmetic, comparisons, logic and functions of elements."""

from __future__ import annotations

import math
from typing import Any

from tilewright.graphir.expr import Expr, const
from tilewright.graphir.frontend.torch.node import Node, cast_to, dtype_of
from tilewright.graphir.frontend.torch.registry import converter
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import add, divide, exp, log, multiply, subtract, where
from tilewright.tensorir.dtype import BOOL, FLOAT32, DataType

# Functions of one tensor of floats: integers become floats before.

_FUNCTIONS = {
    **{name: name for name in ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "exp", "exp2")},
    **{name: name for name in ("expm1", "log", "log10", "log1p", "log2", "reciprocal", "rsqrt", "sigmoid", "sin")},
    **{name: name for name in ("sinh", "sqrt", "tan", "tanh")},
    "special_exp2": "exp2",
    "special_erf": "erf",
}


def _register_function(overload: str, name: str) -> None:
    def convert(node: Node, x: Expr) -> Expr:
        return get_operator(name)(node.tensor(x))

    convert.__qualname__ = f"function_{overload}"
    converter(f"aten.{overload}.default")(convert)


for _overload, _name in _FUNCTIONS.items():
    _register_function(_overload, _name)

# Functions that keep the type of numbers; integers are rounded already.

_ROUNDINGS = ("ceil", "floor", "trunc", "round")


def _register_rounding(name: str) -> None:
    def convert(node: Node, x: Expr) -> Expr:
        return get_operator(name)(x) if dtype_of(x).is_float else x

    convert.__qualname__ = f"rounding_{name}"
    converter(f"aten.{name}.default")(convert)


for _name in _ROUNDINGS:
    _register_rounding(_name)


@converter("aten.round.decimals")
def round_to_decimals(node: Node, x: Expr, decimals: int) -> Expr:
    """Round to a number of decimals, as PyTorch does: scaled, rounded, scaled back."""
    scale = node.tensor(10.0 ** abs(decimals))
    there, back = (multiply, divide) if decimals >= 0 else (divide, multiply)
    return back(get_operator("round")(there(x, scale)), scale)


@converter("aten.abs.default")
def absolute(node: Node, x: Expr) -> Expr:
    """Drop the sign; unsigned numbers and bools have none."""
    found = dtype_of(x)
    return x if found.is_bool or found.is_uint else get_operator("abs")(x)


@converter("aten.neg.default")
def negative(node: Node, x: Expr) -> Expr:
    """Change the sign."""
    return get_operator("negative")(x)


@converter("aten.sign.default", "aten.sgn.default")
def sign(node: Node, x: Expr) -> Expr:
    """Return the sign: -1, 0 or 1. NaN has the sign 0."""
    found = dtype_of(x)
    if found.is_bool:
        return x
    if not found.is_float:
        return get_operator("sign")(x)
    positive, negative_ = (cast_to(get_operator(name)(x, 0.0), found) for name in ("greater", "less"))
    return subtract(positive, negative_)


@converter("aten.isnan.default")
def is_nan(node: Node, x: Expr) -> Expr:
    """Test for NaN."""
    return get_operator("isnan")(x) if dtype_of(x).is_float else _false(x)


@converter("aten.isinf.default")
def is_inf(node: Node, x: Expr) -> Expr:
    """Test for an infinity."""
    return get_operator("isinf")(x) if dtype_of(x).is_float else _false(x)


@converter("aten.isposinf.default")
def is_positive_infinity(node: Node, x: Expr) -> Expr:
    """Test for plus infinity."""
    return get_operator("isposinf")(x) if dtype_of(x).is_float else _false(x)


@converter("aten.isneginf.default")
def is_negative_infinity(node: Node, x: Expr) -> Expr:
    """Test for minus infinity."""
    return get_operator("isneginf")(x) if dtype_of(x).is_float else _false(x)


def _false(x: Expr) -> Expr:
    return get_operator("not_equal")(x, x)


# Arithmetic.

_BINARY = {
    "mul": "multiply",
    "maximum": "maximum",
    "minimum": "minimum",
    "bitwise_and": "bitwise_and",
    "bitwise_or": "bitwise_or",
    "bitwise_xor": "bitwise_xor",
    "bitwise_left_shift": "left_shift",
    "bitwise_right_shift": "right_shift",
    "__lshift__": "left_shift",
    "__rshift__": "right_shift",
    "fmod": "trunc_mod",
}
_OVERLOADS = {
    "maximum": ("default",),
    "minimum": ("default",),
    "mul": ("Tensor", "Scalar"),
    "fmod": ("Tensor", "Scalar"),
    "bitwise_left_shift": ("Tensor", "Tensor_Scalar", "Scalar_Tensor"),
    "bitwise_right_shift": ("Tensor", "Tensor_Scalar", "Scalar_Tensor"),
    "__lshift__": ("Tensor", "Scalar"),
    "__rshift__": ("Tensor", "Scalar"),
}


def _binary(node: Node, name: str, x: Any, y: Any) -> Expr:
    """Apply a binary operator to operands of the result's type; to bools, the logical operator that it means."""
    logical = _LOGICAL.get(name) if node.dtype.is_bool else None
    return get_operator(logical or name)(node.tensor(x), node.tensor(y))


def _register_binary(overload: str, name: str) -> None:
    def convert(node: Node, x: Any, y: Any) -> Expr:
        return _binary(node, name, x, y)

    convert.__qualname__ = f"binary_{overload}"
    suffixes = _OVERLOADS.get(overload, ("Tensor", "Scalar", "Scalar_Tensor"))
    converter(*(f"aten.{overload}.{suffix}" for suffix in suffixes))(convert)


#: What arithmetic of bools means.
_LOGICAL = {"multiply": "logical_and", "maximum": "logical_or", "minimum": "logical_and", "add": "logical_or"}

for _overload, _name in _BINARY.items():
    _register_binary(_overload, _name)


def _scaled(node: Node, y: Any, alpha: Any) -> Expr:
    return node.tensor(y) if alpha == 1 else multiply(node.tensor(y), node.tensor(alpha))


@converter("aten.add.Tensor", "aten.add.Scalar")
def add_tensors(node: Node, x: Any, y: Any, alpha: Any) -> Expr:
    """Add ``alpha`` times the second operand."""
    if node.dtype.is_bool:
        return get_operator("logical_or")(node.tensor(x), _scaled_bool(node, y, alpha))
    return add(node.tensor(x), _scaled(node, y, alpha))


def _scaled_bool(node: Node, y: Any, alpha: Any) -> Expr:
    return get_operator("logical_and")(node.tensor(y), node.tensor(alpha))


@converter("aten.sub.Tensor", "aten.sub.Scalar")
def subtract_tensors(node: Node, x: Any, y: Any, alpha: Any) -> Expr:
    """Subtract ``alpha`` times the second operand."""
    return subtract(node.tensor(x), _scaled(node, y, alpha))


@converter("aten.rsub.Tensor", "aten.rsub.Scalar")
def subtract_from(node: Node, x: Any, y: Any, alpha: Any) -> Expr:
    """Subtract ``alpha`` times the first operand from the second."""
    return subtract(node.tensor(y), _scaled(node, x, alpha))


@converter("aten.div.Tensor", "aten.div.Scalar")
def divide_tensors(node: Node, x: Any, y: Any) -> Expr:
    """Divide as floats."""
    return divide(node.tensor(x), node.tensor(y))


@converter("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def divide_rounding(node: Node, x: Any, y: Any, rounding_mode: str | None) -> Expr:
    """Divide, and round toward zero or down, if a mode says so."""
    if rounding_mode is None:
        return divide(node.tensor(x), node.tensor(y))
    return get_operator("trunc_divide" if rounding_mode == "trunc" else "floor_divide")(node.tensor(x), node.tensor(y))


@converter("aten.floor_divide.default", "aten.floor_divide.Scalar")
def floor_divide(node: Node, x: Any, y: Any) -> Expr:
    """Divide and round down."""
    return get_operator("floor_divide")(node.tensor(x), node.tensor(y))


@converter("aten.remainder.Tensor", "aten.remainder.Scalar", "aten.remainder.Scalar_Tensor")
def remainder(node: Node, x: Any, y: Any) -> Expr:
    """Compute the remainder that has the sign of the divisor."""
    return get_operator("floor_mod")(node.tensor(x), node.tensor(y))


@converter("aten.pow.Tensor_Tensor", "aten.pow.Tensor_Scalar", "aten.pow.Scalar")
def power(node: Node, x: Any, y: Any) -> Expr:
    """Raise to a power; small whole exponents of floats are products."""
    if isinstance(y, (int, float)) and node.dtype.is_float:
        base = node.tensor(x)
        if y == 2:
            return get_operator("square")(base)
        if y == 3:
            return multiply(get_operator("square")(base), base)
        if y == 0.5:
            return get_operator("sqrt")(base)
        if y == -0.5:
            return get_operator("rsqrt")(base)
        if y == -1:
            return get_operator("reciprocal")(base)
        if y == 1:
            return base
    return get_operator("power")(node.tensor(x), node.tensor(y))


@converter("aten.fmax.default", "aten.fmin.default")
def extreme_of_numbers(node: Node, x: Expr, y: Expr) -> Expr:
    """Return the greater or the lesser of two elements; of NaN and a number the number."""
    found = _binary(node, "maximum" if node.label.startswith("aten.fmax") else "minimum", x, y)
    if not node.dtype.is_float:
        return found
    a, b = node.tensor(x), node.tensor(y)
    return where(get_operator("isnan")(a), b, where(get_operator("isnan")(b), a, found))


@converter("aten.hypot.default")
def hypotenuse(node: Node, x: Expr, y: Expr) -> Expr:
    """Return the root of the sum of squares; scaled, so that nothing overflows."""
    a, b = get_operator("abs")(node.tensor(x)), get_operator("abs")(node.tensor(y))
    greater, lesser = get_operator("maximum")(a, b), get_operator("minimum")(a, b)
    ratio = divide(lesser, greater)
    plain = get_operator("logical_or")(get_operator("equal")(greater, 0.0), get_operator("isinf")(greater))
    length = multiply(greater, get_operator("sqrt")(add(get_operator("square")(ratio), 1.0)))
    return where(plain, greater, length)


@converter("aten.logaddexp.default")
def log_of_sum(node: Node, x: Expr, y: Expr) -> Expr:
    """Return ``log(exp(x) + exp(y))``, shifted so that nothing overflows."""
    return _log_of_sum(node, x, y, exp, "log1p")


@converter("aten.logaddexp2.default")
def log2_of_sum(node: Node, x: Expr, y: Expr) -> Expr:
    """Return ``log2(2 ** x + 2 ** y)``, shifted so that nothing overflows."""
    return _log_of_sum(node, x, y, get_operator("exp2"), "log1p", 1 / math.log(2))


def _log_of_sum(node: Node, x: Expr, y: Expr, powers: Any, logarithm: str, factor: float = 1.0) -> Expr:
    a, b = node.tensor(x), node.tensor(y)
    greatest = get_operator("maximum")(a, b)
    same = get_operator("equal")(a, b)
    distance = where(same, const(0.0, node.dtype), get_operator("negative")(get_operator("abs")(subtract(a, b))))
    rest = get_operator(logarithm)(powers(distance))
    return add(greatest, multiply(rest, const(factor, node.dtype)))


# Comparisons and logic.

_COMPARISONS = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater"}
_COMPARISONS["ge"] = "greater_equal"


def _register_comparison(overload: str, name: str) -> None:
    def convert(node: Node, x: Any, y: Any) -> Expr:
        a, b = node.promoted(x, y)
        if dtype_of(a).is_bool and overload not in ("eq", "ne"):
            a, b = cast_to(a, DataType("uint8")), cast_to(b, DataType("uint8"))
        return get_operator(name)(a, b)

    convert.__qualname__ = f"comparison_{overload}"
    converter(f"aten.{overload}.Tensor", f"aten.{overload}.Scalar")(convert)


for _overload, _name in _COMPARISONS.items():
    _register_comparison(_overload, _name)


def _register_logic(name: str) -> None:
    def convert(node: Node, x: Expr, y: Expr) -> Expr:
        return get_operator(name)(node.tensor(x, BOOL), node.tensor(y, BOOL))

    convert.__qualname__ = f"logic_{name}"
    converter(f"aten.{name}.default")(convert)


for _name in ("logical_and", "logical_or", "logical_xor"):
    _register_logic(_name)


@converter("aten.logical_not.default")
def logical_not(node: Node, x: Expr) -> Expr:
    """Test for zero."""
    return get_operator("logical_not")(node.tensor(x, BOOL))


@converter("aten.bitwise_not.default")
def bitwise_not(node: Node, x: Expr) -> Expr:
    """Invert all bits; those of bools are one."""
    return get_operator("logical_not" if node.dtype.is_bool else "bitwise_not")(x)


@converter("aten.where.self", "aten.where.ScalarSelf", "aten.where.ScalarOther", "aten.where.Scalar")
def select(node: Node, condition: Expr, x: Any, y: Any) -> Expr:
    """Select between two tensors."""
    return where(node.tensor(condition, BOOL), node.tensor(x), node.tensor(y))


@converter("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(node: Node, x: Expr, mask: Expr, value: Any) -> Expr:
    """Replace the elements where a mask holds by one value."""
    return where(mask, node.tensor(value), x)


@converter("aten.clamp.default", "aten.clamp.Tensor", "aten.clip.default", "aten.hardtanh.default")
def clamp(node: Node, x: Expr, low: Any, high: Any) -> Expr:
    """Limit the elements to bounds, either of which may be missing. NaN stays."""
    result = node.tensor(x)
    if low is not None:
        result = _binary(node, "maximum", result, low)
    return result if high is None else _binary(node, "minimum", result, high)


@converter("aten.clamp_min.default", "aten.clamp_min.Tensor")
def clamp_min(node: Node, x: Expr, low: Any) -> Expr:
    """Limit the elements from below."""
    return clamp(node, x, low, None)


@converter("aten.clamp_max.default", "aten.clamp_max.Tensor")
def clamp_max(node: Node, x: Expr, high: Any) -> Expr:
    """Limit the elements from above."""
    return clamp(node, x, None, high)


@converter("aten.lerp.Scalar", "aten.lerp.Tensor")
def lerp(node: Node, start: Expr, end: Expr, weight: Any) -> Expr:
    """Interpolate between two tensors, from the nearer one, as PyTorch does."""
    first, last, share = node.tensor(start), node.tensor(end), node.tensor(weight)
    distance = subtract(last, first)
    near = add(first, multiply(share, distance))
    far = subtract(last, multiply(distance, subtract(node.tensor(1.0), share)))
    return where(get_operator("less")(get_operator("abs")(share), node.tensor(0.5)), near, far)


@converter("aten.addcmul.default")
def add_product(node: Node, x: Expr, y: Expr, z: Expr, value: Any) -> Expr:
    """Add ``value * y * z``."""
    return add(node.tensor(x), multiply(_scaled(node, y, value), node.tensor(z)))


@converter("aten.addcdiv.default")
def add_quotient(node: Node, x: Expr, y: Expr, z: Expr, value: Any) -> Expr:
    """Add ``value * y / z``."""
    return add(node.tensor(x), divide(_scaled(node, y, value), node.tensor(z)))


@converter("aten.logit.default")
def logit(node: Node, x: Expr, eps: float | None) -> Expr:
    """Return ``log(x / (1 - x))``, with ``x`` limited to ``[eps, 1 - eps]`` if that is given."""
    value = node.tensor(x)
    if eps is not None:
        value = clamp(node, value, eps, 1 - eps)
    return log(divide(value, subtract(node.tensor(1.0), value)))


def _inner_type(dtype: DataType) -> DataType:
    """Return the type in which PyTorch computes a function of several steps."""
    return FLOAT32 if dtype.bits < 32 else dtype


@converter("aten.sinc.default")
def sinc(node: Node, x: Expr) -> Expr:
    """Return ``sin(pi * x) / (pi * x)``, and 1 at 0."""
    wide = _inner_type(node.dtype)
    angle = multiply(node.tensor(x, wide), node.tensor(math.pi, wide))
    there = get_operator("equal")(angle, node.tensor(0.0, wide))
    return cast_to(where(there, node.tensor(1.0, wide), divide(get_operator("sin")(angle), angle)), node.dtype)


@converter("aten.xlogy.Tensor", "aten.xlogy.Scalar_Self", "aten.xlogy.Scalar_Other")
def x_log_y(node: Node, x: Any, y: Any) -> Expr:
    """Return ``x * log(y)``, which is 0 where ``x`` is 0, and NaN where ``y`` is NaN."""
    a, b = node.tensor(x), node.tensor(y)
    product = multiply(a, log(b))
    zero = where(get_operator("equal")(a, node.tensor(0.0)), node.tensor(0.0), product)
    return where(get_operator("isnan")(b), node.tensor(math.nan), zero)


@converter("aten.erfc.default", "aten.special_erfc.default")
def erfc(node: Node, x: Expr) -> Expr:
    """Return ``1 - erf(x)``; where that cancels, in float64."""
    inner = DataType("float64") if node.dtype is FLOAT32 else _inner_type(node.dtype)
    wide = cast_to(node.tensor(x), inner)
    return cast_to(subtract(const(1.0, dtype_of(wide)), get_operator("erf")(wide)), node.dtype)
