"""Map the elements of a resized axis to places in the source, and compute the weights of a place's neighbours.

A place in the source is a rational number: the mapping consists of sizes and scales, so it is computed with integers.
The nearest element and the distances of neighbours are then exact, at any size. Coordinate modes, rounding and cubic
coefficient are those of the ONNX operator Resize.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from tilewright.graphir.dims import as_dim, dim_equal
from tilewright.tensorir.errors import ArgumentValueError
from tilewright.tensorir.expr import Expr, as_expr, select

#: A rational number of integers or integer expressions; the denominator is positive.
Ratio = tuple[Any, Any]


def simplest_fraction(value: float) -> tuple[int, int]:
    """Return the simplest fraction that equals ``value`` in single precision: 3/5 for 0.6, as it was meant."""
    if not math.isfinite(value):
        raise ArgumentValueError(f"expected a finite number, found {value}")
    exact = Fraction(float(value))
    limit = 1
    while np.float32(float(found := exact.limit_denominator(limit))) != np.float32(value):
        limit *= 2
    return found.numerator, found.denominator


def _choose(condition: Any, a: Any, b: Any) -> Any:
    """Return ``a`` if the condition holds, else ``b``; the condition is known or an expression."""
    return select(condition, as_expr(a), as_expr(b)) if isinstance(condition, Expr) else (a if condition else b)


def _equal(a: Any, b: Any) -> Any:
    return as_expr(a).equal(b) if isinstance(a, Expr) or isinstance(b, Expr) else a == b


def source_place(index: Any, extent: Any, size: Any, scale: Ratio, mode: str, roi: tuple[Ratio, Ratio] | None) -> Ratio:
    """Return the place in an axis of ``extent`` elements to which ``index`` in the resized axis of ``size`` elements
    maps.

    The formulas are those of the ONNX operator Resize, with integers and integer expressions alike (``index`` may also
    be a NumPy array).
    """
    p, q = scale
    # The length before rounding down to ``size``, a rational number too.
    length, unit = (p, 1) if dim_equal(as_dim(q), as_dim(extent)) else (p * extent, q)
    if mode == "asymmetric":
        return index * q, p
    if mode == "half_pixel_symmetric":
        return extent * p - size * q + (2 * index + 1) * q - p, 2 * p
    if mode in ("half_pixel", "pytorch_half_pixel"):
        half = (2 * index + 1) * q - p
        if mode == "pytorch_half_pixel":
            half = _choose(_equal(size, 1), 0 * index, half)
        return half, 2 * p
    single = _equal(length, unit)
    steps = _choose(single, 1, length - unit)
    if mode == "align_corners":
        return _choose(single, 0 * index, index * ((extent - 1) * unit)), steps
    assert roi is not None
    (a, b), (c, d) = roi  # the region from a / b to c / d
    inner = _choose(single, (extent - 1) + 0 * index, 2 * index * ((extent - 1) * unit))
    return inner * (c * b - a * d) + 2 * a * d * (extent - 1) * steps, 2 * b * d * steps


def nearest_index(numerator: Any, denominator: Any, rounding: str) -> Any:
    """Round a rational number to an integer by ``rounding``; the result is not yet clamped to the tensor."""
    if rounding == "floor":
        return numerator // denominator
    if rounding == "ceil":
        return 0 - (0 - numerator) // denominator
    if rounding == "round_prefer_floor":  # the ceiling of the number less a half
        return 0 - (denominator - 2 * numerator) // (2 * denominator)
    return (2 * numerator + denominator) // (2 * denominator)


def outside(place: Ratio, extent: Any) -> Any:
    """Return whether a place is outside of the source."""
    return (place[0] < 0) | (place[0] > (extent - 1) * place[1])


def kernel(distance: Any, method: str, coeff: float, absolute: Callable[[Any], Any], where: Callable[..., Any]) -> Any:
    """Return the weight of an element at that distance (R. G. Keys, Cubic Convolution Interpolation, 1981)."""
    t = absolute(distance)
    if method == "linear":
        return where(t < 1, 1 - t, 0 * t)
    near = ((coeff + 2) * t - (coeff + 3)) * t * t + 1
    far = ((coeff * t - 5 * coeff) * t + 8 * coeff) * t - 4 * coeff
    return where(t <= 1, near, where(t < 2, far, 0 * t))
