"""``tilewright inspect`` of ONNX models, also of those that cannot be converted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

from tilewright.cli import cli


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A model with a weight in another file, and an operator that nobody knows."""
    nodes = [
        helper.make_node("Add", ["x", "w"], ["a"]),
        helper.make_node("Add", ["a", "w"], ["b"]),
        helper.make_node("Frobnicate", ["b"], ["y"], name="odd"),
    ]
    weight = numpy_helper.from_array(np.ones(1000, "f4"), "w")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 1000]) for name in "xy"]
    graph = helper.make_graph(nodes, "test", values[:1], values[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="me")
    place = tmp_path / "net.onnx"
    onnx.save(model, place, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return place


def test_an_onnx_model_is_described(path: Path) -> None:
    found = CliRunner().invoke(cli, ["inspect", str(path), "--json"])
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout) == {
        "producer": "me",
        "opsets": {"ai.onnx": 17},
        "inputs": [{"name": "x", "dtype": "float32", "shape": ["n", 1000]}],
        "outputs": [{"name": "y", "dtype": "float32", "shape": ["n", 1000]}],
        "weights": 1,
        "operators": {"Add": 2, "Frobnicate": 1},
        "unsupported": {"Frobnicate": ["odd"]},
        "external_data": [{"file": "weights.bin", "found": True}],
    }


def test_the_description_is_readable(path: Path) -> None:
    (path.parent / "weights.bin").unlink()
    found = CliRunner().invoke(cli, ["inspect", str(path)])
    words = " ".join(found.output.split())
    for text in ("weights.bin: missing", "x float32 (n, 1000)", "Add 2 yes", "Frobnicate 1 no: odd", "ai.onnx 17"):
        assert text in words


@pytest.mark.parametrize("options", [["-d", "n.x=5"], ["-s", "x=5,4"], ["-s", "n.x=5"]])
def test_sizes_that_are_given_are_put_into_shapes(tmp_path: Path, options: list[str]) -> None:
    nodes = [helper.make_node("Concat", ["x", "x"], ["y"], axis=0)]
    values = [helper.make_tensor_value_info(*each) for each in (("x", 1, ["n.x", 4]), ("y", 1, ["m", 4]))]
    graph = helper.make_graph(nodes, "test", values[:1], values[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "net.onnx")
    found = CliRunner().invoke(cli, ["inspect", str(tmp_path / "net.onnx"), "--json", *options])
    assert found.exit_code == 0, found.output
    facts = json.loads(found.stdout)
    assert (facts["inputs"][0]["shape"], facts["outputs"][0]["shape"]) == ([5, 4], [10, 4])
