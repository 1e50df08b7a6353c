"""Reductions, products and normalizations, against NumPy in double precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.graphir.together import together
from tilewright import graphir as gi
from tilewright.graphir.ops.common import FLOATS, NUMBERS
from tilewright.tensorir.errors import TypeInferenceError

N = ({"n": 2}, {"n": 3})
AXES = [{}, {"axis": 1}, {"axis": (0, -1)}, {"axis": (0, 2), "keepdims": True}, {"keepdims": True}, {"axis": ()}]


def each_alone(dtypes: Sequence[str], axes: Sequence[Any]) -> list[tuple[str, Any]]:
    """Every element type with one way to name axes, and every way with one type of each kind."""
    kinds = ("int8", "float16", "float32")
    return [(dtype, attrs) for dtype in dtypes for attrs in (axes if dtype in kinds else axes[1:2])]


def numpy_axes(attrs: dict[str, Any]) -> dict[str, Any]:
    return {"axis": attrs.get("axis"), "keepdims": attrs.get("keepdims", False)}


@together("dtype, attrs", each_alone(NUMBERS, AXES))
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


@together("dtype, attrs", each_alone(FLOATS, AXES))
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


@together("dtype, attrs", each_alone(NUMBERS, [{}, {"axis": 1}, {"axis": -1, "keepdims": True}, {"keepdims": True}]))
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


def test_nan_is_the_extreme_the_first_or_the_last(run: Any) -> None:
    x = gi.var("x", shape=(5,))
    value = np.array([1, np.nan, 7, np.nan, -1], np.float32)
    assert run([x], gi.argmax(x), [value]) == run([x], gi.argmin(x), [value]) == 1
    for find in (gi.argmax, gi.argmin):
        assert run([x], find(x, select_last_index=True), [value]) == 3
    assert np.isnan(run([x], gi.max(x), [value]))
    assert np.isnan(run([x], gi.min(x), [value]))


@pytest.mark.parametrize("dtype", FLOATS)
def test_logsumexp_neither_overflows_nor_makes_nan_of_infinity(run: Any, dtype: str) -> None:
    x = gi.var("x", shape=(3, 2), dtype=dtype)
    value = np.array([[1000, 1000], [-np.inf, -np.inf], [np.inf, 1]]).astype(x.dtype.numpy)
    found = run([x], gi.logsumexp(x, 1), [value]).astype(float)
    np.testing.assert_allclose(found, [1000 + np.log(2), -np.inf, np.inf], rtol=1e-2)


@together("dtype", NUMBERS)
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


@together("dtype", NUMBERS)
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


@together("dtype", NUMBERS)
def test_bias_is_added_along_its_axis(check: Any, dtype: str) -> None:
    check("nn.bias_add", [(("n", 3, 2), dtype), ((3,), dtype)], {}, lambda x, b: x + b[:, None], None, N)
    check("nn.bias_add", [(("n", 3), dtype), ((3,), dtype)], {"axis": -1}, lambda x, b: x + b, None, N)
