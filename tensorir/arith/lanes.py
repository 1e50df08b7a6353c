"""Vectors of indices: what each lane holds, and ramps and broadcasts of them."""

from __future__ import annotations

from tilewright.tensorir.arith.index import IndexAlgebra
from tilewright.tensorir.arith.lane_numbers import lane_number
from tilewright.tensorir.arith.linear import Linear, constant
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
    if not stride.terms and stride.const == 0:
        return algebra.intern.node(Broadcast(algebra.expr(base), lanes))
    return algebra.intern.node(Ramp(algebra.expr(base), algebra.expr(stride), lanes))
