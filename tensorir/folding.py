"""Arithmetic on Python numbers exactly as the loop-level IR defines it on its constants."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

import numpy as np

from tilewright.tensorir.dtype import INT64, DataType

Number = int | float

#: Compiled code compares integers below this limit, which most are, as machine words; int64 holds them.
_SHORT = 1 << 60


def wrap_integer(value: int, dtype: DataType) -> int:
    """``value`` reduced to the range of the integer type ``dtype``, as the machine's arithmetic does."""
    if dtype is INT64 and -_SHORT <= value <= _SHORT:
        return value
    if dtype.is_bool:
        return int(bool(value))
    value &= (1 << dtype.bits) - 1
    if dtype.is_int and value >> (dtype.bits - 1):
        value -= 1 << dtype.bits
    return value


def trunc_div(a: int, b: int) -> int:
    """Quotient rounded toward zero (C's ``/``)."""
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


_INTEGER: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
    "truncdiv": trunc_div,
    "truncmod": lambda a, b: a - trunc_div(a, b) * b,
    "min": min,
    "max": max,
    "bitand": operator.and_,
    "bitor": operator.or_,
    "bitxor": operator.xor,
    "and": lambda a, b: int(bool(a) and bool(b)),
    "or": lambda a, b: int(bool(a) or bool(b)),
}

#: The operations that divide integers.
INTEGER_DIVISIONS = ("floordiv", "floormod", "truncdiv", "truncmod")


def fold_binary(op: str, a: Number, b: Number, dtype: DataType) -> Number | None:
    """The value of ``a op b`` in type ``dtype``, or None where it is not defined (division by zero, a shift out of
    range) and must be left to the program."""
    if dtype.is_float:
        return _fold_float(op, float(a), float(b), dtype)
    return fold_integers(op, int(a), int(b), dtype)


def fold_integers(op: str, a: int, b: int, dtype: DataType) -> int | None:
    """The value of ``a op b`` for integers or bools, or None: see :func:`fold_binary`."""
    if b == 0 and op in INTEGER_DIVISIONS:
        return None
    if op in ("shl", "shr"):
        if not 0 <= b < dtype.bits:
            return None
        value = a << b if op == "shl" else a >> b
    else:
        value = _INTEGER[op](a, b)
    return value if dtype is INT64 and -_SHORT <= value <= _SHORT else wrap_integer(value, dtype)


def _fold_float(op: str, a: float, b: float, dtype: DataType) -> float | None:
    x, y = dtype.numpy.type(a), dtype.numpy.type(b)
    with np.errstate(all="ignore"):
        if op == "add":
            return float(x + y)
        if op == "sub":
            return float(x - y)
        if op == "mul":
            return float(x * y)
        if op == "div":
            return float(x / y)
    if op in ("min", "max"):
        if math.isnan(a) or math.isnan(b):
            return math.nan
        return min(a, b) if op == "min" else max(a, b)
    return None


_COMPARISONS: dict[str, Callable[[Number, Number], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def fold_compare(op: str, a: Number, b: Number) -> bool:
    """The value of the comparison ``a op b``."""
    return _COMPARISONS[op](a, b)
