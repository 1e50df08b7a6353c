"""The file for pytest fails as long as the pass is wrong, and passes once it is fixed."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.passes import PassContext, function_pass
from tilewright.runtime.observe.numeric import NumericError

PASSES = """
from tilewright import graphir as gi
from tilewright.graphir.visitor import rewrite
from tilewright.passes import ModulePass, function_pass, module_pass, register_pass
from tilewright.tensorir import For
from tilewright.tensorir.expr import IntImm
from tilewright.tensorir.functor import Mutator
from tilewright.passes import primfunc_pass

WRONG = True


def transform(old, new):
    if WRONG and isinstance(new, gi.Call) and isinstance(new.op, gi.Operator) and new.op.name == "subtract":
        return gi.subtract(new.args[1], new.args[0])
    return new


@function_pass(opt_level=0)
def swap(func, mod, ctx):
    return func.with_body(rewrite(func.body, transform))


@register_pass
@function_pass(opt_level=0, name="RegisteredSwap")
def registered_swap(func, mod, ctx):
    return func.with_body(rewrite(func.body, transform))


@function_pass(opt_level=0, name="SwapClass")
class SwapClass:
    def transform_function(self, func, mod, ctx):
        return func.with_body(rewrite(func.body, transform))


class Shorter(Mutator):
    def mutate_For(self, loop):
        extent = loop.extent
        if WRONG and isinstance(extent, IntImm) and extent.value > 1:
            extent = IntImm(extent.value - 1)
        return For(loop.var, loop.min, extent, loop.kind, self.mutate(loop.body), loop.annotations)


@primfunc_pass(opt_level=0, name="Shorter")
def shorter(func, mod, ctx):
    return func.with_body(Shorter().mutate(func.body))
"""


@pytest.fixture
def user_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    """Write a user's module of broken passes, under a name that is unique to the test."""
    name = f"user_passes_{abs(hash(request.node.nodeid))}"
    (tmp_path / f"{name}.py").write_text(PASSES.replace("RegisteredSwap", f"Swap_{name}"))
    monkeypatch.syspath_prepend(str(tmp_path))
    return importlib.import_module(name)


def model() -> tw.IRModule:
    x, y = gi.var("x", shape=(8, 4)), gi.var("y", shape=(4,))
    weight = gi.const(np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32))
    return tw.IRModule.from_expr(gi.Function([x, y], gi.tanh(gi.nn.dense(gi.tanh(x), weight) - y) * gi.exp(y)))


def reproducer(folder: Path, broken: Any, stage: str = "graph", mod: tw.IRModule | None = None, **options: Any) -> Path:
    check = tw.NumericCheck(seed=3, folder=folder, **options)
    with pytest.raises(NumericError) as caught, PassContext(opt_level=2, instruments=[check]):
        tw.build(mod or model(), target="llvm", passes={stage: broken})
    path = caught.value.failure.reproducer
    assert path is not None and path.parent == folder
    assert str(path) in str(caught.value)
    return path


def run(path: Path) -> subprocess.CompletedProcess[str]:
    """Run pytest on a file as a user does, without the time to load plugins."""
    environment = {**os.environ, "PYTHONPATH": str(path.parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(path.parent), str(path)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=path.parent)


def mend(module: Any) -> None:
    path = Path(module.__file__)
    path.write_text(path.read_text().replace("WRONG = True", "WRONG = False  # mended"))


@pytest.mark.parametrize("name", ["swap", "registered_swap", "SwapClass"])
def test_file_fails_until_the_pass_is_mended(tmp_path: Path, user_passes: Any, name: str) -> None:
    broken = getattr(user_passes, name)
    path = reproducer(tmp_path, broken() if isinstance(broken, type) else broken)
    wrong = run(path)
    assert wrong.returncode == 1, wrong.stdout
    assert "NumericError" in wrong.stdout
    mend(user_passes)
    right = run(path)
    assert right.returncode == 0, right.stdout
    assert "1 passed" in right.stdout


def test_file_of_a_loop_pass_fails_until_the_pass_is_mended(tmp_path: Path, user_passes: Any) -> None:
    path = reproducer(tmp_path, user_passes.shorter, "scheduled")
    text = path.read_text()
    assert 'get_pass("LowerToTensorIR")' in text
    wrong = run(path)
    assert wrong.returncode == 1 and "Shorter" in wrong.stdout, wrong.stdout
    mend(user_passes)
    assert run(path).returncode == 0


def test_file_imports_nothing_but_numpy_pytest_and_tilewright(tmp_path: Path, user_passes: Any) -> None:
    path = reproducer(tmp_path, user_passes.swap)
    lines = [line.split()[1] for line in path.read_text().splitlines() if line.startswith(("import ", "from "))]
    rooms = {line.split(".")[0] for line in lines}
    assert rooms - set(sys.stdlib_module_names) <= {"numpy", "pytest", "tilewright", user_passes.__name__}


def test_pass_that_cannot_be_imported_is_to_be_filled_in(tmp_path: Path) -> None:
    @function_pass(opt_level=0, name="Local")
    def local(func: gi.Function, mod: tw.IRModule, ctx: PassContext) -> gi.Function:
        return func.with_body(func.body * 2.0)

    path = reproducer(tmp_path, local)
    text = path.read_text()
    assert "TODO: put the pass 'Local' here" in text
    wrong = run(path)
    assert wrong.returncode == 1 and "a pass is to be filled in" in wrong.stdout
    path.write_text(text.replace("LOCAL = None", "LOCAL = tw.passes.Sequential([])"))
    assert run(path).returncode == 0


def test_inputs_that_random_ones_do_not_replace_are_in_the_file(tmp_path: Path) -> None:
    """The pass is wrong for large numbers only."""

    @function_pass(opt_level=0, name="Doubles")
    def doubles(func: gi.Function, mod: tw.IRModule, ctx: PassContext) -> gi.Function:
        large = gi.where(func.params[0] > 1000.0, func.body + func.body, func.body)
        return func.with_body(large)

    x = gi.var("x", shape=(8, 4), dtype="bfloat16")
    given = np.full((8, 4), 5000).astype(x.dtype.numpy)
    mod = tw.IRModule.from_expr(gi.Function([x], x + x))
    check = tw.NumericCheck([given], folder=tmp_path)
    with pytest.raises(NumericError) as caught, PassContext(instruments=[check]):
        doubles(mod)
    assert caught.value.failure.operator.startswith("add(")
    path = caught.value.failure.reproducer
    assert path is not None
    text = path.read_text()
    namespace: dict[str, Any] = {}
    exec(compile(text, str(path), "exec"), namespace)
    (array,) = namespace["inputs"](None).values()
    assert array.dtype == given.dtype and array.tolist() == [[float(given[0, 0]) * 2]]
    path.write_text(text.replace("DOUBLES = None", "DOUBLES = tw.passes.Sequential([])"))
    assert run(path).returncode == 0


def test_tolerance_and_settings_are_kept(tmp_path: Path, user_passes: Any) -> None:
    text = reproducer(tmp_path, user_passes.swap, tolerance={"float32": (1e-3, 1e-4)}).read_text()
    assert "tolerance={'float32': (0.001, 0.0001)}" in text
    assert "opt_level=2" in text
    compile(text, "reproducer", "exec")


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, set()),
        ({"engine": "interpreter"}, {"engine='interpreter'"}),
        ({"reference": "original"}, {'reference="original"'}),
    ],
    ids=["defaults", "engine", "reference"],
)
def test_options_other_than_the_defaults_are_kept(
    tmp_path: Path, user_passes: Any, options: dict[str, Any], kept: set[str]
) -> None:
    text = reproducer(tmp_path, user_passes.swap, **options).read_text()
    call = next(line for line in text.splitlines() if "tw.NumericCheck(" in line)
    for option in ("engine='interpreter'", 'reference="original"'):
        assert (option in call) == (option in kept), call


def test_the_configuration_of_passes_is_kept(tmp_path: Path, user_passes: Any) -> None:
    check = tw.NumericCheck(seed=3, folder=tmp_path)
    config = {"tensorir.CheckBounds": {"enabled": True}}
    with pytest.raises(NumericError) as caught, PassContext(instruments=[check], config=config):
        user_passes.swap(model())
    path = caught.value.failure.reproducer
    assert path is not None
    assert f"config={config!r}" in path.read_text()
    compile(path.read_text(), str(path), "exec")


def test_second_failure_has_a_file_of_its_own(tmp_path: Path, user_passes: Any) -> None:
    first = reproducer(tmp_path, user_passes.swap)
    assert reproducer(tmp_path, user_passes.swap) == first
    y = gi.var("y", shape=(3,), dtype="float64")
    other = reproducer(tmp_path, user_passes.swap, mod=tw.IRModule.from_expr(gi.Function([y], gi.exp(y) - y)))
    assert other.name == "test_numeric_swap_1.py"
