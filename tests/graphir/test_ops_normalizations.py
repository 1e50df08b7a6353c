"""Softmax and normalizations over channels, rows and batches, against their formulas in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.graphir.together import together
from tilewright import graphir as gi
from tilewright.graphir.ops.common import FLOATS
from tilewright.tensorir import tensor as te
from tilewright.tensorir.errors import TypeInferenceError

N = ({"n": 2}, {"n": 3})
SMALL = ({"n": 1}, {"n": 2})


@together("dtype", FLOATS)
@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_softmax_agrees_with_its_formula(check: Any, dtype: str, axis: int) -> None:
    def oracle(x: Any) -> Any:
        return np.exp(x) / np.exp(x).sum(axis=axis, keepdims=True)

    types = [(("n", 3, 2), dtype)]
    check("nn.softmax", types, {"axis": axis}, oracle, None, N)
    check("nn.log_softmax", types, {"axis": axis}, lambda x: np.log(oracle(x)), None, N)
    check("nn.softmax", [((2, 0), dtype)], {}, lambda x: x)


def test_softmax_neither_overflows_nor_hides_nan(run: Any) -> None:
    x = gi.var("x", shape=(3, 2))
    value = np.array([[1e30, 0], [np.nan, 0], [-np.inf, 0]], np.float32)
    found = run([x], gi.nn.softmax(x), [value])
    np.testing.assert_array_equal(found, [[1, 0], [np.nan, np.nan], [0, 1]])


def test_the_stages_of_softmax_have_names_that_schedules_find() -> None:
    x = gi.var("x", shape=(3, 2))
    stage = gi.nn.softmax.compute([te.placeholder((3, 2))], gi.nn.softmax.make_attrs({}), x.type)
    names = {"softmax_max", "softmax_exp", "softmax_sum", "softmax"}
    found = {stage.name} | {tensor.name for tensor in stage.inputs} | {t.name for s in stage.inputs for t in s.inputs}
    assert names <= found


def vectors(rng: Any, shape: Any, dtype: Any) -> Any:
    return (rng.random(shape) + 0.5).astype(dtype)


@together("dtype", FLOATS)
@pytest.mark.parametrize("axis", [1, -1])
def test_batch_norm_agrees_with_its_formula(check: Any, dtype: str, axis: int) -> None:
    def oracle(x: Any, gamma: Any, beta: Any, mean: Any, var: Any) -> Any:
        gamma, beta, mean, var = [a.reshape((-1,) if axis == -1 else (-1, 1)) for a in (gamma, beta, mean, var)]
        return (x - mean) / np.sqrt(var + 1e-3) * gamma + beta

    types = [(("n", 3, 3), dtype), *[((3,), dtype)] * 4]
    attrs = {"axis": axis, "epsilon": 1e-3}
    check("nn.batch_norm", types, attrs, oracle, vectors, N, 2)
    bare = {**attrs, "center": False, "scale": False}
    one, zero = np.ones(3), np.zeros(3)
    check("nn.batch_norm", types, bare, lambda x, g, b, m, v: oracle(x, one, zero, m, v), vectors, N, 2)


@together("dtype", FLOATS)
@pytest.mark.parametrize("axis", [1, -1])
def test_layer_norm_and_rms_norm_agree_with_their_formulas(check: Any, dtype: str, axis: int) -> None:
    shape = (-1,) if axis == -1 else (-1, 1)

    def layer(x: Any, gamma: Any, beta: Any) -> Any:
        centred = x - x.mean(axis, keepdims=True)
        return centred / np.sqrt(x.var(axis, keepdims=True) + 1e-5) * gamma.reshape(shape) + beta.reshape(shape)

    def rms(x: Any, gamma: Any) -> Any:
        return x / np.sqrt((x**2).mean(axis, keepdims=True) + 1e-5) * gamma.reshape(shape)

    vector = ((5,), dtype)
    check("nn.layer_norm", [(("n", 5, 5), dtype), vector, vector], {"axis": axis}, layer, None, N, 4)
    check("nn.rms_norm", [(("n", 5, 5), dtype), vector], {"axis": axis}, rms, None, N, 4)


@together("dtype", FLOATS)
def test_group_norm_and_instance_norm_agree_with_their_formulas(check: Any, dtype: str) -> None:
    def group(x: Any, gamma: Any, beta: Any) -> Any:
        parts = [p - p.mean((1, 2), keepdims=True) for p in (x[:, :2], x[:, 2:])]
        parts = [p / np.sqrt((p**2).mean((1, 2), keepdims=True) + 1e-5) for p in parts]
        return np.concatenate(parts, 1) * gamma[:, None] + beta[:, None]

    def instance(x: Any, gamma: Any, beta: Any) -> Any:
        centred = x - x.mean(2, keepdims=True)
        return centred / np.sqrt(x.var(2, keepdims=True) + 1e-5) * gamma[:, None] + beta[:, None]

    types = [(("n", 4, 3), dtype), ((4,), dtype), ((4,), dtype)]
    check("nn.group_norm", types, {"num_groups": 2}, group, None, N, 4)
    check("nn.instance_norm", types, {}, instance, None, N, 4)


@together("dtype", FLOATS)
@pytest.mark.parametrize("size", [2, 9])
def test_local_response_normalization(check: Any, dtype: str, size: int) -> None:
    def oracle(x: Any) -> Any:
        total = np.zeros_like(x)
        for c in range(x.shape[1]):
            for k in range(c - (size - 1) // 2, c + size // 2 + 1):
                total[:, c] += x[:, k] ** 2 if 0 <= k < x.shape[1] else 0
        return x / (2 + 0.5 / size * total) ** 0.75

    check("nn.lrn", [(("n", 5, 2), dtype)], {"size": size, "alpha": 0.5, "bias": 2.0}, oracle, None, SMALL, 2)


@together("dtype", FLOATS)
@pytest.mark.parametrize("p", [1, 3])
def test_division_by_the_norm(check: Any, dtype: str, p: int) -> None:
    def oracle(x: Any) -> Any:
        size = (np.abs(x) ** p).sum(1, keepdims=True) ** (1 / p)
        return np.divide(x, size, out=np.zeros_like(x), where=size != 0)

    def some_zero(rng: Any, shape: Any, kind: Any) -> Any:
        return (rng.standard_normal(shape) * np.array([[[0, 1]]])).astype(kind)

    check("nn.lp_normalize", [(("n", 3, 2), dtype)], {"axis": 1, "p": p}, oracle, some_zero, SMALL, 2)


@together("dtype", FLOATS)
def test_batch_normalization_by_the_batch(check: Any, dtype: str) -> None:
    def oracle(x: Any, gamma: Any, beta: Any, running_mean: Any, running_var: Any) -> Any:
        mean, var = x.mean((0, 2)), x.var((0, 2))
        result = (x - mean[:, None]) / np.sqrt(var + 1e-3)[:, None] * gamma[:, None] + beta[:, None]
        return result, running_mean * 0.75 + mean * 0.25, running_var * 0.75 + var * 0.25

    types = [((4, 3, "w"), dtype), *[((3,), dtype)] * 4]
    sizes = [{"w": 2}, {"w": 3}]
    check("nn.batch_norm_training", types, {"epsilon": 1e-3, "momentum": 0.75}, oracle, None, sizes, 8)


def test_a_channel_of_equal_elements_is_normalized_to_the_shift() -> None:
    """The sums of these elements are exact, so that the mean is, too."""
    x = gi.var("x", shape=(2, 3, 4))
    vectors = [gi.const(np.array(values, "f4")) for values in ([3, -7, 0.3], [0.1, 0.2, 0.3], [0, 0, 0], [1, 1, 1])]
    with tw.PassContext(opt_level=3):
        model = tw.build(gi.Function([x], gi.nn.batch_norm_training(x, *vectors)))
    values = np.broadcast_to(np.array([1.75, 0.875, -33.25], "f4")[:, np.newaxis], (2, 3, 4)).copy()
    expected = np.broadcast_to(np.array([0.1, 0.2, 0.3], "f4")[:, np.newaxis], (2, 3, 4))
    np.testing.assert_array_equal(model(values)[0], expected)


def test_the_window_of_local_response_normalization_has_elements() -> None:
    with pytest.raises(TypeInferenceError, match=r"nn\.lrn: .*size: expected at least 1"):
        gi.get_operator("nn.lrn")(gi.var("x", shape=(1, 2, 5)), size=0)


def test_rows_that_are_joined_of_many_tables_are_normalized() -> None:
    rng = np.random.default_rng(0)
    # The parts are on the stack, and a vector of the joined row begins before the part that some of its lanes read.
    tables = [gi.var(f"t{n}", shape=(64, 4)) for n in range(8)]
    places = gi.var("places", shape=(2, 12), dtype="int64")
    joined = gi.concatenate([gi.take(table, places, axis=0) for table in tables], axis=2)
    ones, zeros = np.ones(32, "float32"), np.zeros(32, "float32")
    values = [rng.standard_normal((64, 4)).astype("float32") for _ in tables]
    numbers = rng.integers(0, 64, (2, 12))
    model = tw.build(gi.Function([*tables, places], gi.nn.layer_norm(joined, gi.const(ones), gi.const(zeros))))
    found = model(*values, numbers)
    wide = np.concatenate([value[numbers] for value in values], axis=2).astype("float64")
    centred = wide - wide.mean(axis=-1, keepdims=True)
    np.testing.assert_allclose(found, centred / np.sqrt(wide.var(axis=-1, keepdims=True) + 1e-5), rtol=1e-4, atol=1e-5)
