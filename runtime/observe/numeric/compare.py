"""Compare results within a tolerance, and find the element with the largest error."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.runtime.observe.numeric.ulps import limits_of, ulp_error
from tilewright.tensorir.dtype import DataType, as_dtype
from tilewright.tensorir.errors import ArgumentTypeError, ArgumentValueError

Array = np.ndarray[Any, Any]

#: Permitted error of one operator in units in the last place, so that an approximation of tanh or exp is no failure.
_OPERATOR_ULPS = 32.0

#: Permitted error after passes, as a multiple of the error of the model itself (in its own types, against float64):
#: Winograd's transforms alone cost a factor of three.
_OWN_ERROR_FACTOR = 16.0


@dataclasses.dataclass(frozen=True)
class Tolerance:
    """The error that an element may have: ``rtol`` times the expected value, and ``atol``.

    Attributes:
        rtol: relative to the expected element.
        atol: absolute.
    """

    rtol: float
    atol: float

    def allowed(self, expected: Array) -> Array:
        """Return the bound for each element of ``expected``, in float64."""
        with np.errstate(all="ignore"):
            bound = self.rtol * np.abs(expected.astype(np.float64)) + self.atol
        return np.where(np.isfinite(bound), bound, 0.0)


#: Tolerances as users give them: one number for both, a pair (rtol, atol), or one of these for each type.
ToleranceLike = float | tuple[float, float] | Tolerance | Mapping[str, "float | tuple[float, float] | Tolerance"]


def as_tolerance(given: ToleranceLike, dtype: DataType) -> Tolerance | None:
    """Return the tolerance that a user gives for results of type ``dtype``; None if they name other types only.

    Raises:
        TypeError: ``given`` has none of the forms.
        ValueError: a bound is negative.
    """
    if isinstance(given, Mapping):
        named = {as_dtype(name): value for name, value in given.items()}
        return as_tolerance(named[dtype], dtype) if dtype in named else None
    if isinstance(given, Tolerance):
        found = given
    elif isinstance(given, (int, float)) and not isinstance(given, bool):
        found = Tolerance(float(given), float(given))
    elif isinstance(given, tuple) and len(given) == 2:
        found = Tolerance(float(given[0]), float(given[1]))
    else:
        raise ArgumentTypeError(
            f"tolerance: expected a number, (rtol, atol), or a mapping from types to these; not {given!r}"
        )
    if not (found.rtol >= 0 and found.atol >= 0):
        raise ArgumentValueError(f"tolerance: expected bounds that are not negative, found {given!r}")
    return found


def default_tolerance(expected: Array, own: Array, terms: float) -> Tolerance:
    """Return the tolerance for a result where the user gives none.

    A few units of its type, times the square root of the number of terms in the longest sum, which is the rate at which
    independent rounding errors of sums grow (Higham and Mary 2019: A New Approach to Probabilistic Rounding Error
    Analysis). An element that is the small difference of large ones is measured by the usual size of elements. In
    addition, a multiple of the error of the model itself, computed in its own types, is permitted: an ill-conditioned
    result is no fault of a pass. Integers and bools must be equal.

    Args:
        expected: the reference.
        own: the model's result in its own types; the type of the result is that of this array.
        terms: number of terms in the longest sum.
    """
    kind = as_dtype(own.dtype)
    if not kind.is_float:
        return Tolerance(0.0, 0.0)
    exact = expected.astype(np.float64)
    finite = np.isfinite(exact) & np.isfinite(own.astype(np.float64))
    if not finite.any():
        return Tolerance(0.0, 0.0)
    step = _OPERATOR_ULPS * float(limits_of(kind.numpy).eps) * max(1.0, terms) ** 0.5
    usual = float(np.sqrt(np.mean(np.square(exact[finite]))))
    off = float(np.abs(own.astype(np.float64)[finite] - exact[finite]).max())
    return Tolerance(step, step * usual + _OWN_ERROR_FACTOR * off)


@dataclasses.dataclass(frozen=True)
class Mismatch:
    """An element whose error exceeds the tolerance, or a result of another shape or type.

    Attributes:
        result: number of the tensor in the results.
        index: index of the element.
        expected: the expected value, as text.
        found: the value found, as text.
        ulps: error in units in the last place; infinite for a NaN and for another shape.
        excess: error as a multiple of the tolerance.
    """

    result: int
    index: tuple[int, ...]
    expected: str
    found: str
    ulps: float
    excess: float

    def __str__(self) -> str:
        place = f"[{', '.join(map(str, self.index))}]" if self.index else ""
        off = f", off by {self.ulps:.6g} ulps" if np.isfinite(self.ulps) else ""
        return f"element {place or '()'}: expected {self.expected}, found {self.found}{off}"


def mismatch(number: int, found: Array, expected: Array, tolerance: Tolerance) -> Mismatch | None:
    """Find the element of result ``number`` whose error is the largest multiple of its bound, if that exceeds 1."""
    if found.shape != expected.shape:
        return Mismatch(number, (), f"shape {expected.shape}", f"shape {found.shape}", np.inf, np.inf)
    if not found.size:
        return None
    if not as_dtype(found.dtype).is_float and as_dtype(found.dtype).kind == "storage":
        found, expected = found.view(np.uint8), np.asarray(expected).view(np.uint8)
    errors = ulp_error(found, expected)
    with np.errstate(all="ignore"):
        off = np.where(errors == 0, 0.0, np.abs(found.astype(np.float64) - expected.astype(np.float64)))
        off = np.where(np.isnan(off) | np.isinf(errors), np.inf, off)
        excess = np.where(off == 0, 0.0, off / tolerance.allowed(expected))
    place = np.unravel_index(int(np.argmax(excess)), excess.shape)
    if not excess[place] > 1:
        return None
    index = tuple(map(int, place))
    return Mismatch(
        number, index, _text(expected[index]), _text(found[index]), float(errors[index]), float(excess[index])
    )


def first_mismatch(
    found: Sequence[Array], expected: Sequence[Array], tolerances: Sequence[Tolerance]
) -> Mismatch | None:
    """Find the worst element of the first result that leaves its tolerance; None if all are within it."""
    if len(found) != len(expected):
        return Mismatch(0, (), f"{len(expected)} results", f"{len(found)} results", np.inf, np.inf)
    for number, (a, b, tolerance) in enumerate(zip(found, expected, tolerances, strict=True)):
        worst = mismatch(number, a, b, tolerance)
        if worst is not None:
            return worst
    return None


def _text(value: Any) -> str:
    return str(value.item()) if np.asarray(value).dtype.kind in "biuf" else str(float(value))
