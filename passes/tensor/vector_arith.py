"""Build expressions over the lanes of vectors from scalar operations on operands some of which are vectors.

Index arithmetic stays in the form ``Ramp`` wherever it can, since code generators turn an access at ``Ramp(base, 1)``
into one contiguous load or store and everything else into a gather or scatter.
"""

from __future__ import annotations

from tilewright.tensorir.arith.lanes import base_and_stride
from tilewright.tensorir.dtype import INT32, DataType
from tilewright.tensorir.expr import (
    BinaryOp,
    Broadcast,
    Call,
    Cast,
    Compare,
    Expr,
    IntImm,
    Ramp,
    Select,
    UnaryOp,
    all_of,
    binary,
    call,
    cast,
    compare,
    const,
    select,
)


def widen(expr: Expr, lanes: int) -> Expr:
    """Return ``expr`` as a vector of ``lanes`` lanes; a scalar is broadcast."""
    return Broadcast(expr, lanes) if expr.dtype.lanes == 1 and lanes > 1 else expr


def common_lanes(*exprs: Expr) -> int:
    """Return the number of lanes of the vectors in ``exprs``; 1 if there are none."""
    lanes = 1
    for expr in exprs:
        if expr.dtype.lanes > lanes:
            lanes = expr.dtype.lanes
    return lanes


def ramp(base: Expr, stride: Expr, lanes: int) -> Expr:
    """Build a ``Ramp``, or a broadcast if the stride is zero."""
    if isinstance(stride, IntImm) and stride.value == 0:
        return Broadcast(base, lanes)
    return Ramp(base, stride, lanes)


def lane_numbers(lanes: int, dtype: DataType = INT32) -> Expr:
    """Return the vector 0, 1, 2, ..."""
    return Ramp(const(0, dtype), const(1, dtype), lanes)


def vector_binary(op: str, a: Expr, b: Expr) -> Expr:
    """Build ``a op b``; a scalar operand is broadcast."""
    lanes = max(a.dtype.lanes, b.dtype.lanes)
    if lanes == 1:
        return binary(op, a, b)
    x = base_and_stride(a)
    y = None if x is None else base_and_stride(b)
    if x is not None and y is not None:
        is_level = _is_zero(y[1])
        if op in ("add", "sub"):
            return ramp(binary(op, x[0], y[0]), x[1] if is_level else binary(op, x[1], y[1]), lanes)
        if op == "mul" and (is_level or _is_zero(x[1])):
            (base, stride), factor = (x, y[0]) if is_level else (y, x[0])
            return ramp(binary("mul", base, factor), binary("mul", stride, factor), lanes)
    if _is_uniform(a) and _is_uniform(b):
        return Broadcast(binary(op, _scalar(a), _scalar(b)), lanes)
    return BinaryOp(op, widen(a, lanes), widen(b, lanes))


def _is_zero(stride: Expr) -> bool:
    return isinstance(stride, IntImm) and stride.value == 0


def _is_uniform(expr: Expr) -> bool:
    return expr.dtype.lanes == 1 or isinstance(expr, Broadcast)


def _scalar(expr: Expr) -> Expr:
    return expr.value if isinstance(expr, Broadcast) else expr


def vector_compare(op: str, a: Expr, b: Expr) -> Expr:
    """Build the comparison, per lane."""
    lanes = common_lanes(a, b)
    if lanes == 1:
        return compare(op, a, b)
    if _is_uniform(a) and _is_uniform(b):
        return Broadcast(compare(op, _scalar(a), _scalar(b)), lanes)
    return Compare(op, widen(a, lanes), widen(b, lanes))


def vector_select(condition: Expr, true_value: Expr, false_value: Expr) -> Expr:
    """Build ``select``, per lane; a scalar condition selects for all lanes."""
    lanes = common_lanes(condition, true_value, false_value)
    if lanes == 1:
        return select(condition, true_value, false_value)
    if isinstance(condition, Broadcast):
        condition = condition.value
    if isinstance(condition, IntImm):
        return widen(true_value if condition.value else false_value, lanes)
    return Select(condition, widen(true_value, lanes), widen(false_value, lanes))


def vector_unary(op: str, a: Expr) -> Expr:
    """Build ``op a``, per lane."""
    if isinstance(a, Broadcast):
        return Broadcast(UnaryOp(op, a.value), a.lanes)
    if isinstance(a, Ramp) and op == "neg":
        return vector_binary("sub", const(0, a.base.dtype), a)
    return UnaryOp(op, a)


def vector_cast(dtype: DataType, a: Expr) -> Expr:
    """Convert ``a``, per lane. Truncating a ramp is exact modulo the type, extending it is not (it may wrap)."""
    target = dtype.element
    if isinstance(a, Broadcast):
        return Broadcast(cast(target, a.value), a.lanes)
    if isinstance(a, Ramp) and target.is_integer and target.bits <= a.base.dtype.bits:
        return Ramp(cast(target, a.base), cast(target, a.stride), a.lanes)
    lanes = a.dtype.lanes
    return Cast(dtype.with_lanes(lanes), a) if lanes > 1 else cast(target, a)


def vector_call(name: str, args: tuple[Expr, ...], dtype: DataType) -> Expr:
    """Build a call of an intrinsic that works on each lane independently."""
    lanes = common_lanes(*args)
    if lanes > 1 and all(_is_uniform(arg) for arg in args):
        return Broadcast(Call(name, tuple(_scalar(arg) for arg in args), dtype.element), lanes)
    return Call(name, tuple(widen(arg, lanes) for arg in args), dtype.with_lanes(lanes))


def conjunction(*conditions: Expr | None) -> Expr | None:
    """Join the conditions that are not None by ``and``; None if there are none or all are true."""
    result: Expr | None = None
    for condition in conditions:
        if condition is None or _is_true(condition):
            continue
        result = condition if result is None else vector_binary("and", result, condition)
    return result


def _is_true(condition: Expr) -> bool:
    scalar = _scalar(condition)
    return isinstance(scalar, IntImm) and bool(scalar.value)


def is_lane_limit(mask: Expr) -> bool:
    """Return whether the mask compares ascending lane positions with a limit, so that it holds for the first lanes
    only. Such a mask costs one instruction, and once loops are unrolled it is often decided."""
    if isinstance(mask, BinaryOp) and mask.op == "and":
        return is_lane_limit(mask.a) and is_lane_limit(mask.b)
    if isinstance(mask, Broadcast):
        return True
    if not isinstance(mask, Compare) or mask.op not in ("lt", "le"):
        return False
    positions, limit = mask.a, mask.b
    if not isinstance(positions, Ramp) or not isinstance(limit, Broadcast):
        return False
    return isinstance(positions.stride, IntImm) and positions.stride.value > 0


def any_lane(mask: Expr) -> Expr:
    """Build the condition that ``mask`` holds in at least one lane."""
    if mask.dtype.lanes == 1:
        return mask
    if is_lane_limit(mask):
        return _first_lane(mask)
    flags = Cast(DataType("int8").with_lanes(mask.dtype.lanes), mask)
    return compare("ne", call("reduce_max", flags), const(0, "int8"))


def _first_lane(mask: Expr) -> Expr:
    if isinstance(mask, Broadcast):
        return mask.value
    if isinstance(mask, BinaryOp):
        return all_of(_first_lane(mask.a), _first_lane(mask.b))
    assert isinstance(mask, Compare) and isinstance(mask.a, Ramp) and isinstance(mask.b, Broadcast)
    return compare(mask.op, mask.a.base, mask.b.value)
