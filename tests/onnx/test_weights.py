"""Large constants are taken from a model's bytes; what else it says comes through as the protobuf package reads it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.frontend.onnx import weights
from tilewright.graphir.frontend.onnx.model import read_model
from tilewright.graphir.visitor import post_order
from tilewright.tensorir.errors import InputError
from tilewright.tensorir.target import CACHE_LINE

RNG = np.random.default_rng(5)
#: Two large ones with a small one between; odd counts, so that what follows in the file begins anywhere.
ARRAYS = {
    "a": RNG.standard_normal((401, 403)).astype("f4"),
    "small": RNG.standard_normal(3).astype("f4"),
    "b": RNG.integers(-9, 9, (1001, 707), np.int8),
}


def made(arrays: dict[str, np.ndarray] = ARRAYS) -> onnx.ModelProto:
    nodes = [helper.make_node("Identity", [name], [f"y_{name}"], name=f"node {name}") for name in arrays]
    outputs = [
        helper.make_tensor_value_info(f"y_{name}", helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in arrays.items()
    ]
    constants = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "large", [], outputs, constants, doc_string="what it is for")
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="test")


def constants(mod: gi.IRModule) -> list[np.ndarray]:
    return [node.data for node in post_order(mod["main"]) if isinstance(node, gi.Constant)]


@pytest.mark.parametrize("kind", ["file", "bytes"])
def test_large_constants_are_read_once_to_aligned_memory(kind: str, tmp_path: Path) -> None:
    data = made().SerializeToString()
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    read = read_model(path if kind == "file" else data)
    assert sorted(read.contents) == [0, 2]
    assert read.proto.ByteSize() < 1000, "the protobuf package has seen large data"
    found = constants(tw.from_onnx(path if kind == "file" else data))
    for array, expected in zip(found, ARRAYS.values(), strict=True):
        np.testing.assert_array_equal(array, expected)
        assert array.dtype == expected.dtype and not array.flags.writeable
    assert all(array.ctypes.data % CACHE_LINE == 0 for array in (found[0], found[2]))
    path.write_bytes(b"")  # what was read is the model's own
    np.testing.assert_array_equal(found[0], ARRAYS["a"])


def test_the_rest_is_what_the_protobuf_package_reads() -> None:
    whole = made()
    read = read_model(whole.SerializeToString())
    for number in read.contents:
        whole.graph.initializer[number].ClearField("raw_data")
    assert read.proto == whole


def test_blocks_are_not_held_by_one_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "_BLOCK", 700_000)
    first, second = read_model(made().SerializeToString()).contents.values()
    assert first.base is not second.base
    monkeypatch.setattr(weights, "_BLOCK", 1 << 30)
    first, second = read_model(made().SerializeToString()).contents.values()
    assert first.base is second.base


def appended(tail: bytes) -> bytes:
    return made().SerializeToString() + tail


OTHER_FORMS = {
    "a second graph, which is merged": appended(b"\x3a\x07\x12\x05again"),
    "a group": appended(b"\x9b\x06\x9c\x06"),
    "small": helper.make_model(helper.make_graph([], "g", [], [])).SerializeToString(),
}


@pytest.mark.parametrize("what", OTHER_FORMS)
def test_other_forms_are_parsed_as_a_whole(what: str) -> None:
    expected = onnx.ModelProto()
    expected.ParseFromString(OTHER_FORMS[what])
    read = read_model(OTHER_FORMS[what])
    assert not read.contents and read.proto == expected


def test_constants_as_lists_of_numbers_stay() -> None:
    source = made()
    typed = TensorProto(name="a", data_type=TensorProto.FLOAT, dims=[401, 403], float_data=ARRAYS["a"].reshape(-1))
    source.graph.initializer[0].CopyFrom(typed)
    read = read_model(source.SerializeToString())
    assert sorted(read.contents) == [2]
    np.testing.assert_array_equal(constants(tw.from_onnx(source.SerializeToString()))[0], ARRAYS["a"])


@pytest.mark.parametrize("cut", [1, 1000, 700_000])
def test_a_model_that_ends_early_is_refused(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(made().SerializeToString()[:-cut])
    with pytest.raises(InputError, match="contain no ONNX model"):
        tw.from_onnx(path)


def test_a_constant_with_too_few_bytes() -> None:
    source = made()
    source.graph.initializer[2].raw_data = source.graph.initializer[2].raw_data[:-1]
    with pytest.raises(InputError, match=r"tensor 'b': expected 707707 bytes for shape \(1001, 707\), found 707706"):
        tw.from_onnx(source.SerializeToString())
