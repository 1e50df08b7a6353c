"""``pow``, ``fmod`` and inverse hyperbolic functions of float32, in float64.

``pow`` is ``2**(y * log2(|x|))`` in float64, and the special cases of C99 (ISO/IEC 9899, F.10.4.4).

Intermediate errors are about 2**-40, far below float32's rounding, so the error of the result is hardly more than half
a unit in the last place. Coefficients are minimax fits as in :mod:`.exp_log`.
"""

from __future__ import annotations

import math

from tilewright.passes.tensor.intrin.emitter import EXPONENT_BIAS, INFINITY, NAN, Emitter, constant_value, expands
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


def log_wide(e: Emitter, x: Expr) -> Expr:
    """``log(x)`` in float64 for positive normal x."""
    return log2_wide(e, x) * math.log(2.0)


def _power_of_constant(e: Emitter, x: Expr, y: float) -> Expr | None:
    """Return ``x**y`` for exponents that need only a few multiplications, a division or roots; None for others."""
    if y == 0.0:
        return const(1.0, x.dtype)
    if y == 1.0:
        return x
    if y == 2.0:
        return x * x
    if y == 3.0:
        return e.let("square", x * x) * x
    if y == 4.0:
        square = e.let("square", x * x)
        return square * square
    if y == -1.0:
        return 1.0 / x
    if y in (0.25, 0.5, 1.5, -0.5) or (y in (0.75, -0.25) and e.is_fast):  # errors of 2 units, 3.5 where fast
        # Unlike their square roots, -0 to the power of 1/2 is 0, and -inf to the power of 1/2 is inf.
        root = e.select(x.equal(const(-INFINITY, x.dtype)), INFINITY, e.absolute(call("sqrt", x)))
        if abs(y) == 0.5:
            return root if y > 0.0 else 1.0 / root
        root = e.let("root", root)
        if y == 1.5:
            return e.absolute(x) * root
        quarter = call("sqrt", root)
        if abs(y) == 0.25:
            return quarter if y > 0.0 else 1.0 / quarter
        return root * quarter
    return None


@expands("pow")
def power(e: Emitter, x: Expr, y: Expr) -> Expr:
    """``x**y``."""
    exponent = constant_value(y)
    cheap = _power_of_constant(e, x, exponent) if exponent is not None else None
    return cheap if cheap is not None else _power(e, x, y)


def _power(e: Emitter, x: Expr, y: Expr) -> Expr:
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


# Quotients of numbers of 24 bits below 2**28: rounded to float64 they never reach the next integer, from which they are
# at least 2**-24 away, and an integer of 28 bits times a divisor is exact.
_QUOTIENT_BITS = 28


def _subtract_multiples(e: Emitter, x: Expr, divisor: Expr) -> Expr:
    """``fmod(x, divisor)`` in float64 for numbers of 24 bits, not negative, whose quotient is below 2**28."""
    quotient = e.let("quotient", call("trunc", x / divisor))
    return e.let("rest", x - quotient * divisor)


@expands("fmod")
def fmod(e: Emitter, x: Expr, y: Expr) -> Expr:
    """The remainder of a division that truncates, exact. Quotients of 2**28 and more are reduced step by step."""
    size, divisor = e.widen(e.absolute(x)), e.widen(e.absolute(y))
    is_long = e.let("is_long", binary("and", size >= divisor * 2.0**_QUOTIENT_BITS, size < INFINITY))
    usual = _subtract_multiples(e, size, divisor)
    rare = Emitter(e.has_fma, e.is_fast)
    rest = size
    for step in reversed(range(10)):  # quotients of float32 are below 2**277
        rest = _subtract_multiples(rare, rest, rare.let("multiple", divisor * 2.0 ** (_QUOTIENT_BITS * step)))
    (chosen,) = e.rarely(is_long, [e.narrow(usual)], rare, [rare.narrow(rest)])
    is_infinite = binary("and", e.absolute(y).equal(const(INFINITY, y.dtype)), e.absolute(x) < INFINITY)
    return e.copysign(e.select(is_infinite, x, chosen), x)


@expands("asinh")
def asinh(e: Emitter, x: Expr) -> Expr:
    """``log(|x| + sqrt(x**2 + 1))`` in float64; a polynomial below 0.01, where that cancels."""
    size = e.absolute(x)
    wide = e.widen(size)
    result = e.narrow(log_wide(e, e.let("sum", wide + call("sqrt", wide * wide + 1.0))))
    cubic = e.fma(size * (-1.0 / 6.0), size * size, size)
    return e.copysign(e.select(size < 1e-2, cubic, e.select(size < INFINITY, result, size)), x)


@expands("acosh")
def acosh(e: Emitter, x: Expr) -> Expr:
    """``log(x + sqrt(x**2 - 1))`` in float64."""
    wide = e.widen(x)
    result = e.narrow(log_wide(e, e.let("sum", wide + call("sqrt", wide * wide - 1.0))))
    return e.select(x >= 1.0, e.select(x < INFINITY, result, x), NAN)


@expands("atanh")
def atanh(e: Emitter, x: Expr) -> Expr:
    """``log((1 + |x|) / (1 - |x|)) / 2`` in float64; a polynomial below 0.01, where that cancels."""
    size = e.absolute(x)
    wide = e.widen(size)
    result = e.narrow(log_wide(e, e.let("ratio", (wide + 1.0) / (1.0 - wide))) * 0.5)
    cubic = e.fma(size * (1.0 / 3.0), size * size, size)
    edge = e.select(size.equal(const(1.0, x.dtype)), const(INFINITY, x.dtype), NAN)
    return e.copysign(e.select(size < 1e-2, cubic, e.select(size < 1.0, result, edge)), x)
