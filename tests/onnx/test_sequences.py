"""Sequences of tensors and values that may be missing, at import and in calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright as tw
from tilewright.tensorir.errors import InputError, TypeInferenceError, UnsupportedOperatorError

FLOAT = TensorProto.FLOAT


def sequence(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_sequence_value_info(name, FLOAT, None)


def model(nodes: list[onnx.NodeProto], outputs: list[str], inputs: Any = None) -> onnx.ModelProto:
    """A model of three vectors, or of what is given."""
    vectors = [helper.make_tensor_value_info(name, FLOAT, (3,)) for name in "abc"]
    made = [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs]
    graph = helper.make_graph(nodes, "test", inputs or vectors, made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def constant(value: int, name: str) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value_int=value)


VECTORS = [np.float32([1, 2, 3]), np.float32([4, 5, 6]), np.float32([7, 8, 9])]
ALL = helper.make_node("SequenceConstruct", ["a", "b", "c"], ["s"])
JOIN = helper.make_node("ConcatFromSequence", ["t"], ["y"], axis=0, new_axis=1)


@pytest.mark.parametrize("place", [-3, -1, 0, 2, 3, None])
def test_inserting_is_that_of_a_list(place: int | None) -> None:
    nodes = [ALL, helper.make_node("SequenceInsert", ["s", "a", *["p"] * (place is not None)], ["t"]), JOIN]
    found = tw.build(tw.from_onnx(model([constant(place or 0, "p"), *nodes], ["y"])))(*VECTORS)
    expected = list(VECTORS)
    expected.insert(3 if place is None else place, VECTORS[0])
    np.testing.assert_array_equal(found, np.stack(expected))


@pytest.mark.parametrize("place", [-3, -1, 0, 2, None])
def test_erasing_is_that_of_a_list(place: int | None) -> None:
    nodes = [ALL, helper.make_node("SequenceErase", ["s", *["p"] * (place is not None)], ["t"]), JOIN]
    found = tw.build(tw.from_onnx(model([constant(place or 0, "p"), *nodes], ["y"])))(*VECTORS)
    expected = list(VECTORS)
    del expected[-1 if place is None else place]
    np.testing.assert_array_equal(found, np.stack(expected))


def test_a_sequence_is_given_by_the_shapes_of_its_elements() -> None:
    source = model([helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0)], ["y"], [sequence("s")])
    built = tw.build(tw.from_onnx(source, shapes={"s": [(2,), ("n",)]}))
    for count in (1, 4):
        parts = [np.float32([1, 2]), np.arange(count, dtype=np.float32)]
        np.testing.assert_array_equal(built(*parts), np.concatenate(parts))
    known = tw.from_onnx(source, shapes={"s": [(3,), (3,)]}, values={"s": VECTORS[:2]})
    np.testing.assert_array_equal(tw.build(known)(), np.concatenate(VECTORS[:2]))


def test_a_sequence_is_a_result() -> None:
    half = helper.make_node("SplitToSequence", ["a", "two"], ["y"])
    found = tw.build(tw.from_onnx(model([constant(2, "two"), half], ["y"])))(*VECTORS)
    assert [part.tolist() for part in found] == [[1, 2], [3]]


@pytest.mark.parametrize("there", [True, False])
def test_whether_a_value_is_there_is_known(there: bool) -> None:
    nodes = [
        helper.make_node("OptionalHasElement", ["a" if there else ""], ["has"]),
        helper.make_node("Cast", ["has"], ["y"], to=FLOAT),
    ]
    source = model(nodes, ["y"])
    source.opset_import[0].version = 18
    assert tw.build(tw.from_onnx(source))(*VECTORS) == float(there)


@pytest.mark.parametrize(
    ("nodes", "inputs", "options", "error", "message"),
    [
        ([JOIN], [sequence("t")], {}, UnsupportedOperatorError, "state the shape of each element"),
        ([JOIN], [sequence("t")], {"shapes": {"t": (2,)}}, InputError, "expected the shape of each element"),
        ([JOIN], [sequence("t")], {"shapes": {"t": [(2,)]}, "values": {"t": []}}, InputError, "a sequence of 1 arrays"),
        ([ALL], None, {"shapes": {"a": [(3,)]}}, InputError, "is not a sequence"),
        ([helper.make_node("SequenceLength", ["a"], ["y"])], None, {}, TypeInferenceError, "found tensor"),
        (
            [constant(3, "p"), ALL, helper.make_node("SequenceAt", ["s", "p"], ["y"])],
            None,
            {},
            InputError,
            "index 3 is out of range for a sequence of 3 values",
        ),
    ],
)
def test_what_is_wrong_is_said(nodes: Any, inputs: Any, options: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        tw.from_onnx(model(nodes, ["y"] if nodes != [ALL] else ["s"], inputs), **options)
