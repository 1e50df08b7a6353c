"""Have numba compile equal functions once.

Of the functions that numba compiles for the cases of ONNX's test-suite two in five are equal to earlier ones but for
the names of functions and variables: an operator and its decomposition, one kernel with several inputs' names. numba
compiles a function for the types that it is called with, so that equal source shares what it makes.
"""

from __future__ import annotations

import ast
import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import pytest

from tilewright.codegen.numba_.compile import NumbaModule

_load = NumbaModule._load  # a block within another one replaces its function
_kept: dict[tuple[str, object, bool], Any] = {}


class _Renamed(ast.NodeTransformer):
    """Numbers the variables of a function in the order in which they appear."""

    def __init__(self, function: ast.FunctionDef) -> None:
        own = [node.arg for node in ast.walk(function) if isinstance(node, ast.arg)]
        own += [
            node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        ]
        self._names = {name: f"v{number}" for number, name in enumerate(dict.fromkeys(own))}

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._names.get(node.id, node.id), node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(self._names[node.arg])

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.name = ""
        self.generic_visit(node)
        return node


def canonical(function: ast.FunctionDef) -> str:
    """Return a text that functions share which differ in the names of functions and variables alone. It changes
    ``function``."""
    return ast.dump(_Renamed(function).visit(function))


@contextlib.contextmanager
def numba_kept(options: object = None) -> Iterator[None]:
    """Inside the ``with`` block modules share the functions that numba compiles and that call no other of a module,
    with those of blocks with the same ``options``, by which numba compiles otherwise."""

    @functools.wraps(_load)
    def load(module: NumbaModule) -> None:
        _load(module)
        entries = {module._names[name] for name in module._runs}
        own = set(module._names.values())
        for node in ast.parse(module.source).body:
            if not isinstance(node, ast.FunctionDef) or node.name not in own - entries:
                continue
            name = node.name
            if own & {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}:
                continue
            function = module._namespace[name]
            module._namespace[name] = _kept.setdefault((canonical(node), options, module._parallel), function)
        module.functions = {name: module._namespace[python] for name, python in module._names.items()}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NumbaModule, "_load", load)
        yield
