"""Imported models whose sizes depend on the data: one build serves every value."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tilewright as tw
from tilewright.tensorir.errors import ExecutionError, InputError

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL

Info = list[tuple[str, int, Any]]


def graph(nodes: list[onnx.NodeProto], inputs: Info, outputs: Info, constants: dict[str, Any] | None = None) -> Any:
    made = [[helper.make_tensor_value_info(*info) for info in infos] for infos in (inputs, outputs)]
    data = [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()]
    return helper.make_graph(nodes, "test", *made, data)


def model(*args: Any) -> onnx.ModelProto:
    return helper.make_model(graph(*args), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def agrees(proto: onnx.ModelProto, *calls: dict[str, Any]) -> tw.Executable:
    """Build once, and compare each call with the onnx package's reference."""
    built, reference = tw.build(tw.from_onnx(proto)), ReferenceEvaluator(proto)
    for feeds in calls:
        found = built(**feeds)
        for a, b in zip(found if isinstance(found, tuple) else (found,), reference.run(None, feeds), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)
            assert a.dtype == np.asarray(b).dtype
    return built


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


X = np.arange(24, dtype=np.float32)


def test_shape_that_is_an_input() -> None:
    proto = model(
        [helper.make_node("Reshape", ["x", "shape"], ["y"])],
        [("x", FLOAT, ["n"]), ("shape", INT64, [3])],
        [("y", FLOAT, None)],
    )
    built = agrees(
        proto, *[{"x": X, "shape": ints(*shape)} for shape in ((2, 3, 4), (-1, 2, 2), (0, 1, 1), (1, 24, 1))]
    )
    with pytest.raises(InputError, match="must be"):
        built(x=X, shape=ints(5, 5, 5))


def test_shape_of_which_a_part_is_an_input() -> None:
    nodes = [
        helper.make_node("Concat", ["two", "rows"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
        helper.make_node("MatMul", ["y", "w"], ["z"]),
    ]
    constants = {"two": ints(2), "w": np.ones((4, 5), np.float32)}
    proto = model(nodes, [("x", FLOAT, [2, "n", 4]), ("rows", INT64, [2])], [("z", FLOAT, None)], constants)
    agrees(proto, *[{"x": np.ones((2, n, 4), np.float32), "rows": ints(n, 4)} for n in (3, 1, 7)])


@pytest.mark.parametrize("step", [1, 2, -1, -3])
def test_bounds_of_a_slice_that_are_inputs(step: int) -> None:
    nodes = [helper.make_node("Slice", ["x", "starts", "ends", "axes", "steps"], ["y"])]
    inputs = [("x", FLOAT, ["n", 4]), ("starts", INT64, [1]), ("ends", INT64, [1])]
    proto = model(nodes, inputs, [("y", FLOAT, None)], {"axes": ints(0), "steps": ints(step)})
    bounds = [(0, 6), (1, 3), (-4, -1), (5, 0), (2, 100), (-100, 100), (3, -100), (6, 6)]
    agrees(proto, *[{"x": X.reshape(6, 4), "starts": ints(a), "ends": ints(b)} for a, b in bounds])


def test_range_whose_bounds_are_inputs() -> None:
    proto = model(
        [helper.make_node("Range", ["a", "b", "c"], ["y"])],
        [(name, INT64, []) for name in "abc"],
        [("y", INT64, None)],
    )
    calls = [(0, 5, 1), (5, 0, -2), (0, 7, 3), (3, 3, 1), (3, 0, 1), (-4, 4, 4)]
    agrees(proto, *[dict(zip("abc", map(np.array, call), strict=True)) for call in calls])


def test_range_of_floats() -> None:
    proto = model(
        [helper.make_node("Range", ["a", "b", "c"], ["y"])], [(n, FLOAT, []) for n in "abc"], [("y", FLOAT, None)]
    )
    calls = [(0, 5, 0.5), (1, -1, -0.25), (0, 1, 0.75)]
    agrees(proto, *[dict(zip("abc", map(np.float32, call), strict=True)) for call in calls])


def test_selected_rows_go_on_through_the_model() -> None:
    """The rows whose sum is positive, times weights, and their number."""
    nodes = [
        helper.make_node("ReduceSum", ["x", "axis"], ["sums"], keepdims=0),
        helper.make_node("Greater", ["sums", "zero"], ["mask"]),
        helper.make_node("NonZero", ["mask"], ["places"]),
        helper.make_node("Transpose", ["places"], ["columns"]),
        helper.make_node("GatherND", ["x", "columns"], ["rows"]),
        helper.make_node("MatMul", ["rows", "w"], ["y"]),
        helper.make_node("Shape", ["y"], ["shape"]),
    ]
    constants = {"axis": ints(1), "zero": np.float32(0), "w": np.ones((3, 2), np.float32)}
    proto = model(nodes, [("x", FLOAT, ["n", 3])], [("y", FLOAT, None), ("shape", INT64, None)], constants)
    rng = np.random.default_rng(0)
    agrees(proto, *[{"x": rng.standard_normal((n, 3)).astype(np.float32)} for n in (5, 1, 40, 0, 7)])


def loop_body(goes_on: str) -> Any:
    """``total += i``; whether it goes on; collects ``x * total``."""
    nodes = [
        helper.make_node("Add", ["total", "i"], ["total_out"]),
        helper.make_node("Cast", ["total_out"], ["factor"], to=FLOAT),
        helper.make_node("Mul", ["x", "factor"], ["row"]),
        helper.make_node("Less", ["total_out", "limit"], ["below"]),
        helper.make_node("Identity", [goes_on], ["cond_out"]),
    ]
    inputs = [("i", INT64, []), ("cond", BOOL, []), ("total", INT64, [])]
    return graph(nodes, inputs, [("cond_out", BOOL, []), ("total_out", INT64, []), ("row", FLOAT, ["n"])])


@pytest.mark.parametrize("goes_on", ["cond", "below"])
def test_loop_collects_as_many_rows_as_it_runs(goes_on: str) -> None:
    node = helper.make_node("Loop", ["trips", "start", "zero"], ["total", "rows"], body=loop_body(goes_on))
    inputs = [("trips", INT64, []), ("start", BOOL, []), ("x", FLOAT, ["n"]), ("limit", INT64, [])]
    outputs = [("total", INT64, []), ("rows", FLOAT, None)]
    proto = model([node], inputs, outputs, {"zero": np.array(0)})
    calls = [(4, True, 10**6), (7, True, 5), (1, True, 0), (300, True, 1000)]
    agrees(
        proto,
        *[
            {"trips": np.array(trips), "start": np.array(start), "x": X[:3], "limit": np.array(limit)}
            for trips, start, limit in calls
        ],
    )
    built = tw.build(tw.from_onnx(proto))
    for trips, start in ((0, True), (-3, True), (5, False)):
        total, rows = built(trips=np.array(trips), start=np.array(start), x=X[:3], limit=np.array(9))
        assert (int(total), rows.shape) == (0, (0, 3))


@pytest.mark.parametrize("direction", [0, 1])
@pytest.mark.parametrize("axis", [0, 1])
def test_scan_over_any_number_of_steps(direction: int, axis: int) -> None:
    nodes = [
        helper.make_node("Add", ["sum_in", "row"], ["sum_out"]),
        helper.make_node("Identity", ["sum_out"], ["every"]),
    ]
    ends = [[("sum_in", FLOAT, [2]), ("row", FLOAT, [2])], [("sum_out", FLOAT, [2]), ("every", FLOAT, [2])]]
    attributes = {
        "num_scan_inputs": 1,
        "scan_input_directions": [direction],
        "scan_output_axes": [axis],
        "scan_output_directions": [direction],
    }
    node = helper.make_node("Scan", ["zero", "x"], ["last", "sums"], body=graph(nodes, *ends), **attributes)
    proto = model(
        [node], [("x", FLOAT, ["n", 2])], [("last", FLOAT, [2]), ("sums", FLOAT, None)], {"zero": np.zeros(2, "f4")}
    )
    built = tw.build(tw.from_onnx(proto))
    for n in (1, 5, 300):
        x = np.random.default_rng(n).standard_normal((n, 2)).astype(np.float32)
        sums = np.cumsum(x[::-1], 0)[::-1] if direction else np.cumsum(x, 0)
        last, found = built(x)
        np.testing.assert_allclose(last, x.sum(0), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found, sums.T if axis else sums, rtol=1e-4, atol=1e-4)


def test_negative_size_is_an_error() -> None:
    node = helper.make_node("ConstantOfShape", ["shape"], ["y"])
    built = tw.build(tw.from_onnx(model([node], [("shape", INT64, [2])], [("y", FLOAT, None)])))
    assert built(ints(2, 3)).shape == (2, 3)
    with pytest.raises(ExecutionError, match="computed -2 for the size"):
        built(ints(-2, 3))


def test_sizes_are_all_that_is_left_of_what_was_computed() -> None:
    """Nothing that the results are computed from has the sizes that NonZero and Unique found."""
    node = helper.make_node
    proto = model(
        [
            *(node("NonZero", ["x"], ["i"]), node("Unique", ["x"], ["u"])),
            *(node("EyeLike", ["i"], ["eye"], dtype=FLOAT), node("Shape", ["i"], ["s"])),
            *(node("Shape", ["u"], ["t"]), node("Concat", ["t", "s"], ["st"], axis=0)),
            node("ConstantOfShape", ["st"], ["full"]),
        ],
        [("x", FLOAT, ["n", 3])],
        [("eye", FLOAT, None), ("s", INT64, None), ("full", FLOAT, None)],
    )
    agrees(proto, {"x": X[:6].reshape(2, 3)}, {"x": np.zeros((2, 3), np.float32)}, {"x": X[:3].reshape(1, 3)})
