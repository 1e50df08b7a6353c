"""Functions of float32 that saturate: the error function, the hyperbolic tangent and the logistic function; and the
other hyperbolic functions.

Coefficients are minimax fits as in :mod:`.exp_log`.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.passes.tensor.intrin.emitter import Emitter
from tilewright.passes.tensor.intrin.exp_log import exp, reduced_exp
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
_ERF_LARGE = (
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
_ERF_END = 3.925

# (tanh(x) / x - 1) / x**2 in x**2, for |x| <= 0.6; error 2**-28.4
_TANH = (-0.3333329800204334, 0.13331924125066622, -0.05378383015301411, 0.020795971273928533, -0.005895157650311348)


def erf(e: Emitter, x: Expr) -> Expr:
    """The error function, in 22 vector instructions: it is the heart of ``gelu``."""
    size = e.absolute(x)
    square = e.let("square", size * size)
    small = e.fma(e.polynomial(square, _ERF_SMALL), size, size)
    root = e.polynomial(e.let("bounded", binary("min", size, const(_ERF_END, x.dtype))), _ERF_LARGE)
    complement = e.let("root_squared", root * root)
    large = e.fma(-complement, complement, 1.0)
    return e.copysign(e.select(size < 1.0, small, large), x)


def tanh(e: Emitter, x: Expr) -> Expr:
    """``tanh(x)``: a polynomial near 0, ``1 - 2 / (exp(2 |x|) + 1)`` elsewhere."""
    size = e.absolute(x)
    square = e.let("square", size * size)
    small = e.fma(e.polynomial(square, _TANH) * square, size, size)
    doubled = e.let("doubled", binary("min", size, const(10.0, x.dtype)) * 2.0)
    grown, n = reduced_exp(e, doubled)
    scale = e.let("scale", e.power_of_two(e.integer_bits(n), FLOAT32))
    large = 1.0 - 2.0 / (e.fma(scale, grown, scale) + 1.0)
    return e.copysign(e.select(size < 0.6, small, large), x)


def sigmoid(e: Emitter, x: Expr) -> Expr:
    """``1 / (1 + exp(-x))``, also where that is below the normal range."""
    fading = e.let("fading", exp(e, e.let("negative", -e.absolute(x))))
    whole = e.let("whole", fading + 1.0)
    is_negative = e.let("is_negative", x < 0.0)
    ratio = e.let("ratio", e.select(is_negative, fading, 1.0) / whole)
    if e.is_fast:
        return ratio
    # ``whole`` was rounded; what it lost, divided by it, is what the ratio is off by.
    lost = fading - e.let("kept", whole - 1.0)
    return e.fma(-(ratio * lost), e.select(is_negative, 1.0 - ratio, ratio), ratio)


def sinh(e: Emitter, x: Expr) -> Expr:
    """``sinh(x)`` by exponentials in float64, whose cancellation below 1 does not reach float32."""
    size = e.absolute(x)
    grown = e.let("grown", exp_wide(e, e.widen(e.clamp(size, 0.0, 100.0))))
    result = e.narrow((grown - 1.0 / grown) * 0.5)
    cubic = e.fma(size * (1.0 / 6.0), size * size, size)
    return e.copysign(e.select(size < 1e-2, cubic, result), x)


def cosh(e: Emitter, x: Expr) -> Expr:
    """``cosh(x)`` by exponentials in float64, which do not overflow where the result does not."""
    grown = e.let("grown", exp_wide(e, e.widen(e.clamp(e.absolute(x), 0.0, 100.0))))
    return e.narrow((grown + 1.0 / grown) * 0.5)


EXPANSIONS: dict[str, Callable[..., Expr]] = {
    "erf": erf,
    "tanh": tanh,
    "sigmoid": sigmoid,
    "sinh": sinh,
    "cosh": cosh,
}
