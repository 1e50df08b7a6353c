"""``integer_value`` equals the interpreter's value wherever it returns a number."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from strategies import Loop, Scope, conditions, values

from tilewright.tensorir import interpret
from tilewright.tensorir.dtype import BOOL, DataType
from tilewright.tensorir.expr import BinaryOp, Buffer, BufferLoad, Cast, Expr, Select, Var, as_expr, const
from tilewright.tensorir.functor import walk
from tilewright.tensorir.known_numbers import integer_value
from tilewright.tensorir.stmt import BufferStore, PrimFunc

INTEGERS = ("int64", "int32", "int8", "uint8")
NUMBERS = st.one_of(st.integers(-5, 100), st.integers(-(1 << 63), (1 << 63) - 1))


def interpreted(expr: Expr, known: dict[Var, int]) -> int:
    out = Buffer("out", (as_expr(1),), expr.dtype)
    func = PrimFunc("value", (out, *known), BufferStore(out, expr, (as_expr(0),)), {"num_outputs": 1})
    result = np.zeros(1, expr.dtype.numpy)
    interpret(func, result, *known.values())
    return int(result[0])


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_numbers_are_those_of_the_interpreter(data: st.DataObject) -> None:
    i, j = Var("i"), Var("j")
    scope = Scope([Loop(i, 4), Loop(j, 4)], [])
    dtype = data.draw(st.sampled_from([*INTEGERS, "bool"]))
    expr = data.draw(conditions(scope, 3) if dtype == "bool" else values(scope, dtype, 4))
    known = {i: data.draw(NUMBERS), j: data.draw(NUMBERS)}
    found = integer_value(expr, known)
    if not any(isinstance(node, Expr) and node.dtype.is_float for node in walk(expr)):
        assert found is not None  # nothing keeps anybody from knowing it
    if found is not None:
        assert found == interpreted(expr, known)


@pytest.mark.parametrize("op", ["floordiv", "floormod", "truncdiv", "truncmod"])
def test_division_by_zero_has_no_number(op: str) -> None:
    i = Var("i")
    assert integer_value(BinaryOp(op, i, const(0, "int64")), {i: 3}) is None


def test_unknown_variables_and_data_have_no_number() -> None:
    i, x = Var("i"), Buffer("x", (4,), "int64")
    assert integer_value(i + 1, {}) is None
    assert integer_value(x[0] + 1, {}) is None
    assert integer_value(Cast(DataType("int64"), const(2.5, "float32")), {}) is None
    assert integer_value(BufferLoad(x, (as_expr(0),)), {i: 1}) is None


def test_only_the_chosen_part_of_a_selection_needs_to_be_known() -> None:
    i, unknown = Var("i"), Var("unknown")
    expr = Select(i > 3, i * 2, unknown)
    assert integer_value(expr, {i: 5}) == 10
    assert integer_value(expr, {i: 1}) is None
    assert integer_value(Select(const(True, BOOL), i, unknown), {i: 7}) == 7
