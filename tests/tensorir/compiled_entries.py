"""Choose the entries of models that the tests have numba compile.

Python runs the entry of a model for numba, and numba compiles it late: it calls the kernels with parts of an arena, in
few forms. numba compiles each form that a test process meets at once, with the first entry that has it.
"""

from __future__ import annotations

import ast
import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import pytest

from tilewright.codegen.numba_.compile import NumbaModule


def forms(source: str, name: str) -> set[tuple[str, ...]]:
    """The forms of the function ``name`` in ``source``: what stands in what, whatever the names and numbers."""
    function = next(node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name == name)
    return {
        (_kind(node), field, _kind(part))
        for node in ast.walk(function)
        for field, value in ast.iter_fields(node)
        for part in (value if isinstance(value, list) else [value])
        if isinstance(part, ast.AST)
    }


def _kind(node: ast.AST) -> str:
    """The class of a node; of an attribute its name too (a type, or what is done to an array). An empty tuple (the
    shape of a scalar) is not like others."""
    if isinstance(node, ast.Attribute):
        return f"Attribute {node.attr}"
    if isinstance(node, ast.Tuple) and not node.elts:
        return "Tuple of nothing"
    return type(node).__name__


@contextlib.contextmanager
def new_entries_compiled() -> Iterator[None]:
    """Inside the ``with`` block numba compiles at once those entries that have a form which no earlier one had."""
    known: set[tuple[str, ...]] = set()
    make = NumbaModule.__init__

    @functools.wraps(make)
    def made(module: NumbaModule, *args: Any) -> None:
        make(module, *args)
        names = [module.functions[name].__name__ for name in module._runs]
        found = {form for name in names for form in forms(module.source, name)}
        if not found <= known:
            known.update(found)
            module.runs_by_python = 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NumbaModule, "__init__", made)
        yield
