"""Sizes that fit together when the model runs, although this cannot be proved before."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from tilewright.tensorir.errors import InputError

FLOAT = TensorProto.FLOAT


def model(nodes: list[Any], constants: dict[str, Any], shape: list[Any]) -> onnx.ModelProto:
    infos = [helper.make_tensor_value_info("x", FLOAT, shape)]
    result = helper.make_tensor_value_info("z", 0, None)
    data = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    made = [helper.make_node(name, inputs, [output], **attrs) for name, inputs, output, attrs in nodes]
    graph = helper.make_graph(made, "test", infos, [result], data)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("node", ["AveragePool", "MaxPool", "LpPool", "Conv"])
def test_no_window_fits_into_an_image(node: str) -> None:
    weights = {"w": numbers(1, 1, 5, 2)} if node == "Conv" else {}
    attrs = {} if node == "Conv" else {"kernel_shape": [5, 2]}
    built = tw.build(tw.from_onnx(model([(node, ["x", *weights], "z", attrs)], weights, ["n", 1, "h", 3])))
    assert built(numbers(2, 1, 4, 3)).shape == (2, 1, 0, 2)
    assert built(numbers(2, 1, 6, 3)).shape == (2, 1, 2, 2)
    with pytest.raises(InputError, match=r"dimension 2 of the result of .*: h - 4 is -1, but it must be .* 0"):
        built(numbers(2, 1, 3, 3))


BOUNDS = {"start": np.array([0]), "end": np.array([3]), "axis": np.array([1])}


def test_channels_of_a_convolution_are_a_slice() -> None:
    nodes = [
        ("Slice", ["x", "start", "end", "axis"], "y", {}),
        ("Conv", ["y", "w"], "v", {}),
        ("BatchNormalization", ["v", *["s"] * 4], "z", {}),
    ]
    constants = {**BOUNDS, "w": numbers(4, 3, 1, 1), "s": np.ones(4, np.float32)}
    built = tw.build(tw.from_onnx(model(nodes, constants, [1, "c", 5, 5])))
    x = numbers(1, 6, 5, 5)
    wanted = np.einsum("oi,bihw->bohw", constants["w"][:, :, 0, 0], x[:, :3])
    np.testing.assert_allclose(built(x), (wanted - 1) / np.sqrt(1 + 1e-5) + 1, rtol=1e-4, atol=1e-5)
    with pytest.raises(InputError, match="is 2, but it must be 3"):
        built(numbers(1, 2, 5, 5))


def test_batches_of_gather_nd_are_written_differently() -> None:
    """``min(n - 1, 1) // 2 + 1`` batches of the data, and one of the indices."""
    nodes = [
        ("Slice", ["x", "one", "two"], "y", {}),
        ("MaxPool", ["y3"], "p", {"kernel_shape": [1], "strides": [2], "pads": [0, 0]}),
        ("Transpose", ["p"], "t", {"perm": [2, 1, 0]}),
        ("GatherND", ["t", "i"], "z", {"batch_dims": 1}),
    ]
    nodes.insert(1, ("Transpose", ["y"], "y3", {"perm": [2, 1, 0]}))
    constants = {"one": np.array([1]), "two": np.array([2]), "i": np.array([[[0], [2]]])}
    built = tw.build(tw.from_onnx(model(nodes, constants, ["n", 3, 2])))
    x = numbers(4, 3, 2)
    np.testing.assert_array_equal(built(x), x[1:2, [0, 2]])
