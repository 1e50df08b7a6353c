"""Vectors of indices: the value of each lane, and vectors as ramps and broadcasts."""

from __future__ import annotations

from tilewright.tensorir.arith.index import IndexAlgebra
from tilewright.tensorir.arith.lane_numbers import lane_number
from tilewright.tensorir.arith.linear import ZERO, Linear, constant
from tilewright.tensorir.expr import BinaryOp, Broadcast, Expr, Ramp, UnaryOp, Var, binary
from tilewright.tensorir.functor import uses_var


def per_lane(expr: Expr, lane: Var) -> Expr | None:
    """The value of lane number ``lane`` of an int64 vector, as a scalar; None if it isn't built by arithmetic."""
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
    parts = _base_and_stride(algebra, expr)
    if parts is not None:
        return _vector(algebra, parts[0], parts[1], lanes)
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


def _base_and_stride(algebra: IndexAlgebra, expr: Expr) -> tuple[Linear, Linear] | None:
    """First element and step of a ramp, a broadcast, or a sum of these; None for other vectors, which are analyzed lane
    by lane."""
    if isinstance(expr, Ramp):
        return algebra.linear(expr.base), algebra.linear(expr.stride)
    if isinstance(expr, Broadcast):
        return algebra.linear(expr.value), ZERO
    if not isinstance(expr, BinaryOp) or expr.op not in ("add", "sub"):
        return None
    a = _base_and_stride(algebra, expr.a)
    b = None if a is None else _base_and_stride(algebra, expr.b)
    if a is None or b is None:
        return None
    factor = 1 if expr.op == "add" else -1
    base, stride = a[0].combine(b[0], factor), a[1].combine(b[1], factor)
    return algebra.merge_remainders(base), algebra.merge_remainders(stride)
