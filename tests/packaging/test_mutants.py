"""Test how mutants of the source are made, and put into functions that exist (build_support/mutants.py)."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import mutants
import pytest

PROGRAM = '''
"""A module."""

LIMIT = 3


def first(values: list[int], least: int = 0) -> int:
    """Return the first of ``values`` that is large enough."""
    for value in values:
        if value < least and value != 7:
            continue
        return value + 1
    raise ValueError(f"expected a value of at least {least + 1}")
'''


def changes(source: str) -> list[tuple[str, str, str]]:
    found = [mutants.mutate(source, index)[0] for index in range(mutants.places(source))]
    return [(mutant.kind, mutant.before, mutant.after) for mutant in found]


def test_conditions_operators_constants_returns_and_statements_are_changed() -> None:
    test = "value < least and value != 7"
    assert set(changes(PROGRAM)) == {
        ("condition", test, f"not ({test})"),
        ("boolean", test, "value < least or value != 7"),
        ("comparison", "value < least", "value <= least"),
        ("comparison", "value != 7", "value == 7"),
        ("constant", "7", "8"),
        ("statement", "continue", "pass"),
        ("return", "return value + 1", "return None"),
        ("arithmetic", "value + 1", "value - 1"),
        ("constant", "1", "2"),
        ("statement", "raise ValueError(f'expected a value of at least {least + 1}')", "pass"),
    }


@pytest.mark.parametrize("index", range(mutants.places(PROGRAM)))
def test_a_mutant_differs_from_the_program_in_one_statement(index: int) -> None:
    mutant, tree = mutants.mutate(PROGRAM, index)
    same, changed = ast.unparse(ast.parse(PROGRAM)).splitlines(), ast.unparse(tree).splitlines()
    assert sum(before != after for before, after in zip(same, changed, strict=True)) == 1
    first, last = mutant.lines
    assert first <= last <= len(PROGRAM.splitlines())


def test_a_generator_without_its_yield_is_a_generator() -> None:
    source = "def f():\n    yield 1\n"
    number = [kind for kind, _, _ in changes(source)].index("statement")
    namespace: dict[str, Any] = {}
    exec(compile(mutants.mutate(source, number)[1], "f", "exec"), namespace)
    assert list(namespace["f"]()) == []


def load(path: Path, source: str) -> dict[str, Any]:
    path.write_text(source, encoding="utf-8")
    namespace: dict[str, Any] = {}
    exec(compile(source, str(path), "exec"), namespace)
    return namespace


def test_the_code_of_a_mutant_is_put_into_functions_that_others_hold(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    first = load(path, PROGRAM)["first"]
    assert first([2, 9], 5) == 10
    number = changes(PROGRAM).index(("arithmetic", "value + 1", "value - 1"))
    assert mutants.put_in(str(path), mutants.mutate(PROGRAM, number)[1]) == 1
    assert first([2, 9], 5) == 8


def test_functions_of_other_files_keep_their_code(tmp_path: Path) -> None:
    first = load(tmp_path / "other.py", PROGRAM)["first"]
    assert mutants.put_in(str(tmp_path / "module.py"), mutants.mutate(PROGRAM, 0)[1]) == 0
    assert first([2, 9], 5) == 10


def test_methods_of_classes_and_functions_within_functions_are_changed(tmp_path: Path) -> None:
    source = "class A:\n    def f(self):\n        def g():\n            return 1\n        return g()\n"
    made = load(tmp_path / "nested.py", source)["A"]()
    number = changes(source).index(("constant", "1", "2"))
    assert mutants.put_in(str(tmp_path / "nested.py"), mutants.mutate(source, number)[1]) == 1
    assert made.f() == 2
