"""``sin``, ``cos`` and ``tan`` of float32.

The argument is reduced to ``x = q * pi / 2 + r`` in float64. Up to 1e8 two parts of pi / 2 suffice, the first of which
has so few bits that its product with q is exact. Beyond, ``x * 2 / pi`` is formed part by part, modulo 4 (Payne and
Hanek, "Radian reduction for trigonometric functions", SIGNUM 1983): 2 / pi is cut into parts of 28 bits, so that every
product with the 24 bits of x is exact. That takes about a hundred instructions and is jumped over unless some lane
needs it.

Coefficients are minimax fits as in :mod:`.exp_log`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from tilewright.passes.tensor.intrin.emitter import INFINITY, NAN, Emitter
from tilewright.tensorir.expr import Expr, binary, call, const

# (sin(r) / r - 1) / r**2 and (cos(r) - 1 + r**2 / 2) / r**4 in r**2, for |r| <= pi / 4; errors 2**-37 and 2**-33
# (float32: the cosine with one term less), 2**-43 for the wide cosine
_SIN = (-0.1666666664058816, 0.008333329280520402, -0.00019839304414594753, 2.7180464657952157e-06)
_COS = (0.04166664555443247, -0.0013887309865131942, 2.443241283676149e-05)
_COS_WIDE = (0.04166666661910649, -0.0013888883467232046, 2.4799451544318484e-05, -2.720504584476681e-07)

_TWO_OVER_PI = 0.6366197723675814
_HALF_PI = 1.5707963267948966
# pi / 2 = first (25 bits) + second
_HALF_PI_FIRST = 1.57079631090164184570
_HALF_PI_SECOND = 1.58932547735281966916e-08
_QUICK_LIMIT = 1e8

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


def _reduce_quickly(e: Emitter, x: Expr) -> tuple[Expr, Expr]:
    quarters = e.round(x * _TWO_OVER_PI)
    r = e.fma(quarters, -_HALF_PI_FIRST, x)
    return e.let("reduced", e.fma(quarters, -_HALF_PI_SECOND, r)), quarters


def _reduce_any(e: Emitter, x: Expr) -> tuple[Expr, Expr]:
    """As :func:`_reduce_quickly` for finite x of any size; the number of quarters is modulo 4.

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
    return e.let("reduced", total * _HALF_PI), turns


def _reduce(e: Emitter, x: Expr) -> tuple[Expr, Expr]:
    """r (float64) and the number of quarters (int32, modulo 4) for ``x = quarters * pi / 2 + r``; 0 for inf and NaN."""
    size = e.absolute(x)
    is_large = e.let("is_large", binary("and", size > _QUICK_LIMIT, size < INFINITY))
    wide = e.widen(x)
    usual = _reduce_quickly(e, e.let("bounded", e.select(e.widen(size) <= _QUICK_LIMIT, wide, 0.0)))
    slow = Emitter(e.has_fma, e.is_fast)
    # Lanes that are not large are set to zero as well: they may hold inf or NaN.
    rare = _reduce_any(slow, slow.let("large", slow.select(is_large, wide, 0.0)))
    r, quarters = e.rarely(is_large, usual, slow, rare)
    return r, e.let("quadrant", e.to_int32(quarters))


def _sine(e: Emitter, x: Expr, quarter: int) -> Expr:
    """``sin(x + quarter * pi / 2)``."""
    wide, quarters = _reduce(e, x)
    quadrant = e.let("quadrant", quarters + quarter) if quarter else quarters
    r = e.let("angle", e.narrow(wide))
    square = e.let("square", r * r)
    sine = e.fma(e.polynomial(square, _SIN) * square, r, r)
    cosine = e.fma(e.polynomial(square, _COS) * square, square, e.fma(square, -0.5, 1.0))
    zero = const(0, quadrant.dtype)
    value = e.let("value", e.select((quadrant & 1).equal(zero), sine, cosine))
    signed = e.select((quadrant & 2).equal(zero), value, -value)
    if quarter == 0:
        signed = e.select(e.absolute(x) < 2.0**-13, x, signed)  # keeps the sign of zero
    return _finite(e, x, signed)


def _finite(e: Emitter, x: Expr, result: Expr) -> Expr:
    """``result``; NaN where x is inf or NaN."""
    return e.select(call("abs", x) < INFINITY, result, NAN)


def tan(e: Emitter, x: Expr) -> Expr:
    """``tan(x)``, sine over cosine in float64."""
    r, quarters = _reduce(e, x)
    square = e.let("square", r * r)
    sine = e.let("sine", e.fma(e.polynomial(square, _SIN) * square, r, r))
    tail = e.polynomial(square, _COS_WIDE) * square
    cosine = e.let("cosine", e.fma(tail, square, e.fma(square, -0.5, 1.0)))
    even = e.let("even", (quarters & 1).equal(const(0, quarters.dtype)))
    ratio = e.select(even, sine, -cosine) / e.select(even, cosine, sine)
    return _finite(e, x, e.select(e.absolute(x) < 2.0**-13, x, e.narrow(ratio)))


EXPANSIONS: dict[str, Callable[..., Expr]] = {
    "sin": functools.partial(_sine, quarter=0),
    "cos": functools.partial(_sine, quarter=1),
    "tan": tan,
}
