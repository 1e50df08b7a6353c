"""Measure distances between numbers in units in the last place, for all float types with arithmetic.

The unit of a number ``x`` with ``2**e <= abs(x) < 2**(e + 1)`` is the weight of its last digit, ``2**(e - p + 1)`` for
a type with ``p`` binary digits (Goldberg 1991: What Every Computer Scientist Should Know About Floating-Point
Arithmetic). Below the least normal number it is that of the least normal number, and above the greatest number that of
the greatest.

Integers and bools have a unit too: 1.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tilewright.tensorir.dtype import DataType, as_dtype
from tilewright.tensorir.errors import ArgumentTypeError

Array = np.ndarray[Any, Any]

#: The limits of a type of floats: ``nmant`` (digits after the first), ``minexp``, ``max``, ``eps``.
limits_of: Any = ml_dtypes.finfo

#: The distance from a NaN to a number.
FARTHEST = np.iinfo(np.uint64).max


def unit(values: Any, dtype: Any) -> Array:
    """Return the unit in the last place that each of ``values`` has in ``dtype``, in float64; NaN for NaN.

    Raises:
        TypeError: ``dtype`` does not support arithmetic.
    """
    kind = _checked(dtype)
    wide = np.asarray(values).astype(np.float64)
    if not kind.is_float:
        return np.ones_like(wide)
    limits = limits_of(kind.numpy)
    magnitude = np.minimum(np.abs(wide), float(limits.max))
    _, exponent = np.frexp(magnitude)  # 0.5 <= fraction < 1, so the number's own exponent is one less
    exponent = np.where(magnitude == 0, limits.minexp, np.maximum(exponent - 1, limits.minexp))
    return np.where(np.isnan(wide), np.nan, np.ldexp(1.0, (exponent - limits.nmant).astype(np.int64)))


def ulp_error(found: Any, reference: Any) -> Array:
    """Measure the distance of each element of ``found`` from that of ``reference``, in units of ``found``'s type, in
    float64.

    The unit is that of the reference. So a result that is rounded correctly is off by at most 0.5.

    Args:
        found: the array to measure, whose type defines the units.
        reference: the exact numbers, of any type (float64 for narrower results).

    The error of a NaN is 0 from a NaN and infinite from a number. The error of an infinity is 0 from a reference that
    overflows in the type of ``found``, and infinite from any other number.
    """
    found = np.asarray(found)
    kind = _checked(found.dtype)
    if not kind.is_float:
        return _whole_distance(found, np.asarray(reference))
    wide, exact = found.astype(np.float64), np.asarray(reference).astype(np.float64)
    with np.errstate(all="ignore"):
        error = np.abs(wide - exact) / unit(exact, kind)
        rounded = exact.astype(kind.numpy).astype(np.float64)
    same = (wide == exact) | (np.isnan(wide) & np.isnan(exact)) | (np.isinf(wide) & (wide == rounded))
    result: Array = np.where(same, 0.0, np.where(np.isnan(error), np.inf, error))
    return result


def scaled_error(found: Any, reference: Any) -> Array:
    """Measure :func:`ulp_error` in one unit for all elements: that of the greatest finite number of the reference."""
    found, exact = np.asarray(found), np.asarray(reference).astype(np.float64)
    error = ulp_error(found, reference)
    finite = np.abs(exact[np.isfinite(exact)])
    if not finite.size:
        return error
    with np.errstate(invalid="ignore"):
        scaled = error * (unit(exact, found.dtype) / unit(finite.max(), found.dtype))
    result: Array = np.where((error == 0) | np.isinf(error), error, scaled)  # a NaN has no unit
    return result


def ulp_distance(a: Any, b: Any) -> Array:
    """Count the representable numbers from each element of ``a`` to that of ``b``, in uint64.

    Both are arrays of one type. Zeros are equal regardless of sign, infinities follow the greatest numbers, and NaNs
    are equal to each other and at distance :data:`FARTHEST` from numbers.

    Raises:
        TypeError: the types differ, or do not support arithmetic.
    """
    a, b = np.asarray(a), np.asarray(b)
    kind = _checked(a.dtype)
    if as_dtype(b.dtype) is not kind:
        raise ArgumentTypeError(f"expected two arrays of one type, found {kind!s} and {b.dtype}")
    if not kind.is_float:
        return _order(a.astype(np.uint64), b.astype(np.uint64), a < b)
    keys = [_key(array, kind) for array in (a, b)]
    distance = _order(keys[0], keys[1], keys[0] < keys[1])
    nans = np.isnan(a).astype(np.int8) + np.isnan(b)
    result: Array = np.where(nans == 2, np.uint64(0), np.where(nans == 1, FARTHEST, distance))
    return result


def _checked(dtype: Any) -> DataType:
    kind = as_dtype(dtype)
    if not (kind.is_float or kind.is_integer or kind.is_bool):
        raise ArgumentTypeError(f"expected a type that supports arithmetic, found {kind!s}")
    return kind


def _order(a: Array, b: Array, less: Array) -> Array:
    """Subtract the smaller of two unsigned numbers from the greater; ``less`` is true where ``a`` is smaller."""
    return np.where(less, b - a, a - b)


def _key(array: Array, kind: DataType) -> Array:
    """Map floats to unsigned numbers in the same order: their bits, with those of negative numbers inverted."""
    bits = np.ascontiguousarray(array).reshape(array.shape).view(f"uint{kind.bits}").astype(np.uint64)
    sign = np.uint64(1 << (kind.bits - 1))
    magnitude = bits & (sign - np.uint64(1))
    half = np.uint64(1 << 63)
    result: Array = np.where(bits & sign != 0, half - magnitude, half + magnitude)
    return result


def _whole_distance(found: Array, exact: Array) -> Array:
    with np.errstate(all="ignore"):
        error = np.abs(found.astype(np.float64) - exact.astype(np.float64))
    # Different 64-bit integers may have the same float64.
    result: Array = np.where(found == exact, 0.0, np.where(np.isnan(error), np.inf, np.maximum(error, 1.0)))
    return result
