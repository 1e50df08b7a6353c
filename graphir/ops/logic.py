"""Compute logic on bools and on the bits of integers."""

from __future__ import annotations

import numpy as np

from tilewright.graphir.op import register_operator
from tilewright.graphir.ops.common import INTEGERS, Binary, Unary
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.expr import Expr, binary, const, select

BITS = ("bool", *INTEGERS)


@register_operator
class logical_and(Binary):
    """Compute the logical and of two bools elementwise, with NumPy's broadcasting."""

    name = "logical_and"
    idempotent = True
    dtypes = ("bool",)
    function = np.logical_and

    def scalar(self, lhs: Expr, rhs: Expr) -> Expr:
        return lhs & rhs

    def neutral(self, argument: int, dtype: DataType) -> float:
        return 1


@register_operator
class logical_or(Binary):
    """Compute the logical or of two bools elementwise, with NumPy's broadcasting."""

    name = "logical_or"
    idempotent = True
    dtypes = ("bool",)
    function = np.logical_or

    def scalar(self, lhs: Expr, rhs: Expr) -> Expr:
        return lhs | rhs

    def neutral(self, argument: int, dtype: DataType) -> float:
        return 0


@register_operator
class logical_xor(Binary):
    """Compute the exclusive or of two bools elementwise, with NumPy's broadcasting: true where exactly one of them
    is."""

    name = "logical_xor"
    dtypes = ("bool",)
    function = np.logical_xor

    def scalar(self, lhs: Expr, rhs: Expr) -> Expr:
        return lhs.not_equal(rhs)

    def neutral(self, argument: int, dtype: DataType) -> float:
        return 0


@register_operator
class logical_not(Unary):
    """Negate bools elementwise."""

    name = "logical_not"
    involution = True
    dtypes = ("bool",)
    function = np.logical_not

    def scalar(self, x: Expr) -> Expr:
        return ~x


@register_operator
class bitwise_and(Binary):
    """Compute the bitwise and of two integers elementwise, with NumPy's broadcasting; for bools ``logical_and``."""

    name = "bitwise_and"
    idempotent = True
    dtypes = BITS
    function = np.bitwise_and

    def scalar(self, lhs: Expr, rhs: Expr) -> Expr:
        return lhs & rhs

    def neutral(self, argument: int, dtype: DataType) -> float:
        return -1 if dtype.is_int else 1 if dtype.is_bool else (1 << dtype.bits) - 1


@register_operator
class bitwise_or(Binary):
    """Compute the bitwise or of two integers elementwise, with NumPy's broadcasting; for bools ``logical_or``."""

    name = "bitwise_or"
    idempotent = True
    dtypes = BITS
    function = np.bitwise_or

    def scalar(self, lhs: Expr, rhs: Expr) -> Expr:
        return lhs | rhs

    def neutral(self, argument: int, dtype: DataType) -> float:
        return 0


@register_operator
class bitwise_xor(Binary):
    """Compute the bitwise exclusive or of two integers elementwise, with NumPy's broadcasting; for bools
    ``logical_xor``."""

    name = "bitwise_xor"
    dtypes = BITS
    function = np.bitwise_xor

    def scalar(self, lhs: Expr, rhs: Expr) -> Expr:
        return lhs.not_equal(rhs) if lhs.dtype.is_bool else binary("bitxor", lhs, rhs)

    def neutral(self, argument: int, dtype: DataType) -> float:
        return 0


@register_operator
class bitwise_not(Unary):
    """Flip every bit of integers elementwise; for bools ``logical_not``."""

    name = "bitwise_not"
    involution = True
    dtypes = BITS
    function = np.bitwise_not

    def scalar(self, x: Expr) -> Expr:
        return ~x


def _in_range(shift: Expr) -> Expr:
    below = shift < shift.dtype.bits
    return below & (shift >= 0) if shift.dtype.is_int else below


@register_operator
class left_shift(Binary):
    """Shift ``lhs`` left by ``rhs`` bits elementwise; 0 for a shift that is negative or as wide as the type, as in
    NumPy."""

    name = "left_shift"
    dtypes = INTEGERS
    function = np.left_shift

    def scalar(self, lhs: Expr, rhs: Expr) -> Expr:
        fits, zero = _in_range(rhs), const(0, lhs.dtype)
        return select(fits, lhs << select(fits, rhs, zero), zero)

    def neutral(self, argument: int, dtype: DataType) -> float | None:
        return 0 if argument == 1 else None


@register_operator
class right_shift(Binary):
    """Shift ``lhs`` right by ``rhs`` bits elementwise, keeping its sign; a shift that is negative or as wide as the
    type leaves only the sign, as in NumPy."""

    name = "right_shift"
    dtypes = INTEGERS
    function = np.right_shift

    def scalar(self, lhs: Expr, rhs: Expr) -> Expr:
        fits, zero = _in_range(rhs), const(0, lhs.dtype)
        sign = select(lhs < 0, const(-1, lhs.dtype), zero) if lhs.dtype.is_int else zero
        return select(fits, lhs >> select(fits, rhs, zero), sign)

    def neutral(self, argument: int, dtype: DataType) -> float | None:
        return 0 if argument == 1 else None
