"""Pooling in one to three dimensions, against loops over windows in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.graphir.together import together
from tests.graphir.window_oracles import average, blocked, greatest, norm, padded_average, plain, pool
from tilewright import graphir as gi
from tilewright.graphir.ops.common import FLOATS, NUMBERS
from tilewright.tensorir.errors import TypeInferenceError

N = ({"n": 1}, {"n": 2})

POOLS = [
    {"pool_size": (3,), "strides": (2,), "padding": (1, 1), "ceil_mode": True},
    {"pool_size": (2, 3), "strides": (2, 1), "padding": (1, 0, 0, 2), "dilation": (1, 2)},
    {"pool_size": (2, 1, 2), "strides": (3, 2, 2), "padding": (1, 0, 0, 0, 0, 1), "ceil_mode": True},
]


def plane(rank: int) -> list[Any]:
    return [(("n", 2, *(6, 5, 4)[:rank]), "float32")]


@pytest.mark.parametrize("attrs", POOLS, ids=str)
def test_pooling_agrees_with_loops_over_windows(check: Any, attrs: dict[str, Any]) -> None:
    types = plane(len(attrs["pool_size"]))
    check("nn.max_pool", types, attrs, lambda x: pool(x, attrs, greatest), None, N)
    check("nn.avg_pool", types, attrs, lambda x: pool(x, attrs, average), None, N)
    check("nn.avg_pool", types, {**attrs, "count_include_pad": True}, lambda x: pool(x, attrs, padded_average), None, N)
    check("nn.lp_pool", types, attrs, lambda x: pool(x, attrs, norm(2)), None, N)
    check("nn.lp_pool", types, {**attrs, "p": 3}, lambda x: pool(x, attrs, norm(3)), None, N, 4)


@together("dtype", FLOATS)
@pytest.mark.parametrize("name", ["nn.max_pool", "nn.avg_pool", "nn.lp_pool"])
def test_pooling_of_blocks_of_channels(check: Any, name: str, dtype: str) -> None:
    attrs = {"pool_size": (2, 1, 3), "strides": (1, 2, 1), "padding": (1, 0, 1, 0, 0, 1)}
    of_window = {"nn.max_pool": greatest, "nn.avg_pool": average, "nn.lp_pool": norm(2)}[name]

    def oracle(x: Any) -> Any:
        return blocked(pool(plain(x), attrs, of_window), 2)

    check(name, [(("n", 2, 3, 2, 4, 2), dtype)], {**attrs, "layout": "NCDHW2c"}, oracle, None, N, 4)


@pytest.mark.parametrize(("attrs", "column_major"), [(POOLS[0], False), (POOLS[1], True), (POOLS[2], True)], ids=str)
def test_indices_tell_where_the_greatest_values_are(check: Any, attrs: dict[str, Any], column_major: bool) -> None:
    def oracle(x: Any) -> Any:
        def number(image: Any, elements: Any, plane: Any) -> int:
            inside = [place for _, place, where in elements if where == "data"]
            best = max(inside, key=lambda place: image[place])
            order = "F" if column_major else "C"
            first = (plane[0] * x.shape[1] + plane[1]) * image.size
            return int(first + np.ravel_multi_index(best, image.shape, order=order))

        return pool(x, attrs, number, np.int64)

    types = plane(len(attrs["pool_size"]))
    check("nn.max_pool_indices", types, {**attrs, "column_major": column_major}, oracle, None, N)


@together("dtype", NUMBERS)
def test_max_pooling_takes_all_numbers_and_never_the_padding(check: Any, dtype: str) -> None:
    def least(rng: Any, shape: Any, kind: Any) -> Any:
        low = -np.inf if kind.kind not in "iu" else np.iinfo(kind).min
        return np.where(rng.integers(0, 2, shape), 1, low).astype(kind)

    attrs = {"pool_size": (2,), "strides": (1,), "padding": (1, 1)}

    def where(image: Any, elements: Any, plane: Any) -> int:
        inside = [place for _, place, kind in elements if kind == "data"]
        return int(plane[0] * 3 + max(inside, key=lambda place: image[place])[0])

    types = [((4, 1, 3), dtype)]
    check("nn.max_pool", types, attrs, lambda x: pool(x, attrs, greatest), least)
    check("nn.max_pool_indices", types, attrs, lambda x: pool(x, attrs, where, np.int64), least)


def test_the_first_nan_of_a_window_is_its_greatest_value(run: Any) -> None:
    x = gi.var("x", shape=(1, 1, 4))
    value = np.array([[[1, np.nan, 3, np.nan]]], np.float32)
    np.testing.assert_array_equal(run([x], gi.nn.max_pool(x, (4,)), [value]).ravel(), [np.nan])
    np.testing.assert_array_equal(run([x], gi.nn.max_pool_indices(x, (4,)), [value]).ravel(), [1])


@together("dtype", FLOATS)
def test_means_and_norms_take_all_floats(check: Any, dtype: str) -> None:
    attrs = {"pool_size": (2,), "strides": (1,), "padding": (1, 0)}
    types = [(("n", 2, "w"), dtype)]
    sizes = [{"n": 1, "w": 1}, {"n": 2, "w": 4}]
    check("nn.avg_pool", types, attrs, lambda x: pool(x, attrs, average), None, sizes)
    check("nn.lp_pool", types, attrs, lambda x: pool(x, attrs, norm(2)), None, sizes, 2)
    check("nn.lp_norm", types, {"axis": (1, 2), "keepdims": True},
          lambda x: np.sqrt((x * x).sum((1, 2), keepdims=True)), None, sizes, 2)  # fmt: skip


@pytest.mark.parametrize("name", ["nn.max_pool", "nn.avg_pool", "nn.lp_pool"])
def test_ceil_mode_over_a_symbolic_size(check: Any, name: str) -> None:
    attrs = {"pool_size": (3,), "strides": (2,), "padding": (1, 1), "ceil_mode": True}
    oracle = {"nn.max_pool": greatest, "nn.avg_pool": average, "nn.lp_pool": norm(2)}[name]
    sizes = [{"w": size} for size in (1, 2, 3, 4, 5, 8)]
    check(name, [((1, 2, "w"), "float32")], attrs, lambda x: pool(x, attrs, oracle), None, sizes, 2)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_unpooling_brings_values_back(run: Any, dtype: str) -> None:
    x, i = gi.var("x", shape=("n", 1, 2), dtype=dtype), gi.var("i", shape=("n", 1, 2), dtype="int64")
    shape = (gi.symbol("n"), 1, 4)
    values, places = np.array([[[5, 7]], [[1, 2]]]).astype(x.dtype.numpy), np.array([[[1, 2]], [[4, 7]]])
    found = run([x, i], gi.nn.max_unpool(x, i, shape=shape), [values, places], n=2)
    np.testing.assert_array_equal(found.astype(np.float64), [[[0, 5, 7, 0]], [[1, 0, 0, 2]]])


@pytest.mark.parametrize(
    ("name", "shapes", "attrs", "message"),
    [
        ("nn.max_pool", [(1, 2, 5)], {"pool_size": (2, 2)}, "data: expected a tensor with 4 dimensions"),
        ("nn.max_pool", [(1, 2, 5)], {"pool_size": (2,), "padding": 2}, "padding: expected less than .* span 2"),
        ("nn.lp_pool", [(1, 2, 5)], {"pool_size": (2,), "p": 0}, "p: expected a number above 0"),
        ("nn.max_pool", [(1, 2, 5)], {"pool_size": (2,), "layout": "NCH"}, "layout: expected a layout of NCW"),
        ("nn.max_pool", [(1, 2, 5)], {"pool_size": (2,), "layout": "NCW4c"}, "data: expected .* layout NCW4c"),
    ],
)
def test_what_does_not_fit_is_named(name: str, shapes: Any, attrs: dict[str, Any], message: str) -> None:
    args = [gi.var(f"a{n}", shape=shape) for n, shape in enumerate(shapes)]
    with pytest.raises(TypeInferenceError, match=f"{name}: .*{message}"):
        gi.get_operator(name)(*args, **attrs)
