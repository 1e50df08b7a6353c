"""Intervals of integers with constant ends, and arithmetic on them."""

from __future__ import annotations

import functools
import math
from typing import Final, NamedTuple

from tilewright.tensorir.dtype import DataType

#: An end of an interval: an integer, or minus or plus infinity where nothing is known.
Bound = int | float

INFINITY: Final = math.inf

#: More bits than any type has.
_ALL_BITS: Final = 128


class Interval(NamedTuple):
    """The integers from ``lower`` to ``upper``, both included; an end that is not known is infinite."""

    lower: Bound
    upper: Bound

    @property
    def is_point(self) -> bool:
        """Whether the interval holds exactly one integer."""
        return self.lower == self.upper

    @property
    def is_finite(self) -> bool:
        """Whether both ends are known."""
        return self.lower != -INFINITY and self.upper != INFINITY

    def contains(self, value: int) -> bool:
        """Return whether ``value`` lies in the interval."""
        return self.lower <= value <= self.upper

    def intersect(self, other: Interval) -> Interval:
        """The integers in both."""
        lower = self.lower if self.lower >= other.lower else other.lower
        return Interval(lower, self.upper if self.upper <= other.upper else other.upper)

    def union(self, other: Interval) -> Interval:
        """The least interval that holds both."""
        lower = self.lower if self.lower <= other.lower else other.lower
        return Interval(lower, self.upper if self.upper >= other.upper else other.upper)

    def __neg__(self) -> Interval:
        return Interval(-self.upper, -self.lower)


EVERYTHING = Interval(-INFINITY, INFINITY)
NONNEGATIVE = Interval(0, INFINITY)


@functools.cache
def type_interval(dtype: DataType) -> Interval:
    """All values of an integer or boolean type; of any other type, everything."""
    if dtype.is_bool:
        return Interval(0, 1)
    if dtype.is_uint:
        return Interval(0, (1 << dtype.bits) - 1)
    if dtype.is_int:
        return Interval(-(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1)
    return EVERYTHING


def _times(a: Bound, b: Bound) -> Bound:
    return 0 if a == 0 or b == 0 else a * b  # zero times an unknown number is zero, not NaN


def add(a: Interval, b: Interval) -> Interval:
    """Interval of ``x + y``."""
    return Interval(a.lower + b.lower, a.upper + b.upper)


def multiply(a: Interval, b: Interval) -> Interval:
    """Interval of ``x * y``."""
    if a.lower >= 0 and b.lower >= 0:
        return Interval(_times(a.lower, b.lower), _times(a.upper, b.upper))
    corners = [_times(a.lower, b.lower), _times(a.lower, b.upper), _times(a.upper, b.lower), _times(a.upper, b.upper)]
    return Interval(min(corners), max(corners))


def _floor_quotient(a: Bound, b: Bound) -> Bound:
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    if b in (INFINITY, -INFINITY):
        return 0 if a == 0 or (a > 0) == (b > 0) else -1
    if a in (INFINITY, -INFINITY):
        return a if b > 0 else -a
    return int(a) // int(b)


def floordiv(a: Interval, b: Interval) -> Interval:
    """Interval of ``x // y`` over the ``y`` that are not zero."""
    if b.lower >= 1 or b.upper <= -1:
        return _quotients(a, b)
    if b.upper >= 1:
        positive = _quotients(a, Interval(1, b.upper))
        return positive if b.lower > -1 else positive.union(_quotients(a, Interval(b.lower, -1)))
    return _quotients(a, Interval(b.lower, -1)) if b.lower <= -1 else EVERYTHING


def _quotients(a: Interval, b: Interval) -> Interval:
    """Interval of ``x // y`` over the ``y`` of one sign: each end of ``a`` by each end of ``b``."""
    low, high = _floor_quotient(a.lower, b.lower), _floor_quotient(a.upper, b.lower)
    found = Interval(low, high) if low <= high else Interval(high, low)
    if b.lower == b.upper:
        return found
    low, high = _floor_quotient(a.lower, b.upper), _floor_quotient(a.upper, b.upper)
    return found.union(Interval(low, high) if low <= high else Interval(high, low))


def floormod(a: Interval, b: Interval) -> Interval:
    """Interval of ``x % y`` (with the sign of ``y``) over the ``y`` that are not zero."""
    if b.lower > 0 and a.lower >= 0 and a.upper < b.lower:
        return a
    if b.lower == b.upper and b.lower != 0 and a.is_finite:
        divisor = int(b.lower)
        quotient = int(a.lower) // divisor
        if quotient == int(a.upper) // divisor:
            return Interval(a.lower - quotient * divisor, a.upper - quotient * divisor)
    upper = b.upper - 1 if b.upper > 0 else 0
    lower = b.lower + 1 if b.lower < 0 else 0
    if a.lower >= 0 and b.lower >= 0:
        upper = min(upper, a.upper)
    return Interval(lower, max(upper, lower))


def _truncated_quotient(a: Bound, b: Bound) -> Bound:
    if a in (INFINITY, -INFINITY):
        return 0 if b in (INFINITY, -INFINITY) else a if b > 0 else -a
    if b in (INFINITY, -INFINITY):
        return 0
    quotient = abs(int(a)) // abs(int(b))
    return quotient if (a < 0) == (b < 0) else -quotient


def truncdiv(a: Interval, b: Interval) -> Interval:
    """Interval of the quotient rounded toward zero, over the ``y`` that are not zero."""
    if a.lower >= 0 and b.lower >= 0:
        return floordiv(a, b)
    divisors = [end for end in (b.lower, b.upper) if end != 0]
    divisors += [sign for sign in (-1, 1) if b.lower <= sign <= b.upper]
    if not divisors:
        return EVERYTHING
    corners = [_truncated_quotient(end, divisor) for end in a for divisor in divisors]
    return Interval(min(corners), max(corners))


def truncmod(a: Interval, b: Interval) -> Interval:
    """Interval of the remainder with the sign of ``x``, over the ``y`` that are not zero."""
    if a.lower >= 0 and b.lower >= 0:
        return floormod(a, b)
    if a.lower < 0 and a.upper <= 0:
        return -truncmod(-a, b)
    if b.lower < 0 and b.upper <= 0:  # the sign of the divisor changes nothing
        return truncmod(a, -b)
    largest = max(abs(b.lower), abs(b.upper))
    largest = largest - 1 if largest > 0 else 0
    return Interval(max(-largest, min(a.lower, 0)), min(largest, max(a.upper, 0)))


def minimum(a: Interval, b: Interval) -> Interval:
    """Interval of ``min(x, y)``."""
    lower = a.lower if a.lower <= b.lower else b.lower
    return Interval(lower, a.upper if a.upper <= b.upper else b.upper)


def maximum(a: Interval, b: Interval) -> Interval:
    """Interval of ``max(x, y)``."""
    lower = a.lower if a.lower >= b.lower else b.lower
    return Interval(lower, a.upper if a.upper >= b.upper else b.upper)


def subtract(a: Interval, b: Interval) -> Interval:
    """Interval of ``x - y``."""
    return add(a, -b)


def _bits(a: Interval, b: Interval) -> int | None:
    """Return the number of bits, without the sign, that hold every number of both intervals; None without a limit."""
    if not (a.is_finite and b.is_finite):
        return None
    ends = [int(end) for interval in (a, b) for end in interval]
    return max([(end if end >= 0 else ~end).bit_length() for end in ends])


def bitand(a: Interval, b: Interval) -> Interval:
    """Interval of ``x & y``: no larger than an operand that is not negative."""
    if a.lower == a.upper and b.lower == b.upper:
        both = int(a.lower) & int(b.lower)
        return Interval(both, both)
    if a.lower >= 0 or b.lower >= 0:
        return Interval(0, min([x.upper for x in (a, b) if x.lower >= 0]))
    bits = _bits(a, b)
    upper = min(a.upper, b.upper) if a.upper < 0 and b.upper < 0 else max(a.upper, b.upper)
    return Interval(-INFINITY if bits is None else -(1 << bits), upper)


def bitnot(a: Interval) -> Interval:
    """Interval of ``~x`` of a signed integer."""
    return Interval(-1 - a.upper, -1 - a.lower)


def bitor(a: Interval, b: Interval) -> Interval:
    """Interval of ``x | y``."""
    return bitnot(bitand(bitnot(a), bitnot(b)))


def bitxor(a: Interval, b: Interval) -> Interval:
    """Interval of ``x ^ y``."""
    if a.lower == a.upper and b.lower == b.upper:
        both = int(a.lower) ^ int(b.lower)
        return Interval(both, both)
    bits = _bits(a, b)
    upper = INFINITY if bits is None else (1 << bits) - 1
    return Interval(0 if a.lower >= 0 and b.lower >= 0 else -1 - upper, upper)


def shift_right(a: Interval, b: Interval) -> Interval:
    """Interval of ``x >> y`` (arithmetic); a shift by more than the width leaves copies of the sign bit."""
    if b.lower < 0:  # read as unsigned, such a shift count is large
        return Interval(min(a.lower, 0), max(a.upper, 0))
    least, most = min(b.lower, _ALL_BITS), min(b.upper, _ALL_BITS)
    return floordiv(a, Interval(1 << int(least), 1 << int(most)))


def shift_left(a: Interval, b: Interval, dtype: DataType) -> Interval:
    """Interval of ``x << y``, which drops the bits above the width of the type."""
    limits = type_interval(dtype)
    if b.lower < 0 or b.upper >= dtype.bits:
        return limits
    found = multiply(a, Interval(1 << int(b.lower), 1 << int(b.upper)))
    fits = limits.lower <= found.lower and found.upper <= limits.upper
    return found if fits or not found.is_finite else limits


#: Interval arithmetic by the name of the operation; a shift to the left depends on the type as well.
OPERATIONS = {
    "add": add,
    "sub": subtract,
    "mul": multiply,
    "floordiv": floordiv,
    "floormod": floormod,
    "truncdiv": truncdiv,
    "truncmod": truncmod,
    "min": minimum,
    "max": maximum,
    "bitand": bitand,
    "bitor": bitor,
    "bitxor": bitxor,
    "shr": shift_right,
}
