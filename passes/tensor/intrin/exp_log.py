"""Exponentials and logarithms of float32.

``exp(x) = 2**n * exp(r)`` with ``n = round(x / ln 2)`` and ``|r| <= ln(2) / 2`` (Cody and Waite's reduction in two
steps), a polynomial for ``exp(r)``. ``log(x) = e * ln 2 + log(1 + f)`` with ``x = 2**e * (1 + f)`` and ``-1/3 <= f <
1/3``.

The coefficients are minimax fits in the relative error of the function, by iteratively reweighted least squares
(Lawson's method) in 40 digits on 1500 Chebyshev nodes, rounded to float32. Errors against float64 are below 2 units in
the last place (tests sample all of float32).
"""

from __future__ import annotations

from tilewright.passes.tensor.intrin.emitter import EXPONENT_BIAS, INFINITY, NAN, Emitter, expands
from tilewright.tensorir.dtype import FLOAT32
from tilewright.tensorir.expr import Expr, binary, call, const

LOG2_E = 1.4426950408889634
LN_2 = 0.6931471805599453

# ln 2 = high + low, where n * high is exact for the n that occur.
_LN_2_HIGH = 0.693359375
_LN_2_LOW = -2.1219444005469057e-4

# (exp(r) - 1 - r) / r**2 for |r| <= 0.3466; error 2**-28.2 of exp(r), 2**-26.1 of exp(r) - 1
_EXP = (0.4999999345095652, 0.1666652067888664, 0.04166838749349952, 0.00836871114739077, 0.0013814610281094118)

# The same with one term less; error 2**-23.2 of exp(r)
_EXP_SHORT = (0.4999922811985016, 0.16667115688323975, 0.041890550404787064, 0.008312477730214596)

# exp(x) rounds to 0 from here on down
EXP_LEAST = -104.0

# (2**f - 1) / f for |f| <= 0.5; error 2**-28.9 of 2**f
_EXP2 = (
    0.6931472028810558,
    0.2402264791027837,
    0.055503324094739966,
    0.009618437606609721,
    0.0013398900239750475,
    0.00015353341047536352,
)

# The same with one term less; error 2**-23.4
_EXP2_SHORT = (0.6931470036506653, 0.24022242426872253, 0.05550733581185341, 0.009671512991189957, 0.001326472731307149)

# (log(1 + f) - f + f**2 / 2) / f**3 for |f| <= 1/3; error 2**-27.7 of log(1 + f)
_LOG = (
    0.33333215981645414,
    -0.2499979767391162,
    0.20010405964755537,
    -0.16680487270042882,
    0.14005868315625125,
    -0.12184262336872163,
    0.139844398287293,
    -0.12891678713248256,
)

_SMALLEST_NORMAL = 1.1754943508222875e-38
_TWO_THIRDS_BITS = 0x3F2AAAAB
_EXPONENT_MASK = -0x800000  # sign and exponent


def reduced_exp(
    e: Emitter, x: Expr, bias: int, *, is_short: bool = False, is_damped: bool = False
) -> tuple[Expr, Expr]:
    """``exp(r) - 1`` for ``x = n * ln 2 + r``, and an integer with ``n + bias`` in its low bits.

    Args:
        is_short: one term of the polynomial less, which makes the error 2 units in the last place of ``exp(r)``.
        is_damped: n is at most 30, and larger results have less weight, so that ln 2 needs no second part.
    """
    n, integer = e.nearest(x, LOG2_E, bias)
    if is_damped and e.has_fma:
        r = e.let("reduced", e.fma(n, -LN_2, x))
    else:
        r = e.let("reduced", e.fma(n, -_LN_2_LOW, e.fma(n, -_LN_2_HIGH, x)))
    tail = e.polynomial(r, _EXP_SHORT if is_short else _EXP)
    return e.let("grown", e.fma(tail, r * r, r)), integer


@expands("exp")
def exp(e: Emitter, x: Expr) -> Expr:
    """``exp(x)``."""
    return exp_bounded(e, e.clamp(x, EXP_LEAST, 89.0))


def exp_bounded(e: Emitter, x: Expr) -> Expr:
    """``exp(x)`` for x of ``EXP_LEAST`` (where it is 0) to 89 (where it is infinite)."""
    grown, integer = reduced_exp(e, x, 2 * EXPONENT_BIAS[FLOAT32], is_short=e.is_fast)
    return e.scale(e.let("mantissa", grown + 1.0), integer)


@expands("exp2")
def exp2(e: Emitter, x: Expr) -> Expr:
    """``2**x``."""
    bounded = e.clamp(x, -151.0, 129.0)
    n, integer = e.nearest(bounded, 1.0, 2 * EXPONENT_BIAS[FLOAT32])
    f = e.let("fraction", bounded - n)
    return e.scale(e.let("mantissa", e.fma(f, e.polynomial(f, _EXP2_SHORT if e.is_fast else _EXP2), 1.0)), integer)


@expands("expm1")
def expm1(e: Emitter, x: Expr) -> Expr:
    """``exp(x) - 1``, without cancellation for small x."""
    bounded = e.clamp(x, -20.0, 89.0)
    grown, integer = reduced_exp(e, bounded, EXPONENT_BIAS[FLOAT32] - 1)
    half = e.let("half_scale", e.power_of_two(integer, FLOAT32))  # 2**(n - 1), as 2**n may overflow
    result = e.let("half_result", e.fma(half, grown, half - 0.5))
    return e.copysign(result + result, x)


def _split(e: Emitter, x: Expr) -> tuple[Expr, Expr]:
    """f and e (as a float) for a positive finite ``x = 2**e * (1 + f)``."""
    is_tiny = x < _SMALLEST_NORMAL
    normal = e.let("normal", e.select(is_tiny, x * 8388608.0, x))
    bits = e.let("bits", e.bits(normal))
    shift = e.let("exponent_bits", (bits - _TWO_THIRDS_BITS) & _EXPONENT_MASK)
    f = e.let("fraction", e.from_bits(bits - shift, FLOAT32) - 1.0)
    exponent = e.narrow(shift >> 23)
    return f, e.let("exponent", e.select(is_tiny, exponent - 23.0, exponent))


def _log1p_tail(e: Emitter, f: Expr) -> tuple[Expr, Expr]:
    """a and b with ``log(1 + f) = f + a * b`` for ``|f| <= 1/3``."""
    return e.fma(e.polynomial(f, _LOG), f, -0.5), e.let("square", f * f)


def _log1p_fraction(e: Emitter, f: Expr) -> Expr:
    """``log(1 + f)`` for ``|f| <= 1/3``."""
    return e.let("logarithm", e.fma(*_log1p_tail(e, f), f))


def _outside(e: Emitter, x: Expr, result: Expr, least: float = 0.0) -> Expr:
    """Select ``result`` for finite x above ``least``, -inf at it, NaN below it, and x for inf and NaN."""
    inside = binary("and", x > least, x < INFINITY)
    edge = e.select(x.equal(const(least, x.dtype)), -INFINITY, x)
    return e.select(inside, result, e.select(x < least, NAN, edge))


@expands("log")
def log(e: Emitter, x: Expr) -> Expr:
    """``log(x)``."""
    f, exponent = _split(e, x)
    return _outside(e, x, e.fma(exponent, LN_2, _log1p_fraction(e, f)))


@expands("log2")
def log2(e: Emitter, x: Expr) -> Expr:
    """``log2(x)``."""
    return _log_in_base(e, x, (1.4426950216293335, 1.9259629911266175e-08), (1.0, 0.0))


@expands("log10")
def log10(e: Emitter, x: Expr) -> Expr:
    """``log10(x)``."""
    return _log_in_base(e, x, (0.4342944920063019, -1.0103049952192578e-08), (0.301025390625, 4.605038981195214e-06))


def _log_in_base(e: Emitter, x: Expr, factor: tuple[float, float], unit: tuple[float, float]) -> Expr:
    """``factor * log(1 + f) + unit * exponent``, with both numbers as a high and a low part; the high part of the unit
    has so few bits that its product with an exponent is exact."""
    f, exponent = _split(e, x)
    tail, square = _log1p_tail(e, f)
    small = exponent * unit[1] if unit[1] else None
    rest = tail * square * factor[0] if small is None else e.fma(tail * square, factor[0], small)
    # f comes late, so that log(1 + f) is not rounded before it is multiplied
    fraction = e.fma(f, factor[0], e.fma(f, factor[1], rest))
    return _outside(e, x, e.fma(exponent, unit[0], fraction))


@expands("log1p")
def log1p(e: Emitter, x: Expr) -> Expr:
    """``log(1 + x)``, without the rounding of ``1 + x``: f is computed from x itself."""
    whole = e.let("whole", x + 1.0)
    shift = e.let("exponent_bits", (e.bits(whole) - _TWO_THIRDS_BITS) & _EXPONENT_MASK)
    scaled = e.from_bits(e.bits(x) - shift, FLOAT32)  # x / 2**e; x is not tiny where e is not 0
    scale = e.from_bits(const(0x40800000, shift.dtype) - shift, FLOAT32)  # 4 / 2**e, always a normal number
    f = e.let("fraction", scaled + e.fma(scale, 0.25, -1.0))
    exponent = e.narrow(shift >> 23)
    result = e.let("result", e.fma(exponent, LN_2, _log1p_fraction(e, f)))
    return _outside(e, x, e.select(e.absolute(x) < 1e-8, x, result), -1.0)


@expands("rsqrt")
def rsqrt(e: Emitter, x: Expr) -> Expr:
    """``1 / sqrt(x)``."""
    return binary("div", const(1.0, x.dtype), e.let("root", call("sqrt", x)))
