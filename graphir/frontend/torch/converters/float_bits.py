"""Convert functions of the bits of floats, and angles, which depend on the signs of zeros."""

from __future__ import annotations

import math
from typing import Any

from tilewright.graphir.expr import Expr, const
from tilewright.graphir.frontend.torch.node import Node, cast_to, dtype_of
from tilewright.graphir.frontend.torch.registry import converter
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import add, divide, multiply, subtract, where
from tilewright.tensorir.dtype import FLOAT32, FLOAT64, DataType


@converter("aten.signbit.default")
def sign_bit(node: Node, x: Expr) -> Expr:
    """Test whether the sign is minus, also that of zero."""
    found = dtype_of(x)
    if not found.is_float:
        return get_operator("less")(*node.promoted(x, 0)) if not found.is_bool else get_operator("logical_xor")(x, x)
    bits = get_operator("bitcast")(x, dtype=DataType(f"int{found.bits}"))
    return get_operator("less")(bits, 0)


@converter("aten.copysign.Tensor", "aten.copysign.Scalar")
def copy_sign(node: Node, x: Any, y: Any) -> Expr:
    """Give the elements of ``x`` the signs of those of ``y``."""
    a, b = get_operator("abs")(node.tensor(x)), node.tensor(y)
    bits = get_operator("bitcast")(b, dtype=DataType(f"int{node.dtype.bits}"))
    return where(get_operator("less")(bits, 0), get_operator("negative")(a), a)


@converter("aten.nextafter.default")
def next_after(node: Node, x: Expr, y: Expr) -> Expr:
    """Return the next number from ``x`` toward ``y``: as integers, neighbours of one sign differ by 1."""
    dtype = node.dtype
    bits = DataType(f"int{dtype.bits}")
    a, b = node.tensor(x), node.tensor(y)
    whole = get_operator("bitcast")(a, dtype=bits)
    away = get_operator("equal")(get_operator("greater")(b, a), get_operator("greater")(a, node.tensor(0.0)))
    step = where(away, const(1, bits), const(-1, bits))
    moved = get_operator("bitcast")(add(whole, step), dtype=dtype)
    least = get_operator("bitcast")(const(1, bits), dtype=dtype)
    from_zero = where(get_operator("greater")(b, a), least, get_operator("negative")(least))
    moved = where(get_operator("equal")(a, node.tensor(0.0)), from_zero, moved)
    moved = where(get_operator("equal")(a, b), b, moved)
    spoiled = get_operator("logical_or")(get_operator("isnan")(a), get_operator("isnan")(b))
    return where(spoiled, node.tensor(math.nan), moved)


@converter("aten.frexp.Tensor")
def mantissa_and_exponent(node: Node, x: Expr) -> list[Expr]:
    """Split numbers into a mantissa in ``[0.5, 1)`` and an exponent of 2."""
    dtype = dtype_of(x)
    if dtype not in (FLOAT32, FLOAT64):
        raise node.unsupported(f"an element type {dtype!s}")
    fraction, bias = (23, 126) if dtype is FLOAT32 else (52, 1022)
    bits = DataType(f"int{dtype.bits}")
    # A subnormal number becomes a normal one first.
    small = get_operator("less")(get_operator("abs")(x), const(2.0 ** -(bias - 1), dtype))
    scaled = where(small, multiply(x, const(2.0**fraction, dtype)), x)
    whole = get_operator("bitcast")(scaled, dtype=bits)
    mask = const((1 << (dtype.bits - 1 - fraction)) - 1, bits)
    exponent = get_operator("bitwise_and")(get_operator("right_shift")(whole, const(fraction, bits)), mask)
    exponent = subtract(exponent, where(small, const(bias + fraction, bits), const(bias, bits)))
    kept = get_operator("bitwise_and")(whole, const(~(((1 << (dtype.bits - 1 - fraction)) - 1) << fraction), bits))
    mantissa = get_operator("bitcast")(get_operator("bitwise_or")(kept, const(bias << fraction, bits)), dtype=dtype)
    plain = get_operator("logical_and")(get_operator("isfinite")(x), get_operator("not_equal")(x, const(0.0, dtype)))
    return [where(plain, mantissa, x), where(plain, cast_to(exponent, DataType("int32")), const(0, "int32"))]


@converter("aten.ldexp.Tensor")
def scale_by_power(node: Node, x: Expr, exponent: Expr) -> Expr:
    """Return ``x * 2 ** exponent``."""
    return multiply(node.tensor(x), get_operator("exp2")(node.tensor(exponent)))


@converter("aten.atan2.default")
def atan2(node: Node, y: Expr, x: Expr) -> Expr:
    """Return the angle of the point ``(x, y)``, from -pi to pi, with the signs of zeros that C's ``atan2`` gives it."""
    above, right = node.tensor(y), node.tensor(x)
    dtype = node.dtype
    bits = DataType(f"int{dtype.bits}")

    def is_minus(value: Expr) -> Expr:
        return get_operator("less")(get_operator("bitcast")(value, dtype=bits), 0)

    def number(value: float) -> Expr:
        return const(value, dtype)

    def both(first: Expr, second: Expr) -> Expr:
        return get_operator("logical_and")(first, second)

    high, wide = get_operator("abs")(above), get_operator("abs")(right)
    infinite = both(get_operator("isinf")(above), get_operator("isinf")(right))
    ratio = divide(high, wide)
    ratio = where(get_operator("equal")(high, number(0.0)), number(0.0), ratio)
    angle = where(infinite, number(math.pi / 4), get_operator("atan")(ratio))
    nan = get_operator("logical_or")(get_operator("isnan")(above), get_operator("isnan")(right))
    angle = where(is_minus(right), subtract(number(math.pi), angle), angle)
    angle = where(is_minus(above), get_operator("negative")(angle), angle)
    return where(nan, number(math.nan), angle)


@converter("aten.angle.default")
def angle(node: Node, x: Expr) -> Expr:
    """Return pi for negative numbers, 0 for others; NaN stays."""
    value = node.tensor(x)
    turned = where(get_operator("less")(value, node.tensor(0.0)), node.tensor(math.pi), node.tensor(0.0))
    return where(get_operator("isnan")(value), value, turned)
