"""Fold a node over simplified operands: compute constants, and move broadcasts outside of operations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.tensorir.dtype import BOOL, DataType
from tilewright.tensorir.expr import (
    BinaryOp,
    Broadcast,
    BufferLoad,
    Call,
    Cast,
    Compare,
    Expr,
    FloatImm,
    IntImm,
    Ramp,
    Select,
    UnaryOp,
    binary,
    cast,
    compare,
    const,
    select,
)
from tilewright.tensorir.folding import fold_compare, wrap_integer

_BYTE = DataType("uint8")


def is_true(expr: Expr) -> bool:
    """Return whether ``expr`` is a constant that holds (in all lanes)."""
    if isinstance(expr, Broadcast):
        expr = expr.value
    return isinstance(expr, IntImm) and bool(expr.value)


def is_false(expr: Expr) -> bool:
    """Return whether ``expr`` is a constant that does not hold (in any lane)."""
    if isinstance(expr, Broadcast):
        expr = expr.value
    return isinstance(expr, IntImm) and not expr.value


def _splat(expr: Any, make: Callable[..., Expr], *operands: Expr) -> Expr:
    """The operation on scalars, broadcast, where all operands are broadcasts."""
    if all(isinstance(o, Broadcast) for o in operands):
        values = [o.value for o in operands if isinstance(o, Broadcast)]
        return Broadcast(make(*values), expr.dtype.lanes)
    result: Expr = expr
    return result


def _fold_binary(expr: BinaryOp) -> Expr:
    if expr.dtype.lanes != 1:
        return _splat(expr, lambda a, b: BinaryOp(expr.op, a, b), expr.a, expr.b)
    if isinstance(expr.a, (IntImm, FloatImm)) and isinstance(expr.b, (IntImm, FloatImm)):
        folded = binary(expr.op, expr.a, expr.b)
        return expr if isinstance(folded, BinaryOp) else folded
    return expr


def _fold_unary(expr: UnaryOp) -> Expr:
    a = expr.a
    if expr.dtype.lanes != 1:
        return _splat(expr, lambda v: UnaryOp(expr.op, v), a)
    if isinstance(a, FloatImm):
        return FloatImm(-a.value, a.dtype)
    if isinstance(a, IntImm):
        value = {"neg": -a.value, "not": 1 - a.value, "bitnot": ~a.value}[expr.op]
        return const(value, a.dtype)
    return expr


def _fold_compare(expr: Compare) -> Expr:
    if expr.dtype.lanes != 1:
        a, b = _lane_values(expr.a), _lane_values(expr.b)
        if a is not None and b is not None:
            found = {fold_compare(expr.op, x, y) for x, y in zip(a, b, strict=True)}
            return const(found.pop(), expr.dtype) if len(found) == 1 else expr
        return _splat(expr, lambda a, b: Compare(expr.op, a, b), expr.a, expr.b)
    if isinstance(expr.a, (IntImm, FloatImm)) and isinstance(expr.b, (IntImm, FloatImm)):
        return compare(expr.op, expr.a, expr.b)
    return expr


def _lane_values(expr: Expr) -> list[int] | None:
    """The integer in each lane, if all are constants."""
    if isinstance(expr, Broadcast) and isinstance(expr.value, IntImm):
        return [expr.value.value] * expr.lanes
    if isinstance(expr, Ramp) and isinstance(expr.base, IntImm) and isinstance(expr.stride, IntImm):
        numbers = range(expr.lanes)
        return [wrap_integer(expr.base.value + lane * expr.stride.value, expr.base.dtype) for lane in numbers]
    return None


def _fold_select(expr: Select) -> Expr:
    condition = expr.condition
    if isinstance(condition, Broadcast):
        return Select(condition.value, expr.true_value, expr.false_value)
    if isinstance(condition, IntImm):
        return select(condition, expr.true_value, expr.false_value)
    if expr.dtype is BOOL:
        true_value, false_value = expr.true_value, expr.false_value
        if is_true(true_value) and is_false(false_value):
            return condition
        if is_false(true_value) and is_true(false_value):
            return UnaryOp("not", condition)
    return expr


def _fold_cast(expr: Cast) -> Expr:
    value, dtype = expr.value, expr.dtype
    if dtype is value.dtype:
        return value
    if isinstance(value, Broadcast):
        return Broadcast(cast(dtype.element, value.value), dtype.lanes)
    if isinstance(value, IntImm):
        source = np.asarray(value.value, value.dtype.numpy)
        return const(source.astype(dtype.numpy).item(), dtype)  # one rounding from the integer
    if isinstance(value, FloatImm):
        if dtype.is_float:
            return FloatImm(float(dtype.numpy.type(value.value)), dtype)
        if dtype.is_bool:
            return IntImm(int(value.value != 0), dtype)
        if math.isfinite(value.value):
            whole = int(value.value)
            if const(whole, dtype).value == whole:  # type: ignore[attr-defined]
                return IntImm(whole, dtype)  # a value out of range is left to the machine's conversion
        return expr
    if isinstance(value, Cast) and value.value.dtype is dtype and _widens(dtype, value.dtype):
        return value.value  # a cast to a wider type and back
    return expr


def _widens(narrow: Any, wide: Any) -> bool:
    """Return whether every value of ``narrow`` is a value of ``wide``."""
    if narrow.is_bool:
        return not wide.is_bool
    if narrow.is_float:
        return bool(wide.is_float and wide.bits > narrow.bits)
    if wide.is_float or wide.is_bool:
        return False
    return bool(wide.bits >= narrow.bits)  # wrapping to the wider type and back keeps the bits


def _fold_load(expr: BufferLoad) -> Expr:
    if expr.predicate is None:
        return expr
    if is_true(expr.predicate):
        return BufferLoad(expr.buffer, expr.indices)
    return _zero_bits(expr.dtype) if is_false(expr.predicate) else expr


def _zero_bits(dtype: DataType) -> Expr:
    """The value whose bits are zero; types that are only stored have no constants."""
    if dtype.kind == "storage":
        return Call("reinterpret", (const(0, _BYTE.with_lanes(dtype.lanes)),), dtype)
    return const(0, dtype)


#: By the class of a node: the node that it folds to, or the same one.
FOLDS: dict[type[Expr], Callable[[Any], Expr]] = {
    BinaryOp: _fold_binary,
    UnaryOp: _fold_unary,
    Compare: _fold_compare,
    Select: _fold_select,
    Cast: _fold_cast,
    BufferLoad: _fold_load,
}


def fold(expr: Expr) -> Expr:
    """``expr`` folded at its top; its operands are taken as they are."""
    by_class = FOLDS.get(type(expr))
    return expr if by_class is None else by_class(expr)
