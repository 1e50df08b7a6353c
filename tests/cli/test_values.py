"""Values of inputs on the command line, and what is said about results that are not numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper, numpy_helper

from tilewright.cli import cli

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def run(*args: object) -> Result:
    return CliRunner().invoke(cli, ["run", "-r", "1", *map(str, args)])


@pytest.fixture
def rates(tmp_path: Path) -> Path:
    """``y`` is the first half of ``x`` for a rate of 16000, and the whole of it for others."""

    def branch(name: str, node: onnx.NodeProto) -> onnx.GraphProto:
        return helper.make_graph([node], name, [], [helper.make_tensor_value_info(node.output[0], FLOAT, None)])

    half = branch("half", helper.make_node("Slice", ["x", "zero", "four"], ["a"]))
    whole = branch("whole", helper.make_node("Identity", ["x"], ["b"]))
    nodes = [
        helper.make_node("Equal", ["sr", "rate"], ["is_16k"]),
        helper.make_node("If", ["is_16k"], ["y"], then_branch=half, else_branch=whole),
    ]
    inputs = [helper.make_tensor_value_info("x", FLOAT, [8]), helper.make_tensor_value_info("sr", INT64, [])]
    data = {"zero": np.array([0]), "four": np.array([4]), "rate": np.array(16000)}
    weights = [numpy_helper.from_array(value, name) for name, value in data.items()]
    graph = helper.make_graph(nodes, "test", inputs, [helper.make_tensor_value_info("y", FLOAT, None)], weights)
    path = tmp_path / "rates.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize(("rate", "size"), [(16000, 4), (8000, 8)])
def test_a_value_that_shapes_depend_on_is_given(rates: Path, tmp_path: Path, rate: int, size: int) -> None:
    found = run(rates, "--value", f"sr={rate}", "-o", tmp_path / "out.npz")
    assert found.exit_code == 0, found.output
    with np.load(tmp_path / "out.npz") as results:
        assert results["y"].shape == (size,)


def test_a_model_whose_shapes_depend_on_a_value_says_how_to_give_it(rates: Path) -> None:
    found = run(rates)
    assert found.exit_code == 1
    assert "give the values that it depends on: values={'sr': ...} (--value NAME=VALUE)" in found.output


def test_a_value_becomes_part_of_an_artifact(rates: Path, tmp_path: Path) -> None:
    compiled = ["compile", rates, "--value", "sr=16000", "-o", tmp_path / "net.tw"]
    assert CliRunner().invoke(cli, list(map(str, compiled))).exit_code == 0
    assert "sr" not in run(tmp_path / "net.tw").output


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "net.py"
    path.write_text(
        "from tilewright import graphir as gi\n"
        "def net():\n"
        "    x = gi.var('x', shape=('n', 3))\n"
        "    return gi.Function([x], gi.sqrt(x))\n"
    )
    return f"{path}:net"


@pytest.mark.parametrize(("value", "expected"), [("4", [[2, 2, 2]]), ("[[1,4,9],[0,0,0]]", [[1, 2, 3], [0, 0, 0]])])
def test_a_number_fills_an_input_and_a_list_is_all_of_it(
    program: str, tmp_path: Path, value: str, expected: list[list[int]]
) -> None:
    assert run(program, "--value", f"x={value}", "-o", tmp_path / "out.npz").exit_code == 0
    with np.load(tmp_path / "out.npz") as results:
        np.testing.assert_array_equal(results["result"], expected)


@pytest.mark.parametrize(
    ("value", "message"), [("x=blue", "expected a number, or a list of them, found 'blue'"), ("z=1", "no input 'z'")]
)
def test_values_that_do_not_suit_are_wrong_use(program: str, value: str, message: str) -> None:
    found = run(program, "--value", value)
    assert found.exit_code == 2
    assert message in " ".join(found.output.replace("│", " ").split())


def test_results_that_are_not_numbers_are_said(program: str) -> None:
    found = run(program, "--value", "x=[[-1,4,-9]]")
    assert "result 'result': 2 of 3 elements are NaN" in found.stderr
    assert "NaN" not in run(program, "--value", "x=1").stderr


def test_inputs_that_sizes_depend_on_are_named(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Range", ["zero", "stop", "one"], ["y"])],
        "test",
        [helper.make_tensor_value_info("stop", INT64, [])],
        [helper.make_tensor_value_info("y", INT64, None)],
        [numpy_helper.from_array(np.array(number), name) for number, name in enumerate(("zero", "one"))],
    )
    path = tmp_path / "range.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    assert "sizes depend on the values of 'stop', which are made up: --value stop=..." in run(path).stderr


def test_the_file_of_an_only_input_needs_no_name(program: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.full((2, 3), 9, "f4"))
    assert run(program, "-i", tmp_path / "x.npy", "-o", tmp_path / "out.npz").exit_code == 0
    with np.load(tmp_path / "out.npz") as results:
        np.testing.assert_array_equal(results["result"], np.full((2, 3), 3))


def test_numbers_of_another_float_type_are_converted_where_that_is_asked_for(program: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.full((2, 3), 9.0))
    refused = run(program, "-i", tmp_path / "x.npy")
    assert refused.exit_code == 1 and "expected float32, found float64; --convert rounds" in refused.output
    assert run(program, "-i", tmp_path / "x.npy", "--convert", "-o", tmp_path / "out.npz").exit_code == 0
    with np.load(tmp_path / "out.npz") as results:
        assert results["result"].dtype == "f4"
    np.save(tmp_path / "x.npy", np.full((2, 3), 9))
    assert "expected float32, found int64" in run(program, "-i", tmp_path / "x.npy", "--convert").output
