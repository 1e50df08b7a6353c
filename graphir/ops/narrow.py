"""Compute sums of products in the narrow types in which the factors are stored, less a zero point.

``sum((a - za) * (b - zb))`` over ``K`` products is ``sum(a * b) - za * sum(b) - zb * (sum(a) - K * za)``; all of it
wraps like int32, so that the result has the same bits. An operator that computes such sums returns a
:class:`SumOfProducts` from ``Operator.sum_of_products``; ``passes/graph/narrow_products.py`` decides.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.expr import Call, Constant, Expr, const
from tilewright.graphir.meaning import Conversion, meaning_of
from tilewright.graphir.op import Operator, get_operator
from tilewright.graphir.ops import calls
from tilewright.tensorir.dtype import INT32, DataType

#: From this many rows on, a product with the column sums of a matrix costs less than a product of wider numbers.
_ROWS_WORTH_SUMMING = 32


@dataclasses.dataclass(frozen=True)
class Stored:
    """The factor ``stored - zero`` in int32 (``zero`` None: ``stored``)."""

    stored: Expr
    zero: Expr | None

    @property
    def dtype(self) -> DataType:
        """The element type of the stored numbers."""
        return self.stored.dtype

    def flipped(self) -> Stored:
        """Return the same byte-sized numbers in the type of the other signedness."""
        bits = self.stored
        is_signed = self.dtype == "int8"
        if is_signed:
            bits = get_operator("bitcast")(bits, dtype="uint8")
        bits = get_operator("bitwise_xor")(bits, const(128, "uint8"))
        if not is_signed:
            bits = get_operator("bitcast")(bits, dtype="int8")
        return Stored(bits, shifted_zero(self.zero, 128 if is_signed else -128))

    def total(self, axes: int | tuple[int, ...], keepdims: bool = True) -> Expr:
        """Return the sum of ``stored`` over axes."""
        return calls.sum(calls.cast(self.stored, dtype="int32"), axis=axes, keepdims=keepdims)

    def is_same_along(self, axis: int) -> bool:
        """Return whether the zero point is constant along an axis, which is counted from the end (-1, -2, ..)."""
        return self.zero is None or self.zero.ndim < -axis or self.zero.shape[axis] == 1

    def is_known(self) -> bool:
        """Return whether ``stored`` is made of constants alone, so that it is folded."""
        node = self.stored
        while isinstance(node, Call) and node.args:
            node = node.args[0]  # a constant weight, perhaps with flipped bits
        return isinstance(node, Constant)


def shifted_zero(zero: Expr | None, shift: int) -> Expr | None:
    """Convert a zero point to a type whose range starts ``shift`` lower."""
    if zero is None:
        return const(shift, "int32")
    value = known_zero(zero)
    if value is None:
        return calls.add(zero, const(shift, "int32")) if shift else zero
    moved = value + np.int32(shift)
    return const(moved, "int32") if moved.any() else None


def known_zero(zero: Expr) -> np.ndarray | None:
    """Return the zero point if it is known: a constant, perhaps converted or reshaped."""
    if isinstance(zero, Constant):
        return zero.data
    if type(zero) is not Call or not isinstance(zero.op, Operator):
        return None
    if not zero.op.keeps_order and not isinstance(meaning_of(zero), Conversion):
        return None
    inner = known_zero(zero.args[0])
    if inner is None:
        return None
    shape = [size for size in zero.shape if isinstance(size, int)]
    return inner.reshape(shape).astype(zero.tensor_type.dtype.numpy) if len(shape) == zero.ndim else None


class SumOfProducts:
    """The sums of products of an operator's first two arguments.

    The operator's attributes have a field ``out_dtype``, the type of the sums: ``int32`` for factors of narrower
    integers, perhaps of two types, ``float32`` for those of half types.
    """

    def __init__(self, op: Operator, args: Sequence[Expr], attrs: Any) -> None:
        self.op = op
        self.args = args
        self.attrs = attrs

    def fits(self, count: int, lanes: int) -> bool:
        """Return whether the sums consist of whole groups of ``count`` products, and the results of vectors of
        ``lanes`` elements, as the instructions that add so many products need it."""
        raise NotImplementedError

    def of(self, left: Stored, right: Stored) -> Expr | None:
        """Return the operator's call on these factors, with sums of type int32; None if their zero points prevent
        it."""
        raise NotImplementedError

    def summed_in(self, dtype: DataType, *factors: Expr, **attrs: object) -> Expr:
        """Return the operator's call on ``factors`` with sums of type ``dtype``."""
        return Call(self.op, factors, dataclasses.replace(self.attrs, out_dtype=dtype, **attrs))


class MatrixSums(SumOfProducts):
    """The sums of a matrix product, ``left @ right``, or with ``transposed`` ``left @ right.T``."""

    def __init__(self, op: Operator, args: Sequence[Expr], attrs: Any, transposed: bool = False) -> None:
        super().__init__(op, args, attrs)
        self.transposed = transposed

    def fits(self, count: int, lanes: int) -> bool:
        if min(arg.ndim for arg in self.args) < 2:
            return False
        steps = self.args[0].shape[-1]
        return isinstance(steps, int) and steps > 0 and steps % count == 0

    def of(self, left: Stored, right: Stored) -> Expr | None:
        axis = -1 if self.transposed else -2
        if not left.is_same_along(-1) or not right.is_same_along(axis):
            return None
        result = self.summed_in(INT32, left.stored, right.stored)
        rows = [size for size in result.shape[:-1] if isinstance(size, int)]
        is_short = len(rows) == result.ndim - 1 and math.prod(rows) < _ROWS_WORTH_SUMMING
        if is_short and left.zero is not None and not right.is_known():
            return None
        if left.zero is not None:
            result = calls.subtract(result, calls.multiply(left.zero, self._row(right.total(axis))))
        if right.zero is not None:
            rest = left.total(-1)
            if left.zero is not None:
                rest = calls.subtract(rest, calls.multiply(left.zero, const(left.stored.shape[-1], "int32")))
            result = calls.subtract(result, calls.multiply(rest, self._row(right.zero)))
        return result

    def _row(self, parameter: Expr) -> Expr:
        """Return a parameter of each column of the result (``[columns, 1]`` of a transposed factor) as a row."""
        if not self.transposed or parameter.ndim < 2:
            return parameter
        return calls.reshape(parameter, newshape=(parameter.shape[0],))


class ConvolutionSums(SumOfProducts):
    """The sums of a convolution of data ``[N, C, ..]`` with a weight ``[O, I, ..]``, whose attributes have a
    ``pad_value``: the border of quantized data holds their zero point."""

    def fits(self, count: int, lanes: int) -> bool:
        groups = self.attrs.groups
        outputs, inputs = self.args[1].shape[:2]
        own = outputs // groups if isinstance(outputs, int) else 0
        # Whole blocks of channels, as the layout puts groups of channels side by side.
        return isinstance(inputs, int) and inputs % lanes == 0 and own >= lanes and (groups == 1 or own % lanes == 0)

    def of(self, left: Stored, right: Stored) -> Expr | None:
        zero = 0
        if left.zero is not None:
            known = known_zero(left.zero)
            if known is None or known.size != 1:
                return None
            zero = int(known.reshape(()))
        limits = np.iinfo(left.dtype.numpy)
        if right.zero is not None or not limits.min <= zero <= limits.max:
            return None
        result = self.summed_in(INT32, left.stored, right.stored, pad_value=zero)
        if zero:
            total = right.total(tuple(range(1, result.ndim)), keepdims=False)
            sums = calls.reshape(total, newshape=(right.stored.shape[0], *[1] * (result.ndim - 2)))
            result = calls.subtract(result, calls.multiply(sums, const(zero, "int32")))
        return result
