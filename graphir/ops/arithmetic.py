"""Compute the arithmetic of two tensors elementwise, with broadcasting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.dims import Dim, analyzer_for
from tilewright.graphir.meaning import Difference, Product, Quotient, Sum
from tilewright.graphir.op import register_operator
from tilewright.graphir.ops.common import NUMBERS, Binary, read_broadcast
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.expr import Expr, Var, binary, call, cast, const, select
from tilewright.tensorir.expr import maximum as scalar_maximum
from tilewright.tensorir.expr import minimum as scalar_minimum
from tilewright.tensorir.tensor import Tensor


@register_operator
class add(Binary):
    """Add two tensors elementwise, with NumPy's broadcasting; integers wrap."""

    name = "add"
    associative = True
    commutative = True
    total_reference = True
    function = np.add

    def scalar(self, lhs: Expr, rhs: Expr) -> Expr:
        return lhs + rhs

    def meaning(self, args: Sequence[GraphExpr], attrs: Any) -> Sum:
        return Sum(args[0], args[1])

    def neutral(self, argument: int, dtype: DataType) -> float:
        return -0.0 if dtype.is_float else 0

    def symbolic(self, lhs: Dim, rhs: Dim) -> Dim | None:
        return lhs + rhs


@register_operator
class subtract(Binary):
    """Subtract ``rhs`` from ``lhs`` elementwise, with NumPy's broadcasting; integers wrap."""

    name = "subtract"
    total_reference = True
    function = np.subtract

    def scalar(self, lhs: Expr, rhs: Expr) -> Expr:
        return lhs - rhs

    def meaning(self, args: Sequence[GraphExpr], attrs: Any) -> Difference:
        return Difference(args[0], args[1])

    def neutral(self, argument: int, dtype: DataType) -> float | None:
        return 0 if argument == 1 else None

    def symbolic(self, lhs: Dim, rhs: Dim) -> Dim | None:
        return lhs - rhs


@register_operator
class multiply(Binary):
    """Multiply two tensors elementwise, with NumPy's broadcasting; integers wrap."""

    name = "multiply"
    associative = True
    commutative = True
    total_reference = True
    function = np.multiply

    def scalar(self, lhs: Expr, rhs: Expr) -> Expr:
        return lhs * rhs

    def meaning(self, args: Sequence[GraphExpr], attrs: Any) -> Product:
        return Product(args[0], args[1])

    def neutral(self, argument: int, dtype: DataType) -> float:
        return 1

    def symbolic(self, lhs: Dim, rhs: Dim) -> Dim | None:
        return lhs * rhs


@register_operator
class divide(Binary):
    """Divide ``lhs`` by ``rhs`` elementwise, with NumPy's broadcasting; both are floats."""

    name = "divide"
    total_reference = True
    function = np.true_divide

    def infer_type(self, args: Sequence[TensorType], attrs: Any) -> TensorType:
        for number, arg in enumerate(args):
            if not arg.dtype.is_float:
                raise self.error(
                    number, "a floating-point tensor", f"{arg}; use floor_divide, or cast the integers to a float"
                )
        return super().infer_type(args, attrs)

    def scalar(self, lhs: Expr, rhs: Expr) -> Expr:
        return lhs / rhs

    def meaning(self, args: Sequence[GraphExpr], attrs: Any) -> Quotient:
        return Quotient(args[0], args[1])

    def neutral(self, argument: int, dtype: DataType) -> float | None:
        return 1 if argument == 1 else None


def _safe_divisor(rhs: Expr) -> Expr:
    """Return ``rhs``, with 1 in place of the divisors at which a machine's division traps: 0, and -1 (the least integer
    over -1 overflows)."""
    bad = rhs.equal(0)
    if rhs.dtype.is_int:
        bad = bad | rhs.equal(-1)
    return select(bad, const(1, rhs.dtype), rhs)


def _float_remainder(lhs: Expr, rhs: Expr) -> Expr:
    """Compute the remainder with the sign of ``rhs``, by the algorithm of Python and NumPy."""
    remainder = call("fmod", lhs, rhs)
    opposite = (rhs < 0.0).not_equal(remainder < 0.0)
    shifted = select(opposite, remainder + rhs, remainder)
    return select(remainder.equal(0.0), call("copysign", const(0, rhs.dtype), rhs), shifted)


@register_operator
class floor_divide(Binary):
    """Divide ``lhs`` by ``rhs`` and round toward minus infinity, as NumPy's ``//``. Integers over zero give 0, the
    least integer over -1 wraps to itself."""

    name = "floor_divide"
    function = np.floor_divide

    def scalar(self, lhs: Expr, rhs: Expr) -> Expr:
        if lhs.dtype.is_float:
            return self._float(lhs, rhs)
        quotient = lhs // _safe_divisor(rhs)
        if rhs.dtype.is_int:
            quotient = select(rhs.equal(-1), -lhs, quotient)
        return select(rhs.equal(0), const(0, lhs.dtype), quotient)

    def _float(self, lhs: Expr, rhs: Expr) -> Expr:
        remainder = call("fmod", lhs, rhs)
        opposite = remainder.not_equal(0.0) & (rhs < 0.0).not_equal(remainder < 0.0)
        exact = (lhs - remainder) / rhs
        quotient = select(opposite, exact - 1.0, exact)
        floor: Expr = call("floor", quotient)
        floor = select(quotient - floor > 0.5, floor + 1.0, floor)
        signed_zero = call("copysign", const(0, lhs.dtype), lhs / rhs)
        return select(rhs.equal(0.0), lhs / rhs, select(quotient.equal(0.0), signed_zero, floor))

    def neutral(self, argument: int, dtype: DataType) -> float | None:
        return 1 if argument == 1 and not dtype.is_float else None

    def symbolic(self, lhs: Dim, rhs: Dim) -> Dim | None:
        # Only divisions by a positive number are followed.
        return lhs // rhs if isinstance(rhs, int) and rhs > 0 else None


@register_operator
class floor_mod(Binary):
    """Compute the remainder of ``floor_divide``, which has the sign of ``rhs``; 0 for integers over zero."""

    name = "floor_mod"
    function = np.mod

    def scalar(self, lhs: Expr, rhs: Expr) -> Expr:
        if lhs.dtype.is_float:
            return _float_remainder(lhs, rhs)
        # Over 1, which stands for the divisors 0 and -1, the remainder is 0 as it should be.
        return lhs % _safe_divisor(rhs)

    def symbolic(self, lhs: Dim, rhs: Dim) -> Dim | None:
        return lhs % rhs if isinstance(rhs, int) and rhs > 0 else None


def _truncated(lhs: np.ndarray[Any, Any], rhs: np.ndarray[Any, Any]) -> Any:
    """Compute the integer quotient rounded toward zero; 0 over zero."""
    quotient, remainder = np.floor_divide(lhs, rhs), np.mod(lhs, rhs)
    inexact_negative = (remainder != 0) & ((lhs < 0) != (rhs < 0))
    return quotient + inexact_negative.astype(quotient.dtype)


@register_operator
class trunc_divide(Binary):
    """Divide ``lhs`` by ``rhs`` and round toward zero, as C does. Integers over zero give 0, the least integer over -1
    wraps to itself."""

    name = "trunc_divide"

    def evaluate(self, arrays: Sequence[np.ndarray[Any, Any]], attrs: Any) -> Any:
        lhs, rhs = arrays
        return np.trunc(lhs / rhs) if lhs.dtype.kind == "f" else _truncated(lhs, rhs)

    def scalar(self, lhs: Expr, rhs: Expr) -> Expr:
        if lhs.dtype.is_float:
            return call("trunc", lhs / rhs)
        quotient = binary("truncdiv", lhs, _safe_divisor(rhs))
        if rhs.dtype.is_int:
            quotient = select(rhs.equal(-1), -lhs, quotient)
        return select(rhs.equal(0), const(0, lhs.dtype), quotient)

    def neutral(self, argument: int, dtype: DataType) -> float | None:
        return 1 if argument == 1 and not dtype.is_float else None

    def symbolic(self, lhs: Dim, rhs: Dim) -> Dim | None:
        if not isinstance(rhs, int) or rhs <= 0:
            return None
        if isinstance(lhs, int):
            return abs(lhs) // rhs if lhs >= 0 else -(abs(lhs) // rhs)
        # The quotient of a size, which is not negative, is that of floor_divide.
        return lhs // rhs if analyzer_for(lhs).prove(lhs >= 0) else binary("truncdiv", lhs, rhs)


@register_operator
class trunc_mod(Binary):
    """Compute the remainder of ``trunc_divide``, which has the sign of ``lhs``, as C's ``fmod``; 0 for integers over
    zero."""

    name = "trunc_mod"
    function = np.fmod

    def scalar(self, lhs: Expr, rhs: Expr) -> Expr:
        if lhs.dtype.is_float:
            return call("fmod", lhs, rhs)
        return binary("truncmod", lhs, _safe_divisor(rhs))


@register_operator
class maximum(Binary):
    """Compute the elementwise maximum of ``lhs`` and ``rhs``, with NumPy's broadcasting; NaN if either is NaN."""

    name = "maximum"
    idempotent = True
    function = np.maximum

    def scalar(self, lhs: Expr, rhs: Expr) -> Expr:
        return scalar_maximum(lhs, rhs)

    def symbolic(self, lhs: Dim, rhs: Dim) -> Dim | None:
        return max(lhs, rhs) if isinstance(lhs, int) and isinstance(rhs, int) else scalar_maximum(lhs, rhs)


@register_operator
class minimum(Binary):
    """Compute the elementwise minimum of ``lhs`` and ``rhs``, with NumPy's broadcasting; NaN if either is NaN."""

    name = "minimum"
    idempotent = True
    function = np.minimum

    def scalar(self, lhs: Expr, rhs: Expr) -> Expr:
        return scalar_minimum(lhs, rhs)

    def symbolic(self, lhs: Dim, rhs: Dim) -> Dim | None:
        return min(lhs, rhs) if isinstance(lhs, int) and isinstance(rhs, int) else scalar_minimum(lhs, rhs)


def _reciprocal(base: int, exponent: int) -> int:
    """Compute ``base ** exponent`` for a negative exponent, rounded toward zero."""
    return {1: 1, -1: -1 if exponent % 2 else 1}.get(base, 0)


@register_operator
class power(Binary):
    """Raise ``lhs`` to the power ``rhs`` elementwise, with NumPy's broadcasting. Integers wrap; a negative integer
    exponent gives the reciprocal rounded toward zero: 0, or plus or minus 1 for such a base."""

    name = "power"
    dtypes = NUMBERS
    function = np.power

    def evaluate(self, arrays: Sequence[np.ndarray[Any, Any]], attrs: Any) -> Any:
        base, exponent = arrays
        if base.dtype.kind == "f":
            return np.power(base, exponent)
        bits = 8 * base.dtype.itemsize

        def wrapped(one: Any, other: Any) -> int:
            modulus = 1 << int(bits)
            value: int = (
                pow(int(one), int(other), modulus) if other >= 0 else _reciprocal(int(one), int(other)) % modulus
            )
            return value

        values = np.vectorize(wrapped, otypes=[object])(base, exponent) if base.size and exponent.size else None
        if values is None:
            return np.broadcast_to(base, np.broadcast_shapes(base.shape, exponent.shape))
        return values.astype(np.uint64).astype(base.dtype)

    def scalar(self, lhs: Expr, rhs: Expr) -> Expr:
        return call("pow", lhs, rhs)

    def compute(self, args: Sequence[Tensor], attrs: Any, out: TensorType) -> Tensor:
        if out.dtype.is_float:
            return super().compute(args, attrs, out)
        return _power_by_squaring(args[0], args[1], out)

    def neutral(self, argument: int, dtype: DataType) -> float | None:
        return 1 if argument == 1 else None


def _power_by_squaring(lhs: Tensor, rhs: Tensor, out: TensorType) -> Tensor:
    """Compute an integer power over the bits of the exponent, lowest first: one accumulator holds the product so far,
    the other the base squared once for each bit."""
    dtype: DataType = out.dtype
    bits = dtype.bits - dtype.is_int
    bit = te.reduce_axis(bits, "bit")

    def element(*place: Var) -> te.Reduction:
        base, exponent = read_broadcast(lhs, place), read_broadcast(rhs, place)
        is_set = binary("bitand", exponent >> cast(dtype, bit), const(1, dtype))

        def combine(accumulators: Sequence[Expr], values: Sequence[Expr]) -> Sequence[Expr]:
            product, square = accumulators
            taken, first = values
            factor = select(bit.equal(0), first, square * square)
            return product * select(taken.equal(0), const(1, dtype), factor), factor

        return te.Reduction((bit,), (const(1, dtype), const(1, dtype)), (is_set, base), combine)

    product = te.compute(out.shape, element, name="power_product")

    def signed(*place: Var) -> Expr:
        base, exponent = read_broadcast(lhs, place), read_broadcast(rhs, place)
        if not dtype.is_int:
            return product[place]
        odd = binary("bitand", exponent, const(1, dtype)).equal(1)
        unit = select(base.equal(-1) & odd, const(-1, dtype), const(1, dtype))
        is_unit = base.equal(1) | base.equal(-1)
        reciprocal = select(is_unit, unit, const(0, dtype))
        return select(exponent < 0, reciprocal, product[place])

    return te.compute(out.shape, signed, name="power")
