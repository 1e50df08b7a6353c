"""Node classes written out for the compiler say what their declarations say; a form that is not known is refused."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import accelerated
import check_wheel
import described
import pytest
from node_classes import UnknownDeclarationError, expand

from tilewright.tensorir import arithmetic, expr, stmt
from tilewright.tensorir.functor import Mutator
from tilewright.tensorir.node import Node

ROOT = Path(__file__).resolve().parents[2]
HEADER = """from __future__ import annotations
import dataclasses
from typing import Any
from tilewright.tensorir.node import Node, buffer, child, children, definition, derived, new_buffer, node
_set = object.__setattr__

"""
FORMS = """@node
class Leaf(Node):
    name: str
    number: int = 3

@node
class Pair(Node):
    left: Leaf | None = child()
    right: Leaf = child()
    others: tuple[Leaf, ...] = children(default=())
    size: int = derived()

    def __post_init__(self) -> None:
        \"\"\"Counts.\"\"\"
        if not isinstance(self.others, tuple):
            _set(self, "others", tuple(self.others))
        left = self.left
        if left is None and self.others:
            _set(self, "size", -1)
            return
        _set(self, "size", len(self.others) + sum(other.number for other in self.others))

    @property
    def first(self) -> Leaf:
        return self.others[0]

@node
class Two(Node):
    a: Leaf | None = child()
    b: Leaf | None = child(default=None)
    seen: list = dataclasses.field(default_factory=lambda: _EMPTY)

    def __post_init__(self) -> None:
        if self.a is None:
            self.check()

    def check(self) -> None:
        assert self.b is not None
"""


def load(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setitem(sys.modules, "tilewright.tensorir.described", described)
    monkeypatch.setattr(described, "_refuse_to_set", object.__setattr__)  # which compiled code does not ask
    module = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    exec(compile(text, name, "exec"), vars(module))
    return module


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, ModuleType]:
    """The forms, declared and written out."""
    text = HEADER.replace("\n\n", "\n_EMPTY: list[int] = []\n\n") + FORMS
    return load("declared_forms", text, monkeypatch), load("written_forms", expand(text, "forms.py"), monkeypatch)


def test_constructors_do_the_same(both: tuple[ModuleType, ModuleType]) -> None:
    for forms in both:
        a, b = forms.Leaf("a"), forms.Leaf(name="b", number=4)
        pair = forms.Pair(a, b, [a, b])
        assert (pair.others, pair.size, pair.first) == ((a, b), 9, a)
        assert forms.Pair(None, b, (a,)).size == -1
        assert forms.Pair(None, b).size == 0
        assert forms.Two(a).seen is forms._EMPTY
        with pytest.raises(AssertionError):
            forms.Two(None)


def test_parts_are_those_of_the_declaration(both: tuple[ModuleType, ModuleType]) -> None:
    for forms in both:
        a, b = forms.Leaf("a"), forms.Leaf("b")
        assert a.parts() == ()
        assert forms.Pair(a, b, (b, a)).parts() == (a, b, b, a)
        assert forms.Pair(None, b, (a,)).parts() == (b, a)
        assert forms.Two(a).parts() == (a,) and forms.Two(a, b).parts() == (a, b)


def test_a_mutator_rebuilds_what_changes(both: tuple[ModuleType, ModuleType]) -> None:
    class Renamed(Mutator):
        def mutate_Leaf(self, leaf: Any) -> Any:
            return type(leaf)(leaf.name + "'", leaf.number) if leaf.name == "b" else leaf

    for forms in both:
        a, b = forms.Leaf("a"), forms.Leaf("b", 1)
        same = forms.Pair(None, a, (a,))
        assert Renamed().mutate(same) is same
        made = Renamed().mutate(forms.Pair(None, a, (a, b)))
        assert [part.name for part in made.parts()] == ["a", "a", "b'"]
        assert made.left is None and made.size == -1


@pytest.mark.parametrize("module", [arithmetic, expr, stmt], ids=["arithmetic", "expr", "stmt"])
def test_every_node_is_written_out_as_declared(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ROOT / "tensorir" / f"{module.__name__.rpartition('.')[2]}.py"
    written = load("written_out", expand(path.read_text(encoding="utf-8"), path.name), monkeypatch)
    kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and kind.__module__ == module.__name__]
    kinds = [kind for kind in kinds if issubclass(kind, Node) and kind.node_fields]
    assert kinds
    for kind in kinds:
        other = getattr(written, kind.__name__)
        assert other.node_fields == kind.node_fields
        assert other.__doc__ == kind.__doc__
        assert ("__new__" in vars(other)) == kind.hash_consed
        assert other.__match_args__ == kind.__match_args__
        assert list(inspect.signature(other).parameters) == list(inspect.signature(kind).parameters)
        for field, known in zip(dataclasses.fields(other), dataclasses.fields(kind), strict=True):
            assert (field.name, field.type, field.metadata) == (known.name, known.type, known.metadata)
            default = inspect.signature(kind).parameters.get(field.name, inspect.Parameter("x", 1)).default
            if default is not inspect.Parameter.empty and field.default is not dataclasses.MISSING:
                assert field.default is default or field.default == default


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("    x: int = child(init=False)", "unknown argument init"),
        ("    x: int = made()", "expected a role"),
        ("    x: int = dataclasses.field(default_factory=list)", "unknown argument default_factory"),
        ("    x: ClassVar[int] = 3", "class variable"),
        ("    x = 3", "neither a field nor a method"),
        ("    x: int = derived()", "is never set"),
        ("    x: int = 1\n    y: int", "has no default"),
        ("    x: int\n    def parts(self):\n        return ()", "defines parts"),
        ("    x: int\n    def __post_init__(self):\n        _set(other, 'x', 1)", "sets no field"),
        ("    x: int\n    def __post_init__(self):\n        print(x)", "hidden by the field"),
        ("    x: int\n    def __post_init__(self):\n        check(self)\n        _set(self, 'x', 1)", "after the node"),
    ],
)
def test_an_unknown_declaration_is_refused(body: str, said: str) -> None:
    with pytest.raises(UnknownDeclarationError, match=said):
        expand(f"{HEADER}@node\nclass Odd(Node):\n{body}\n", "odd.py")


def test_other_decorators_are_refused() -> None:
    with pytest.raises(UnknownDeclarationError, match="expected @node alone"):
        expand(f"{HEADER}@final\n@node\nclass Odd(Node):\n    x: int\n", "odd.py")


def test_what_the_compiler_reads_keeps_its_lines() -> None:
    for path in accelerated.compiled_modules():
        text = (ROOT / path).read_text(encoding="utf-8")
        read = accelerated.rewritten(text)
        places = {
            node.name: node.lineno
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name != "dataclass_transform"
        }
        for node in ast.walk(ast.parse(read)):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in places:
                assert text.split("\n")[node.lineno - 1].strip() == read.split("\n")[node.lineno - 1].strip()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("names = (f'n{i}' for i in itertools.count() if i not in taken)", "line 1: .* never ends"),
        (
            "@module_pass(opt_level=1)\nclass P(ModulePass):\n    def run(self, x):\n        return lambda: x",
            "line 4: pass P",
        ),
        (
            "@module_pass(opt_level=1)\nclass P:\n    def run(self, x):\n        def f():\n            return x",
            "line 4: pass",
        ),
    ],
)
def test_what_the_compiler_reads_otherwise_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        accelerated.rewritten(text)


def test_every_pattern_of_compiled_files_finds_some() -> None:
    for pattern in accelerated.COMPILED:
        assert list(ROOT.glob(pattern)), pattern
    assert set(accelerated.INTERPRETED) <= {path.relative_to(ROOT).as_posix() for path in ROOT.glob("*/**/*.py")}


def test_the_staged_project_is_that_of_setuptools() -> None:
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    plain = accelerated.as_plain_project(settings)
    assert 'build-backend = "setuptools.build_meta"' in plain
    assert "backend-path" not in plain and "package-dir" not in plain
    assert accelerated.package_folders(settings)["tilewright.tensorir"] == "tensorir"


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.delenv("TILEWRIGHT_MYPYC", raising=False)
    spec = importlib.util.spec_from_file_location("tilewright_backend", ROOT / "build_support" / "backend.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module


def test_mypyc_is_required_only_where_it_is_asked_for(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert not any("mypy" in each for each in backend.get_requires_for_build_wheel())
    monkeypatch.setenv("TILEWRIGHT_MYPYC", "1")
    assert any(each.startswith("mypy[mypyc]") for each in backend.get_requires_for_build_wheel())
    monkeypatch.setenv("TILEWRIGHT_MYPYC", "yes")
    with pytest.raises(ValueError, match="expected 1"):
        backend.get_requires_for_build_wheel()


def test_without_a_compiler_the_wheel_is_skipped_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", "/nonexistent/cc -O")
    monkeypatch.setattr(check_wheel, "build", lambda: pytest.fail("it was built"))
    assert check_wheel.main([]) == 0
    assert "skipped: no C compiler (/nonexistent/cc)" in capsys.readouterr().out


def test_an_editable_install_is_not_accelerated(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_MYPYC", "1")
    with pytest.raises(ValueError, match="install without -e"):
        backend.build_editable("nowhere")
