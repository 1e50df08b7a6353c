"""Check that docstrings say what code does: none begins with a question word.

"What a plan needs" hides a verb: "Return the buffers that a plan needs". A room is added to the list once its
docstrings are edited.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = (
    *("codegen", "tilewright", "graphir", "tensorir", "passes", "runtime", "bench", "examples", "build_support"),
    *("tests/cli", "tests/codegen", "tests/docs", "tests/examples", "tests/fuzz", "tests/graphir", "tests/models"),
    "tests/onnx",
    *("tests/packaging", "tests/passes", "tests/runtime", "tests/tensorir"),
)
QUESTIONS = frozenset({"How", "What", "Who", "Whose", "Why"})
#: Properties may begin so: they are read like attributes, and return nothing that a verb would name.
CONDITION = "Whether"
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def questions(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and first line of the docstrings in ``source`` that begin with a question word."""
    for node in ast.walk(ast.parse(source)):
        text = ast.get_docstring(node) if isinstance(node, DOCUMENTED) else None
        first = text.split()[0].rstrip(",:;.?") if text else ""
        if text and (first in QUESTIONS or (first == CONDITION and not _is_property(node))):
            yield node.body[0].lineno, text.split("\n")[0]


def _is_property(node: ast.AST) -> bool:
    return any("property" in ast.unparse(each) for each in getattr(node, "decorator_list", ()))


@pytest.mark.parametrize("room", ROOMS)
def test_docstrings_do_not_begin_with_a_question(room: str) -> None:
    files = sorted((ROOT / room).rglob("*.py"))
    assert files, f"{room} has no files"
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in files
        for line, text in questions(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(["say what the code does, beginning with a verb or a noun:", *found])


def test_questions_are_found_with_their_lines() -> None:
    source = '"""What this is."""\n\n\nclass A:\n    """A thing."""\n\n    def f(self):\n        """How it works."""\n'
    condition = '"""Return."""\n\nclass A:\n    def f(self):\n        """Whether."""\n'
    assert list(questions(condition)) == [(5, "Whether.")]
    assert not list(questions(condition.replace("    def", "    @property\n    def")))
    assert list(questions(source)) == [(1, "What this is."), (8, "How it works.")]
    assert not list(questions('"""Return what is asked for."""\n\n\ndef f():\n    """However, this is fine."""\n'))
