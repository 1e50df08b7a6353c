"""Interval analysis against NumPy: whatever values the variables take, an expression lies in its interval."""

from __future__ import annotations

import itertools
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tilewright.tensorir.arith.interval import Interval, type_interval
from tilewright.tensorir.arith.transfer import IntervalAnalysis
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.expr import (
    BinaryOp,
    Broadcast,
    Buffer,
    BufferLoad,
    Cast,
    Choose,
    Compare,
    Expr,
    IntImm,
    Ramp,
    Select,
    UnaryOp,
    Var,
    as_expr,
    call,
)

PROPERTY = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
DTYPES = ("int8", "uint8", "int32", "int64")
ENVIRONMENT = [(Var(f"{name}_{dtype}", DataType(dtype)), dtype) for dtype in DTYPES for name in "ab"]
OPS = ("add", "sub", "mul", "floordiv", "floormod", "truncdiv", "truncmod", "min", "max", "bitand", "bitor", "bitxor")


@st.composite
def expressions(draw: Any, dtype: str, depth: int = 3) -> Expr:
    kind = DataType(dtype)
    limits = type_interval(kind)
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        if draw(st.booleans()):
            return draw(st.sampled_from([var for var, name in ENVIRONMENT if name == dtype]))
        small = st.integers(max(-9, int(limits.lower)), 9)
        return IntImm(draw(st.one_of(small, st.integers(int(limits.lower), int(limits.upper)))), kind)
    shape = draw(st.sampled_from(("binary", "binary", "binary", "shift", "unary", "select", "cast")))
    first = draw(expressions(draw(st.sampled_from(DTYPES)) if shape == "cast" else dtype, depth - 1))
    if shape == "cast":
        return Cast(kind, first)
    if shape == "unary":
        return UnaryOp(draw(st.sampled_from(("neg", "bitnot"))), first)
    if shape == "shift":
        return BinaryOp(draw(st.sampled_from(("shl", "shr"))), first, IntImm(draw(st.integers(0, kind.bits - 1)), kind))
    second = draw(expressions(dtype, depth - 1))
    if shape == "select":
        return Select(Compare("lt", first, second), first, second)
    return BinaryOp(draw(st.sampled_from(OPS)), first, second)


@st.composite
def environments(draw: Any) -> dict[Var, tuple[int, int]]:
    """The least and the greatest value of each variable: a few numbers, near zero or an end of the type."""
    found = {}
    for var, dtype in ENVIRONMENT:
        limits = type_interval(DataType(dtype))
        low = draw(st.one_of(st.integers(-4, 4), st.sampled_from((int(limits.lower), int(limits.upper) - 4))))
        low = max(low, int(limits.lower))
        found[var] = low, low + draw(st.integers(0, 4))
    return found


def evaluate(expr: Expr, values: dict[Var, Any]) -> Any:
    """Evaluate an expression over arrays of values with NumPy; a division by zero gives zero."""
    if isinstance(expr, Var):
        return values[expr]
    if isinstance(expr, IntImm):
        return expr.dtype.numpy.type(expr.value)
    if isinstance(expr, Cast):
        return np.asarray(evaluate(expr.value, values)).astype(expr.dtype.numpy)
    if isinstance(expr, UnaryOp):
        value = evaluate(expr.a, values)
        return np.negative(value) if expr.op == "neg" else np.invert(value)
    if isinstance(expr, Select):
        assert isinstance(expr.condition, Compare)
        truth = evaluate(expr.condition.a, values) < evaluate(expr.condition.b, values)
        return np.where(truth, evaluate(expr.true_value, values), evaluate(expr.false_value, values))
    assert isinstance(expr, BinaryOp)
    a, b = evaluate(expr.a, values), evaluate(expr.b, values)
    if expr.op == "truncdiv":
        rest = np.remainder(a, b) != 0
        return (np.floor_divide(a, b) + (rest & ((a < 0) != (b < 0)))).astype(expr.dtype.numpy)
    names = {"sub": "subtract", "mul": "multiply", "floordiv": "floor_divide", "floormod": "remainder"}
    names |= {"truncmod": "fmod", "min": "minimum", "max": "maximum", "bitand": "bitwise_and", "bitor": "bitwise_or"}
    names |= {"bitxor": "bitwise_xor", "shl": "left_shift", "shr": "right_shift"}
    return getattr(np, names.get(expr.op, expr.op))(a, b)


@PROPERTY
@given(st.sampled_from(DTYPES).flatmap(expressions), environments(), st.integers(0, 2**32 - 1))
def test_values_lie_in_the_interval(expr: Expr, ranges: dict[Var, tuple[int, int]], seed: int) -> None:
    random = np.random.default_rng(seed)
    known = IntervalAnalysis()
    values = {}
    for var, (low, high) in ranges.items():
        known.variables[var] = Interval(low, high)
        values[var] = random.integers(low, high, 200, var.dtype.numpy, endpoint=True)
    found = known.of(expr)
    with np.errstate(all="ignore"):
        result = np.asarray(evaluate(expr, values))
    assert result.dtype == expr.dtype.numpy
    assert found.lower <= int(result.min()) and int(result.max()) <= found.upper
    limits = type_interval(expr.dtype)
    assert limits.lower <= found.lower <= found.upper <= limits.upper


@PROPERTY
@given(
    st.lists(st.tuples(st.integers(-9, 9), st.integers(-20, 20), st.integers(0, 5)), min_size=1, max_size=3),
    st.integers(-50, 50),
    st.sampled_from(("int8", "int64")),
)
def test_an_affine_expression_reaches_both_ends(terms: list[tuple[int, int, int]], offset: int, dtype: str) -> None:
    """Unless a part of it wraps around in its type."""
    kind = DataType(dtype)
    known = IntervalAnalysis()
    expr: Expr = IntImm(offset, kind)
    wraps = False
    for number, (factor, low, count) in enumerate(terms):
        var = Var(f"v{number}", kind)
        known.variables[var] = Interval(low, low + count)
        expr = BinaryOp("add", expr, BinaryOp("mul", var, IntImm(factor, kind)))
        wraps = wraps or known.may_wrap(expr) or known.may_wrap(expr.b)
    corners = [offset + sum(x) for x in itertools.product(*[(f * low, f * (low + n)) for f, low, n in terms])]
    assert not wraps or dtype == "int8"
    if not wraps:
        assert known.of(expr) == (min(corners), max(corners))


def test_data_wraps_around_and_sizes_do_not() -> None:
    known = IntervalAnalysis()
    n, i, table = Var("n"), Var("i"), Buffer("table", (8,), "int64")
    known.bind_size(n)
    known.bind_loop(i, as_expr(0), n)
    assert not known.may_wrap(BinaryOp("mul", i, BinaryOp("add", n, IntImm(2))))
    assert known.may_wrap(BinaryOp("mul", i, IntImm(1 << 40)))  # no size but a hash
    data = BinaryOp("max", BufferLoad(table, (as_expr(0),)), IntImm(0))
    assert known.of(data) == (0, (1 << 63) - 1)
    assert known.may_wrap(BinaryOp("add", data, IntImm(1)))


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (BufferLoad(Buffer("bytes", (8,), "uint8"), (as_expr(0),)), (0, 255)),
        (call("popcount", BufferLoad(Buffer("words", (8,), "int16"), (as_expr(0),))), (0, 16)),
        (Cast(DataType("int32"), Compare("lt", Var("x"), Var("y"))), (0, 1)),
        (Cast(DataType("int8"), BinaryOp("bitor", IntImm(200), IntImm(3))), (-53, -53)),
        (Ramp(IntImm(5), IntImm(-2), 4), (-1, 5)),
        (Broadcast(IntImm(5), 4), (5, 5)),
        (Choose(Var("x"), (IntImm(5), IntImm(-2), IntImm(3))), (-2, 5)),
        (BinaryOp("floormod", BinaryOp("add", BinaryOp("bitand", Var("x"), IntImm(3)), IntImm(17)), IntImm(8)), (1, 4)),
    ],
)
def test_what_is_known_of_other_expressions(expr: Expr, expected: tuple[int, int]) -> None:
    assert IntervalAnalysis().of(expr) == expected
