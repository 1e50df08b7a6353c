"""Check that the state of a process is listed: tables, caches, counters and locks of modules and classes
(docs/architecture.md).

Read from the source text (``ast``). State is a name of a module or a class that stands for an empty container, a cache
of ``functools``, a lock, a counter or a variable of a context; that a function changes, or replaces (``global``); or
for an object of a class whose methods change it. (What cached properties and instruments hold belongs to one object.)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("tensorir", "graphir", "passes", "codegen", "runtime", "tilewright")
DOCUMENT = ROOT / "docs" / "architecture.md"
HEADING = "## 9. State of a process"

#: What is there to be filled, counted or held: called without arguments, or with any.
CONTAINERS = frozenset({"Counter", "OrderedDict", "defaultdict", "deque", "dict", "list", "set"})
HOLDERS = frozenset(
    {"Condition", "ContextVar", "Event", "Lock", "RLock", "WeakKeyDictionary", "WeakSet", "WeakValueDictionary"}
    | {"cache", "c_int32", "c_void_p", "count", "local", "lru_cache"}
)
#: Methods of containers that change them.
CHANGES = frozenset(
    {"add", "append", "appendleft", "clear", "discard", "extend", "insert", "move_to_end", "pop", "popitem", "popleft"}
    | {"remove", "setdefault", "update"}
)
#: Where an object is made, and not changed.
MAKING = frozenset({"__init__", "__new__", "__post_init__"})

Function = ast.FunctionDef | ast.AsyncFunctionDef
#: A file below the root, and a name in it (``Class.name`` in a class).
State = tuple[str, str]


def called(node: ast.expr | None) -> str:
    """The last part of what a call calls; nothing for other expressions."""
    return ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""


def assigned(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.expr]]:
    """The names of a module and of its classes, with their values."""
    for stmt in body:
        if isinstance(stmt, ast.ClassDef):
            yield from assigned(stmt.body, f"{prefix}{stmt.name}.")
        elif isinstance(stmt, ast.Assign | ast.AnnAssign) and stmt.value is not None:
            targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
            yield from ((prefix + each.id, stmt.value) for each in targets if isinstance(each, ast.Name))


def functions(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, Function]]:
    """The functions of a module and the methods of its classes."""
    for stmt in body:
        if isinstance(stmt, ast.ClassDef):
            yield from functions(stmt.body, f"{prefix}{stmt.name}.")
        elif isinstance(stmt, Function):
            yield prefix + stmt.name, stmt


def place(node: ast.expr) -> str:
    """``name`` or ``name.attribute``; nothing for other expressions."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return ""


def changed(function: Function) -> set[str]:
    """Return the objects that the function changes: stores into, removals from, and assignments of attributes."""
    found = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
            found.add(place(node.func.value))
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            found.add(place(node.value))
        elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            found.add(place(node))
    return found


def changing_classes(modules: dict[str, ast.Module]) -> dict[str, State]:
    """The classes whose methods change their objects, by name."""
    found = {}
    for path, module in modules.items():
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef):
                methods = [each for each in node.body if isinstance(each, Function) and each.name not in MAKING]
                changes = {text for method in methods for text in changed(method) if text.startswith("self.")}
                if changes or any(place(base) == "threading.local" for base in node.bases):
                    found[node.name] = path, node.name
    return found


def states(modules: dict[str, ast.Module]) -> dict[State, State | None]:
    """All state, each with the class that it is an object of, if methods of that change it."""
    classes = changing_classes(modules)
    found: dict[State, State | None] = {}
    for path, module in modules.items():
        values = {name: value for name, value in assigned(module.body) if name != "__all__"}
        for name, value in values.items():
            empty = (
                (isinstance(value, ast.Dict) and not value.keys)
                or (isinstance(value, ast.List) and not value.elts)
                or (isinstance(value, ast.Call) and called(value) in CONTAINERS and not value.args)
            )
            if empty or called(value) in HOLDERS:
                found[path, name] = None
            elif called(value) in classes:
                found[path, name] = classes[called(value)]
        for name, function in functions(module.body):
            if any(re.search(r"\b(lru_)?cache\b", ast.unparse(each)) for each in function.decorator_list):
                found[path, name] = None
            for text in changed(function) & values.keys():
                found.setdefault((path, text), None)
        for node in ast.walk(module):
            if isinstance(node, ast.Global):
                found.update(((path, name), None) for name in node.names)
    return found


@pytest.fixture(scope="module")
def modules() -> dict[str, ast.Module]:
    """All modules, by their paths."""
    paths = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def listed() -> set[State]:
    """Return the names in the document's table: the first cell of each row has a file, then names in it."""
    section = DOCUMENT.read_text(encoding="utf-8").split(HEADING)[1].split("\n## ")[0]
    found = set()
    for row in re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE):
        path, *names = re.findall(r"`([^`]+)`", row)
        assert names, f"{path} is listed without names"
        found.update((path, name) for name in names)
    return found


@pytest.fixture(scope="module")
def found(modules: dict[str, ast.Module]) -> dict[State, State | None]:
    """All state of all modules."""
    return states(modules)


def test_all_that_a_process_remembers_is_listed(found: dict[State, State | None]) -> None:
    known = listed()
    missing = {state for state, owner in found.items() if state not in known and owner not in known}
    assert not missing, f"to be listed in {DOCUMENT.name}, with what guards it: {sorted(missing)}"


def test_all_that_is_listed_is_there(modules: dict[str, ast.Module], found: dict[State, State | None]) -> None:
    known = {*found, *changing_classes(modules).values()}
    assert not listed() - known, f"no state, or not there: {sorted(listed() - known)}"


@pytest.mark.parametrize(
    "source",
    [
        "_table = {}",
        "_table: dict[str, int] = dict()",
        "_table = collections.OrderedDict()",
        "_table = weakref.WeakKeyDictionary()",
        "_table = threading.Lock()",
        "_table = functools.cache(len)",
        "@functools.lru_cache(maxsize=8)\ndef _table(): pass",
        "_table = {1: 2}\ndef put(): _table[3] = 4",
        "_table = {1: 2}\ndef put(): _table.update({3: 4})",
        "_table = None\ndef put():\n    global _table\n    _table = 1",
        "class C:\n    def put(self): self.x = 1\n_table = C()",
        "class C(threading.local): pass\n_table = C()",
    ],
)
def test_state_is_recognized(source: str) -> None:
    assert ("a.py", "_table") in states({"a.py": ast.parse(source)})


@pytest.mark.parametrize(
    "source",
    [
        "_table = {1: 2}\nprint(_table[1])",
        "_table = (1, 2)",
        "_table = frozenset()",
        "def put():\n    _table = {}\n    _table[1] = 2",
        "class C:\n    def __init__(self): self.x = 1\n_table = C()",
    ],
)
def test_constants_are_no_state(source: str) -> None:
    assert not states({"a.py": ast.parse(source)})
