"""Vectors of indices: the value of each lane, and vectors as ramps and broadcasts."""

from __future__ import annotations

from typing import Final

from tilewright.tensorir.arith.index import IndexAlgebra
from tilewright.tensorir.arith.iter_map import multiples
from tilewright.tensorir.arith.lane_numbers import lane_number
from tilewright.tensorir.arith.linear import Linear, constant
from tilewright.tensorir.conditions import conjunction, conjuncts
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import (
    BinaryOp,
    Broadcast,
    Cast,
    Compare,
    Expr,
    IntImm,
    Ramp,
    UnaryOp,
    binary,
    cast,
    compare,
    const,
)
from tilewright.tensorir.functor import uses_var

#: The step between the lanes of a vector of indices that are all equal.
LEVEL: Final = IntImm(0)


def base_and_stride(expr: Expr) -> tuple[Expr, Expr] | None:
    """The value of an integer in its first lane, and the step from lane to lane; None for vectors that are neither
    ramps nor broadcasts, whose lanes have to be looked at."""
    if isinstance(expr, Ramp):
        return expr.base, expr.stride
    value = expr.value if isinstance(expr, Broadcast) else expr
    dtype = value.dtype
    if dtype.lanes != 1 or not dtype.is_integer:
        return None
    return value, LEVEL if dtype is INT64 else const(0, dtype)


def even_lanes(expr: Expr) -> tuple[Expr, int] | None:
    """The value of an integer vector in its first lane, and the step from lane to lane; None if none is constant."""
    if isinstance(expr, Ramp):
        return (expr.base, expr.stride.value) if isinstance(expr.stride, IntImm) else None
    if isinstance(expr, Broadcast):
        return expr.value, 0
    if isinstance(expr, Cast) and expr.value.dtype.is_int:
        inner = even_lanes(expr.value)
        return None if inner is None else (cast(expr.dtype.element, inner[0]), inner[1])
    lane = lane_number(expr.dtype.lanes)
    scalar = per_lane(expr, lane)
    found = None if scalar is None else multiples(scalar, (lane,))
    return None if found is None else (found[1], found[0].get(lane, 0))


def per_lane(expr: Expr, lane: Expr) -> Expr | None:
    """The value of lane number ``lane`` of a vector of integers, as a scalar; None if it isn't built by arithmetic."""
    if isinstance(expr, Broadcast):
        return expr.value
    if isinstance(expr, Ramp):
        return expr.base + lane * expr.stride
    if isinstance(expr, BinaryOp):
        a, b = per_lane(expr.a, lane), per_lane(expr.b, lane)
        return None if a is None or b is None else binary(expr.op, a, b)
    if isinstance(expr, UnaryOp):
        a = per_lane(expr.a, lane)
        return None if a is None else UnaryOp(expr.op, a)
    return None


def affine_vector(algebra: IndexAlgebra, expr: Expr) -> Expr | None:
    """An int64 vector as a ramp or a broadcast, if it is one."""
    lanes = expr.dtype.lanes
    parts = base_and_stride(expr)
    if parts is not None:
        return _vector(algebra, algebra.linear(parts[0]), algebra.linear(parts[1]), lanes)
    lane = lane_number(lanes)
    scalar = per_lane(expr, lane)
    if scalar is None:
        return None
    base, stride = constant(0), constant(0)
    form = algebra.linear(scalar)
    base = base.shift(form.const)
    for term, coefficient in form.terms.items():
        factors = list(algebra.factors(term))
        if lane in factors:
            factors.remove(lane)
            if any(uses_var(factor, {lane}) for factor in factors):
                return None
            stride = stride.combine(algebra.product(tuple(factors)), coefficient)
        elif uses_var(term, {lane}):
            return None
        else:
            base = base.combine(Linear({term: 1}, 0), coefficient)
    return _vector(algebra, base, stride, lanes)


def _vector(algebra: IndexAlgebra, base: Linear, stride: Linear, lanes: int) -> Expr:
    if not stride.terms and stride.const == 0:
        return Broadcast(algebra.expr(base), lanes)
    return Ramp(algebra.expr(base), algebra.expr(stride), lanes)


def uniform_conjuncts(condition: Expr) -> tuple[list[Expr], list[Expr]]:
    """Split a condition into those that it joins by ``and``: the ones that are the same in all lanes, as scalars, and
    the others."""
    same, others = list[Expr](), list[Expr]()
    for part in conjuncts(condition):
        if part.dtype.lanes == 1:
            same.append(part)
        elif isinstance(part, Broadcast):
            same += conjuncts(part.value)
        else:
            others.append(part)
    return same, others


def split_lanes(condition: Expr) -> tuple[Expr | None, Expr | None]:
    """Return the part of a condition that is the same in all lanes, as a scalar, and the rest; None for nothing."""
    same, others = uniform_conjuncts(condition)
    return conjunction(same), conjunction(others)


def only_lane(predicate: Expr) -> int | None:
    """The number of the lane in which a constant vector of bools is true; None if there are several, or none, or if it
    is not known."""
    found = None
    for lane in range(predicate.dtype.lanes):
        known = _is_true_in(predicate, lane)
        if known is None or (known and found is not None):
            return None
        if known:
            found = lane
    return found


def _is_true_in(predicate: Expr, lane: int) -> bool | None:
    if isinstance(predicate, BinaryOp) and predicate.op in ("and", "or"):
        a, b = _is_true_in(predicate.a, lane), _is_true_in(predicate.b, lane)
        return None if a is None or b is None else (a and b) if predicate.op == "and" else (a or b)
    if isinstance(predicate, Compare) and predicate.a.dtype.is_integer:
        number = const(lane, predicate.a.dtype.element)
        first, second = per_lane(predicate.a, number), per_lane(predicate.b, number)
        if not isinstance(first, IntImm) or not isinstance(second, IntImm):
            return None
        known = compare(predicate.op, first, second)
        return bool(known.value) if isinstance(known, IntImm) else None
    if isinstance(predicate, Broadcast) and isinstance(predicate.value, IntImm):
        return bool(predicate.value.value)
    return None
