"""``tilewright run``: results, files, and errors without tracebacks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper

from tilewright.cli import cli


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``y = x + 1``, ``total = sum(x * mask)`` for ``x`` of shape (n, 3) and a mask of int64."""
    nodes = [
        helper.make_node("Add", ["x", "one"], ["y"]),
        helper.make_node("Cast", ["mask"], ["factor"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["x", "factor"], ["masked"]),
        helper.make_node("ReduceSum", ["masked"], ["total"], keepdims=0),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3]),
        helper.make_tensor_value_info("mask", TensorProto.INT64, ["n", 1]),
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "total")]
    one = helper.make_tensor("one", TensorProto.FLOAT, [], [1.0])
    proto = helper.make_model(
        helper.make_graph(nodes, "test", inputs, outputs, [one]), opset_imports=[helper.make_opsetid("", 17)]
    )
    path = tmp_path_factory.mktemp("models") / "small.onnx"
    onnx.save(proto, path)
    return path


def run(*args: object) -> Result:
    return CliRunner().invoke(cli, ["run", *map(str, args)])


def test_results_are_shown_and_written(model: Path, tmp_path: Path) -> None:
    x, mask = np.arange(12, dtype="f4").reshape(4, 3), np.array([[1], [0], [0], [2]])
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "mask.npy", mask)
    files = ["-i", f"x={tmp_path / 'x.npy'}", "-i", f"mask={tmp_path / 'mask.npy'}"]
    found = run(model, *files, "-o", tmp_path / "out.npz", "-r", 2)
    assert found.exit_code == 0, found.output
    for text in ("inputs", "results", "total", "float32", "(4, 3)", "first call", "median of 2"):
        assert text in found.output
    with np.load(tmp_path / "out.npz") as results:
        assert sorted(results) == ["total", "y"]
        np.testing.assert_array_equal(results["y"], x + 1)
        np.testing.assert_allclose(results["total"], (x * mask).sum())


def test_inputs_without_a_file_are_made_up_and_the_same_each_time(model: Path, tmp_path: Path) -> None:
    for name in "ab":
        assert run(model, "-d", "n=5", "-o", tmp_path / f"{name}.npz").exit_code == 0
    with np.load(tmp_path / "a.npz") as a, np.load(tmp_path / "b.npz") as b:
        assert a["y"].shape == (5, 3)
        np.testing.assert_array_equal(a["y"], b["y"])


def test_sizes_of_a_file_hold_for_inputs_that_are_made_up(model: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "mask.npy", np.ones((7, 1), "i8"))
    assert run(model, "-i", f"mask={tmp_path / 'mask.npy'}", "-o", tmp_path / "out.npz").exit_code == 0
    with np.load(tmp_path / "out.npz") as results:
        assert results["y"].shape == (7, 3)


def test_model_can_be_narrowed(model: Path, tmp_path: Path) -> None:
    assert run(model, "-s", "x=4,?", "-s", "mask=4,1", "-o", tmp_path / "out.npz").exit_code == 0
    with np.load(tmp_path / "out.npz") as results:
        assert results["y"].shape == (4, 3)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["-i", "x"], "expected NAME=FILE, found 'x'; the model takes x, mask"),
        (["-i", "z=z.npy"], "the model has no input 'z' (it has: x, mask)"),
        (["-d", "n=many"], "expected a size, found 'many'"),
        (["-d", "m=3"], "the model has no dim 'm' (it has: n)"),
        (["-O", "4"], "4 is not in the range 0<=x<=3"),
        (["-r", "0"], "0 is not in the range x>=1"),
    ],
)
def test_wrong_use_ends_with_2(model: Path, args: list[str], message: str) -> None:
    found = run(model, *args)
    assert found.exit_code == 2
    assert message in " ".join(found.output.split())


def test_file_that_is_no_model_name_ends_with_2() -> None:
    assert run(__file__).exit_code == 2


@pytest.mark.parametrize("args", [["-s", "x=1,2,3"], ["-i", "x=missing.npy"]])
def test_what_the_model_refuses_ends_with_1_and_no_traceback(model: Path, args: list[str]) -> None:
    found = run(model, *args)
    assert found.exit_code == 1
    assert found.output.startswith("error: ")
    assert "Traceback" not in found.output


def test_debug_shows_where_an_error_comes_from(model: Path) -> None:
    found = CliRunner().invoke(cli, ["--debug", "run", str(model), "-s", "x=1,2,3"])
    assert found.exit_code == 1
    assert type(found.exception).__name__ == "InputError"


def test_bad_model_ends_with_1(tmp_path: Path) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(b"no model")
    found = run(path)
    assert found.exit_code == 1
    assert "InputError" in found.output


def test_module_is_the_command_too(model: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-m", "tilewright", "run", str(model), "-r", "1"], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    assert "results" in found.stdout
