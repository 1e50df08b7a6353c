"""Expressions whose operands do not fit are refused where they are made: what was expected, and what came."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright import tensorir as ti
from tilewright.tensorir.dtype import BOOL, FLOAT32, INT32, INT64
from tilewright.tensorir.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    TilewrightError,
)
from tilewright.tensorir.expr import BufferLoad, Call, Choose, Ramp, Select, all_of, as_expr
from tilewright.tensorir.intrinsics import lowers

I, J, F, B = ti.Var("i"), ti.Var("j", INT32), ti.Var("f", FLOAT32), ti.Var("b", BOOL)
X = ti.Buffer("x", (8, 8), FLOAT32)
RAMP = Ramp(I, ti.IntImm(1), 4)

OPERATIONS: list[tuple[Callable[[], Any], type[TilewrightError], str]] = [
    (lambda: bool(I < 3), ArgumentTypeError, r"i < 3 has no truth value when the program is built"),
    (lambda: ti.FloatImm(1.0, "int8"), ArgumentTypeError, "FloatImm takes a float type, not int8"),
    (lambda: ti.IntImm(1, "float32"), ArgumentTypeError, "IntImm takes an integer or bool type, not float32"),
    (lambda: ti.BinaryOp("plus", I, I), ArgumentValueError, "unknown binary operation 'plus'; expected one of add"),
    (lambda: ti.BinaryOp("add", I, J), ArgumentTypeError, "add: operands have different types, int64 and int32: i, j"),
    (lambda: ti.BinaryOp("and", I, I), ArgumentTypeError, "and: expected bool operands, found int64"),
    (lambda: F & F, ArgumentTypeError, "bitand: expected integer operands, found float32"),
    (lambda: F << F, ArgumentTypeError, "shl: expected integer operands, found float32"),
    (lambda: I / I, ArgumentTypeError, "div: expected floating-point operands, found int64; integers have floordiv"),
    (lambda: B + B, ArgumentTypeError, "add: expected numbers, found bool"),
    (lambda: ti.UnaryOp("plus", I), ArgumentValueError, "unknown unary operation 'plus'; expected one of"),
    (lambda: ti.UnaryOp("not", I), ArgumentTypeError, "not: found an operand of type int64: i"),
    (lambda: -B, ArgumentTypeError, "neg: found an operand of type bool: b"),
    (lambda: ~F, ArgumentTypeError, "bitnot: found an operand of type float32: f"),
    (lambda: ti.Compare("near", I, I), ArgumentValueError, "unknown comparison 'near'; expected one of"),
    (lambda: ti.Compare("lt", I, J), ArgumentTypeError, "lt: operands have different types, int64 and int32"),
    (lambda: ti.Cast("float32x8", RAMP), ArgumentTypeError, "cast: int64x4 to float32x8 changes the number of lanes"),
    (lambda: ti.Broadcast(RAMP, 2), ArgumentTypeError, "broadcast: expected a scalar, found int64x4"),
    (lambda: ti.Broadcast(I, 1), ArgumentValueError, "broadcast: expected at least 2 lanes, found 1"),
    (lambda: Ramp(F, F, 4), ArgumentTypeError, "ramp: expected scalar integers, found float32 and float32"),
    (lambda: Ramp(I, J, 4), ArgumentTypeError, "ramp: expected scalar integers, found int64 and int32"),
    (lambda: Ramp(I, I, 1), ArgumentValueError, "ramp: expected at least 2 lanes, found 1"),
    (lambda: Select(B, I, F), ArgumentTypeError, "select: values have different types, int64 and float32"),
    (lambda: Select(I, F, F), ArgumentTypeError, "select: expected a bool condition with 1 or 1 lanes, found int64"),
    (lambda: Choose(F, (I,)), ArgumentTypeError, "choose: expected an integer as index, found float32"),
    (lambda: Choose(I, ()), ArgumentValueError, "choose: expected at least one value"),
    (lambda: Choose(I, (I, F)), ArgumentTypeError, "choose: values have different types, int64 and float32"),
    (lambda: as_expr(1.5, INT64), ArgumentTypeError, "expected a number of type int64, found 1.5"),
    (lambda: as_expr("1"), ArgumentTypeError, "expected an expression or a number, found str: '1'"),
]

ACCESSES: list[tuple[Callable[[], Any], type[TilewrightError], str]] = [
    (lambda: X[I], ArgumentTypeError, "buffer x has 2 dimensions, found 1 indices"),
    (lambda: X[I, F], ArgumentTypeError, "buffer x: expected integer indices, found float32: f"),
    (lambda: X[RAMP, Ramp(I, I, 8)], ArgumentTypeError, "buffer x: indices of 4 and 8 lanes"),
    (
        lambda: BufferLoad(X, (I, I), I),
        ArgumentTypeError,
        "expected a bool predicate of 1 lanes, found int64",
    ),
    (lambda: X.__setitem__((I, I), 1.0), ArgumentTypeError, "stands in a function decorated with @func"),
    (lambda: ti.Buffer("x", (8,), strides=(1, 2)), ArgumentValueError, "buffer x: 1 dimensions but 2 strides"),
    (
        lambda: ti.Buffer("x", (8,), scope="cloud"),
        ArgumentValueError,
        "unknown scope 'cloud'; expected one of",
    ),
]

CALLS: list[tuple[Callable[[], Any], type[TilewrightError], str]] = [
    (lambda: ti.call("exp", F, F), ArgumentTypeError, "exp: expected 1 arguments, found 2"),
    (lambda: ti.call("exp", I), ArgumentTypeError, "exp: expected float arguments of one type, found int64"),
    (lambda: Call("exp", (F,), INT64), ArgumentTypeError, "exp: gives float32, not int64"),
    (lambda: ti.call("reinterpret", F), ArgumentTypeError, "reinterpret: the call must state its result type"),
    (lambda: ti.call("tangle", F), ArgumentValueError, "unknown intrinsic 'tangle'; expected one of"),
    (lambda: lowers("llvm", "exp")(str), ArgumentValueError, "llvm has a lowering of the intrinsic exp already"),
]


@pytest.mark.parametrize(("make", "error", "message"), [*OPERATIONS, *ACCESSES, *CALLS])
def test_operands_that_do_not_fit(make: Callable[[], Any], error: type[TilewrightError], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (lambda: 5 - I, "5 - i"),
        (lambda: 5 // I, "5 // i"),
        (lambda: 5 % I, "5 % i"),
        (lambda: 2.0 / F, "2.0 / f"),
        (lambda: I >= 3, "i >= 3"),
        (lambda: I.not_equal(3), "i != 3"),
        (lambda: F.astype("int8"), "int8(f)"),
    ],
)
def test_operators_of_python_with_a_number_make_the_expression(expression: Callable[[], Any], text: str) -> None:
    assert str(expression()) == text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, ti.IntImm(1, BOOL)),
        (np.float16(0.5), ti.FloatImm(0.5, "float16")),
        (np.int8(-3), ti.IntImm(-3, "int8")),
        (np.array(7, "uint8"), ti.IntImm(7, "uint8")),
        (2.5, ti.FloatImm(2.5, FLOAT32)),
    ],
)
def test_numbers_become_constants_of_their_type(value: Any, expected: ti.Expr) -> None:
    assert as_expr(value) is expected


@pytest.mark.parametrize("index", [0, 1, 2, -1, 9])
def test_a_choice_equals_its_selections(index: int) -> None:
    """Any index that is none of the places gives the last value."""
    place, out = ti.Var("place"), ti.Buffer("out", (2,), INT64)
    choice = Choose(place, (ti.IntImm(5), ti.IntImm(7), ti.IntImm(9)))
    stores = [ti.BufferStore(out, value, (number,)) for number, value in enumerate([choice, choice.as_selections()])]
    found = np.zeros(2, np.int64)
    ti.interpret(ti.PrimFunc("f", (out, place), ti.sequence(*stores)), found, index)
    assert [*found] == [{0: 5, 1: 7}.get(index, 9)] * 2


def test_no_conditions_hold() -> None:
    assert all_of() is ti.IntImm(1, BOOL)


@pytest.mark.parametrize("made", [ti.IntImm(3), ti.Var("x"), ti.Evaluate(ti.IntImm(0))])
def test_a_node_does_not_change(made: Any) -> None:
    field = type(made).node_fields[0][0]
    with pytest.raises(AttributeError):
        setattr(made, field, 1)
    with pytest.raises(AttributeError):
        delattr(made, field)
    assert type(made) in (ti.IntImm, ti.Var, ti.Evaluate)


def test_a_loop_with_another_body_keeps_all_else() -> None:
    first, second = ti.Evaluate(I), ti.Evaluate(I + 1)
    loop = ti.For(I, ti.IntImm(0), ti.IntImm(4), "parallel", first, {"grain": 2})
    made = loop.with_body(second)
    assert type(made) is ti.For and made.body is second
    assert all(getattr(made, name) is getattr(loop, name) for name, _ in loop.node_fields if name != "body")
    assert loop.with_body(first) is loop


Y = ti.Buffer("y", (8,), FLOAT32)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda k: (I * 3).with_operands(k, I), lambda k: ti.BinaryOp("mul", k, I)),
        (lambda k: ti.Broadcast(I, 4).with_operands(k), lambda k: ti.Broadcast(k, 4)),
        (lambda k: RAMP.with_operands(k, I), lambda k: Ramp(k, I, 4)),
        (lambda k: BufferLoad(Y, (I,)).with_operands((k,)), lambda k: BufferLoad(Y, (k,))),
    ],
)
def test_an_expression_with_other_operands_is_the_one_of_the_constructor(
    made: Callable[[ti.Var], Any], expected: Callable[[ti.Var], Any]
) -> None:
    var, other = ti.Var("k"), ti.Var("k")
    first = made(var)
    assert first is expected(var) and first.dtype is expected(other).dtype
    assert made(other) is expected(other)


def test_a_store_with_other_operands_keeps_all_else() -> None:
    store = ti.BufferStore(Y, BufferLoad(Y, (I,)), (I,), B)
    made = store.with_operands(ti.FloatImm(1.0), (I + 1,))
    assert type(made) is ti.BufferStore
    assert (made.buffer, made.value, made.indices, made.predicate) == (Y, ti.FloatImm(1.0), (I + 1,), B)
