"""The scheduling example: its steps are those of the page, and its script builds, checks and measures them."""

from __future__ import annotations

import importlib.util
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import tilewright as tw

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "scheduling"


#: Processors with 32 registers of 16 lanes, and with 16 of 8.
AVX512, AVX2 = tw.Target("llvm", mcpu="icelake-server"), tw.Target("llvm", mcpu="x86-64-v3")


def load_script(name: str) -> ModuleType:
    """A module of the example, loaded by its path: the scripts are in no package."""
    spec = importlib.util.spec_from_file_location(f"scheduling_{name}", EXAMPLE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclasses look names up
    spec.loader.exec_module(module)
    return module


with AVX512:
    steps = load_script("steps")


def run_script(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLE / "run.py"), *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


def test_the_page_shows_the_code_of_every_step() -> None:
    page = (ROOT / "docs" / "scheduling.md").read_text(encoding="utf-8")
    functions = [found for found in vars(steps).values() if inspect.isfunction(found)]
    assert {step.__name__ for step in steps.STEPS} <= {found.__name__ for found in functions}
    for found in functions:
        assert inspect.getsource(found).rstrip() + "\n" in page, found.__name__
    for name in ("LANES", "ROWS, VECTORS", "WIDTH"):  # TARGET is this machine's, and on the page a named one
        (line,) = [line for line in inspect.getsource(steps).splitlines() if line.startswith(f"{name} =")]
        assert line in page


@pytest.mark.parametrize("n", [96, 50, 17])
def test_every_step_computes_the_product_on_two_threads(n: int) -> None:
    a, b = np.random.default_rng(n).standard_normal((2, n, n), "float32")
    for step in steps.STEPS:
        model = tw.build(step(n).func, target=tw.Target("llvm", num_threads=2))
        np.testing.assert_allclose(model(a, b), a.astype("float64") @ b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("target", "lanes", "accumulators"), [(AVX512, 16, 24), (AVX2, 8, 12)], ids=["avx512", "avx2"])
def test_a_tile_of_the_result_stays_in_registers(target: tw.Target, lanes: int, accumulators: int) -> None:
    with target:
        found = load_script("steps")
    model = tw.build(found.register_tile(192).func, target=target)  # whole tiles
    assembly = str(model.ir("assembly"))
    stored = [line.split()[1:] for line in assembly.splitlines() if "vmovups" in line and line.rstrip().endswith(")")]
    assert str(model.ir("llvm")).count(f"store <{lanes} x float>") == accumulators
    assert len(stored) == accumulators, "accumulators that registers do not hold are stored on the stack"


def test_the_script_measures_every_step() -> None:
    found = run_script("64", "--loops")
    assert found.returncode == 0, found.stderr
    here = load_script("steps")
    for step in here.STEPS:
        assert here.loops(step(64)) in found.stdout
        (row,) = [line for line in found.stdout.splitlines() if "%" in line and line.split()[1] == step.__name__]
        assert float(row.split()[3]) > 0
    assert "Peak: " in found.stdout


def test_the_script_asks_for_a_positive_size() -> None:
    found = run_script("0")
    assert found.returncode == 2
    assert "size: expected a positive number, found 0" in found.stderr


def test_the_script_refuses_a_schedule_with_other_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "steps", steps)
    run = load_script("run")
    a, b = np.random.default_rng(0).standard_normal((2, 8, 8), "float32")
    assert run.compiled(steps.product(8), a, b, tw.Target("llvm"))() is not None
    lines = str(steps.product(8)).replace("a[vi, vk] * b[vk, vj]", "a[vi, vk] * b[vj, vk]")
    with pytest.raises(AssertionError):
        run.compiled(tw.tensorir.parse(lines), a, b, tw.Target("llvm"))
