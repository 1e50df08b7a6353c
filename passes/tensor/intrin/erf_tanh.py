"""Saturating functions of float32 (the error function, the hyperbolic tangent and the logistic function), and the other
hyperbolic functions.

Coefficients are minimax fits as in :mod:`.exp_log`.
"""

from __future__ import annotations

from tilewright.passes.tensor.intrin.emitter import EXPONENT_BIAS, Emitter, expands
from tilewright.passes.tensor.intrin.exp_log import EXP_LEAST, exp_bounded, reduced_exp
from tilewright.passes.tensor.intrin.power import exp_wide
from tilewright.tensorir.dtype import FLOAT32
from tilewright.tensorir.expr import Expr, binary, const

# erf(x) / x - 1 in x**2, for |x| < 1; error 2**-24.6
_ERF_SMALL = (
    0.12837912142276764,
    -0.37612324953079224,
    0.11280179768800735,
    -0.02671131119132042,
    0.004917551297694445,
    -0.0005631421809084713,
)

# (1 - erf(x))**(1/4) for 1 <= x <= 3.925, where erf(x) rounds to 1; weighted by its effect on erf(x): error 2**-26.8.
# The fourth power costs two multiplications, and the fourth root needs no exponential.
_ERF_FOURTH_ROOT = (
    1.0021138191223145,
    -0.2932777404785156,
    -0.09395027905702591,
    -0.016789991408586502,
    0.04333072900772095,
    -0.01254065427929163,
    0.0007201929111033678,
    0.00018622992502059788,
    -2.2794760297983885e-05,
)

# (1 - erf(x))**(1/8), which needs fewer terms, but errs by the rounding of the root eight times: error 2**-25.9
_ERF_EIGHTH_ROOT = (
    1.0008347034454346,
    -0.14506052434444427,
    -0.061426468193531036,
    -0.01137345191091299,
    0.012925811111927032,
    -0.0024697179906070232,
    0.00014984796871431172,
)
_ERF_END = 3.925

# (tanh(x) / x - 1) / x**2 in x**2, for |x| <= 0.6; error 2**-28.4
_TANH = (-0.3333329800204334, 0.13331924125066622, -0.05378383015301411, 0.020795971273928533, -0.005895157650311348)


@expands("erf")
def erf(e: Emitter, x: Expr) -> Expr:
    """The error function, in 22 vector instructions without a division, as ``gelu`` spends most of its time in it."""
    size = e.absolute(x)
    square = e.let("square", size * size)
    small = e.fma(e.polynomial(square, _ERF_SMALL), size, size)
    bounded = e.let("bounded", binary("min", size, const(_ERF_END, x.dtype)))
    root = e.polynomial(bounded, _ERF_EIGHTH_ROOT if e.is_fast else _ERF_FOURTH_ROOT)
    if e.is_fast:
        root = e.let("fourth_root", root * root)
    squared = e.let("root_squared", root * root)
    return e.copysign(e.select(size < 1.0, small, e.fma(-squared, squared, 1.0)), x)


@expands("tanh")
def tanh(e: Emitter, x: Expr) -> Expr:
    """``tanh(x)``: a polynomial near 0, ``1 - 2 / (exp(2 |x|) + 1)`` elsewhere, where the error of the exponential
    affects the result less and less."""
    size = e.absolute(x)
    square = e.let("square", size * size)
    small = e.fma(e.polynomial(square, _TANH) * square, size, size)
    doubled = e.let("doubled", binary("min", size, const(10.0, x.dtype)) * 2.0)
    grown, integer = reduced_exp(e, doubled, EXPONENT_BIAS[FLOAT32], is_short=e.is_fast, is_damped=True)
    scale = e.let("scale", e.power_of_two(integer, FLOAT32))
    large = 1.0 - 2.0 / (e.fma(scale, grown, scale) + 1.0)
    return e.copysign(e.select(size < 0.6, small, large), x)


@expands("sigmoid")
def sigmoid(e: Emitter, x: Expr) -> Expr:
    """``1 / (1 + exp(-x))``, as ``exp(x) / (1 + exp(x))`` for negative x: subnormal results are correct, too."""
    fading = e.let("fading", exp_bounded(e, e.let("bounded", binary("max", -e.absolute(x), const(EXP_LEAST, x.dtype)))))
    whole = e.let("whole", fading + 1.0)
    part = e.let("part", e.select(x < 0.0, fading, 1.0))
    ratio = e.let("ratio", part / whole)
    if e.is_fast:
        return ratio
    # One step of Newton's method for the quotient, with the rounding error of ``whole``; 1 / whole is about
    # 1 - fading / 2, which is enough for a correction.
    lost = fading - e.let("kept", whole - 1.0)
    rest = e.fma(-ratio, lost, e.fma(-ratio, whole, part))
    return e.fma(rest, e.fma(fading, -0.5, 1.0), ratio)


@expands("sinh")
def sinh(e: Emitter, x: Expr) -> Expr:
    """``sinh(x)`` by exponentials in float64, whose cancellation below 1 does not reach float32."""
    size = e.absolute(x)
    grown = e.let("grown", exp_wide(e, e.widen(e.clamp(size, 0.0, 100.0))))
    result = e.narrow((grown - 1.0 / grown) * 0.5)
    cubic = e.fma(size * (1.0 / 6.0), size * size, size)
    return e.copysign(e.select(size < 1e-2, cubic, result), x)


@expands("cosh")
def cosh(e: Emitter, x: Expr) -> Expr:
    """``cosh(x)`` by exponentials in float64, which do not overflow where the result does not."""
    grown = e.let("grown", exp_wide(e, e.widen(e.clamp(e.absolute(x), 0.0, 100.0))))
    return e.narrow((grown + 1.0 / grown) * 0.5)
