"""Check that ``if_then_else`` reads, divides and shifts only where its condition holds, wherever it runs."""

from __future__ import annotations

from collections.abc import Callable

import hypothesis.strategies as st
import numpy as np
import pytest
from both_targets import on_both_targets
from compiled_loops import run_compiled
from hypothesis import given, settings

import tilewright as tw
import tilewright.tensorir as ti
from tilewright import graphir as gi
from tilewright.tensorir.dtype import TENSOR_DTYPES
from tilewright.tensorir.errors import OutOfBoundsError
from tilewright.tensorir.guards import negation
from tilewright.tensorir.parser import parse_expr
from tilewright.tensorir.target import Target

#: Elements from here on are so far away that no memory is mapped there.
FAR = 1 << 42


def loop(formula: Callable[..., ti.Expr], size: int, dtype: str, kind: str = "serial", inputs: int = 1) -> ti.PrimFunc:
    """``y[i] = formula(x.., i)`` for all ``i``."""
    params = [ti.Buffer(f"x{number}", (size,), dtype) for number in range(inputs)]
    i = ti.Var("i")
    value = formula(*params, i)
    y = ti.Buffer("y", (size,), value.dtype)
    func = ti.PrimFunc(
        "f", (*params, y), ti.For(i, ti.const(0, "int64"), ti.const(size, "int64"), kind, y_of(y, i, value))
    )
    ti.verify(func)
    return func


def y_of(y: ti.Buffer, i: ti.Var, value: ti.Expr) -> ti.Stmt:
    return ti.BufferStore(y, value, (i,))


def array(size: int, dtype: str) -> np.ndarray:
    kind = ti.DataType(dtype)
    return np.random.default_rng(size).integers(0, 2 if kind.is_bool else 100, size).astype(kind.numpy)


def beyond(x: ti.Buffer, i: ti.Var) -> ti.Expr:
    """The elements before the fifth; what would be read from there on is no memory."""
    place = i + ti.cast("int64", i >= 5) * FAR
    return ti.if_then_else(i < 5, x[place], x[i - 5 - ti.cast("int64", i < 5) * FAR])


@on_both_targets
@pytest.mark.parametrize("dtype", TENSOR_DTYPES)
def test_no_target_reads_the_value_that_is_not_taken(target: Target, dtype: str) -> None:
    x = array(13, dtype)
    expected = np.concatenate([x[:5], x[:8]])
    func = loop(beyond, 13, dtype)
    for run in (ti.interpret, lambda *args: run_compiled(target, *args)):
        found = np.zeros_like(x)
        run(func, x, found)
        np.testing.assert_array_equal(found, expected)


@on_both_targets
@pytest.mark.parametrize("kind", ["vectorized", "unrolled", "parallel"])
@pytest.mark.parametrize("size", [5, 16, 37])
def test_loops_of_every_kind_guard_their_loads(target: Target, kind: str, size: int) -> None:
    x = array(size, "float32")
    found = np.zeros_like(x)
    run_compiled(target, loop(beyond, size, "float32", kind), x, found)
    np.testing.assert_array_equal(found, np.concatenate([x[:5], x[: max(size - 5, 0)]])[:size])


@on_both_targets
def test_what_an_index_is_read_from_is_guarded_too(target: Target) -> None:
    places, x = array(11, "int64") % 11, array(11, "int64")
    places[::2] = -FAR
    func = loop(lambda p, x, i: ti.if_then_else(p[i] >= 0, x[p[i]] - p[p[i]], -1), 11, "int64", inputs=2)
    for run in (ti.interpret, lambda *args: run_compiled(target, *args)):
        found = np.zeros(11, "int64")
        run(func, places, x, found)
        np.testing.assert_array_equal(found[::2], -1)
        np.testing.assert_array_equal(found[1::2], (x[places[1::2]] - places[places[1::2]]))


@on_both_targets
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint16", "uint64"])
def test_divisions_and_shifts_have_no_effect_where_they_are_not_taken(target: Target, dtype: str) -> None:
    a, b = array(9, dtype), array(9, dtype) % 3
    formulas: list[tuple[Callable[..., ti.Expr], Callable[..., np.ndarray]]] = [
        (lambda x, y, i: ti.if_then_else(y[i].not_equal(0), x[i] // y[i] + x[i] % y[i], 7), lambda q, r: q + r),
        (lambda x, y, i: ti.if_then_else(y[i].equal(0), 7, ti.truncdiv(x[i], y[i])), lambda q, r: q),
    ]
    for formula, expected in formulas:
        func = loop(formula, 9, dtype, inputs=2)
        for run in (ti.interpret, lambda *args: run_compiled(target, *args)):
            found = np.zeros_like(a)
            run(func, a, b, found)
            some = np.where(b == 0, 1, b)
            np.testing.assert_array_equal(found, np.where(b == 0, 7, expected(a // some, a % some)))


class Neighbours(gi.Operator):
    """The difference of each element and the one before."""

    name = "test.neighbours"
    arguments = ("x",)
    kind = "injective"

    def infer_type(self, args, attrs):  # type: ignore[no-untyped-def]
        return args[0]

    def reference(self, args, attrs):  # type: ignore[no-untyped-def]
        return np.diff(args[0], prepend=0)

    def compute(self, args, attrs, out):  # type: ignore[no-untyped-def]
        (x,) = args
        return ti.compute(out.shape, lambda i: ti.if_then_else(i > 0, x[i] - x[i - 1], x[i]), name="neighbours")


@on_both_targets
@pytest.mark.parametrize("size", [1, 7, 64, 1001])
def test_formulas_that_are_scheduled_guard_their_loads(target: Target, size: int) -> None:
    x = gi.var("x", shape=("n",), dtype="float32")
    model = tw.build(gi.Function([x], gi.exp(gi.Call(Neighbours(), [gi.tanh(x)]))), target)
    values = np.random.default_rng(size).standard_normal(size).astype("float32")
    np.testing.assert_allclose(model(values), np.exp(np.diff(np.tanh(values), prepend=0)), rtol=1e-5)


def test_a_select_reads_both_values() -> None:
    x, found = array(13, "float32"), np.zeros(13, "float32")
    func = loop(
        lambda x, i: ti.select(i < 5, x[ti.minimum(i, 4)], x[i + 4 - 4 * ti.cast("int64", i < 5) * i]), 13, "float32"
    )
    with pytest.raises(OutOfBoundsError, match="outside of shape"):
        ti.interpret(func, x, found)


@settings(max_examples=60, deadline=None)
@given(
    shifts=st.lists(st.integers(-12, 12), min_size=1, max_size=3),
    bounds=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    nested=st.booleans(),
)
def test_windows_over_the_border_are_those_of_a_padded_array(
    shifts: list[int], bounds: tuple[int, int], nested: bool
) -> None:
    low, high = min(bounds), max(bounds)
    x = array(9, "float32")

    def inside(place: ti.Expr) -> ti.Expr:
        return (place >= low) & (place < high)

    def window(x: ti.Buffer, i: ti.Var) -> ti.Expr:
        total: ti.Expr = ti.const(0.0, "float32")
        for shift in shifts:
            value = x[i + shift]
            if nested:
                value = ti.if_then_else(i + shift >= low, ti.if_then_else(i + shift < high, value, 0.0), 0.0)
            else:
                value = ti.if_then_else(inside(i + shift), value, 0.0)
            total = total + value
        return total

    func = loop(window, 9, "float32")
    assert ti.structural_equal(ti.parse(ti.to_text(func)), func)
    found = np.zeros(9, "float32")
    ti.interpret(func, x, found)
    padded = np.zeros(9 + 24, "float32")
    padded[12 + low : 12 + high] = x[low:high]
    np.testing.assert_array_equal(found, sum(padded[12 + shift :][:9] for shift in shifts))


def test_the_text_of_a_guarded_expression_says_where_it_reads() -> None:
    x, i = ti.Buffer("x", (8,)), ti.Var("i")
    expr = ti.if_then_else((i > 0) & (x[i] > 0.0), x[i - 1], ti.exp(x[i // i]))
    text = (
        "select(i > 0 and x[i] > 0.0, x[i - 1 where i > 0 and x[i] > 0.0], "
        "exp(x[i // select(not (i > 0 and x[i] > 0.0), i, 1) where not (i > 0 and x[i] > 0.0)]))"
    )
    assert str(expr) == text and parse_expr(text, {"x": x, "i": i}) is expr


def test_what_can_be_read_anywhere_has_no_predicate() -> None:
    x, t, i = ti.Buffer("x", (8,)), ti.Buffer("t", ()), ti.Var("i")
    relu = ti.if_then_else(x[i] > 0.0, x[i] * t[()], x[7] + x[8])
    assert str(relu) == "select(x[i] > 0.0, x[i] * t[()], x[7] + x[8 where not x[i] > 0.0])"
    ring = ti.if_then_else(x[i] > 0.0, x[i + 1], x[i])
    here, there = "x[i where i < 7]", "x[i + 1 where i < 7 and x[i where i < 7] > 0.0]"
    assert str(ti.if_then_else(i < 7, ring, 0.0)) == f"select(i < 7, select({here} > 0.0, {there}, {here}), 0.0)"


def test_a_predicate_that_is_there_stays() -> None:
    x, i = ti.Buffer("x", (8,)), ti.Var("i")
    load = ti.BufferLoad(x, (i,), i < 7)
    assert str(ti.if_then_else(i >= 0, load, 0.0)) == "select(i >= 0, x[i where i >= 0 and i < 7], 0.0)"
    assert str(ti.if_then_else(i < 7, load, 0.0)) == "select(i < 7, x[i where i < 7], 0.0)"


def test_a_known_condition_leaves_its_value() -> None:
    x, i = ti.Buffer("x", (8,)), ti.Var("i")
    assert ti.if_then_else(True, x[i], 0.0) is x[i]
    assert ti.if_then_else(False, x[i], 2.0) is ti.const(2.0, "float32")


@pytest.mark.parametrize("op", ["lt", "le", "gt", "ge", "eq", "ne"])
def test_the_negation_of_a_comparison_holds_for_nan_as_well(op: str) -> None:
    compare = ti.Compare(op, ti.Var("a", "float32"), ti.Var("b", "float32"))
    assert isinstance(negation(compare), ti.UnaryOp if op not in ("eq", "ne") else ti.Compare)
    integers = ti.Compare(op, ti.Var("a"), ti.Var("b"))
    assert negation(negation(integers)) is integers and negation(negation(compare)) is compare


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x, i: ti.if_then_else(i, x[i], 0.0), "if_then_else: expected a scalar bool condition, found int64: i"),
        (lambda x, i: ti.if_then_else(i > 0, x[i], i), "values have different types, float32 and int64"),
        (lambda x, i: ti.if_then_else(i > 0, ti.Call("@f", (i,), "int64"), i), "@f has an effect"),
    ],
)
def test_what_cannot_be_guarded_is_an_error(make: Callable[..., ti.Expr], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make(ti.Buffer("x", (8,)), ti.Var("i"))
