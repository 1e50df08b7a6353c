"""Errors that Tilewright raises on purpose are of the family ``TilewrightError``: none is only a built-in one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilewright.tensorir import errors

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("tensorir", "graphir", "passes", "codegen", "runtime", "tilewright")
FOREIGN = frozenset({"TypeError", "ValueError", "IndexError", "OverflowError", "RecursionError", "Exception"})


def foreign(source: str) -> Iterator[int]:
    """Yield the lines that raise a built-in error which a family class stands for."""
    for node in ast.walk(ast.parse(source)):
        raised = node.exc if isinstance(node, ast.Raise) else None
        name = raised.func if isinstance(raised, ast.Call) else raised
        if isinstance(name, ast.Name) and name.id in FOREIGN:
            yield node.lineno


@pytest.mark.parametrize("room", ROOMS)
def test_errors_are_of_the_family(room: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / room).rglob("*.py"))
        for line in foreign(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(["raise a class of tensorir/errors.py, which is the built-in one too:", *found])


def test_foreign_errors_are_found() -> None:
    source = "if x:\n    raise TypeError('no')\nelse:\n    raise ValueError\nraise ArgumentTypeError('yes')\n"
    assert sorted(foreign(source)) == [2, 4]


@pytest.mark.parametrize("name", [name for name in vars(errors) if name.endswith("Error")])
def test_each_class_says_what_it_is(name: str) -> None:
    kind = getattr(errors, name)
    assert issubclass(kind, errors.TilewrightError) and kind.__doc__
