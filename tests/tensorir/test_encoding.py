"""Encoded functions come back as they were, and equal ones have equal records."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from strategies import prim_funcs
from test_structural import DIFFERENCES, program

from tilewright.tensorir.encoding import encode
from tilewright.tensorir.errors import EncodingError
from tilewright.tensorir.expr import Buffer, FloatImm, IntImm, Var
from tilewright.tensorir.functor import copy_with_fresh_definitions
from tilewright.tensorir.keys import OPERATORS
from tilewright.tensorir.parser import parse
from tilewright.tensorir.stmt import BufferStore, Evaluate, For, PrimFunc, SeqStmt, Stmt
from tilewright.tensorir.structural import structural_equal


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(prim_funcs())
def test_functions_come_back(func: PrimFunc) -> None:
    found = encode(func).decode()
    assert str(found) == str(func)
    assert structural_equal(found, func)
    assert encode(found) == encode(func)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(prim_funcs())
def test_copies_have_equal_records_however_they_share_operands(func: PrimFunc) -> None:
    assert encode(parse(str(func))).records == encode(func).records
    copy = copy_with_fresh_definitions(func)
    assert isinstance(copy, PrimFunc)
    assert encode(copy).digest() == encode(func).digest()


def test_names_stand_apart() -> None:
    first, second = encode(program()), encode(program("klmXYz"))
    assert first.digest() == second.digest()
    assert first.names != second.names
    assert str(first.decode()) == str(program())


@pytest.mark.parametrize("difference", DIFFERENCES, ids=str)
def test_every_other_difference_matters(difference: dict[str, object]) -> None:
    first, second = encode(program()), encode(program(**difference))  # type: ignore[arg-type]
    assert first.digest() != second.digest()
    assert str(second.decode()) == str(program(**difference))  # type: ignore[arg-type]


def test_where_a_function_comes_from_is_no_part_of_the_records() -> None:
    func = program()
    labelled = PrimFunc("f", func.params, func.body, {OPERATORS: ("exp", "add"), **func.attrs, "kind": "opaque"})
    plain = PrimFunc("f", func.params, func.body, {**func.attrs, "kind": "opaque"})
    assert encode(labelled).records == encode(plain).records
    assert str(encode(labelled).decode()) == str(labelled)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.0, 0.1, 1e-45])
def test_numbers_come_back_bit_by_bit(value: float) -> None:
    a = Buffer("a", (4,))
    func = PrimFunc("f", (a,), BufferStore(a, FloatImm(value), (0,)), {"note": value, "n": np.float32(value)})
    found = encode(func).decode()
    assert isinstance(found.body, BufferStore) and isinstance(found.body.value, FloatImm)
    for number in (found.body.value.value, found.attrs["note"]):
        assert float(np.float32(number)).hex() == float(np.float32(value)).hex()
    assert type(found.attrs["n"]) is np.float32


def test_deep_functions_and_operands_with_many_paths_take_linear_time() -> None:
    body: Stmt = SeqStmt(())
    for _ in range(3000):
        body = For(Var("i"), 0, 2, "serial", body)
    value = Var("n") + 1
    for _ in range(100):
        value = value * value
    func = PrimFunc("f", (Var("n"),), SeqStmt((body, Evaluate(value))))
    found = encode(func)
    assert len(found.names) == 3003
    assert encode(found.decode()).records == found.records


def test_what_is_no_plain_data_is_refused() -> None:
    func = program()
    for value in (object(), {1, 2}, [object()]):
        with pytest.raises(EncodingError, match="plain data"):
            encode(PrimFunc("f", func.params, func.body, {"note": value}))


def test_integer_parameters_may_be_given() -> None:
    func = program()
    assert encode(func).decode(func.variables).variables == func.variables
    others = [Var("a"), Var("b")]
    found = encode(func).decode(others)
    assert list(found.variables) == others and structural_equal(found, func)
    for wrong in ([Var("a")], [Var("a"), Var("b", "int32")]):
        with pytest.raises(EncodingError, match="expected variables"):
            encode(func).decode(wrong)


def test_annotations_may_hold_expressions() -> None:
    n = Var("n")
    func = PrimFunc("f", (n,), For(Var("i"), 0, n, "parallel", Evaluate(IntImm(1)), {"parallel_if": n > 4}))
    found = encode(func).decode()
    assert str(found) == str(func)
    assert isinstance(found.body, For) and found.body.annotations["parallel_if"].a is found.params[0]
