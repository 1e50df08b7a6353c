"""Nodes, texts and intrinsics of the loop-level IR that cannot be: each has an error of the family."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright import tensorir as ti
from tilewright.tensorir.dtype import MOST_LANES, DataType, as_dtype
from tilewright.tensorir.errors import ArgumentTypeError, ArgumentValueError, ParseError, TilewrightError

NOTHING = ti.Evaluate(ti.IntImm(0))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ti.Var("x", "float33"), "unknown data type"),
        (lambda: ti.Buffer("a", 4), "shape: expected a sequence of integers, found 4"),
        (lambda: ti.Buffer("a", "44"), "shape: expected a sequence of integers, found '44'"),
        (lambda: ti.Buffer("a", (4,), alignment=-1), "expected an alignment in bytes, found -1"),
        (lambda: ti.Buffer("a", (2**63,)), "an integer of 64 bits with sign, found 0x8"),
        (lambda: ti.For(ti.Var("i"), 0, 2**63, "serial", NOTHING), "an integer of 64 bits with sign"),
        (lambda: ti.Var("i") + 2**64, "an integer of 64 bits with sign"),
        (lambda: ti.Buffer("a", (1.5,)), "float|integer|int64"),
        (lambda: ti.PrimFunc("f", ("a",), NOTHING), "expected variables and buffers"),
        (lambda: ti.PrimFunc("f", (), NOTHING, {1: 2}), "expected attributes by name"),
        (lambda: ti.For(ti.Var("i"), 0, 4, "fast", NOTHING), "unknown kind 'fast'"),
        (lambda: ti.call("exp"), "expected 1 arguments, found none"),
        (lambda: ti.IntImm(2**63), "does not fit into int64"),
        (lambda: ti.IntImm(300, "int8"), "does not fit into int8"),
    ],
)
def test_nodes_that_cannot_be(make: Any, message: str) -> None:
    with pytest.raises(TilewrightError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ti.Var(5), "a variable's name is a string, found 5"),
        (lambda: ti.Buffer(None, (4,)), "a buffer's name is a string"),
        (lambda: ti.PrimFunc(None, (), NOTHING), "a function's name is a string"),
        (lambda: ti.PrimFunc("f", (), "a = 1"), "expected a statement as body, found str"),
        (lambda: ti.call([]), "unknown intrinsic"),
    ],
)
def test_fields_of_another_type(make: Any, message: str) -> None:
    """Compiled classes check the types that fields are declared with before our code sees the value."""
    compiled = hasattr(ti.Var, "__mypyc_attrs__")
    expected = (TypeError, "object expected; got") if compiled else (TilewrightError, message)
    with pytest.raises(expected[0], match=expected[1]):
        make()


@pytest.mark.parametrize("lanes", [0, MOST_LANES + 1, 10**30, "4" * 5000])
def test_numbers_of_lanes_that_no_vector_has(lanes: Any) -> None:
    """LLVM ends the process where it legalizes an operation of 65,536 lanes."""
    with pytest.raises(ArgumentValueError):
        DataType(f"float32x{lanes}")


@pytest.mark.parametrize("value", [object(), [1], "O", "datetime64[ns]", 5, ("a", "b", "c", "d")])
def test_what_names_no_data_type(value: Any) -> None:
    with pytest.raises(ArgumentValueError, match=r"data type"):
        as_dtype(value)


@pytest.mark.parametrize("given", [None, b"primfunc @f() { }", 7])
def test_what_is_no_text(given: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="expected the text of the loop-level IR"):
        ti.parse(given)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("a[" + "9" * 5000 + "] = 1.0", "5000 digits"),
        (f"a[{2**70}] = 1.0", "does not fit into int64"),
        ("a[0] = 1e39", "does not fit into float32"),
        ("a[0] = float32x9999999(a[0])", "unknown function|lanes"),
        ("evaluate broadcast(1.0, 99999999)", "lanes"),
        ("a[0] = exp()", "expected 1 arguments, found 0"),
        ("a[0] = b[0]", "undefined name b"),
        ("`\\x`[0] = 1.0", "escape"),
    ],
)
def test_text_that_cannot_be_read_shows_the_place(statement: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        ti.parse(f"primfunc @f(a: Buffer[(4,), float32]) {{ {statement} }}")


@pytest.mark.parametrize("name", ['"', '""', '\\"', "a; import os", "", "\n", "`", "\ud800", "\0", "for", "primfunc"])
def test_names_read_back(name: str) -> None:
    buffer = ti.Buffer(name, (4,))
    func = ti.PrimFunc(name, (buffer,), ti.BufferStore(buffer, 1.0, (0,)))
    read = ti.parse(str(func))
    assert ti.structural_equal(read, func)
    assert (read.name, read.buffers[0].name) == (name, name)
