"""Test ``tilewright bench``: the times and results that it compares, and its exit codes."""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import Result

import tilewright as tw
from tilewright.cli.bench import difference, in_turns, ratio

Command = Callable[..., Result]
MODEL = "network.py:network"


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install stand-ins for other libraries, which need not be installed."""
    for name in ("torch", "onnxruntime"):
        library = SimpleNamespace(__name__=name, __version__="9.9+cpu", set_num_threads=lambda _: None)
        monkeypatch.setitem(sys.modules, name, library)  # type: ignore[arg-type]


def test_a_model_is_measured(command: Command) -> None:
    found = json.loads(command("bench", MODEL, "--shape", "batch=8", "-r", 20, "--json").stdout)
    (ours,) = found["results"]
    assert found["sizes"] == {"batch": 8} and ours["calls"] == 20
    assert 0 < ours["min"] <= ours["median"] <= ours["p99"]
    assert ours["items_per_second"] == pytest.approx(8 * ours["calls_per_second"])
    table = command("bench", MODEL, "-r", 3).stdout
    for text in ("min", "median", "p99", "items/s", f"tilewright {tw.__version__}", "batch=1"):
        assert text in table


@pytest.mark.usefixtures("libraries")
def test_a_library_is_compared_with_by_time_and_result(command: Command) -> None:
    found = command("bench", MODEL, "--compare", "torch", "-r", 5, "--json")
    assert found.exit_code == 0, found.output
    ours, theirs = json.loads(found.stdout)["results"]
    assert (theirs["name"], theirs["version"], theirs["calls"]) == ("torch", "9.9", ours["calls"])
    assert theirs["relative_difference"] < 1e-5 and theirs["times_slower"] > 0


@pytest.mark.usefixtures("libraries")
def test_results_that_differ_end_with_3(command: Command) -> None:
    found = command("bench", MODEL, "-c", "torch,onnxruntime", "-r", 2)
    assert found.exit_code == 3
    assert "the results of onnxruntime differ" in found.stderr and "torch 9.9" in found.stdout
    assert command("bench", MODEL, "-c", "onnxruntime", "-r", 2, "--tolerance", 10).exit_code == 0


@pytest.mark.usefixtures("libraries")
@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("network.ir", "network.ir is not a model that it can read"),
        ("network.py:function", "network.py has no function function_torch that returns a callable"),
    ],
)
def test_a_model_that_a_library_cannot_run_is_measured_alone_and_ends_with_1(
    command: Command, model: str, reason: str
) -> None:
    found = command("bench", model, "-c", "torch", "-r", 2)
    assert found.exit_code == 1
    assert f"torch: not compared: {reason}" in found.stdout and "tilewright" in found.stdout


def test_a_library_that_is_not_installed_is_named(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # type: ignore[arg-type]
    found = json.loads(command("bench", MODEL, "-c", "torch", "-r", 2, "--json").stdout)
    assert found["not_compared"] == {"torch": "the package torch is not installed"}
    assert command("bench", MODEL, "-c", "tensorflow").exit_code == 2


def test_an_onnx_model_is_compared_with_onnxruntime(command: Command, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    # Our name of the input is an identifier, as theirs is not.
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 4]) for name in ("x:0", "y")]
    graph = helper.make_graph([helper.make_node("Tanh", ["x:0"], ["y"])], "test", values[:1], values[1:])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "net.onnx"
    )
    found = command("bench", tmp_path / "net.onnx", "-c", "onnxruntime", "--shape", "x:0=5,4", "-r", 2, "--json")
    assert found.exit_code == 0, found.output
    facts = json.loads(found.stdout)
    assert facts["results"][1]["relative_difference"] < 1e-5
    assert facts["load"] >= 0 and facts["cores"] == sorted(os.sched_getaffinity(0))


def test_calls_take_turns_and_every_round_begins_with_another() -> None:
    called: list[str] = []
    runs = {name: lambda name=name: called.append(name) for name in "ab"}
    times = in_turns(runs, 0.0, repeat=4)
    assert {name: len(found) for name, found in times.items()} == {"a": 4, "b": 4}
    # Three calls each to see how long one takes; then each measured call has one before it that does not count.
    assert "".join(called) == "aaabbb" + "aabb" + "bbaa" + "aabb" + "bbaa"


def test_ratios_are_medians_over_the_rounds() -> None:
    ours, theirs = [1.0, 10.0, 2.0], [2.0, 20.0, 100.0]
    assert ratio(theirs, ours) == statistics.median([2.0, 2.0, 50.0])


def test_differences_are_of_the_worst_element() -> None:
    one = [np.array([1.0, np.nan, np.inf], "f4"), np.array([10], "i8")]
    assert difference(one, one) == (0.0, 0.0)
    other = [one[0], np.array([12], "i8")]
    assert difference(other, one) == (2.0, 0.2)
    assert difference([np.full(3, np.nan, "f4"), one[1]], one)[1] == np.inf
    assert difference(one[:1], one) == (np.inf, np.inf)
