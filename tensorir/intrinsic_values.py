"""The values of intrinsics, as the interpreter computes them; each declaration in ``intrinsics`` names one of these.

An :data:`Evaluation` takes the types of the arguments and of the result, and gives the function that computes the
value. Values are held as :mod:`.interpreter_values` says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.errors import OutOfBoundsError
from tilewright.tensorir.folding import wrap_integer
from tilewright.tensorir.interpreter_values import Operation, as_array, from_array, narrow, round_to_odd

Evaluation = Callable[[Sequence[DataType], DataType], Operation]


def of_floats(function: Operation) -> Evaluation:
    """``function`` on NumPy arrays, computed in float64 and rounded once to the type of the result."""

    def evaluation(args: Sequence[DataType], result: DataType) -> Operation:
        def compute(*values: Any) -> Any:
            wide = [np.asarray(value, np.float64) for value in values]
            return from_array(narrow(function(*wide), result), result)

        return compute

    return evaluation


erf = of_floats(np.vectorize(math.erf, otypes=[np.float64]))
rsqrt = of_floats(lambda x: 1 / np.sqrt(x))
sigmoid = of_floats(lambda x: 1 / (1 + np.exp(-x)))

_absolute_float = of_floats(np.abs)


def absolute(args: Sequence[DataType], result: DataType) -> Operation:
    """``|x|``; that of the least integer wraps to itself."""
    if result.is_float:
        return _absolute_float(args, result)
    return np.abs if result.lanes != 1 else (lambda a: wrap_integer(abs(a), result))


def _fma_narrow(a: Any, b: Any, c: Any) -> Any:
    """``a * b + c`` rounded once to a type of at most 24 significant bits: the product is exact in float64, and the sum
    is rounded to odd there, so that the second rounding sees on which side of a tie it lies (Boldo, Melquiond 2008)."""
    product = np.asarray(a, np.float64) * np.asarray(b, np.float64)
    addend = np.asarray(c, np.float64)
    total = product + addend
    shadow = total - product
    error = (product - (total - shadow)) + (addend - shadow)  # total + error is exact (Knuth's TwoSum)
    return round_to_odd(total, error)


def _fma_double(a: float, b: float, c: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return float(np.float64(a) * b + c)
    (p, q), (r, s), (t, u) = a.as_integer_ratio(), b.as_integer_ratio(), c.as_integer_ratio()
    numerator, denominator = p * r * u + t * q * s, q * s * u
    if numerator == 0:
        return a * b + c  # keeps the sign of a zero
    try:
        return numerator / denominator or math.copysign(0.0, numerator)  # Python rounds quotients of integers once
    except OverflowError:
        return math.copysign(math.inf, numerator)


def fma(args: Sequence[DataType], result: DataType) -> Operation:
    """``a * b + c``, rounded once."""
    if result.bits < 64:
        return lambda a, b, c: from_array(narrow(_fma_narrow(a, b, c), result), result)
    if result.lanes == 1:
        return lambda a, b, c: np.float64(_fma_double(float(a), float(b), float(c)))
    return lambda a, b, c: np.array([_fma_double(*xs) for xs in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)])


def check_index(args: Sequence[DataType], result: DataType) -> Operation:
    """The mask of an access, per lane; an index that is outside where it is true is an error."""

    def compute(index: Any, extent: Any, happens: Any, number: Any) -> Any:
        outside = np.logical_and(happens, np.logical_or(np.less(index, 0), np.greater_equal(index, extent)))
        if np.any(outside):
            raise OutOfBoundsError(f"checked access {number}: expected 0 <= index < {extent}, found {index}")
        return happens

    return compute


def reinterpret(args: Sequence[DataType], result: DataType) -> Operation:
    """The same bits as another type."""
    kind, target = args[0].numpy, result.numpy
    shape = () if result.lanes == 1 else (result.lanes,)
    return lambda a: from_array(np.ascontiguousarray(np.asarray(a, kind)).view(target).reshape(shape), result)


def of_bits(function: Callable[[int, int], int]) -> Evaluation:
    """``function`` on the bits of each integer, read as unsigned, and on the number of bits."""

    def evaluation(args: Sequence[DataType], result: DataType) -> Operation:
        bits = result.bits
        mask = (1 << bits) - 1
        if result.lanes == 1:
            return lambda value: function(value & mask, bits)
        return lambda a: np.array([function(value & mask, bits) for value in a.tolist()], result.numpy)

    return evaluation


def interleave(*, low: bool) -> Evaluation:
    """The elements of the low or high halves of two vectors, alternating."""

    def of_halves(a: Any, b: Any) -> Any:
        half = len(a) // 2
        part = slice(0, half) if low else slice(half, 2 * half)
        return np.stack([a[part], b[part]], axis=1).reshape(-1)

    return lambda args, result: of_halves


def interleave_part(args: Sequence[DataType], result: DataType) -> Operation:
    """The first elements of some vectors, their second ones, and so on; of these, as many as a vector has, from the
    part of that number on."""

    def part_of(*values: Any) -> Any:
        *vectors, part = values
        return np.stack(vectors, axis=1).reshape(-1)[int(part) * result.lanes : (int(part) + 1) * result.lanes]

    return part_of


def across_lanes(function: Operation) -> Evaluation:
    """A reduction by halves: lane i meets lane i + n/2, until one is left; an odd lane waits for the next round."""

    def reduce_pairs(vector: Any) -> Any:
        while len(vector) > 1:
            half, odd = len(vector) // 2, vector[2 * (len(vector) // 2) :]
            vector = np.concatenate([function(vector[:half], vector[half : 2 * half]), odd])
        return vector[0]

    def evaluation(args: Sequence[DataType], result: DataType) -> Operation:
        source = args[0]
        return lambda vector: from_array(reduce_pairs(np.atleast_1d(as_array(vector, source))), result)

    return evaluation


def dot(args: Sequence[DataType], result: DataType) -> Operation:
    """``total + sum of a * b`` over the neighbours that belong to each lane, exact for integers in int64."""
    wide = np.float64 if result.is_float else np.int64

    def compute(total: Any, a: Any, b: Any) -> Any:
        products = np.asarray(a).astype(wide) * np.asarray(b).astype(wide)
        sums = products.reshape((*np.shape(total), -1)).sum(axis=-1)
        return from_array(narrow(as_array(total, result).astype(wide) + sums, result), result)

    return compute
