"""``sin``, ``cos`` and ``tan`` of float32, and their inverses.

The argument is reduced to ``|x| = q * pi / 2 + r``. In float32 that takes three fused multiply-adds with pi / 2 in
three parts (Cody and Waite's reduction): the first is exact, since the difference has no more digits than the part.
Without fused multiply-add, and for ``tan``, it is done in float64, where q times the first part (25 bits) is exact.

Beyond a limit, ``x * 2 / pi`` is formed part by part, modulo 4 (Payne and Hanek, "Radian reduction for trigonometric
functions", SIGNUM 1983): 2 / pi is cut into parts of 28 bits, so that every product with the 24 bits of x is exact.
That takes about a hundred instructions and is skipped unless some lane needs it.

Coefficients are minimax fits as in :mod:`.exp_log`.
"""

from __future__ import annotations

import functools

from tilewright.passes.tensor.intrin.emitter import INFINITY, Emitter, expands
from tilewright.passes.tensor.vector_arith import vector_cast
from tilewright.tensorir.dtype import FLOAT32, INT32
from tilewright.tensorir.expr import Expr, binary, call, const

# (sin(r) / r - 1) / r**2 and (cos(r) - 1 + r**2 / 2) / r**4 in r**2, for |r| <= 0.793; errors 2**-27.9 and 2**-32.9
_SIN = (-0.16666653752326965, 0.008332112804055214, -0.00019508739933371544)
_COS = (0.04166664555668831, -0.0013887251261621714, 2.4425680749118328e-05)
# The same with one term more, errors 2**-37 and 2**-43
_SIN_WIDE = (-0.1666666664058816, 0.008333329280520402, -0.00019839304414594753, 2.7180464657952157e-06)
_COS_WIDE = (0.04166666661910649, -0.0013888883467232046, 2.4799451544318484e-05, -2.720504584476681e-07)

_TWO_OVER_PI = 0.6366197723675814
_HALF_PI = 1.5707963267948966

# pi / 2 in parts of 24 bits, each below what is left, and how far they reach
_HALF_PI_PARTS = (1.570796251296997, 7.549789415861596e-08, 5.390302529957765e-15)
_LIMIT = 131072.0
# pi / 2 = first (25 bits) + second, in float64
_HALF_PI_FIRST = 1.57079631090164184570
_HALF_PI_SECOND = 1.58932547735281966916e-08
_WIDE_LIMIT = 1e8

#: 2 / pi in parts of 28 bits, computed to 120 digits.
_PARTS = tuple(
    float.fromhex(part)
    for part in (
        "0x1.45f306c000000p-1",
        "0x1.c9c882a000000p-29",
        "0x1.4fe13a8000000p-59",
        "0x1.f47d4d0000000p-86",
        "0x1.bb81b6c000000p-113",
        "0x1.4acc9e0000000p-143",
        "0x1.0e41080000000p-170",
    )
)


def _reduce_any(e: Emitter, x: Expr, quarter: int) -> list[Expr]:
    """r (float64), and an integer (int32) whose two low bits are those of ``q + quarter``, for finite x of any size.

    Whole quarters are taken out of the sum after each part, so that it stays below 1/2 and nothing is lost when its
    leading bits cancel.
    """
    total: Expr | None = None
    turns: Expr | None = None
    for part in _PARTS:
        product = e.let("product", x * part)
        rest = product - e.round(product * 0.25) * 4.0  # exact: the product has 52 bits at most
        total = e.let("turns", rest if total is None else total + rest)
        whole = e.round(total)
        total = e.let("rest", total - whole)
        turns = whole if turns is None else e.let("quarters", turns + whole)
    assert total is not None and turns is not None
    _, integer = e.nearest(turns, 1.0, quarter)
    return [e.let("reduced", total * _HALF_PI), e.let("quadrant", vector_cast(INT32, integer))]


def _rare_lanes(e: Emitter, size: Expr, limit: float) -> tuple[Expr, Emitter, Expr]:
    """The mask of lanes beyond the limit, the emitter for them, and the argument in float64 (0 in the other lanes)."""
    is_large = e.let("is_large", size > limit)
    rare = Emitter(e.has_fma, e.is_fast)
    return is_large, rare, rare.let("large", rare.select(is_large, rare.widen(size), 0.0))


def _reduce_wide(e: Emitter, size: Expr, quarter: int) -> list[Expr]:
    """r (float64) and an integer (int32) whose two low bits are those of ``q + quarter`` for ``size = q * pi / 2 + r``.
    For inf and NaN r is NaN."""
    wide = e.widen(size)
    q, integer = e.nearest(wide, _TWO_OVER_PI, quarter)
    r = e.fma(q, -_HALF_PI_SECOND, e.fma(q, -_HALF_PI_FIRST, wide))
    usual = [e.let("reduced", r), e.let("quadrant", vector_cast(INT32, integer))]
    is_large, rare, large = _rare_lanes(e, size, _WIDE_LIMIT)
    return e.rarely(is_large, usual, rare, _reduce_any(rare, large, quarter))


def _reduce(e: Emitter, size: Expr, quarter: int) -> list[Expr]:
    """As :func:`_reduce_wide`, with r in float32."""
    if not e.has_fma:
        r, quadrant = _reduce_wide(e, size, quarter)
        return [e.let("angle", e.narrow(r)), quadrant]
    q, quadrant = e.nearest(size, _TWO_OVER_PI, quarter)
    reduced = size
    for part in _HALF_PI_PARTS:
        reduced = e.fma(q, -part, reduced)
    is_large, rare, large = _rare_lanes(e, size, _LIMIT)
    r, turned = _reduce_any(rare, large, quarter)
    return e.rarely(is_large, [e.let("reduced", reduced), quadrant], rare, [rare.narrow(r), turned])


def _sine(e: Emitter, x: Expr, quarter: int) -> Expr:
    """``sin(x)`` (no quarters) or ``cos(x)``, which is ``sin(|x| + pi / 2)`` (one)."""
    r, quadrant = _reduce(e, e.absolute(x), quarter)
    square = e.let("square", r * r)
    sine = e.fma(e.polynomial(square, _SIN) * square, r, r)
    cosine = e.fma(e.polynomial(square, _COS) * square, square, e.fma(square, -0.5, 1.0))
    is_sine = (quadrant & 1).equal(const(0, quadrant.dtype))
    # Half turns change the sign, and the sine has that of x, also at zero.
    flips = quadrant << 30 if quarter else (quadrant << 30) ^ e.bits(x)
    value = e.bits(e.let("value", e.select(is_sine, sine, cosine)))
    return e.from_bits(value ^ (flips & -0x80000000), FLOAT32)


expands("sin")(functools.partial(_sine, quarter=0))
expands("cos")(functools.partial(_sine, quarter=1))


@expands("tan")
def tan(e: Emitter, x: Expr) -> Expr:
    """``tan(x)``, sine over cosine in float64."""
    size = e.absolute(x)
    r, quadrant = _reduce_wide(e, size, 0)
    square = e.let("square", r * r)
    sine = e.let("sine", e.fma(e.polynomial(square, _SIN_WIDE) * square, r, r))
    tail = e.polynomial(square, _COS_WIDE) * square
    cosine = e.let("cosine", e.fma(tail, square, e.fma(square, -0.5, 1.0)))
    even = e.let("even", (quadrant & 1).equal(const(0, quadrant.dtype)))
    ratio = e.let("ratio", e.narrow(e.select(even, sine, -cosine) / e.select(even, cosine, sine)))
    # x itself for small x: in float64 the ratio would not keep the sign of zero.
    return e.select(size < 2.0**-13, x, e.select(x < 0.0, -ratio, ratio))


# (asin(x) / x - 1) / x**2 in x**2, for |x| <= 0.5; error 2**-27.6
_ASIN = (0.16666753590106964, 0.07495252788066864, 0.04547655209898949, 0.02414662204682827, 0.04222600907087326)

# (atan(t) / t - 1) / t**2 in t**2, for |t| <= 1; error 2**-28.5
_ATAN = (
    -0.33333298563957214,
    0.19998548924922943,
    -0.14264240860939026,
    0.10952185094356537,
    -0.08403448015451431,
    0.05795754864811897,
    -0.03117779828608036,
    0.010914578102529049,
    -0.0017936152871698141,
)

# pi / 2 and pi in two parts
_HALF_PI_HIGH, _HALF_PI_LOW = 1.5707963705062866, -4.371138828673793e-08
_PI_HIGH, _PI_LOW = 3.1415927410125732, -8.742277657347586e-08


def _arc_sine_parts(e: Emitter, x: Expr) -> tuple[Expr, Expr, Expr, Expr]:
    """``|x|``, whether it is at most 1/2, and t and u with ``asin(t) = t + u`` for ``t = |x|`` there; elsewhere
    ``t = sqrt((1 - |x|) / 2)``, where ``asin(|x|) = pi / 2 - 2 asin(t)`` (NaN beyond 1)."""
    size = e.absolute(x)
    is_small = e.let("is_small", size <= 0.5)
    half = e.let("half", e.fma(size, -0.5, 0.5))  # exact above 1/2
    square = e.let("square", e.select(is_small, size * size, half))
    t = e.let("chord", e.select(is_small, size, call("sqrt", half)))
    return size, is_small, t, e.let("rest", e.polynomial(square, _ASIN) * square * t)


@expands("asin")
def asin(e: Emitter, x: Expr) -> Expr:
    """The arc sine."""
    _, is_small, t, u = _arc_sine_parts(e, x)
    large = _HALF_PI_HIGH - (t + t + (u + u - _HALF_PI_LOW))
    return e.copysign(e.select(is_small, t + u, large), x)


@expands("acos")
def acos(e: Emitter, x: Expr) -> Expr:
    """The arc cosine."""
    _, is_small, t, u = _arc_sine_parts(e, x)
    is_negative = e.let("is_negative", x < 0.0)
    # pi / 2 - asin(x), 2 asin(t), or pi - 2 asin(t)
    offset = e.let("offset", e.select(is_small, _HALF_PI_LOW, e.select(is_negative, const(_PI_LOW, x.dtype), 0.0)))
    base = e.select(is_small, _HALF_PI_HIGH, e.select(is_negative, const(_PI_HIGH, x.dtype), 0.0))
    factor = e.select(is_small, e.copysign(const(-1.0, x.dtype), -x), e.select(is_negative, const(-2.0, x.dtype), 2.0))
    factor = e.let("factor", factor)
    return base + e.fma(factor, t, e.fma(factor, u, offset))


def _arc_tangent(e: Emitter, t: Expr, is_steep: Expr) -> Expr:
    """``atan(t)`` for t of 0 to 1, or ``pi / 2 - atan(t)`` if the tangent was larger than 1, the inverse of t."""
    square = e.let("square", t * t)
    u = e.let("rest", e.polynomial(square, _ATAN) * square * t)
    return e.let("angle", e.select(is_steep, _HALF_PI_HIGH - (t + (u - _HALF_PI_LOW)), t + u))


@expands("atan")
def atan(e: Emitter, x: Expr) -> Expr:
    """The arc tangent."""
    size = e.absolute(x)
    is_steep = e.let("is_steep", size > 1.0)
    t = e.let("tangent", e.select(is_steep, 1.0 / size, size))
    return e.copysign(_arc_tangent(e, t, is_steep), x)


@expands("atan2")
def atan2(e: Emitter, y: Expr, x: Expr) -> Expr:
    """The angle of the point (x, y), with the special cases of C99 (ISO/IEC 9899, F.10.1.4)."""
    height, width = e.absolute(y), e.absolute(x)
    is_steep = e.let("is_steep", height > width)
    small = e.let("small", e.select(is_steep, width, height))
    large = e.let("large", e.select(is_steep, height, width))
    # 0 / 0 has to be 0, and inf / inf 1.
    ratio = small / e.select(large.equal(const(0.0, x.dtype)), 1.0, large)
    is_corner = binary("and", small.equal(const(INFINITY, x.dtype)), large.equal(const(INFINITY, x.dtype)))
    t = e.let("tangent", e.select(is_corner, 1.0, ratio))
    angle = _arc_tangent(e, t, is_steep)
    back = _PI_HIGH - (angle - _PI_LOW)
    return e.copysign(e.select(e.bits(x) < 0, back, angle), y)
