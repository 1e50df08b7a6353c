"""Reductions, products and normalizations, against NumPy in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import graphir as gi
from tilewright.graphir.ops.common import FLOATS, NUMBERS
from tilewright.tensorir import tensor as te
from tilewright.tensorir.errors import TypeInferenceError

N = ({"n": 2}, {"n": 3})
AXES = [{}, {"axis": 1}, {"axis": (0, -1)}, {"axis": (0, 2), "keepdims": True}, {"keepdims": True}, {"axis": ()}]


def numpy_axes(attrs: dict[str, Any]) -> dict[str, Any]:
    return {"axis": attrs.get("axis"), "keepdims": attrs.get("keepdims", False)}


@pytest.mark.parametrize("attrs", AXES, ids=str)
@pytest.mark.parametrize("dtype", NUMBERS)
def test_sums_and_extremes_agree_with_numpy(check: Any, dtype: str, attrs: dict[str, Any]) -> None:
    where = numpy_axes(attrs)
    types = [(("n", 3, 2), dtype)]
    check("sum", types, attrs, lambda x: x.sum(**where, dtype=x.dtype), None, N, 4)
    check("prod", [((2, 1, 2), dtype)], attrs, lambda x: x.prod(**where, dtype=x.dtype), None, scale=4)
    check("max", types, attrs, lambda x: x.max(**where), None, N)
    check("min", types, attrs, lambda x: x.min(**where), None, N)


@pytest.mark.parametrize("attrs", AXES, ids=str)
def test_bools_are_reduced(check: Any, attrs: dict[str, Any]) -> None:
    where = numpy_axes(attrs)
    check("any", [(("n", 3, 2), "bool")], attrs, lambda x: x.any(**where), None, N)
    check("all", [(("n", 3, 2), "bool")], attrs, lambda x: x.all(**where), None, N)


@pytest.mark.parametrize("attrs", AXES, ids=str)
@pytest.mark.parametrize("dtype", FLOATS)
def test_moments_agree_with_numpy(check: Any, dtype: str, attrs: dict[str, Any]) -> None:
    where = numpy_axes(attrs)
    types = [(("n", 3, 2), dtype)]
    check("mean", types, attrs, lambda x: x.mean(**where), None, N)
    check("variance", types, attrs, lambda x: x.var(**where), None, N, 2)
    check("std", types, attrs, lambda x: x.std(**where), None, N, 2)
    check("logsumexp", types, attrs, lambda x: np.log(np.exp(x).sum(**where)), None, N, 2)


def test_unbiased_variance_divides_by_one_less(check: Any) -> None:
    attrs = {"axis": 1, "unbiased": True}
    check("variance", [((3, 4), "float64")], attrs, lambda x: x.var(axis=1, ddof=1))
    check("std", [((3, 4), "float64")], attrs, lambda x: x.std(axis=1, ddof=1))


def test_variance_and_layer_norm_stay_accurate_far_from_zero(run: Any) -> None:
    x = gi.var("x", shape=(1, 8))
    value = (10000 + np.arange(8, dtype=np.float32)).reshape(1, 8)
    np.testing.assert_allclose(run([x], gi.variance(x, 1), [value]), [5.25], rtol=1e-5)
    one, zero = gi.const(np.ones(8, np.float32)), gi.const(np.zeros(8, np.float32))
    expected = (np.arange(8) - 3.5) / np.sqrt(5.25 + 1e-5)
    np.testing.assert_allclose(run([x], gi.nn.layer_norm(x, one, zero), [value])[0], expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["sum", "prod", "mean"])
def test_reductions_of_nothing_have_their_identity(check: Any, name: str) -> None:
    identity = {"sum": 0.0, "prod": 1.0, "mean": np.nan}[name]
    check(name, [(("n", 0), "float32")], {"axis": 1}, lambda x: np.full(len(x), identity), None, N)
    check(name, [((0, 2), "float32")], {}, lambda x: np.asarray(identity))


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin"])
def test_what_has_no_value_over_an_empty_axis_says_so(name: str) -> None:
    with pytest.raises(TypeInferenceError, match=f"{name}: x: "):
        gi.get_operator(name)(gi.var("x", shape=(2, 0)), axis=1)
    assert gi.get_operator(name)(gi.var("x", shape=(2, 0)), axis=0).shape == (0,)


def few(rng: Any, shape: Any, dtype: Any) -> Any:
    return rng.integers(0, 3, shape).astype(dtype)


@pytest.mark.parametrize("attrs", [{}, {"axis": 1}, {"axis": -1, "keepdims": True}, {"keepdims": True}], ids=str)
@pytest.mark.parametrize("dtype", NUMBERS)
def test_places_of_extremes_agree_with_numpy(check: Any, dtype: str, attrs: dict[str, Any]) -> None:
    where = numpy_axes(attrs)
    types = [(("n", 3, 2), dtype)]
    check("argmax", types, attrs, lambda x: np.asarray(np.argmax(x, **where)), few, N)
    check("argmin", types, attrs, lambda x: np.asarray(np.argmin(x, **where)), few, N)

    def last(x: Any) -> Any:
        axis = attrs.get("axis")
        turned = np.argmax(x[tuple([slice(None, None, -1)] * 3)] if axis is None else np.flip(x, axis), **where)
        return np.asarray((x.size if axis is None else x.shape[axis]) - 1 - turned)

    check("argmax", types, {**attrs, "select_last_index": True}, last, few, N)


def test_the_first_nan_is_the_extreme(run: Any) -> None:
    x = gi.var("x", shape=(5,))
    value = np.array([1, np.nan, 7, np.nan, -1], np.float32)
    assert run([x], gi.argmax(x), [value]) == run([x], gi.argmin(x), [value]) == 1
    assert np.isnan(run([x], gi.max(x), [value]))
    assert np.isnan(run([x], gi.min(x), [value]))


@pytest.mark.parametrize("dtype", FLOATS)
def test_logsumexp_neither_overflows_nor_makes_nan_of_infinity(run: Any, dtype: str) -> None:
    x = gi.var("x", shape=(3, 2), dtype=dtype)
    value = np.array([[1000, 1000], [-np.inf, -np.inf], [np.inf, 1]]).astype(x.dtype.numpy)
    found = run([x], gi.logsumexp(x, 1), [value]).astype(float)
    np.testing.assert_allclose(found, [1000 + np.log(2), -np.inf, np.inf], rtol=1e-2)


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 4), (4, 2)),
        ((4,), (4, 2)),
        ((3, 4), (4,)),
        ((4,), (4,)),
        (("n", 3, 4), (4, 2)),
        (("n", 1, 3, 4), (2, 4, 1)),
        ((3, 0), (0, 2)),
        ((2, "n"), ("n", 3)),
        ((4,), ("n", 4, 2)),
    ],
    ids=str,
)
def test_matmul_has_the_shapes_of_numpy(check: Any, a: Any, b: Any, dtype: str) -> None:
    check("matmul", [(a, dtype), (b, dtype)], {}, np.matmul, None, N, 20)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_dense_multiplies_with_the_transposed_weight(check: Any, dtype: str) -> None:
    check("nn.dense", [(("n", 4), dtype), ((3, 4), dtype)], {}, lambda x, w: x @ w.T, None, N, 20)
    check("nn.dense", [((2, 3, 4), dtype), ((3, 4), dtype)], {"units": 3}, lambda x, w: x @ w.T, scale=20)
    check("nn.dense", [((4,), dtype), ((3, 4), dtype)], {}, lambda x, w: x @ w.T, scale=20)


@pytest.mark.parametrize(("ta", "tb"), [(False, False), (True, False), (False, True), (True, True)])
def test_batch_matmul_takes_turned_factors(check: Any, ta: bool, tb: bool) -> None:
    a, b = ("n", 4, 3) if ta else ("n", 3, 4), ("n", 2, 4) if tb else ("n", 4, 2)

    def oracle(x: Any, y: Any) -> Any:
        return np.einsum(f"{'bki' if ta else 'bik'},{'bjk' if tb else 'bkj'}->bij", x, y)

    attrs = {"transpose_a": ta, "transpose_b": tb}
    check("nn.batch_matmul", [(a, "float32"), (b, "float32")], attrs, oracle, None, N, 4)


@pytest.mark.parametrize("dtype", FLOATS)
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


@pytest.mark.parametrize("dtype", FLOATS)
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


@pytest.mark.parametrize("dtype", FLOATS)
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


@pytest.mark.parametrize("dtype", FLOATS)
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


@pytest.mark.parametrize("dtype", NUMBERS)
def test_bias_is_added_along_its_axis(check: Any, dtype: str) -> None:
    check("nn.bias_add", [(("n", 3, 2), dtype), ((3,), dtype)], {}, lambda x, b: x + b[:, None], None, N)
    check("nn.bias_add", [(("n", 3), dtype), ((3,), dtype)], {"axis": -1}, lambda x, b: x + b, None, N)
