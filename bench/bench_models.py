"""Measure a whole model: its speed and its build time; and the cost of a call and of the import."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from measure import compare

import tilewright as tw
from tilewright import graphir as gi

DIGITS = Path(__file__).resolve().parent.parent / "examples" / "digits"
THREADS = sorted({1, tw.Target("llvm").num_threads})
PROCESSES = 5
#: Outside of the tree, to leave no files in it.
BYTE_CODE = Path(tempfile.gettempdir()) / "tilewright-bench-bytecode"


@pytest.fixture(scope="module")
def digits() -> Any:
    """Import the modules of the example from its folder: (data, model, numpy_net)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(DIGITS))
        import data
        import model
        import numpy_net

        return data, model, numpy_net


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("batch", [1, 256])
def test_digits(benchmark: Any, digits: Any, batch: int, threads: int) -> None:
    data, model, numpy_net = digits
    weights, images = data.load_weights(), np.ascontiguousarray(data.load_digits()[0][:batch])
    with tw.PassContext(opt_level=3):
        executable = tw.build(model.build_module(weights), target=tw.Target("llvm", num_threads=threads))
    wide = {name: array.astype(np.float64) for name, array in weights.items()}
    expected = numpy_net.forward(wide, images.astype(np.float64))
    assert np.abs(executable(images) - expected).max() < 1e-5
    compare(
        benchmark,
        lambda: executable(images),
        title=f"digits network, batch {batch}",
        threads=threads,
        numpy=lambda: numpy_net.forward(weights, images),
        budget=2.0,
    )


def test_call_overhead(benchmark: Any) -> None:
    """Add four numbers: this measures the overhead of a call."""
    x = gi.var("x", shape=(4,), dtype="float32")
    y = gi.var("y", shape=(4,), dtype="float32")
    with tw.PassContext(opt_level=3):
        add = tw.build(gi.Function([x, y], x + y), target="llvm")
    a, b = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
    assert (add(a, b) == a.astype(np.float64) + b).all()
    compare(
        benchmark,
        lambda: add(a, b),
        title="call of one tiny operator",
        threads=1,
        numpy=lambda: a + b,
        goals={"median": 10e-6},
        budget=0.5,
    )


IMPORT = """
import sys, time
start = time.perf_counter()
import {module}
print(time.perf_counter() - start)
"""

BUILD = """
import sys, time
sys.path.insert(0, {folder!r})
import tilewright as tw
from data import load_weights
from model import build_module
weights = load_weights()
start = time.perf_counter()
with tw.PassContext(opt_level=3):
    tw.build(build_module(weights), target="llvm")
print(time.perf_counter() - start)
"""


BUILD_MOBILE = """
import sys, time
sys.path.insert(0, {folder!r})
import tilewright as tw
from mobile_network import mobile_network
network = mobile_network({height!r}, {width!r})
start = time.perf_counter()
with tw.PassContext(opt_level=3):
    tw.build(network, target="llvm")
print(time.perf_counter() - start)
"""


def _fresh(script: str) -> float:
    """Return the seconds that a script prints, run by a new interpreter, with byte code kept as after an
    installation."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(BYTE_CODE)
    environment["TILEWRIGHT_CACHE"] = "off"  # measures builds, not loads of kept ones
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, f"the fresh process failed:\n{done.stderr}"
    return float(done.stdout)


def _measure_processes(benchmark: Any, script: str, title: str, goal: float, beside: str | None = None) -> None:
    """Measure fresh processes. The benchmark's own statistics are of whole processes; ``median`` is of the time that
    the script measures itself."""
    inside: list[float] = []
    others: list[float] = []
    _fresh(script)  # byte code and file caches

    def turn() -> None:
        if beside is not None:
            others.append(_fresh(beside))

    benchmark.pedantic(lambda: inside.append(_fresh(script)), setup=turn, rounds=PROCESSES)
    benchmark.extra_info.update(title=title, threads=1, goals={"median": goal}, median=statistics.median(inside))
    benchmark.extra_info["best"] = min(inside)
    if others:
        benchmark.extra_info["numpy_median"] = statistics.median(others)


def test_build_digits(benchmark: Any) -> None:
    _measure_processes(benchmark, BUILD.format(folder=str(DIGITS)), "build of the digits network, fresh process", 2.0)


@pytest.mark.parametrize(("size", "height", "width"), [("192x192", 192, 192), ("any size", "h", "w")])
def test_build_mobile_network(benchmark: Any, size: str, height: int | str, width: int | str) -> None:
    script = BUILD_MOBILE.format(folder=str(Path(__file__).parent), height=height, width=width)
    _measure_processes(benchmark, script, f"build of a convolutional network for {size}, fresh process", 6.0)


def test_import(benchmark: Any) -> None:
    """Measure the import beside ``import numpy`` alone."""
    ours, numpy = (IMPORT.format(module=module) for module in ("tilewright", "numpy"))
    _measure_processes(benchmark, ours, "import tilewright, fresh process", 0.1, beside=numpy)
