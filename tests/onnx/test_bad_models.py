"""Bad models: each kind has an error that says what was expected, what came and where."""

from __future__ import annotations

import collections
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import tilewright as tw
from tests.onnx.bad_models import parsed, refused
from tests.onnx.seed_models import seed_models
from tilewright.tensorir.errors import InputError, TilewrightError, TypeInferenceError, UnsupportedOperatorError

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


# Files.


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.97])
def test_truncated_file(share: float, tmp_path: Path) -> None:
    data = seed_models()["raw_data"].SerializeToString()
    path = tmp_path / "cut.onnx"
    path.write_bytes(data[: int(len(data) * share)])
    refused(path, InputError, r"cut\.onnx contain no ONNX model")


def test_every_flipped_bit_of_a_file() -> None:
    data = seed_models()["flattening"].SerializeToString()
    ends: collections.Counter[str] = collections.Counter()
    for place in range(0, 8 * len(data), 5):
        changed = bytearray(data)
        changed[place // 8] ^= 1 << place % 8
        try:
            tw.from_onnx(bytes(changed))
            ends["imported"] += 1
        except TilewrightError as error:
            ends[type(error).__name__] += 1
    assert ends["InputError"] > 50


def test_folder_in_place_of_a_file(tmp_path: Path) -> None:
    refused(tmp_path, InputError, "there is no file")


def test_model_without_a_graph() -> None:
    refused(ModelProto(ir_version=8).SerializeToString(), InputError, "there is no graph")


# Graphs.


def test_cyclic_graph_is_shown() -> None:
    source = parsed("(float[2] x) => (float[2] y) { a = Add (x, c) b = Neg (a) c = Abs (b) y = Neg (c) }")
    message = refused(source, InputError, "Add 'a': value 'c' is not defined before it; Abs 'c' makes it")
    assert "is in a cycle: 'c' -> 'a' -> 'b' -> 'c'" in message


def test_node_that_needs_itself() -> None:
    refused(parsed("(float[2] x) => (float[2] y) { y = Add (x, y) }"), InputError, "is in a cycle: 'y' -> 'y'")


def test_nodes_out_of_order() -> None:
    source = parsed("(float[2] x) => (float[2] y) { y = Neg (a) a = Abs (x) }")
    refused(source, InputError, "Neg 'y': value 'a' .*; Abs 'a', which makes it, comes later")


def test_missing_initializer() -> None:
    source = parsed("(float[2] x) => (float[2] y) { y = Add (x, weight) }")
    refused(source, InputError, "Add 'y': value 'weight' is not defined before it\n")


def test_missing_output() -> None:
    source = parsed("(float[2] x) => (float[2] y, float[2] z) { y = Neg (x) }")
    refused(source, InputError, "the graph's outputs: value 'z' is not defined before it")


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        ("(float[2] x) => (float[2] y) { y = Neg (x) y = Abs (x) }", "Abs 'y': value 'y' is already defined"),
        ("(float[2] x) => (float[2] x) { x = Neg (x) }", "Neg 'x': value 'x' is already defined"),
        ("(float[2] x, float[2] x) => (float[2] y) { y = Neg (x) }", "two inputs have one name among 'x', 'x'"),
        ("(float[2] x) => (float y) <float a = {1}, float a = {2}> { y = Add (x, a) }", "has two constants 'a'"),
    ],
)
def test_name_that_is_there_twice(graph: str, message: str) -> None:
    refused(parsed(graph), InputError, message)


def test_constant_of_a_subgraph_hides_that_of_another_name_outside() -> None:
    inner = "g1 () => (float[2] a) <float[2] w = {5,6}> { a = Identity (w) }"
    other = "g2 () => (float[2] b) { b = Identity (w) }"
    node = f"y = If (c) <then_branch = {inner}, else_branch = {other}>"
    source = parsed(f"(bool c) => (float[2] y) <float[2] w = {{1,2}}> {{ {node} }}")
    built = tw.build(tw.from_onnx(source), target=tw.Target("llvm", num_threads=1))
    np.testing.assert_array_equal(built(np.array(True)), [5, 6])
    np.testing.assert_array_equal(built(np.array(False)), [1, 2])


# Operators.


def test_unknown_domain() -> None:
    source = parsed("(float[2] x) => (float[2] y) { y = com.acme.Fancy (x) }", more=', "com.acme" : 1')
    refused(source, UnsupportedOperatorError, r"no converter for com\.acme\.Fancy \(nodes: 'y'\)")


@pytest.mark.parametrize(
    ("opset", "error", "message"),
    [
        (0, InputError, "opset 0 of domain '': versions are numbered from 1 on"),
        (-3, InputError, "opset -3 of domain ''"),
        (1000, InputError, "the model needs opset 1000; the installed onnx package knows up to"),
        (1 << 62, InputError, f"the model needs opset {1 << 62}"),
        (19, UnsupportedOperatorError, r"no converter for Gelu \(nodes: 'y'\)"),
    ],
)
def test_opset(opset: int, error: type[TilewrightError], message: str) -> None:
    source = parsed("(float[2] x) => (float[2] y) { y = Gelu (x) }")
    source.opset_import[0].version = opset
    refused(source, error, message)


def test_missing_opset() -> None:
    source = parsed("(float[2] x) => (float[2] y) { y = Neg (x) }")
    del source.opset_import[:]
    refused(source, InputError, "Neg 'y': the model does not state the opset of its operators")


def test_input_of_a_wrong_type() -> None:
    source = parsed("(int64[2] x) => (int64[2] y) { y = Sqrt (x) }")
    message = refused(source, TypeInferenceError, r"Sqrt 'y': input 0 \(X\): expected .*tensor\(float\)")
    assert "found tensor(int64)" in message


def test_inputs_of_different_types() -> None:
    source = parsed("(float[2] x, double[2] z) => (float[2] y) { y = Add (x, z) }")
    refused(source, TypeInferenceError, r"Add 'y': input 1 \(B\): expected float32 as input 0, found float64")


def test_shapes_that_do_not_fit() -> None:
    source = parsed("(float[2,3] x, float[4,5] z) => (float y) { y = MatMul (x, z) }")
    assert "in node MatMul 'y'" in refused(source, TypeInferenceError, "matmul")


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ("Add (x)", r"expected inputs \(A, B\), found 1"),
        ("Neg (x, x)", r"expected inputs \(X\), found 2"),
        ("Add (, x)", r"input 0 \(A\) is missing"),
        ("Concat (x, x)", "attribute 'axis' is missing"),
        ('Concat <axis = "rows"> (x, x)', "attribute 'axis': expected INT, found STRING"),
        ("Concat <axis = 0.5> (x, x)", "attribute 'axis': expected INT, found FLOAT"),
        ("Softmax <axes = 1> (x)", r"unknown attribute 'axes' \(the operator's: axis\)"),
        ("Split <num_outputs = 0> (x)", "attribute 'num_outputs': expected 1, as the node has, found 0"),
        ("Softmax <axis = 7> (x)", "axis: expected an axis of a tensor with 1 dimensions, found 7"),
        ("Flatten <axis = -3> (x)", "attribute 'axis': expected an axis of a tensor with 1 dimensions, found -3"),
        ("If (x)", "attribute 'else_branch' is missing"),
        ("Constant ()", "a constant without a value"),
        ("ConstantOfShape <value = float[2] {1,2}> (i)", "attribute 'value': expected one element, found 2"),
        ("ConstantOfShape (negative)", "dimension cannot be negative, found -1"),
        ("Unsqueeze (x, far)", "axes: expected an axis of a tensor with 2 dimensions, found 9"),
        ("Clip (f, pairs)", "expected bounds of one element each"),
        ("Squeeze (x, far)", "expected an axis of a tensor with 1 dimensions, found 9"),
        ("Reshape (x, far)", "reshape"),
        ("Slice (x, i, far, far, i, i)", "expected inputs"),
        ("Slice (x, i, pair)", "1 starts, 2 ends, 1 axes and 1 steps"),
        ("Range (one, one, pair)", "expected bounds and a step of one element each"),
        ("Range (one, one, none)", "step: expected a number other than 0"),
    ],
)
def test_node_that_is_wrong(node: str, message: str) -> None:
    constants = "int64[1] i = {0}, int64[1] far = {9}, int64[1] negative = {-1}, int64[2] pair = {1, 2}"
    constants += ", float f = {1}, float[2] pairs = {1, 2}"
    source = parsed(f"(float[2] x) => (float y) <{constants}, int64 one = {{1}}, int64 none = {{0}}> {{ y = {node} }}")
    with pytest.raises((InputError, TypeInferenceError), match=message) as caught:
        tw.from_onnx(source)
    assert "'y'" in "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])


def test_attribute_that_is_there_twice() -> None:
    source = parsed("(float[2] x) => (float y) { y = Softmax <axis = 0> (x) }")
    source.graph.node[0].attribute.append(helper.make_attribute("axis", 0))
    refused(source, InputError, "Softmax 'y': attribute 'axis' is given twice")


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (
            "Loop (trips, , x) <body = g (int64 i) => (bool d) { d = Constant <value = bool {1}> () }>",
            "Loop 'y': graph 'g' has 1 inputs, expected 3",
        ),
        (
            "Loop (trips, , x) <body = g (int64 i, bool c, float[2] s) => (bool d) { d = Identity (c) }>",
            "Loop 'y': the body returns 1 values, of which 2 are the state",
        ),
        (
            "Scan (x) <num_scan_inputs = 3, body = g (float s) => (float t) { t = Neg (s) }>",
            "Scan 'y': attribute 'num_scan_inputs': expected 1 to 1, found 3",
        ),
    ],
)
def test_subgraph_that_does_not_fit(graph: str, message: str) -> None:
    refused(parsed(f"(float[2] x) => (float y) <int64 trips = {{2}}> {{ y = {graph} }}"), InputError, message)


# Text.


def with_bytes(place: bytes, source: ModelProto) -> bytes:
    """The model's file with ``MARK`` of its text replaced by what is not UTF-8."""
    data = source.SerializeToString()
    assert place in data
    return data.replace(place, b"\xff\xfe\xfd\xfc"[: len(place)])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (parsed("(float[2] x) => (float[2] y) { MARK = Neg (x) y = Neg (MARK) }"), "a name in a node is not UTF-8"),
        (parsed("(float[2] MARK) => (float[2] y) { y = Neg (x) }"), "a name is not UTF-8"),
        (parsed("(float[MARK] x) => (float[2] y) { y = Neg (x) }"), "a name is not UTF-8"),
        (
            parsed('(float[2,2] x) => (float y) { y = Einsum <equation = "MARK"> (x) }'),
            "Einsum 'y': attribute 'equation' is not UTF-8",
        ),
    ],
)
def test_text_that_is_not_utf8(source: ModelProto, message: str) -> None:
    refused(with_bytes(b"MARK", source), InputError, message)


# Constants.


def with_tensor(**fields: Any) -> ModelProto:
    source = parsed("(float[2] x) => (float y) { y = Add (x, w) }")
    source.graph.initializer.add(name="w", **fields)
    return source


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"data_type": FLOAT, "dims": [2, 3], "float_data": [1, 2]},
            r"expected 6 elements for shape \(2, 3\), found 2",
        ),
        ({"data_type": FLOAT, "dims": [2], "raw_data": b"abc"}, r"expected 8 bytes for shape \(2,\), found 3"),
        ({"data_type": FLOAT, "dims": [-2], "raw_data": b""}, "a dimension cannot be negative, found -2"),
        ({"data_type": FLOAT, "dims": [1 << 30, 1 << 30]}, "expected 1152921504606846976 elements"),
        ({"data_type": FLOAT, "dims": [1 << 62, 1 << 62, 0]}, "more bytes than memory has addresses"),
        ({"data_type": TensorProto.STRING, "dims": [1], "string_data": [b"a"]}, "element type STRING is not supported"),
        ({"data_type": 77, "dims": [1]}, "element type 77 is not supported"),
        ({"data_type": 0, "dims": [1]}, "element type UNDEFINED is not supported"),
    ],
)
def test_constant_that_is_wrong(fields: dict[str, Any], message: str) -> None:
    refused(with_tensor(**fields), InputError, f"tensor 'w': .*{message}")


# External data.


def external(folder: Path, **entries: str) -> Path:
    """A model in ``folder`` whose constant of two float32 lies in another file."""
    source = with_tensor(data_type=FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        source.graph.initializer[0].external_data.add(key=key, value=value)
    path = folder / "model.onnx"
    path.write_bytes(source.SerializeToString())
    return path


OUTSIDE = "tensor 'w': its data is in .* outside of the model's folder"


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"location": "../secret.bin"}, OUTSIDE),
        ({"location": "deeper/../../secret.bin"}, OUTSIDE),
        ({"location": "/etc/hostname"}, OUTSIDE),
        ({"location": "link.bin"}, OUTSIDE),
        ({"location": "folder_link/secret.bin"}, OUTSIDE),
        ({"location": ""}, OUTSIDE),
        ({}, OUTSIDE),
        ({"location": "self.bin"}, "tensor 'w'"),
        ({"location": "."}, "there is no file '.'"),
        ({"location": "pipe"}, "there is no file 'pipe'"),
        ({"location": "a\0b"}, "tensor 'w'"),
        ({"location": "a" * 5000}, "tensor 'w'"),
        ({"location": "weights.bin", "offset": str(1 << 70)}, "of which 8 from 1180591620717411303424 on are meant"),
        ({"location": "weights.bin", "length": str(1 << 70)}, "expected 8 bytes"),
        ({"location": "weights.bin", "length": "-8"}, "expected 8 bytes"),
        ({"location": "weights.bin", "offset": "nine"}, "offset and length of external data"),
        ({"location": "weights.bin", "offset": "9" * 9999}, "offset and length of external data"),
    ],
)
def test_external_data_that_are_refused(tmp_path: Path, entries: dict[str, str], message: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "weights.bin").write_bytes(b"\0" * 16)
    (tmp_path / "secret.bin").write_bytes(b"\0" * 16)
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    (folder / "folder_link").symlink_to(tmp_path)
    (folder / "self.bin").symlink_to(folder / "self.bin")
    os.mkfifo(folder / "pipe")
    refused(external(folder, **entries), InputError, message)
