"""The meaning of single operations, as the interpreter computes them (``intrinsic_values``: of intrinsics).

Values: a scalar integer is a Python int in the range of its type, a scalar bool a bool, a scalar float a NumPy scalar
of its type; a vector is a NumPy array of its element type. So floats round to their type after each operation (NumPy
and ml_dtypes compute the 16-bit types in float32 and round), and vectors of integers wrap by themselves.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.errors import ArgumentValueError
from tilewright.tensorir.folding import trunc_div, wrap_integer

Operation = Callable[..., Any]


def wrapping(function: Callable[[int, int], int], dtype: DataType) -> Operation:
    """``function`` on Python integers, reduced to the range of ``dtype``."""
    low = -(1 << (dtype.bits - 1)) if dtype.is_int else 0
    high = (1 << (dtype.bits - 1)) - 1 if dtype.is_int else (1 << dtype.bits) - 1

    def compute(a: int, b: int) -> int:
        value = function(a, b)
        return value if low <= value <= high else wrap_integer(value, dtype)

    return compute


def _shift(function: Callable[[int, int], int], bits: int) -> Callable[[int, int], int]:
    def compute(a: int, b: int) -> int:
        if not 0 <= b < bits:
            raise ArgumentValueError(f"shift by {b} of a value of {bits} bits")
        return function(a, b)

    return compute


_SCALAR_INTEGER: dict[str, Callable[[int, int], int]] = {
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
    "truncdiv": trunc_div,
    "truncmod": lambda a, b: a - trunc_div(a, b) * b,
}

_SCALAR_EXACT: dict[str, Operation] = {
    "bitand": operator.and_,
    "bitor": operator.or_,
    "bitxor": operator.xor,
}


def _nonzero(divisor: Any) -> Any:
    if not np.all(divisor):
        raise ZeroDivisionError("integer division by zero")
    return divisor


def _vector_truncdiv(a: Any, b: Any) -> Any:
    quotient = np.floor_divide(a, _nonzero(b))
    inexact = np.fmod(a, b) != 0
    return quotient + (inexact & ((a < 0) != (b < 0))).astype(quotient.dtype)


def _vector_shift(function: Operation) -> Operation:
    def compute(a: Any, b: Any) -> Any:
        bits = a.dtype.itemsize * 8
        if not np.all((b >= 0) & (b < bits)):
            raise ArgumentValueError(f"shift by {b} of values of {bits} bits")
        return function(a, b)

    return compute


_VECTOR: dict[str, Operation] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "floordiv": lambda a, b: np.floor_divide(a, _nonzero(b)),
    "floormod": lambda a, b: np.remainder(a, _nonzero(b)),
    "truncdiv": _vector_truncdiv,
    "truncmod": lambda a, b: np.fmod(a, _nonzero(b)),
    "min": np.minimum,
    "max": np.maximum,
    "bitand": np.bitwise_and,
    "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor,
    "shl": _vector_shift(np.left_shift),
    "shr": _vector_shift(np.right_shift),
    "and": np.logical_and,
    "or": np.logical_or,
}

_SCALAR_FLOAT: dict[str, Operation] = {
    "min": lambda a, b: a if a <= b or a != a else b,  # NaN if either is
    "max": lambda a, b: a if a >= b or a != a else b,
}


def binary_operation(op: str, dtype: DataType) -> Operation:
    """``a op b`` on values of ``dtype``. Raises ZeroDivisionError for integers, ValueError for a bad shift."""
    if dtype.lanes != 1:
        return _VECTOR[op]
    if dtype.is_float:
        return _SCALAR_FLOAT[op]
    if op in _SCALAR_EXACT:
        return _SCALAR_EXACT[op]
    if op == "shl":
        return wrapping(_shift(operator.lshift, dtype.bits), dtype)
    if op == "shr":
        return _shift(operator.rshift, dtype.bits)
    return wrapping(_SCALAR_INTEGER[op], dtype)


COMPARISONS: dict[str, Operation] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def unary_operation(op: str, dtype: DataType) -> Operation:
    """``op a`` on values of ``dtype``."""
    if dtype.lanes != 1:
        return {"neg": np.negative, "not": np.logical_not, "bitnot": np.invert}[op]
    if op == "not":
        return operator.not_
    if dtype.is_float:
        return operator.neg
    compute: Operation = operator.neg if op == "neg" else operator.invert
    return lambda a: wrap_integer(compute(a), dtype)


def as_array(value: Any, dtype: DataType) -> Any:
    """A value of ``dtype`` as a NumPy array or scalar of its element type."""
    return np.asarray(value, dtype.numpy) if isinstance(value, (int, bool)) else value


def is_held_as_array(dtype: DataType) -> bool:
    """Return whether the interpreter holds values of ``dtype`` as NumPy arrays and scalars, others as Python's
    numbers."""
    return dtype.lanes != 1 or dtype.is_float or dtype.kind == "storage"


def from_array(value: Any, dtype: DataType) -> Any:
    """A NumPy array or scalar as the interpreter holds a value of ``dtype``."""
    if is_held_as_array(dtype):
        return value[()] if isinstance(value, np.ndarray) else value
    return bool(value) if dtype.is_bool else int(value)


def round_to_odd(total: Any, error: Any) -> Any:
    """``total`` moved to the neighbour with an odd last bit, where ``total + error`` is the exact value and lies
    between the two: rounding that again to half the bits or fewer gives what rounding the exact value gives."""
    bits = np.ascontiguousarray(total).view(f"i{total.dtype.itemsize}").reshape(total.shape)
    adjust = np.isfinite(total) & np.isfinite(error) & (error != 0) & ((bits & 1) == 0)
    towards = np.copysign(np.inf, error).astype(total.dtype)
    return np.where(adjust, np.nextafter(total, towards), total)


def narrow(value: Any, dtype: DataType) -> Any:
    """Float64 values rounded once to a float type (ml_dtypes goes through float32 to bfloat16, which rounds twice)."""
    value = np.asarray(value)
    if dtype.element == "bfloat16" and value.dtype == np.float64:
        single = value.astype(np.float32)
        return round_to_odd(single, value - single).astype(dtype.numpy)
    return value.astype(dtype.numpy)


def cast_operation(source: DataType, target: DataType) -> Operation:
    """The conversion from ``source`` to ``target``; a float outside the range of an integer type has no defined
    result (it wraps here)."""
    if target.is_bool:
        return (lambda a: a != 0) if source.lanes != 1 else (lambda a: bool(a != 0))
    if source.lanes == 1 and not source.is_float:
        if target.is_float:
            kind, result = source.numpy.type, target.numpy
            return lambda a: kind(a).astype(result)
        return lambda a: wrap_integer(int(a), target)
    if source.is_float and target.is_integer:
        wide = np.uint64 if target == "uint64" else np.int64
        if source.lanes != 1:
            return lambda a: a.astype(wide).astype(target.numpy)
        return lambda a: wrap_integer(int(a.astype(wide)), target)
    if source.element == "float64" and target.element == "bfloat16":
        return lambda a: from_array(narrow(a, target), target)
    return lambda a: a.astype(target.numpy)


def constant_value(value: float, dtype: DataType) -> Any:
    """A float constant as a scalar of its type, with the sign and payload that NumPy gives it."""
    return from_array(narrow(np.float64(value), dtype), dtype)


def garbage(size: int, dtype: DataType) -> Any:
    """Return memory of ``size`` elements filled with values that reveal a read before the first write: NaN for floats
    (also for bytes that are later viewed as floats), 0xA5 bytes for wider integers."""
    if dtype.is_bool:
        return np.ones(size, np.bool_)
    fill = 0xFF if dtype.is_float or dtype.bits == 8 else 0xA5
    return np.full(size * dtype.bytes, fill, np.uint8).view(dtype.numpy)
