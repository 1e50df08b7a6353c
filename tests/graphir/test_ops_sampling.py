"""Images sampled at places between pixels: by a grid, and in regions; against loops over one element at a time."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import numpy as np
import pytest

from tests.graphir.together import together
from tilewright import graphir as gi
from tilewright.graphir.ops.common import FLOATS


def weight_of(t: float, method: str) -> float:
    """Keys' kernel with -3/4, multiplied out."""
    t = abs(t)
    if method == "linear":
        return max(0.0, 1 - t)
    if t <= 1:
        return 1.25 * t**3 - 2.25 * t**2 + 1
    return -0.75 * (t - 1) * (t - 2) ** 2 if t < 2 else 0.0


def pixel(image: Any, index: Any, padding: str, align: bool) -> float:
    found = []
    for i, extent in zip(index, image.shape, strict=True):
        if padding == "zeros" and not 0 <= i < extent:
            return 0.0
        if padding == "reflection":
            while extent > 1 and not 0 <= i < extent:
                i = (-i if align else -1 - i) if i < 0 else 2 * (extent - 1) + (not align) - i
        found.append(min(max(i, 0), extent - 1))
    return float(image[tuple(found)])


def sampled(data: Any, grid: Any, method: str, padding: str, align: bool) -> Any:
    extents = data.shape[2:]
    out = np.zeros((*data.shape[:2], *grid.shape[1:-1]))
    for place in np.ndindex(*out.shape):
        at = []
        for g, extent in zip(grid[(place[0], *place[2:])][::-1], extents, strict=True):
            p = (g + 1) / 2 * (extent - 1) if align else ((g + 1) * extent - 1) / 2
            low, high = (0.0, extent - 1.0) if align else (-0.5, extent - 0.5)
            p = np.rint(p) if method == "nearest" else p
            if padding == "border" and not low <= p <= high:
                p = min(max(p, 0), extent - 1)
            while padding == "reflection" and not low <= p <= high:
                p = 2 * low - p if p < low else 2 * high - p
            at.append(float(p))
        bases = [math.floor(p) for p in at]
        for offsets in itertools.product(range(-1, 3), repeat=len(at)):
            index = [b + o for b, o in zip(bases, offsets, strict=True)]
            if method == "nearest":
                weight = float(not any(offsets))
            else:
                weight = math.prod(weight_of(i - p, method) for i, p in zip(index, at, strict=True))
            out[place] += weight * pixel(data[place[:2]], index, padding, align) if weight else 0.0
    return out


def grids(rng: Any, shape: Any, dtype: Any) -> Any:
    """Places of which some lie far outside; images of small integers, so that halves do not matter."""
    if shape[1:2] == (2,):
        return rng.integers(-4, 5, shape).astype(dtype)
    return (rng.integers(-13, 14, shape) / 8 + 1 / 64).astype(dtype)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "edge", "reflection"])
@pytest.mark.parametrize("method", ["nearest", "linear", "cubic"])
def test_images_are_sampled_where_the_grid_says(check: Any, method: str, padding: str, align: bool) -> None:
    attrs = {"method": method, "padding_mode": padding, "align_corners": align}

    def oracle(data: Any, grid: Any) -> Any:
        return sampled(data, grid, method, padding, align)

    types = [((1, 2, "h", 5), "float32"), ((1, 3, 4, 2), "float32")]
    check("nn.grid_sample", types, attrs, oracle, grids, [{"h": 4}, {"h": 3}], 20, interpreted=method != "cubic")


@together("dtype", FLOATS)
def test_grids_have_any_rank_and_type(check: Any, dtype: str) -> None:
    def oracle(data: Any, grid: Any) -> Any:
        return sampled(data, grid, "linear", "zeros", False)

    check("nn.grid_sample", [((1, 2, 5), dtype), ((1, 3, 1), dtype)], {}, oracle, grids, scale=4)
    check("nn.grid_sample", [((1, 2, 2, 3, 4), dtype), ((1, 2, 1, 2, 3), dtype)], {}, oracle, grids, scale=4)


def test_a_grid_without_numbers_reads_nothing_outside(run: Any) -> None:
    data, grid = gi.var("data", shape=(1, 1, 2, 2)), gi.var("grid", shape=(1, 1, 3, 2))
    places = np.array([[[[np.nan, 0], [np.inf, 0], [1e38, -1e38]]]], np.float32)
    for padding in ("zeros", "border", "edge", "reflection"):
        call = gi.get_operator("nn.grid_sample")(data, grid, padding_mode=padding)
        assert run([data, grid], call, [np.ones((1, 1, 2, 2), np.float32), places]).shape == (1, 1, 1, 3)


def aligned_regions(data: Any, rois: Any, batch: Any, attrs: dict[str, Any]) -> Any:
    height, width = data.shape[2:]
    ph, pw = attrs["output_size"]
    out = np.zeros((len(rois), data.shape[1], ph, pw))
    shift = 0.5 if attrs["aligned"] else 0.0
    for n, c, i, j in np.ndindex(*out.shape):
        x1, y1, x2, y2 = rois[n] * attrs["spatial_scale"] - shift
        h, w = (y2 - y1, x2 - x1) if attrs["aligned"] else (max(y2 - y1, 1.0), max(x2 - x1, 1.0))
        gh, gw = attrs["sampling_ratio"] or math.ceil(h / ph), attrs["sampling_ratio"] or math.ceil(w / pw)
        samples = []
        for iy, ix in itertools.product(range(gh), range(gw)):
            y, x = y1 + (i + (iy + 0.5) / gh) * h / ph, x1 + (j + (ix + 0.5) / gw) * w / pw
            if not (-1 <= y <= height and -1 <= x <= width):
                samples.append(0.0)
                continue
            y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
            corners = []
            for b, a in itertools.product((0, 1), (0, 1)):
                row, column = min(int(y) + b, height - 1), min(int(x) + a, width - 1)
                weight = abs(1 - b - (y - int(y))) * abs(1 - a - (x - int(x)))
                corners.append(weight * data[int(batch[n]), c, row, column])
            samples.append(sum(corners) if attrs["method"] == "avg" else max(corners))
        if samples:
            out[n, c, i, j] = np.mean(samples) if attrs["method"] == "avg" else max(samples)
    return out


def regions(rng: Any, shape: Any, dtype: Any) -> Any:
    if dtype.kind == "i":
        return rng.integers(0, 2, shape).astype(dtype)
    if len(shape) == 4:
        return rng.integers(-9, 10, shape).astype(dtype)
    given = [[1.3, 0.7, 9.1, 7.9], [-7.3, 2.1, 30.7, 5.3], [4.4, 4.4, 4.6, 4.7], [3.1, 6.3, 2.2, 60.9]]
    return np.array(given).astype(dtype)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("method", ["avg", "max"])
def test_regions_are_averaged_over_their_bins(check: Any, method: str, ratio: int, aligned: bool) -> None:
    attrs = {"output_size": (1, 2), "spatial_scale": 0.5, "sampling_ratio": ratio, "method": method, "aligned": aligned}
    types = [((2, 1, "h", 3), "float64"), ((4, 4), "float64"), ((4,), "int64")]
    oracle = functools.partial(aligned_regions, attrs=attrs)
    check("nn.roi_align", types, attrs, oracle, regions, [{"h": 2}], 100)


@pytest.mark.parametrize("method", ["avg", "max"])
def test_however_large_a_region_is_the_work_is_that_of_the_image(check: Any, method: str) -> None:
    side = 1e6  # a million samples, each in the middle of a pixel
    given = [
        [-3, -3, side - 3, side - 3],
        [-1e30, -1e30, 1e30, 1e30],
        [0, 0, 3e38, 4e8],
        [np.nan] * 4,
        [0, 0, np.inf, 1],
    ]

    def absurd(rng: Any, shape: Any, dtype: Any) -> Any:
        if len(shape) == 2:
            return np.array(given, dtype)
        return np.zeros(shape, dtype) if dtype.kind == "i" else rng.integers(1, 10, shape) * dtype.type(side)

    def oracle(data: Any, rois: Any, batch: Any) -> Any:
        around = np.pad(data[0, 0], 1, mode="edge")  # a pixel outside still counts
        value = data.max() if method == "max" else around.sum() / side**2
        return np.reshape([value, 0, 0, 0, 0], (5, 1, 1, 1))

    types = [((1, 1, "h", 3), "float64"), ((5, 4), "float64"), ((5,), "int64")]
    check("nn.roi_align", types, {"method": method}, oracle, absurd, [{"h": 2}])


@together("dtype", FLOATS)
def test_regions_of_all_types(check: Any, dtype: str) -> None:
    attrs = {"output_size": (2, 2), "spatial_scale": 0.5, "sampling_ratio": 2, "method": "avg", "aligned": True}
    types = [((2, 1, 5, 6), dtype), ((4, 4), dtype), ((4,), "int32")]
    check("nn.roi_align", types, attrs, lambda *arrays: aligned_regions(*arrays, attrs), regions, scale=50)
