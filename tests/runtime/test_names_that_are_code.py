"""Names that are code, keywords, quotes, control characters or look alike: through both targets, exports, profiles and
reports they are names, and nothing that they say is run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright import tensorir as ti
from tilewright.runtime.process_caches import fresh_caches
from tilewright.tensorir.errors import CodegenError, TilewrightError

MARK = "was_run"
NAMES = (
    *(f"a; open('{MARK}', 'w')", f"__import__('pathlib').Path('{MARK}').touch()", f"x\nopen('{MARK}', 'w')\ny"),
    *("", "\n", "\0", "\ud800", "\u202e", "\u0435", "\ufb01", "\U0001f642", " ", "a b", "a.b", "../../x", "a/b"),
    *("lambda", "None", "class", "int", "np", "numba", "range", "self", "main", "args", "threads", "__builtins__"),
    *("define", "ret", "0", "1x", "%0", "@f", "memcpy", "malloc", "exp", "float32", "i64"),
    *("`", "\\", '"', "'", "'''", '"""', "{x}", "${x}", "%s", "<script>alert(1)</script>", "x" * 3000),
)
X = np.arange(4, dtype="f4")


def ident(name: str) -> str:
    return ascii(name)[:24]


@pytest.fixture(autouse=True)
def nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("kind", ["llvm", "numba"])
def test_inputs_of_models(kind: str) -> None:
    """All names in one model, so that they must differ, too."""
    values = [gi.var(name, shape=(4,)) for name in NAMES]
    total = values[0]
    for number, value in enumerate(values[1:], 1):
        total = total + value * float(number)
    with fresh_caches():
        model = tw.build(gi.Function(values, total), target=tw.Target(kind, num_threads=1))
    expected = sum(X * (number or 1) for number in range(len(NAMES)))
    np.testing.assert_allclose(model(*[X] * len(NAMES)), expected, rtol=1e-5)
    np.testing.assert_allclose(model(**dict.fromkeys(NAMES, X)), expected, rtol=1e-5)
    assert not Path(MARK).exists()


@pytest.mark.parametrize("kind", ["llvm", "numba"])
def test_functions_and_their_buffers_loops_and_lets(kind: str) -> None:
    for name in NAMES if kind == "llvm" else [*NAMES[:3], *NAMES[3::6], NAMES[-1]]:  # numba takes a second for each
        a, b = ti.Buffer(name, (4,)), ti.Buffer(name, (4,))
        i, y = ti.Var(name), ti.Var(name, "float32")
        store = ti.BufferStore(b, y * 2.0, (i,))
        loops = ti.For(i, 0, 4, "serial", ti.LetStmt(y, a[i] + 1.0, store))
        has_symbol = kind == "numba" or name not in ("\0", "\ud800")
        with fresh_caches():
            if not has_symbol:
                with pytest.raises(CodegenError, match="the name of a symbol can have neither"):
                    tw.build(ti.PrimFunc(name, (a, b), loops), target=tw.Target(kind, num_threads=1))
            func = ti.PrimFunc(name if has_symbol else "f", (a, b), loops)
            model = tw.build(func, target=tw.Target(kind, num_threads=1))
        np.testing.assert_array_equal(model(X), (X + 1) * 2)
    assert not Path(MARK).exists()


@pytest.mark.parametrize("name", [name for name in NAMES if not name.isidentifier()], ids=ident)
def test_symbolic_sizes_are_identifiers(name: str) -> None:
    with pytest.raises(TilewrightError, match="a symbolic dimension is named by an identifier"):
        gi.var("x", shape=(name,))


def test_exports_profiles_and_reports() -> None:
    name = f"<script>alert('{MARK}')</script>\"'><img src=x onerror=alert(1)>"
    x = gi.var(name, shape=(4,))
    model = tw.build(gi.Function([x], gi.exp(x)), target=tw.Target("llvm", num_threads=1))
    model.export("net.tw")
    np.testing.assert_array_equal(tw.load("net.tw")(**{name: X}), model(X))
    assert "exp" in model.profile(X, repeat=1).render()
    tw.report(model, "report.html", [X])
    page = Path("report.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page and "<img src=x" not in page


def test_folders_of_dumps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass may have any name; its file lies in the folder of the dump."""
    folder = tmp_path / "dump"
    monkeypatch.setenv("TILEWRIGHT_DUMP", str(folder))

    @tw.passes.function_pass(opt_level=0, name="../../outside; a/b\\c")
    def renames(func: gi.Function, mod: tw.IRModule, ctx: tw.PassContext) -> gi.Function:
        return func.with_attr("seen", True)

    x = gi.var("x", shape=(4,))
    renames(tw.IRModule.from_expr(gi.Function([x], gi.exp(x))))
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert written and all(folder in path.parents for path in written)
