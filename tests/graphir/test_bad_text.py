"""Text that is no module, with the places where a parser may stumble: each has an error with the place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import graphir as gi
from tilewright.tensorir.errors import ArgumentTypeError, NestingError, ParseError, TilewrightError

DIGITS = "9" * 5000
LEVELS = 10_000


def main(body: str, params: str = "%x: Tensor[(2,), float32]", attrs: str = "") -> str:
    return f"def @main({params}) {attrs} {{ {body} }}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (main(f"%0 = sum(%x, axis={DIGITS}) %0"), "5000 digits"),
        (main(f"%0 = sum(%x, axis=-{DIGITS}) %0"), "5000 digits"),
        (main("%x", f"%x: Tensor[({DIGITS},), float32]"), "5000 digits"),
        (main(f"%0 = (%x, %x) %1 = %0.{DIGITS} %1"), "5000 digits"),
        (main("%x", "%x: Tensor[(²,), float32]"), "named by an identifier"),
        (main("%x", f"%x: Tensor[({2**63},), float32]"), "more bytes than memory has addresses"),
        (main("%0 = (int8(300)) %0"), "out of bounds for int8"),
        (main(f"%0 = (int64({2**64})) %0"), "out of bounds for int64"),
        (main("%0 = (float32(1e39)) %0"), "does not fit into float32"),
        (main("%0 = (float16(65520)) %0"), "does not fit into float16"),
        (main(f"%0 = (float64({'9' * 400})) %0"), "too large"),
        (main("%x", attrs="attrs {[1]: 2}"), "unhashable"),
        (main("%0 = loop(%x, %x) %0"), "loop: expected a trip count"),
        ("def @`\\x`() { int8(1) }", "escape"),
        ("def @main(%`\\x`: Tensor[(2,), float32]) { %`\\x` }", "escape"),
        ('def @main() { const#0 } const#0: Tensor[(2,), float32] base64 = "\\q"', "escape"),
        ('def @main() { const#0 } const#0: Tensor[(1099511627776,), float32] base64 = "AAAA"', "not the data"),
        ("\0", "unexpected character"),
        ("def @f() { int8(1) } def @f() { int8(1) }", "two functions named @f"),
        (
            'def @main() { const#0 } const#0: Tensor[(n,), float32] base64 = "AAAA"',
            "expected the type of a tensor of static",
        ),
    ],
)
def test_text_that_is_no_module_is_shown(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message) as caught:
        gi.parse(text)
    assert str(caught.value).startswith("line 1, column ")


@pytest.mark.parametrize(
    "body",
    [
        "%0 = " + "{ %1 = " * LEVELS + "exp(%x) %1 " + "}%1 " * LEVELS,
        f"%0 = sum(%x, axis={'[' * LEVELS}{']' * LEVELS}) %0",
        f"%0 = exp(const(float32, {'[' * LEVELS}{']' * LEVELS})) %0",
    ],
    ids=["blocks", "lists", "constants"],
)
def test_ten_thousand_levels(body: str) -> None:
    with pytest.raises(NestingError, match="reading the text"):
        gi.parse(main(body))


def test_types_with_ten_thousand_levels() -> None:
    with pytest.raises(NestingError, match="reading the text"):
        gi.parse(main("%x", f"%x: {'(' * LEVELS}Tensor[(2,), float32]{')' * LEVELS}"))


@pytest.mark.parametrize("given", [None, b"def @main() { int8(1) }", 7, ["def"]])
def test_what_is_no_text(given: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="expected the text of a module, found"):
        gi.parse(given)


@pytest.mark.parametrize("name", ['"', '""', '\\"', "a; import os", "", "\n", "`", "\ud800", "\0", "</script>", "%s"])
def test_names_read_back(name: str) -> None:
    x = gi.var(name, shape=(4,))
    module = gi.IRModule.from_expr(gi.Function([x], gi.exp(x)))
    assert gi.structural_equal(gi.parse(str(module)), module)
    assert gi.parse(str(module))["main"].params[0].name == name


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gi.var(5, shape=(2,)), "a variable's name is a string, found 5"),
        (lambda: gi.const({}), "a constant holds numbers"),
        (lambda: gi.const("text", "int8"), "a constant is an array of numbers"),
        (lambda: gi.const(2**70), "a constant is an array of numbers"),
        (lambda: gi.const([[1], [2, 3]]), "a constant"),
        (lambda: gi.const(object()), "a constant"),
        (lambda: gi.var("x", shape=(2**63,)), "more bytes than memory has addresses"),
        (lambda: gi.var("x", shape=(-1,)), "cannot be negative"),
        (lambda: gi.var("x", shape=("a b",)), "named by an identifier"),
        (lambda: gi.var("x", shape=(2,), dtype=[]), "element type is one of"),
        (lambda: gi.cast(gi.var("x", shape=(2,)), "float33"), "unknown data type"),
        (lambda: gi.var("x", shape=(2,))[2**70], "out of bounds"),
        (lambda: gi.matmul(gi.var("x", shape=(2, 3)), gi.const(np.ones((4, 5), "f4"))), "matmul"),
        (lambda: gi.parse(main("%0 = ad(%x, %x) %0")), "unknown operator 'ad'"),
    ],
)
def test_graphs_that_cannot_be_are_refused_where_they_are_made(make: Any, message: str) -> None:
    with pytest.raises(TilewrightError, match=message):
        make()
