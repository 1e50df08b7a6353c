"""Rooms import downwards only, no modules import each other in a circle, and the front door stays light.

Read from the source text (``ast``), so that an import counts wherever it stands and nothing has to be run. A module
may import from its own room and from rooms on lower floors. Every import counts for the floors, those inside functions
and under ``if TYPE_CHECKING`` too; a circle is one of imports that run when the module is loaded.
"""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLOORS = {"tensorir": 1, "graphir": 2, "passes": 3, "codegen": 4, "runtime": 5, "tilewright": 6}
PACKAGE = "tilewright"


class Import(NamedTuple):
    """One module named by an import statement of ``importer``; ``at_load`` if loading the importer runs it."""

    importer: str
    imported: str
    line: int
    at_load: bool


def module_files(root: Path) -> dict[str, Path]:
    """Every module of the rooms under ``root`` by its import name; packages stand for their ``__init__``."""
    modules = {}
    for room in FLOORS:
        for path in sorted((root / room).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            parts = parts[1:] if room == PACKAGE else parts
            parts = parts[:-1] if parts[-1:] == ("__init__",) else parts
            modules[".".join((PACKAGE, *parts))] = path
    return modules


def is_type_checking(test: ast.expr) -> bool:
    """True for the condition ``TYPE_CHECKING`` or ``typing.TYPE_CHECKING``."""
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def import_statements(node: ast.AST, at_load: bool = True) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Every import statement under ``node``, and whether it runs when the module is loaded."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield node, at_load
    elif isinstance(node, ast.If) and is_type_checking(node.test):
        for child in node.body:
            yield from import_statements(child, at_load=False)
        for child in node.orelse:
            yield from import_statements(child, at_load)
    else:
        inside = at_load and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from import_statements(child, inside)


def imported_modules(statement: ast.Import | ast.ImportFrom, importer: str, modules: dict[str, Path]) -> list[str]:
    """The modules of the project that ``statement`` names: ``from a.b import c`` is ``a.b.c`` if that is a module."""
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names if alias.name.split(".")[0] == PACKAGE]
    source = statement.module or ""
    if statement.level:
        is_package = modules[importer].name == "__init__.py"
        parents = importer.split(".")
        parents = parents[: len(parents) - statement.level + is_package]
        source = ".".join([*parents, source] if source else parents)
    if source.split(".")[0] != PACKAGE:
        return []
    members = [f"{source}.{alias.name}" for alias in statement.names]
    return [member if member in modules else source for member in members]


@functools.cache
def import_statements_of(text: str) -> list[tuple[ast.Import | ast.ImportFrom, bool]]:
    """The import statements of a file."""
    return list(import_statements(ast.parse(text)))


def imports(root: Path) -> list[Import]:
    """Every import of one module of the project by another."""
    modules = module_files(root)
    return [
        Import(importer, imported, statement.lineno, at_load)
        for importer, path in modules.items()
        for statement, at_load in import_statements_of(path.read_text(encoding="utf-8"))
        for imported in imported_modules(statement, importer, modules)
        if imported != importer
    ]


def floor(module: str) -> int:
    """Return the floor of the room of ``module``; modules in no other room belong to the front door."""
    room = module.split(".")[1] if "." in module else PACKAGE
    return FLOORS.get(room, FLOORS[PACKAGE])


def upward_imports(root: Path) -> list[str]:
    """One line for each import of a room on a higher floor."""
    return [
        f"{edge.importer}:{edge.line} imports {edge.imported}"
        for edge in imports(root)
        if floor(edge.imported) > floor(edge.importer)
    ]


def sideways_imports(root: Path) -> list[str]:
    """One line for each import of the tensor passes by the schedule layer or the other way round."""
    sides = tuple(f"{PACKAGE}.passes.{side}" for side in ("schedule", "tensor"))
    return [
        f"{edge.importer}:{edge.line} imports {edge.imported}"
        for edge in imports(root)
        for here, there in (sides, reversed(sides))
        if edge.importer.startswith(here) and edge.imported.startswith(there)
    ]


def find_cycle(root: Path) -> list[str] | None:
    """A circle of modules that import one another when loaded, the first one repeated at the end; None without one."""
    graph: dict[str, list[str]] = {module: [] for module in module_files(root)}
    for edge in imports(root):
        if edge.at_load and edge.imported in graph:
            graph[edge.importer].append(edge.imported)
    finished: set[str] = set()
    for start in graph:
        path: list[str] = []
        pending = [(start, iter(graph[start]))] if start not in finished else []
        path.extend(module for module, _ in pending)
        while pending:
            module, rest = pending[-1]
            following = next((m for m in rest if m not in finished), None)
            if following is None:
                finished.add(module)
                pending.pop()
                path.pop()
            elif following in path:
                return [*path[path.index(following) :], following]
            else:
                pending.append((following, iter(graph[following])))
                path.append(following)
    return None


def write_project(root: Path, files: dict[str, str]) -> Path:
    """A project in miniature under ``root``, to try the checks on: file contents by path."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def test_rooms_import_downwards_only() -> None:
    assert upward_imports(ROOT) == []


def test_schedules_and_tensor_passes_do_not_import_each_other() -> None:
    assert sideways_imports(ROOT) == []


def test_what_builds_and_runs_models_does_not_load_what_only_looks_at_them() -> None:
    runtime, observe = f"{PACKAGE}.runtime", f"{PACKAGE}.runtime.observe"
    assert not [
        f"{edge.importer}:{edge.line} imports {edge.imported}"
        for edge in imports(ROOT)
        if edge.at_load and edge.importer.startswith(runtime) and not edge.importer.startswith(observe)
        if edge.imported.startswith(observe)
    ]


def test_no_modules_import_each_other_in_a_circle() -> None:
    cycle = find_cycle(ROOT)
    assert cycle is None, " -> ".join(cycle or [])


def test_the_scan_sees_the_project() -> None:
    modules = module_files(ROOT)
    assert {PACKAGE, *(f"{PACKAGE}.{room}" for room in FLOORS if room != PACKAGE)} <= modules.keys()
    assert len(imports(ROOT)) > 0


@pytest.mark.parametrize(
    "statement",
    [
        "from tilewright.graphir.expr import Call",
        "import tilewright.graphir.expr",
        "from tilewright import graphir",
        "import tilewright as tw",
        "from ..graphir import expr",
        "def f():\n    from tilewright.graphir import expr",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from tilewright.graphir import expr",
    ],
)
def test_an_upward_import_is_found_however_it_is_written(tmp_path: Path, statement: str) -> None:
    project = write_project(
        tmp_path, {"tensorir/expr.py": statement, "graphir/__init__.py": "", "graphir/expr.py": "Call = 1"}
    )
    assert len(upward_imports(project)) == 1


def test_a_downward_import_and_one_within_the_room_are_allowed(tmp_path: Path) -> None:
    project = write_project(
        tmp_path,
        {
            "graphir/a.py": "from tilewright.tensorir.expr import Var\nfrom tilewright.graphir import b\nimport os",
            "graphir/b.py": "",
            "tensorir/expr.py": "Var = 1",
        },
    )
    assert upward_imports(project) == []
    assert find_cycle(project) is None


@pytest.mark.parametrize("room", ["schedule", "tensor"])
def test_a_sideways_import_is_found(tmp_path: Path, room: str) -> None:
    files = {f"passes/{name}/rule.py": "" for name in ("schedule", "tensor")}
    other = "tensor" if room == "schedule" else "schedule"
    files[f"passes/{room}/rule.py"] = f"from tilewright.passes.{other} import rule"
    assert len(sideways_imports(write_project(tmp_path, files))) == 1


@pytest.mark.parametrize(
    "files",
    [
        {"a.py": "from tilewright.passes.b import x", "b.py": "import tilewright.passes.a"},
        {"a.py": "from tilewright.passes import b", "b.py": "from .c import x", "c.py": "from . import a"},
        {"__init__.py": "from tilewright.passes.a import x", "a.py": "from tilewright.passes import y"},
        {"a.py": "try:\n    from tilewright.passes import b\nexcept ImportError:\n    pass", "b.py": "from . import a"},
    ],
)
def test_a_circle_is_found(tmp_path: Path, files: dict[str, str]) -> None:
    project = write_project(tmp_path, {f"passes/{name}": text for name, text in files.items()})
    cycle = find_cycle(project)
    assert cycle is not None
    assert len(set(cycle)) == len(files)


def test_an_import_that_does_not_run_at_load_closes_no_circle(tmp_path: Path) -> None:
    project = write_project(
        tmp_path,
        {
            "passes/a.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from tilewright.passes import b",
            "passes/b.py": "from tilewright.passes import a",
            "passes/c.py": "def f():\n    from tilewright.passes import d",
            "passes/d.py": "from tilewright.passes import c",
        },
    )
    assert find_cycle(project) is None


def test_importing_the_package_loads_neither_the_parser_nor_the_terminal_library() -> None:
    program = "import sys, tilewright; print(*sorted({'lark', 'rich'} & sys.modules.keys()))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == []
