"""Python that cannot stand in loops is refused with its place underlined: a statement for each rule."""

from __future__ import annotations

import linecache
from typing import Annotated, Any

import pytest

import tilewright.tensorir as ti
from tilewright.tensorir.errors import ParseError

NAMES = {
    "ti": ti,
    "Vector": Annotated[ti.Buffer, (8,), "float32"],
    "Matrix": Annotated[ti.Buffer, (8, 8), "float32"],
    "names": {"a": 1},
    "pair": (1, 2),
}

#: A statement of a function of a matrix ``a`` and a vector ``b``, the part at fault, and what the error says of it.
REFUSED = [
    ("for i in range(8):\n  b[i] = 1.0\nelse:\n  b[0] = 2.0", "b[0] = 2.0", "a loop has no else"),
    (
        "for i in ti.serial(1, 2, 3):\n  b[i] = 1.0",
        "ti.serial(1, 2, 3)",
        "expected a number of iterations",
    ),
    ("for i, j in range(8):\n  b[i] = 1.0", "i, j", "expected one name for the variable of the loop"),
    ("for i in ti.grid():\n  b[i] = 1.0", "ti.grid()", "grid: expected extents, one for each loop"),
    ("with ti.block('c') as c:\n  b[0] = 1.0", "c", "block gives nothing; axes() gives iteration variables"),
    ("with ti.block(3):\n  b[0] = 1.0", "ti.block(3)", "block: expected a name"),
    ("t = u = b[0]", "t = u = b[0]", "expected one target of an assignment"),
    ("t: 'float32'", "t: 'float32'", "expected a name, a data type and a value"),
    ("b.name += 1", "b.name", "expected a name or an element of a buffer"),
    ("b.name = 1", "b.name", "expected a name or an element of a buffer"),
    ("s, t = pair + pair", "s, t", "expected 2 values, found 4"),
    ("pair[0] = 1.0", "pair", "expected a buffer, found tuple"),
    ("t = 'x'\nfor i in range(8):\n  t = b[i]", "t", "t is a str from outside of this body, which cannot change"),
    ("b[0] = 'one'", "'one'", "expected a number or an expression, found str: 'one'"),
    ("t = {**names}", "{**names}", "** cannot stand in loops"),
    ("t = ti.select(**names)", "ti.select(**names)", "** cannot stand in loops"),
    ("t = a[0:4]", "a[0:4]", "buffer a has 2 dimensions, found 1 indices"),
    ("t = b[0:4:2]", "b[0:4:2]", "a region has no steps"),
    ("b[0] = a[0, 0] @ b[0]", "a[0, 0] @ b[0]", "@ cannot stand in loops, which say what each element is"),
    ("b[0] = not b[0]", "not b[0]", "not: expected a bool, found float32"),
    ("t = b[0] in pair", "b[0] in pair", "in: what is compared is not known before the loops run"),
    (
        "t = [i for i in pair if b[0] > 1.0]",
        "b[0] > 1.0",
        "how often this is repeated depends on a value",
    ),
    ("t = [i for i, j in [(1, 2, 3)]]", "i, j", "expected 2 values, found 3"),
    ("t = [1 for pair[0] in pair]", "pair[0]", "expected a name"),
    (
        "b[0] = b[0] if a[0, 0] else 1.0",
        "a[0, 0]",
        "expected a bool condition, found float32",
    ),
    ("t = pair[b[0]]", "pair[b[0]]", "tuple indices must be integers"),
]


def define(statement: str, name: str) -> Any:
    """Return a function of loops with that statement, whose source is known as that of a notebook's cell."""
    body = "".join(f"    {line}\n" for line in statement.split("\n"))
    source = f"def f(a: Matrix, b: Vector):\n{body}"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    namespace: dict[str, Any] = dict(NAMES)
    exec(compile(source, name, "exec", dont_inherit=True), namespace)
    return namespace["f"]


@pytest.mark.parametrize(("statement", "underlined", "message"), REFUSED, ids=[line[0] for line in REFUSED])
def test_a_statement_that_is_no_loop_is_underlined(statement: str, underlined: str, message: str) -> None:
    function = define(statement, f"<cell of {statement}>")
    with pytest.raises(ParseError) as caught:
        ti.func(function)
    text = str(caught.value)
    assert message in text
    shown, carets = next(
        (before, line)
        for before, line in zip(text.split("\n"), text.split("\n")[1:], strict=False)
        if "^" in line and not line.strip(" ^")
    )
    assert shown[len(carets) - len(carets.lstrip()) : len(carets)] == underlined
