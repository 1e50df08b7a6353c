"""Operators whose results have as many elements as the data say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.graphir.together import together
from tilewright import graphir as gi
from tilewright.graphir.ops.nn.non_max_suppression import non_max_suppression
from tilewright.graphir.ops.unique import unique
from tilewright.tensorir.errors import TypeInferenceError

TYPES = ("bool", "int8", "uint64", "float16", "bfloat16", "float32", "float64")


def sparse(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    return rng.integers(0, 3, shape).astype(dtype)


@together("dtype", TYPES)
@pytest.mark.parametrize("size", [0, 4, 40])
def test_places_fill_as_many_columns_as_are_asked_for(check: Any, dtype: str, size: int) -> None:
    def oracle(x: Any) -> Any:
        found = [place for place in np.ndindex(*x.shape) if x[place] != 0][:size]
        return np.array(found + [(0, 0)] * (size - len(found)), np.int64).reshape(size, 2).T

    check("nonzero", [(("h", 5), dtype)], {"size": size}, oracle, sparse, [{"h": 3}, {"h": 0}])


def test_places_of_a_vector_and_of_a_number(check: Any) -> None:
    check("nonzero", [((7,), "float32")], {"size": 7}, lambda x: np.pad(np.nonzero(x), [(0, 0), (0, (x == 0).sum())]))
    check("nonzero", [((), "float32")], {"size": 1}, lambda x: np.zeros((0, 1), np.int64))


def test_not_a_number_is_not_zero() -> None:
    x = gi.var("x", shape=(3,))
    model = tw.build(gi.Function([x], gi.nonzero(x)))
    np.testing.assert_array_equal(model(np.array([np.nan, 0, -0.0], "f4")), [[0]])


def suppressed(boxes: Any, scores: Any, most: int, threshold: float, lowest: float, corners: bool) -> list[Any]:
    """Greedily, one box after the other, in float64."""

    def area(box: Any) -> float:
        return (box[2] - box[0]) * (box[3] - box[1])

    def as_corners(box: Any) -> Any:
        if corners:
            return min(box[0], box[2]), min(box[1], box[3]), max(box[0], box[2]), max(box[1], box[3])
        return box[0] - box[2] / 2, box[1] - box[3] / 2, box[0] + box[2] / 2, box[1] + box[3] / 2

    found = []
    for image, class_ in np.ndindex(*scores.shape[:2]):
        kept: list[int] = []
        for n in sorted(range(scores.shape[2]), key=lambda n: (-scores[image, class_, n], n)):
            a = as_corners(boxes[image, n].astype(float))
            overlaps = []
            for k in kept:
                b = as_corners(boxes[image, k].astype(float))
                sides = [min(a[i + 2], b[i + 2]) - max(a[i], b[i]) for i in (0, 1)]
                common = max(sides[0], 0) * max(sides[1], 0)
                overlaps.append(common / (area(a) + area(b) - common) if area(a) + area(b) > common else 0)
            if len(kept) < most and scores[image, class_, n] > lowest and all(o <= threshold for o in overlaps):
                kept.append(n)
        found += [(image, class_, n) for n in kept]
    return found


@pytest.fixture(scope="module", params=[True, False], ids=["corners", "centre"])
def detector(request: pytest.FixtureRequest) -> tuple[tw.Executable, bool]:
    boxes, scores = gi.var("boxes", shape=("b", "n", 4)), gi.var("scores", shape=("b", 2, "n"))
    most = gi.var("most", shape=(), dtype="int64")
    options = [gi.var(name, shape=()) for name in ("threshold", "lowest")]
    body = non_max_suppression(boxes, scores, most, *options, corners=request.param)
    return tw.build(gi.Function([boxes, scores, most, *options], body)), request.param


@pytest.mark.parametrize(("images", "count", "most"), [(2, 30, 30), (1, 30, 3), (3, 1, 5), (2, 0, 4), (1, 9, 0)])
@pytest.mark.parametrize(("threshold", "lowest"), [(0.3, -np.inf), (0.6, 0.4)])
def test_boxes_that_overlap_a_better_one_are_left_out(
    detector: tuple[tw.Executable, bool], images: int, count: int, most: int, threshold: float, lowest: float
) -> None:
    model, corners = detector
    rng = np.random.default_rng(count)
    # Multiples of an eighth: overlaps are exact, and equal scores occur.
    boxes = (rng.integers(0, 24, (images, count, 4)) / 8).astype("f4")
    scores = (rng.integers(0, 16, (images, 2, count)) / 16).astype("f4")
    found = model(boxes, scores, np.array(most), np.float32(threshold), np.float32(lowest))
    expected = suppressed(boxes, scores, most, np.float32(threshold), np.float32(lowest), corners)
    np.testing.assert_array_equal(found, np.array(expected, np.int64).reshape(-1, 3))


def test_boxes_and_scores_agree_with_their_reference(check: Any) -> None:
    rng = np.random.default_rng(3)
    boxes = (rng.integers(0, 24, (1, 12, 4)) / 8).astype("f4")

    def values(_: Any, shape: Any, dtype: Any) -> Any:
        known = {(1, 12, 4): boxes, (1, 2, 12): rng.integers(0, 9, (1, 2, 12)) / 8}
        return known[shape].astype(dtype) if shape in known else np.array(5 if dtype == np.int64 else 0.25, dtype)

    def oracle(boxes: Any, scores: Any, most: Any, threshold: Any, lowest: Any) -> Any:
        selected, counts = np.zeros(scores.shape, np.int64), np.zeros(scores.shape[:2], np.int64)
        for image, class_, n in suppressed(boxes, scores, most, threshold, lowest, True):
            selected[image, class_, counts[image, class_]] = n
            counts[image, class_] += 1
        return selected, counts

    types = [((1, 12, 4), "float32"), ((1, 2, 12), "float32"), ((), "int64"), ((), "float32"), ((), "float32")]
    check("nn.suppress_overlaps", types, {}, oracle, values)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "float32", "float64"])
def test_different_elements_as_numpy_finds_them(dtype: str) -> None:
    x = gi.var("x", shape=("h", 3), dtype=dtype)
    model = tw.build(gi.Function([x], gi.Tuple(unique(x))))
    for h in (0, 1, 2, 9):
        array = np.random.default_rng(h).integers(0, 7, (h, 3)).astype(dtype)
        values, first, inverse, counts = np.unique(array, True, True, True)
        for found, expected in zip(model(array), (values, first, inverse.reshape(-1), counts), strict=True):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_different_slices_as_numpy_finds_them(axis: int) -> None:
    x = gi.var("x", shape=(4, 3), dtype="int32")
    model = tw.build(gi.Function([x], gi.Tuple(unique(x, axis=axis))))
    for seed in range(5):
        array = np.random.default_rng(seed).integers(0, 2, (4, 3)).astype("i4")
        values, first, inverse, counts = np.unique(array, True, True, True, axis=axis)
        for found, expected in zip(model(array), (values, first, inverse.reshape(-1), counts), strict=True):
            np.testing.assert_array_equal(found, expected)


def test_different_elements_in_the_order_in_which_they_come() -> None:
    x = gi.var("x", shape=("h",), dtype="int64")
    model = tw.build(gi.Function([x], gi.Tuple(unique(x, sorted=False))))
    array = np.array([5, 2, 5, 9, 2, 2, 0])
    for found, expected in zip(
        model(array), ([5, 2, 9, 0], [0, 1, 3, 6], [0, 1, 0, 2, 1, 1, 3], [2, 3, 1, 1]), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def test_slices_of_unknown_size_are_refused() -> None:
    with pytest.raises(TypeInferenceError, match="slices of at most 256 elements, found h"):
        unique(gi.var("x", shape=(4, "h")), axis=0)


def test_bound_size_is_checked_by_the_interpreter() -> None:
    n = gi.symbol("bound_n")
    x = gi.var("x", shape=("bound_n",))
    function = gi.Function([x], gi.bind_size(x, gi.const(3), dim=n))
    with pytest.raises(Exception, match="bind_size: 4 is bound to 3"):
        gi.evaluate(function, np.zeros(4, "f4"))
