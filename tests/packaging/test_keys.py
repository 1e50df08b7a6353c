"""Keys of attributes and annotations are written once, in one module for each IR."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tilewright.graphir import keys as graph_keys
from tilewright.tensorir import keys as loop_keys

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("tensorir", "graphir", "passes", "codegen", "runtime")


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            yield path.relative_to(ROOT), ast.parse(path.read_text(encoding="utf-8"))


def _keys_of(node: ast.AST) -> Iterator[ast.expr]:
    """Find what is used as a key: ``attrs[..]``, ``annotations.get(..)``, ``with_attr(..)``, ``annotate(.., ..)``."""
    tables = ("attrs", "annotations")
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr in tables:
        yield node.slice
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        table = node.func.value
        if node.func.attr == "get" and isinstance(table, ast.Attribute) and table.attr in tables:
            yield node.args[0]
        if node.func.attr == "with_attr":
            yield node.args[0]
        if node.func.attr == "annotate":
            yield from node.args[1:2]


def test_keys_of_functions_loops_and_blocks_are_written_once() -> None:
    known = {value for module in (loop_keys, graph_keys) for value in vars(module).values() if isinstance(value, str)}
    written = [
        f"{path}:{key.lineno}: {key.value!r}"
        for path, module in modules()
        for node in ast.walk(module)
        for key in _keys_of(node)
        if isinstance(key, ast.Constant) and key.value in known
    ]
    assert not written
