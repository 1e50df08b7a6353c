"""Optimizers, mel filters and classical learning, beside formulas in float64 that are written one number at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from tilewright.tensorir.errors import InputError, UnsupportedOperatorError

FLOAT, DOUBLE, INT32, INT64 = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT32, TensorProto.INT64
TRAINING, CLASSICAL = "ai.onnx.preview.training", "ai.onnx.ml"

Array = np.ndarray[Any, Any]


def built(
    node: str,
    domain: str,
    inputs: Sequence[tuple[str, int, Any]],
    attrs: dict[str, Any],
    outputs: int = 1,
    constants: dict[str, Array] | None = None,
) -> tw.Executable:
    names = [f"y{number}" for number in range(outputs)]
    given = constants or {}
    graph = helper.make_graph(
        [helper.make_node(node, [name for name, *_ in inputs] + list(given), names, domain=domain, **attrs)],
        "test",
        [helper.make_tensor_value_info(*of) for of in inputs],
        [helper.make_tensor_value_info(name, 0, None) for name in names],
        [numpy_helper.from_array(value, name) for name, value in given.items()],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(TRAINING, 1), helper.make_opsetid(CLASSICAL, 3)]
    return tw.build(tw.from_onnx(helper.make_model(graph, opset_imports=opsets, ir_version=9)))


# Optimizers. Each formula takes the learning rate, the number of steps, a tensor's element, its gradient and what is
# remembered, and gives the new element and what is remembered now.


def adagrad(rate: float, steps: int, x: float, g: float, h: float, **a: float) -> tuple[float, ...]:
    g += a["norm_coefficient"] * x
    h += g * g
    return x - rate / (1 + steps * a["decay_factor"]) * g / (math.sqrt(h) + a["epsilon"]), h


def adam(rate: float, steps: int, x: float, g: float, v: float, h: float, **a: float) -> tuple[float, ...]:
    g += a["norm_coefficient"] * x
    v = a["alpha"] * v + (1 - a["alpha"]) * g
    h = a["beta"] * h + (1 - a["beta"]) * g * g
    if steps > 0:
        rate *= math.sqrt(1 - a["beta"] ** steps) / (1 - a["alpha"] ** steps)
    return (1 - a["norm_coefficient_post"]) * (x - rate * v / (math.sqrt(h) + a["epsilon"])), v, h


def momentum(rate: float, steps: int, x: float, g: float, v: float, **a: Any) -> tuple[float, ...]:
    g += a["norm_coefficient"] * x
    v = a["alpha"] * v + (a["beta"] if steps > 0 else 1) * g
    return x - rate * (g + a["alpha"] * v if a["mode"] == "nesterov" else v), v


DECAY = {"alpha": 0.75, "beta": 0.5, "epsilon": 0.01}
OPTIMIZERS: list[tuple[str, Callable[..., tuple[float, ...]], int, dict[str, Any]]] = [
    ("Adagrad", adagrad, 3, {"norm_coefficient": 0.3, "decay_factor": 0.25, "epsilon": 0.125}),
    ("Adam", adam, 4, {"norm_coefficient": 0.2, "norm_coefficient_post": 0.1, **DECAY}),
    ("Momentum", momentum, 3, {"norm_coefficient": 0.1, "alpha": 0.8, "beta": 0.3, "mode": "standard"}),
    ("Momentum", momentum, 3, {"norm_coefficient": 0.1, "alpha": 0.8, "beta": 0.3, "mode": "nesterov"}),
]


@pytest.mark.parametrize("kind", [FLOAT, DOUBLE])
# Names of their own: a function's text holds its address, which differs between the workers that tests run in.
@pytest.mark.parametrize(
    ("name", "formula", "count", "attrs"), OPTIMIZERS, ids=["adagrad", "adam", "momentum", "nesterov"]
)
def test_a_step_of_an_optimizer(name: str, formula: Any, count: int, attrs: dict[str, Any], kind: int) -> None:
    """Of three tensors at once, one of any size, for the first step and a later one."""
    shapes: list[Any] = [["n", 3], [5], []]
    tensors = [(f"a{part}_{n}", kind, shape) for part in range(count) for n, shape in enumerate(shapes)]
    step = built(name, TRAINING, [("r", kind, []), ("t", INT64, []), *tensors], attrs, 3 * (count - 1))
    dtype = np.float32 if kind == FLOAT else np.float64
    for rows, steps in ((1, 0), (7, 3)):
        rng = np.random.default_rng(rows)
        sizes = [(rows, 3), (5,), ()]
        # What is remembered may be a sum of squares, which is not negative.
        parts = [[np.asarray(rng.uniform(-1 if p < 2 else 0, 1, size), dtype) for size in sizes] for p in range(count)]
        found = step(np.array(0.5, dtype), np.array(steps), *[array for part in parts for array in part])
        exact = {key: float(np.float32(a)) if isinstance(a, float) else a for key, a in attrs.items()}
        for n, size in enumerate(sizes):
            expected = [np.zeros(size) for _ in range(count - 1)]
            for place in np.ndindex(*size):
                results = formula(0.5, steps, *[float(part[n][place]) for part in parts], **exact)
                for result, value in zip(expected, results, strict=True):
                    result[place] = value
            for result, array in zip(expected, found[n::3], strict=True):
                assert array.dtype == dtype
                np.testing.assert_allclose(array, result, rtol=2e-6 if kind == FLOAT else 1e-12)


@pytest.mark.parametrize("missing", ["alpha", "beta", "mode"])
def test_an_optimizer_without_an_attribute_that_it_must_have(missing: str) -> None:
    attrs = {name: value for name, value in OPTIMIZERS[2][3].items() if name != missing}
    tensors = [("r", FLOAT, []), ("t", INT64, []), *((name, FLOAT, [2]) for name in "xgv")]
    with pytest.raises(InputError, match=f"attribute '{missing}' is missing"):
        built("Momentum", TRAINING, tensors, attrs, 2)


def test_an_optimizer_in_a_mode_that_there_is_not() -> None:
    tensors = [("r", FLOAT, []), ("t", INT64, []), *((name, FLOAT, [2]) for name in "xgv")]
    with pytest.raises(UnsupportedOperatorError, match="mode 'heavy' is not supported"):
        built("Momentum", TRAINING, tensors, {**OPTIMIZERS[2][3], "mode": "heavy"}, 2)


def test_an_optimizer_with_a_tensor_that_has_no_gradient() -> None:
    tensors = [("r", FLOAT, []), ("t", INT64, []), *((name, FLOAT, [2]) for name in "xgvy")]
    with pytest.raises(InputError, match="expected 3 inputs for each tensor, found 4"):
        built("Momentum", TRAINING, tensors, OPTIMIZERS[2][3], 2)


# Mel filters.


def mel_filters(bands: int, length: int, rate: int, low: float, high: float) -> Array:
    """The definition in the operator's documentation: triangles over the bins, with whole bins as corners."""

    def mel(hertz: float) -> float:
        return 2595 * math.log10(1 + hertz / 700)

    width = (mel(high) - mel(low)) / (bands + 2)
    hertz = [700 * (10 ** ((mel(low) + number * width) / 2595) - 1) for number in range(bands + 2)]
    corners = [int((length + 1) * f // rate) for f in hertz]
    result = np.zeros((length // 2 + 1, bands))
    for band, (first, top, last) in enumerate(zip(corners, corners[1:], corners[2:], strict=False)):
        for number in range(first, top):
            result[number, band] = (number - first) / (top - first)
        result[top, band] = 1
        for number in range(top + 1, last):
            result[number, band] = (last - number) / (last - top)
    return result


@pytest.mark.parametrize("kind", [FLOAT, DOUBLE, TensorProto.FLOAT16, INT32])
@pytest.mark.parametrize(
    "sizes", [(7, 64, 8000, 20.0, 3900.0), (5, 33, 16000, 0.0, 7000.0), (20, 31, 11025, 300.0, 5000.0)], ids=str
)
def test_mel_filters(sizes: Any, kind: int) -> None:
    """Even and odd lengths, and more bands than bins, so that many corners are one bin."""
    types = (np.int32, np.int32, np.int32, np.float64, np.float64)
    constants = {name: np.array(value, of) for name, value, of in zip("blref", sizes, types, strict=True)}
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    found = built("MelWeightMatrix", "", [], {"output_datatype": kind}, constants=constants)()
    assert found.dtype == dtype
    np.testing.assert_allclose(found, mel_filters(*sizes).astype(dtype), rtol=1e-6 if kind == FLOAT else 1e-12)


# Classical learning.


@pytest.mark.parametrize("threshold", [None, -0.5, 1.5, 2.0])
@pytest.mark.parametrize("kind", [FLOAT, DOUBLE, INT32, INT64])
def test_what_lies_above_a_threshold(kind: int, threshold: float | None) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    binarize = built(
        "Binarizer", CLASSICAL, [("x", kind, ["n", 3])], {} if threshold is None else {"threshold": threshold}
    )
    for rows in (1, 5):
        x = (np.arange(rows * 3).reshape(rows, 3) % 5 - 1).astype(dtype)
        if dtype.kind == "f":
            x[0] = [np.nan, np.inf, -np.inf]
        found = binarize(x)
        assert found.dtype == dtype
        expected = [[1 if value > (threshold or 0) else 0 for value in row] for row in x.tolist()]
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", [FLOAT, INT64])
@pytest.mark.parametrize("shape", [("n",), ("n", 5), (2, "n", 5)], ids=str)
def test_columns_are_picked_from_the_last_axis(shape: Any, kind: int) -> None:
    """Some of them twice, and as many as come."""
    pick = built("ArrayFeatureExtractor", CLASSICAL, [("x", kind, list(shape)), ("at", INT64, [1, "k"])], {})
    for n, places in ((5, [4, 0, 0]), (7, [2]), (5, [])):
        size = [n if extent == "n" else extent for extent in shape]
        x = np.arange(math.prod(size)).reshape(size).astype(helper.tensor_dtype_to_np_dtype(kind))
        found = pick(x, np.array([places], np.int64))
        rows = [[row[place] for place in places] for row in x.reshape(-1, size[-1])]
        expected = np.array(rows, x.dtype).reshape((1, len(places)) if len(size) == 1 else (*size[:-1], len(places)))
        assert found.shape == expected.shape
        np.testing.assert_array_equal(found, expected)
