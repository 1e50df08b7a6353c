"""The lanes of vectors of indices, against the values of each lane."""

from __future__ import annotations

import functools
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from tilewright.tensorir.arith.lane_numbers import lane_number
from tilewright.tensorir.arith.lanes import base_and_stride, even_lanes, per_lane
from tilewright.tensorir.expr import (
    BinaryOp,
    Broadcast,
    Buffer,
    BufferLoad,
    Cast,
    Expr,
    IntImm,
    Ramp,
    Var,
    as_expr,
    const,
)
from tilewright.tensorir.folding import fold_binary

PROPERTY = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
LANES = 4
I, N = Var("i"), Var("n")
AT = {I: 7, N: -3}
TABLE = Buffer("table", (64,), "int64")


def scalars() -> st.SearchStrategy[Expr]:
    constants = st.integers(-4, 4).map(IntImm)
    return st.one_of(constants, st.sampled_from([I, N, BinaryOp("mul", I, N), BinaryOp("add", I, IntImm(2))]))


@functools.cache
def vectors(depth: int) -> st.SearchStrategy[Expr]:
    """Draw a vector of indices as arithmetic makes them of ramps and broadcasts."""
    ramps = st.builds(Ramp, scalars(), scalars(), st.just(LANES))
    leaves = st.one_of(ramps, ramps, st.builds(Broadcast, scalars(), st.just(LANES)))
    if depth == 0:
        return leaves
    ops = st.sampled_from(["add", "sub", "mul", "mul", "floordiv"])
    return st.one_of(leaves, st.builds(BinaryOp, ops, vectors(depth - 1), vectors(depth - 1)))


def value(expr: Expr, lane: int) -> int:
    """The value of one lane."""
    if isinstance(expr, IntImm):
        return expr.value
    if isinstance(expr, Var):
        return AT.get(expr, lane)
    if isinstance(expr, Ramp):
        return value(expr.base, lane) + lane * value(expr.stride, lane)
    if isinstance(expr, (Broadcast, Cast)):
        return value(expr.value, lane)
    assert isinstance(expr, BinaryOp)
    found = fold_binary(expr.op, value(expr.a, lane), value(expr.b, lane), expr.dtype.element)
    return 0 if found is None else int(found)


@PROPERTY
@given(vectors(2))
def test_even_lanes_rise_by_the_step(vector: Expr) -> None:
    found = even_lanes(vector)
    if found is not None:
        first, step = found
        assert [value(first, 0) + lane * step for lane in range(LANES)] == [value(vector, n) for n in range(LANES)]


@PROPERTY
@given(vectors(2))
def test_the_scalar_of_a_lane_has_its_value(vector: Expr) -> None:
    scalar = per_lane(vector, lane_number(LANES))
    assert scalar is not None
    assert [value(scalar, lane) for lane in range(LANES)] == [value(vector, lane) for lane in range(LANES)]


def vector(op: str, a: Any, b: Any) -> Expr:
    return BinaryOp(op, *[side if isinstance(side, Expr) else Broadcast(as_expr(side), LANES) for side in (a, b)])


ROW = Ramp(I, as_expr(1), LANES)
NARROW = Ramp(const(3, "int32"), const(2, "int32"), LANES)


@pytest.mark.parametrize(
    ("expr", "first", "step"),
    [
        (ROW, I, 1),
        (Broadcast(N, LANES), N, 0),
        (vector("add", ROW, Broadcast(N, LANES)), I + N, 1),
        (vector("sub", 5, vector("mul", ROW, 3)), 5 - I * 3, -3),
        (vector("sub", ROW, ROW), I - I, 0),
        (vector("mul", Broadcast(N, LANES), Broadcast(I, LANES)), N * I, 0),
        (Cast("int64x4", NARROW), as_expr(3), 2),
    ],
)
def test_even_lanes_of_sums_and_products(expr: Expr, first: Expr, step: int) -> None:
    assert even_lanes(expr) == (first, step)


@pytest.mark.parametrize(
    "expr",
    [
        Ramp(I, N, LANES),
        vector("mul", ROW, Broadcast(N, LANES)),
        vector("mul", ROW, ROW),
        vector("floordiv", ROW, 2),
        BufferLoad(TABLE, (ROW,)),
    ],
)
def test_lanes_that_have_no_constant_step(expr: Expr) -> None:
    assert even_lanes(expr) is None


def test_bases_and_strides_of_scalars_ramps_and_broadcasts() -> None:
    assert base_and_stride(Ramp(I, N, LANES)) == (I, N)
    assert base_and_stride(Broadcast(N, LANES)) == (N, as_expr(0))
    assert base_and_stride(const(3, "int32")) == (const(3, "int32"), const(0, "int32"))
    assert base_and_stride(vector("add", ROW, ROW)) is None
    assert base_and_stride(Broadcast(const(1.0, "float32"), LANES)) is None
