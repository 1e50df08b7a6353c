"""Running sums, products and extremes; sorted elements, and the places of values among them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.op import get_operator

NUMBERS = ["int8", "uint64", "float16", "bfloat16", "float32", "float64"]
#: Every element type in one case, float32 in every case.
EACH_DTYPE = [*((dtype, 0) for dtype in NUMBERS if dtype != "float32"), *(("float32", case) for case in range(3))]


def places(shape: tuple[int, ...]) -> Any:
    return itertools.product(*map(range, shape))


def few_values(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Numbers of which many are equal, among floats NaN and infinities."""
    values = rng.integers(0, 5, shape)
    if dtype.kind in "iu":
        return values.astype(dtype)
    return np.array([np.nan, -np.inf, np.inf, 1.5, -2.0])[values].astype(dtype)


# Scans.


@pytest.mark.parametrize(("dtype", "case"), EACH_DTYPE)
def test_running_sums_and_products(check: Any, dtype: str, case: int) -> None:
    axis, exclusive, reverse = [(1, True, True), (0, False, True), (2, True, False)][case]

    def oracle(x: np.ndarray, combine: Callable[[Any, Any], Any], start: int) -> np.ndarray:
        result = np.empty_like(x)
        for place in places(x.shape):
            row, at = list(place), place[axis]
            span = range(at, x.shape[axis]) if reverse else range(at + 1)
            members = [x[(*row[:axis], k, *row[axis + 1 :])] for k in span if not (exclusive and k == at)]
            result[place] = functools.reduce(combine, members, x.dtype.type(start))
        return result

    attrs = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
    types = [((2, "n", 3), dtype)]
    sizes = ({"n": 0}, {"n": 1}, {"n": 4})
    with np.errstate(all="ignore"):
        check("cumsum", types, attrs, lambda x: oracle(x, lambda p, q: p + q, 0), None, sizes, 2)
        check("cumprod", types, attrs, lambda x: oracle(x, lambda p, q: p * q, 1), None, sizes, 2)


RUNNING = [*(("cummax", dtype) for dtype in ("bool", *NUMBERS)), ("cummin", "bool"), ("cummin", "float32")]


@pytest.mark.parametrize(("name", "dtype"), RUNNING)
def test_running_extremes_and_the_last_places_of_each(check: Any, name: str, dtype: str) -> None:
    def oracle(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, numbers = np.empty_like(x), np.empty(x.shape, np.int64)
        for row, _, behind in places((x.shape[0], 1, x.shape[2])):
            best = 0
            for k in range(x.shape[1]):
                a, b = x[row, k, behind], x[row, best, behind]
                if a != a or (a >= b if name == "cummax" else a <= b):
                    best = k
                values[row, k, behind], numbers[row, k, behind] = x[row, best, behind], best
        return values, numbers

    sizes = ({"n": 0}, {"n": 1}, {"n": 7}) if dtype in ("float32", "bool") else ({"n": 7},)
    draw = few_values if dtype != "bool" else lambda rng, shape, _: rng.random(shape) < 0.5
    check(name, [((2, "n", 3), dtype)], {"axis": -2}, oracle, draw, sizes)


# Sorted rows.


@pytest.mark.parametrize(("dtype", "right"), [*((dtype, True) for dtype in NUMBERS), ("float32", False)])
def test_places_in_sorted_rows(check: Any, dtype: str, right: bool) -> None:
    def oracle(elements: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Counts: each element and each value are compared, and NaN is the greatest."""
        found = np.empty(values.shape, np.int64)
        for place in places(values.shape):
            row = elements[place[:-1]] if elements.ndim > 1 else elements
            value = values[place]
            below = [a < value or (value != value and a == a) for a in row]
            same = [a == value or (a != a and value != value) for a in row]
            found[place] = sum(below) + (sum(same) if right else 0)
        return found

    def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        return np.sort(few_values(rng, shape, dtype), axis=-1)

    attrs = {"right": right}
    check("searchsorted", [((9,), dtype), ((3, 4), dtype)], attrs, oracle, draw)
    if dtype == "float32":
        sizes = ({"n": 0}, {"n": 1}, {"n": 2}, {"n": 33})
        check("searchsorted", [((2, "n"), dtype), ((2, 5), dtype)], attrs, oracle, draw, sizes)
        check("searchsorted", [((0,), dtype), ((5,), dtype)], attrs, oracle, draw)


ORDERS = [*((dtype, True) for dtype in NUMBERS), ("int8", False), ("float32", False)]


def in_order(x: np.ndarray, axis: int, k: int, largest: bool) -> tuple[np.ndarray, np.ndarray]:
    """Selection: takes the best of what is left, ``k`` times."""
    rows = np.moveaxis(x, axis, -1)
    values = np.empty((*rows.shape[:-1], k), x.dtype)
    indices = np.empty(values.shape, np.int64)
    for row in places(rows.shape[:-1]):
        left = list(range(rows.shape[-1]))
        for number in range(k):
            best = left[0]
            for other in left[1:]:
                a, b = (rows[(*row, n)] for n in ((other, best) if largest else (best, other)))
                if a > b or (a != a and b == b):
                    best = other
            left.remove(best)
            values[(*row, number)], indices[(*row, number)] = rows[(*row, best)], best
    return np.moveaxis(values, -1, axis), np.moveaxis(indices, -1, axis)


@pytest.mark.parametrize(("dtype", "largest"), ORDERS)
def test_top_k_comes_in_order_and_keeps_equal_elements_in_theirs(check: Any, dtype: str, largest: bool) -> None:
    cases = [((2, 7, 3), 1, 4), ((3, 6), -1, 6), ((5,), 0, 1), ((2, 1), 1, 1), ((2, 3), 1, 0)]
    for shape, axis, k in cases if dtype == "float32" else cases[:1]:
        check("top_k", [(shape, dtype)], {"k": k, "axis": axis, "largest": largest},
              lambda x, a=axis, k=k: in_order(x, a, k, largest), few_values)  # fmt: skip


def test_top_k_of_rows_whose_length_is_known_at_run_time(check: Any) -> None:
    check("top_k", [((3, "n"), "float32")], {"k": 2, "axis": 1},
          lambda x: in_order(x, 1, 2, True), few_values, ({"n": 2}, {"n": 9}, {"n": 33}))  # fmt: skip


def test_top_k_of_a_symbolic_number(check: Any) -> None:
    check("top_k", [(("n", 3), "float32")], {"k": gi.var("x", shape=("n",)).shape[0], "axis": 0},
          lambda x: in_order(x, 0, len(x), True), few_values, ({"n": 1}, {"n": 6}))  # fmt: skip


def test_top_k_sorts_long_rows(run: Any) -> None:
    x = gi.var("x", shape=("n",))
    model = tw.build(gi.Function([x], gi.TupleGetItem(get_operator("top_k")(x, k=("n"), axis=0), 1)))
    for n in (1, 1023, 1024, 100_001):
        values = np.random.default_rng(n).integers(0, 500, n).astype(np.float32)
        np.testing.assert_array_equal(model(values), np.argsort(-values.astype(np.float64), kind="stable"))
