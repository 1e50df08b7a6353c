"""Convert special functions: compositions of elementary ones, in double precision where those lose digits.

Bessel functions are integrals of exponentials and cosines over one period or over a line that falls off doubly
exponentially. On these the trapezoidal rule converges faster than any power of its step (Trefethen and Weideman, "The
exponentially convergent trapezoidal rule", SIAM Review 56, 2014), so that a sum of a few dozen terms has all digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.graphir.dims import Dim
from tilewright.graphir.expr import Expr, const
from tilewright.graphir.frontend.torch.converters.matrices import repeated
from tilewright.graphir.frontend.torch.node import Node, cast_to, shape_of
from tilewright.graphir.frontend.torch.registry import converter
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import add, divide, exp, log, multiply, sqrt, square, subtract, where
from tilewright.tensorir.dtype import FLOAT64, INT64

_abs, _sin, _cos = (get_operator(name) for name in ("abs", "sin", "cos"))
_less, _greater, _equal = (get_operator(name) for name in ("less", "greater", "equal"))
_negative = get_operator("negative")


def _number(value: float) -> Expr:
    return const(float(value), FLOAT64)


def _horner(x: Expr, coefficients: Sequence[float]) -> Expr:
    """Return a polynomial, whose coefficients begin with that of the highest power."""
    result = _number(coefficients[0])
    for coefficient in coefficients[1:]:
        result = add(multiply(result, x), _number(coefficient))
    return result


def _register(name: str, function: Callable[[Expr], Expr], *overloads: str) -> None:
    def convert(node: Node, x: Expr) -> Expr:
        return cast_to(function(node.tensor(x, FLOAT64)), node.dtype)

    convert.__qualname__ = f"special_{name}"
    converter(*(overloads or (f"aten.{name}.default",)))(convert)


# The gamma function and its relatives, by Stirling's series (NIST Digital Library of Mathematical Functions, 5.11):
# arguments below _LARGE are moved up by the recurrence, negative ones are reflected.

_LARGE = 10

_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)


def _log_gamma_positive(x: Expr) -> Expr:
    product, moved = _number(1.0), x
    for _ in range(_LARGE):
        small = _less(moved, _number(_LARGE))
        product = where(small, multiply(product, moved), product)
        moved = where(small, add(moved, _number(1.0)), moved)
    inverse = divide(_number(1.0), moved)
    terms = [b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI, 1)]
    series = multiply(_horner(square(inverse), terms[::-1]), inverse)
    main = subtract(multiply(subtract(moved, _number(0.5)), log(moved)), moved)
    found = subtract(add(add(main, _number(0.5 * math.log(2 * math.pi))), series), log(product))
    return where(get_operator("isinf")(x), x, found)


def log_gamma(x: Expr) -> Expr:
    """Return the logarithm of the absolute value of the gamma function."""
    is_negative = _less(x, _number(0.5))
    mirrored = where(is_negative, subtract(_number(1.0), x), x)
    found = _log_gamma_positive(mirrored)
    fraction = subtract(x, get_operator("floor")(x))
    sine = _abs(_sin(multiply(fraction, _number(math.pi))))
    reflected = subtract(subtract(_number(math.log(math.pi)), log(sine)), found)
    reflected = where(_equal(fraction, _number(0.0)), _number(math.inf), reflected)
    made = where(is_negative, reflected, found)
    return where(get_operator("isinf")(x), _number(math.inf), made)


def digamma(x: Expr) -> Expr:
    """Return the derivative of the logarithm of the gamma function."""
    is_negative = _less(x, _number(0.0))
    mirrored = where(is_negative, subtract(_number(1.0), x), x)
    total, moved = _number(0.0), mirrored
    for _ in range(_LARGE):
        small = _less(moved, _number(_LARGE))
        total = where(small, subtract(total, divide(_number(1.0), moved)), total)
        moved = where(small, add(moved, _number(1.0)), moved)
    inverse = divide(_number(1.0), moved)
    terms = [b / (2 * k) for k, b in enumerate(_BERNOULLI, 1)]
    series = multiply(_horner(square(inverse), terms[::-1]), square(inverse))
    found = add(total, subtract(subtract(log(moved), multiply(inverse, _number(0.5))), series))
    angle = multiply(subtract(x, get_operator("trunc")(x)), _number(math.pi))
    reflected = subtract(found, divide(_number(math.pi), get_operator("tan")(angle)))
    whole = _equal(x, get_operator("trunc")(x))
    made = where(is_negative, where(whole, _number(math.nan), reflected), found)
    pole = where(
        _less(get_operator("bitcast")(x, dtype="int64"), const(0, "int64")), _number(math.inf), _number(-math.inf)
    )
    return where(_equal(x, _number(0.0)), pole, made)


#: The greatest number of steps by which a negative argument is moved up.
_MOST_MOVED = 1 << 16


def _joined(x: Expr, y: Expr) -> tuple[Dim, ...]:
    return tuple(shape_of(add(x, y)))


def zeta(x: Expr, q: Expr) -> Expr:
    """Return the Hurwitz zeta function, the sum of ``(q + k) ** -x``, by the Euler-Maclaurin formula (NIST Digital
    Library of Mathematical Functions, 25.11)."""
    power = get_operator("power")
    x, q = (get_operator("broadcast_to")(each, shape=_joined(x, q)) for each in (x, q))
    least = get_operator("min")(q, axis=tuple(range(len(shape_of(q)))), initial=0.0)
    bounded = get_operator("maximum")(least, _number(-_MOST_MOVED))
    steps = cast_to(get_operator("ceil")(subtract(_number(_LARGE), bounded)), INT64)

    def step(k: Expr, moved: Expr, total: Expr) -> list[Expr]:
        small = get_operator("logical_or")(_less(moved, _number(_LARGE)), get_operator("less")(k, _LARGE))
        total = where(small, add(total, power(moved, _negative(x))), total)
        return [where(small, add(moved, _number(1.0)), moved), total]

    moved, first = repeated(steps, [q, get_operator("zeros_like")(q)], step)
    rest = power(moved, _negative(x))
    total = add(first, divide(multiply(rest, moved), subtract(x, _number(1.0))))
    total = add(total, multiply(rest, _number(0.5)))
    factor, fall = x, divide(rest, moved)
    for k, bernoulli in enumerate(_BERNOULLI, 1):
        total = add(total, multiply(multiply(factor, fall), _number(bernoulli / math.factorial(2 * k))))
        factor = multiply(factor, multiply(add(x, _number(2 * k - 1)), add(x, _number(2 * k))))
        fall = divide(fall, square(moved))
    whole = _equal(q, get_operator("floor")(q))
    pole = where(whole, _number(math.inf), where(_equal(x, get_operator("floor")(x)), total, _number(math.nan)))
    made = where(get_operator("less_equal")(q, _number(0.0)), pole, total)
    made = where(_equal(x, _number(1.0)), _number(math.inf), made)
    return where(_less(x, _number(1.0)), _number(math.nan), made)


_register("lgamma", log_gamma, "aten.lgamma.default", "aten.special_gammaln.default")
_register("digamma", digamma, "aten.digamma.default", "aten.special_digamma.default")


@converter("aten.polygamma.default")
def polygamma(node: Node, n: int, x: Expr) -> Expr:
    """Return the ``n``-th derivative of the digamma function."""
    value = node.tensor(x, FLOAT64)
    if n == 0:
        return cast_to(digamma(value), node.dtype)
    if n == 1:  # reflected, as zeta is for positive numbers
        return cast_to(_trigamma(value), node.dtype)
    scale = (1 if n % 2 else -1) * math.factorial(n)
    return cast_to(multiply(zeta(_number(n + 1), value), _number(scale)), node.dtype)


def _trigamma(x: Expr) -> Expr:
    is_negative = _less(x, _number(0.5))
    found = zeta(_number(2.0), where(is_negative, subtract(_number(1.0), x), x))
    sine = _sin(multiply(subtract(x, get_operator("floor")(x)), _number(math.pi)))
    reflected = subtract(square(divide(_number(math.pi), sine)), found)
    return where(is_negative, reflected, found)


@converter("aten.special_zeta.default", "aten.special_zeta.self_scalar", "aten.special_zeta.other_scalar")
def hurwitz_zeta(node: Node, x: Any, q: Any) -> Expr:
    """Return the Hurwitz zeta function."""
    return cast_to(zeta(node.tensor(x, FLOAT64), node.tensor(q, FLOAT64)), node.dtype)


# Inverses of the error function, by Newton's method on a first guess (Winitzki, "A handy approximation for the error
# function and its inverse", 2008).


def inverse_erf(x: Expr) -> Expr:
    """Return the inverse of the error function."""
    a = 0.147
    tail = log(multiply(subtract(_number(1.0), x), add(_number(1.0), x)))
    half = add(multiply(tail, _number(0.5)), _number(2 / (math.pi * a)))
    guess = sqrt(subtract(sqrt(subtract(square(half), divide(tail, _number(a)))), half))
    found = where(_less(x, _number(0.0)), _negative(guess), guess)
    for _ in range(3):
        error = subtract(get_operator("erf")(found), x)
        slope = multiply(exp(_negative(square(found))), _number(2 / math.sqrt(math.pi)))
        step = divide(error, slope)
        # Halley's correction: the second derivative of erf is -2 x times the first.
        found = subtract(found, divide(step, add(_number(1.0), multiply(found, step))))
    edge = _equal(_abs(x), _number(1.0))
    limit = where(_less(x, _number(0.0)), _number(-math.inf), _number(math.inf))
    return where(edge, limit, where(_greater(_abs(x), _number(1.0)), _number(math.nan), found))


_register("erfinv", inverse_erf, "aten.erfinv.default", "aten.special_erfinv.default")


# Bessel functions.


def _angles(count: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the middles of ``count`` parts of a half circle, and equal weights that add to 1."""
    return (np.arange(count) + 0.5) * np.pi / count, np.full(count, 1 / count)


def _weighted(x: Expr, places: np.ndarray[Any, Any], weights: np.ndarray[Any, Any], term: Callable[..., Expr]) -> Expr:
    """Return the sum of ``weight * term(x, place)`` over places, each an axis element behind those of ``x``."""
    behind = get_operator("expand_dims")(x, axis=len(shape_of(x)))
    values = term(behind, const(places.astype(np.float64)))
    return get_operator("sum")(multiply(values, const(weights.astype(np.float64))), axis=(-1,))


#: Enough places for the arguments below which the integrals over a half circle are used.
_PLACES, _NEAR = 64, 25.0


def _hankel(x: Expr, order: int, sign: float, terms: int = 16) -> tuple[Expr, Expr]:
    """Return the even and the odd part of the asymptotic series of Bessel functions (NIST Digital Library of
    Mathematical Functions, 10.17 and 10.40) for arguments from ``_NEAR`` on; ``sign``: that of every second term of
    each part."""
    coefficients = [1.0]
    for k in range(1, terms):
        coefficients.append(coefficients[-1] * (4.0 * order * order - (2 * k - 1) ** 2) / (k * 8.0))
    inverse = divide(_number(1.0), x)
    even = [coefficients[k] * sign ** (k // 2) for k in range(0, terms, 2)]
    odd = [coefficients[k] * sign ** (k // 2) for k in range(1, terms, 2)]
    parts = square(inverse)
    return _horner(parts, even[::-1]), multiply(_horner(parts, odd[::-1]), inverse)


def _far(x: Expr) -> Expr:
    """Return ``x`` where it is large, and a harmless large number elsewhere."""
    return get_operator("maximum")(x, _number(_NEAR))


def scaled_i(order: int) -> Callable[[Expr], Expr]:
    """Return the modified Bessel function of the first kind, of order 0 or 1, times ``exp(-abs(x))``."""

    def function(x: Expr) -> Expr:
        size = _abs(x)
        angles, weights = _angles(_PLACES)
        near = _weighted(
            size,
            np.cos(angles) - 1.0,
            weights * np.cos(order * angles),
            lambda value, place: exp(multiply(value, place)),
        )
        even, odd = _hankel(_far(size), order, 1.0)
        far = divide(subtract(even, odd), sqrt(multiply(_far(size), _number(2 * math.pi))))
        found = where(_less(size, _number(_NEAR)), near, far)
        found = where(get_operator("isnan")(x), x, found)
        return where(_less(x, _number(0.0)), _negative(found), found) if order else found

    return function


def plain_i(order: int) -> Callable[[Expr], Expr]:
    """Return the modified Bessel function of the first kind."""
    return lambda x: multiply(scaled_i(order)(x), exp(_abs(x)))


def scaled_k(order: int) -> Callable[[Expr], Expr]:
    """Return the modified Bessel function of the second kind, of order 0 or 1, times ``exp(x)``."""

    def function(x: Expr) -> Expr:
        # Over t, exp(-x * (cosh(t) - 1)) * cosh(order * t) falls off doubly exponentially.
        step = 1 / 16
        places = np.arange(0, 40 * 16) * step
        weights = np.full(places.shape, step)
        weights[0] /= 2

        def term(value: Expr, place: Expr) -> Expr:
            grown = subtract(get_operator("cosh")(place), _number(1.0))
            falls = add(_negative(multiply(value, grown)), multiply(place, _number(order)))
            falls_less = subtract(_negative(multiply(value, grown)), multiply(place, _number(order)))
            return multiply(add(exp(falls), exp(falls_less)), _number(0.5))

        positive = get_operator("maximum")(x, _number(1e-300))
        found = _weighted(positive, places, weights, term)
        found = where(_equal(x, _number(0.0)), _number(math.inf), found)
        found = where(_less(x, _number(0.0)), _number(math.nan), found)
        return where(get_operator("isnan")(x), x, found)

    return function


def plain_k(order: int) -> Callable[[Expr], Expr]:
    """Return the modified Bessel function of the second kind."""
    return lambda x: multiply(scaled_k(order)(x), exp(_negative(x)))


def bessel_j(order: int) -> Callable[[Expr], Expr]:
    """Return the Bessel function of the first kind, of order 0 or 1."""

    def function(x: Expr) -> Expr:
        size = _abs(x)
        angles, weights = _angles(_PLACES)

        def term(value: Expr, place: Expr) -> Expr:
            turned = multiply(place, _number(float(order)))
            return _cos(subtract(turned, multiply(value, _sin(place))))

        near = _weighted(get_operator("minimum")(size, _number(_NEAR)), angles, weights, term)
        far = _oscillating(size, order, 0.0)
        found = where(_less(size, _number(_NEAR)), near, far)
        found = where(get_operator("isnan")(x), x, where(get_operator("isinf")(x), _number(0.0), found))
        return where(_less(x, _number(0.0)), _negative(found), found) if order else found

    return function


def _oscillating(x: Expr, order: int, shift: float) -> Expr:
    """Return the Bessel function for large arguments: of the first kind, or with its phase shifted back by pi / 2 of
    the second."""
    far = _far(x)
    even, odd = _hankel(far, order, -1.0)
    phase = subtract(far, _number(order * math.pi / 2 + math.pi / 4 + shift))
    wave = subtract(multiply(even, _cos(phase)), multiply(odd, _sin(phase)))
    return multiply(wave, sqrt(divide(_number(2 / math.pi), far)))


def bessel_y(order: int) -> Callable[[Expr], Expr]:
    """Return the Bessel function of the second kind, of order 0 or 1: an integral over a half circle less one over a
    line (NIST Digital Library of Mathematical Functions, 10.9.7)."""

    def function(x: Expr) -> Expr:
        near_x = get_operator("minimum")(get_operator("maximum")(x, _number(1e-300)), _number(_NEAR))
        # The integrand over the half circle has no period: Gauss's rule takes the place of the trapezoidal one.
        nodes, parts = np.polynomial.legendre.leggauss(_PLACES)
        angles, weights = (nodes + 1) * np.pi / 2, parts / 2

        def term(value: Expr, place: Expr) -> Expr:
            return _sin(subtract(multiply(value, _sin(place)), multiply(place, _number(float(order)))))

        circle = _weighted(near_x, angles, weights, term)
        nodes, parts = np.polynomial.legendre.leggauss(400)
        places, widths = (nodes + 1) * 20.0, parts * 20.0 / np.pi

        def fall(value: Expr, place: Expr) -> Expr:
            down = multiply(value, get_operator("sinh")(place))
            up = multiply(place, _number(float(order)))
            return add(exp(subtract(up, down)), multiply(exp(_negative(add(up, down))), _number((-1.0) ** order)))

        line = _weighted(near_x, places, widths, fall)
        far = _oscillating(x, order, math.pi / 2)
        found = where(_less(x, _number(_NEAR)), subtract(circle, line), far)
        found = where(_equal(x, _number(0.0)), _number(-math.inf), found)
        found = where(_less(x, _number(0.0)), _number(math.nan), found)
        return where(get_operator("isnan")(x), x, where(get_operator("isinf")(x), _number(0.0), found))

    return function


def _spherical(x: Expr) -> Expr:
    """Return the spherical Bessel function of order 0: ``sin(x) / x``."""
    found = divide(_sin(x), x)
    found = where(_equal(x, _number(0.0)), _number(1.0), found)
    return where(get_operator("isinf")(x), _number(0.0), found)


_register("i0", plain_i(0), "aten.i0.default", "aten.special_i0.default", "aten.special_modified_bessel_i0.default")
_register("i1", plain_i(1), "aten.special_i1.default", "aten.special_modified_bessel_i1.default")
_register("i0e", scaled_i(0), "aten.special_i0e.default")
_register("i1e", scaled_i(1), "aten.special_i1e.default")
_register("k0", plain_k(0), "aten.special_modified_bessel_k0.default")
_register("k1", plain_k(1), "aten.special_modified_bessel_k1.default")
_register("k0e", scaled_k(0), "aten.special_scaled_modified_bessel_k0.default")
_register("k1e", scaled_k(1), "aten.special_scaled_modified_bessel_k1.default")
_register("j0", bessel_j(0), "aten.special_bessel_j0.default")
_register("j1", bessel_j(1), "aten.special_bessel_j1.default")
_register("y0", bessel_y(0), "aten.special_bessel_y0.default")
_register("y1", bessel_y(1), "aten.special_bessel_y1.default")
_register("spherical_j0", _spherical, "aten.special_spherical_bessel_j0.default")


# Functions of the normal distribution.


def scaled_erfc(x: Expr) -> Expr:
    """Return ``exp(x ** 2) * erfc(x)``: for positive ``x`` an integral over a line, by the trapezoidal rule, as of
    ``exp(-t ** 2) / (x ** 2 + t ** 2)`` (Matta and Reichel, "Uniform computation of the error function", 1971)."""
    step = 0.25
    size = _abs(x)
    places = (np.arange(-40, 41) * step) + step / 2
    weights = np.exp(-np.square(places)) * step / np.pi

    def term(value: Expr, place: Expr) -> Expr:
        return divide(value, add(square(value), square(place)))

    found = _weighted(size, places, weights, term)
    # The poles at +-i x are nearer to the line than the step for small x: their residue is added.
    small = _less(size, _number(math.pi / step))
    turn = multiply(size, _number(2 * math.pi / step))
    limited = get_operator("minimum")(square(size), _number(600.0))
    residue = divide(
        multiply(exp(limited), _number(2.0)), add(_number(1.0), exp(get_operator("minimum")(turn, _number(600.0))))
    )
    found = where(small, add(found, residue), found)
    mirrored = subtract(multiply(exp(square(x)), _number(2.0)), found)
    made = where(_less(x, _number(0.0)), mirrored, found)
    return where(get_operator("isnan")(x), x, made)


_register("erfcx", scaled_erfc, "aten.special_erfcx.default")


def normal_quantile(p: Expr) -> Expr:
    """Return the inverse of the normal distribution's function."""
    return multiply(inverse_erf(subtract(multiply(p, _number(2.0)), _number(1.0))), _number(math.sqrt(2.0)))


_register("ndtri", normal_quantile, "aten.special_ndtri.default")
