"""``pow`` of float32: ``2**(y * log2(|x|))`` in float64, and the special cases of C99 (ISO/IEC 9899, F.10.4.4).

Intermediate errors are about 2**-40, far below float32's rounding, so the result is off by half a unit in the last
place and very little. Coefficients are minimax fits as in :mod:`.exp_log`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tilewright.passes.tensor.intrin.emitter import EXPONENT_BIAS, INFINITY, NAN, Emitter
from tilewright.tensorir.dtype import FLOAT64
from tilewright.tensorir.expr import Expr, UnaryOp, binary, call, const

# (2**f - 1) / f for |f| <= 0.5; error 2**-40
_EXP2 = (
    0.6931471805461296,
    0.24022650695553538,
    0.05550410940790959,
    0.009618129219601736,
    0.0013333450819792989,
    0.00015403415354369577,
    1.5310033402064024e-05,
    1.3263522609303153e-06,
)

# (atanh(s) / s - 1) / s**2 in s**2, for |s| <= 0.2; error 2**-49
_ATANH = (
    0.33333333333072346,
    0.20000000126062412,
    0.14285694034625765,
    0.11112603401435284,
    0.0903558061497637,
    0.0868895764521368,
)

_TWO_THIRDS_BITS = 0x3FE5555555555555
_EXPONENT_MASK = -0x10000000000000  # sign and exponent


def exp2_wide(e: Emitter, t: Expr) -> Expr:
    """``2**t`` in float64, for ``|t| < 1000``; relative error 2**-40."""
    n, integer = e.nearest(t, 1.0, EXPONENT_BIAS[FLOAT64])
    f = e.let("fraction", t - n)
    return e.fma(f, e.polynomial(f, _EXP2), 1.0) * e.power_of_two(integer, FLOAT64)


def exp_wide(e: Emitter, x: Expr) -> Expr:
    """``exp(x)`` in float64 for ``|x| < 600``; relative error about 2**-39."""
    return exp2_wide(e, e.let("exponent", x * (1.0 / math.log(2.0))))


def log2_wide(e: Emitter, x: Expr) -> Expr:
    """``log2(x)`` in float64 for positive normal x: with ``x = 2**k * m`` and ``s = (m - 1) / (m + 1)``, it is
    ``k + 2 atanh(s) / ln 2``."""
    bits = e.let("bits", e.bits(x))
    shift = e.let("exponent_bits", (bits - _TWO_THIRDS_BITS) & _EXPONENT_MASK)
    f = e.let("offset", e.from_bits(bits - shift, FLOAT64) - 1.0)
    s = e.let("ratio", f / (f + 2.0))
    square = e.let("square", s * s)
    series = e.fma(e.polynomial(square, _ATANH) * square, s, s)
    # 4503599627370496 + k + 2048 as a float has k + 2048 in its low bits: a conversion that every target has.
    biased = ((shift >> 52) + 2048) | 0x4330000000000000
    k = e.from_bits(biased, FLOAT64) - (4503599627370496.0 + 2048.0)
    return e.fma(series, 2.0 / math.log(2.0), k)


def power(e: Emitter, x: Expr, y: Expr) -> Expr:
    """``x**y``."""
    size = e.absolute(x)
    logarithm = log2_wide(e, e.widen(size))
    logarithm = e.select(size.equal(const(0.0, x.dtype)), -INFINITY, logarithm)
    logarithm = e.let("logarithm", e.select(size.equal(const(INFINITY, x.dtype)), INFINITY, logarithm))
    is_one = e.let("is_one", size.equal(const(1.0, x.dtype)))
    exponent = e.select(is_one, 0.0, logarithm * e.widen(y))
    magnitude = e.let("magnitude", e.narrow(exp2_wide(e, e.clamp(exponent, -200.0, 200.0))))

    half = e.let("half", y * 0.5)
    is_whole = e.let("is_whole", call("floor", y).equal(y))
    is_odd = binary("and", is_whole, call("floor", half).not_equal(half))
    is_negative = e.let("is_negative", e.bits(x) < 0)
    signed = e.select(binary("and", is_negative, is_odd), -magnitude, magnitude)
    below_zero = binary("and", x < 0.0, x > -INFINITY)
    undefined = binary("and", below_zero, UnaryOp("not", is_whole))
    undefined = binary("or", undefined, binary("or", x.not_equal(x), y.not_equal(y)))
    result = e.let("result", e.select(undefined, NAN, signed))
    always_one = binary("or", x.equal(const(1.0, x.dtype)), y.equal(const(0.0, y.dtype)))
    return e.select(always_one, 1.0, result)


EXPANSIONS: dict[str, Callable[..., Expr]] = {"pow": power}
