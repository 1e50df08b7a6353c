"""Resizing and sampling of images, against loops over one element at a time."""

from __future__ import annotations

import functools
import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tilewright import graphir as gi
from tilewright.graphir.ops.common import ANY, FLOATS, NUMBERS
from tilewright.tensorir.errors import TypeInferenceError

MODES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")


def place_of(i: int, extent: int, size: int, scale: Fraction, mode: str, roi: Any) -> Fraction:
    """The formulas of the ONNX standard in exact numbers."""
    length = scale * extent
    if mode == "align_corners":
        return Fraction(0) if length == 1 else i * (extent - 1) / (length - 1)
    if mode == "asymmetric":
        return i / scale
    if mode == "tf_crop_and_resize":
        start, end = roi
        if length == 1:
            return (start + end) / 2 * (extent - 1)
        return start * (extent - 1) + i * (end - start) * (extent - 1) / (length - 1)
    if mode == "pytorch_half_pixel" and size == 1:
        return Fraction(0)
    shift = Fraction(extent, 2) * (1 - size / length) if mode == "half_pixel_symmetric" else 0
    return shift + (i + Fraction(1, 2)) / scale - Fraction(1, 2)


def weight_of(t: float, method: str, a: float) -> float:
    t = abs(t)
    if method == "linear":
        return max(0.0, 1 - t)
    if t <= 1:
        return (a + 2) * t**3 - (a + 3) * t**2 + 1
    return a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a if t < 2 else 0.0


def resize_axis(x: Any, axis: int, size: int, scale: Fraction, roi: Any, attrs: dict[str, Any]) -> Any:
    method, mode = attrs.get("method", "nearest"), attrs.get("coordinate_mode", "half_pixel")
    x = np.moveaxis(x, axis, 0)
    extent, rows = len(x), []
    for i in range(size):
        place = place_of(i, extent, size, scale, mode, roi)
        if mode == "tf_crop_and_resize" and not 0 <= place <= extent - 1:
            rows.append(np.full_like(x[0], attrs["extrapolation_value"]))
        elif method == "nearest":
            half = Fraction(1, 2)
            nearest = {
                "floor": math.floor(place),
                "ceil": math.ceil(place),
                "round_prefer_floor": math.ceil(place - half),
                "round_prefer_ceil": math.floor(place + half),
            }[attrs.get("rounding", "round_prefer_floor")]
            rows.append(x[min(max(nearest, 0), extent - 1)])
        else:
            narrow = min(float(scale), 1.0) if attrs.get("antialias") else 1.0
            reach = math.ceil(2 / narrow) + 1
            taps = range(math.floor(place) - reach, math.floor(place) + reach + 1)
            weights = {k: weight_of(float(k - place) * narrow, method, attrs.get("cubic_coeff", -0.75)) for k in taps}
            if attrs.get("exclude_outside"):
                weights = {k: w for k, w in weights.items() if 0 <= k < extent}
            total = sum(weights.values())
            rows.append(sum(w / total * x[min(max(k, 0), extent - 1)] for k, w in weights.items()))
    return np.moveaxis(np.array(rows).reshape(size, *x.shape[1:]), 0, axis)


def resized(x: Any, axes: Any, sizes: Any, attrs: dict[str, Any], scales: Any = None) -> Any:
    roi = attrs.get("roi")
    for n, (axis, size) in enumerate(zip(axes, sizes, strict=True)):
        scale = Fraction(size, x.shape[axis]) if scales is None else scales[n]
        part = None if roi is None else [Fraction(roi[k]).limit_denominator(1000) for k in (n, n + len(axes))]
        x = resize_axis(x, axis, size, scale, part, attrs)
    return x


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_the_nearest_element_is_that_of_the_formula(check: Any, mode: str, rounding: str) -> None:
    attrs = {"coordinate_mode": mode, "rounding": rounding}
    size = (7, 2, 1)
    check("nn.resize", [((3, 5, 4), "int32")], {"size": size, **attrs}, lambda x: resized(x, (0, 1, 2), size, attrs))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "filtered",
    [
        {"method": "linear"},
        {"method": "cubic"},
        {"method": "cubic", "cubic_coeff": -0.5, "exclude_outside": True},
        {"method": "linear", "antialias": True},
        {"method": "cubic", "antialias": True, "exclude_outside": True},
    ],
    ids=str,
)
def test_interpolation_weighs_neighbours(check: Any, mode: str, filtered: Any) -> None:
    attrs = {"coordinate_mode": mode, **filtered}
    given = {"size": (6, 3), **attrs}
    check("nn.resize", [((1, 4, 7), "float64")], given, lambda x: resized(x, (1, 2), (6, 3), attrs), scale=100)


@pytest.mark.parametrize("dtype", ANY)
def test_all_types_are_resized(check: Any, dtype: str) -> None:
    check("nn.resize", [((3, 2), dtype)], {"size": (5, 3)}, lambda x: resized(x, (0, 1), (5, 3), {}))
    if dtype == "bool":
        return

    def oracle(x: Any) -> Any:
        found = resized(x.astype(np.float64), (0, 1), (4, 3), {"method": "linear"})
        return found if dtype in FLOATS else np.rint(found)

    check("nn.resize", [((2, 2), dtype)], {"size": (4, 3), "method": "linear"}, oracle, scale=2)


def test_overshooting_integers_are_limited_to_their_type(check: Any) -> None:
    def values(rng: Any, shape: Any, dtype: Any) -> Any:
        return (rng.integers(0, 2, shape) * 255).astype(dtype)

    def oracle(x: Any) -> Any:
        return np.clip(np.rint(resized(x.astype(np.float64), (0,), (23,), {"method": "cubic"})), 0, 255)

    check("nn.resize", [((9,), "uint8")], {"size": 23, "method": "cubic"}, oracle, values)


@pytest.mark.parametrize("method", ["nearest", "linear"])
@pytest.mark.parametrize("mode", MODES)
def test_extents_and_sizes_may_be_symbolic(check: Any, method: str, mode: str) -> None:
    n = gi.symbol("n")
    attrs = {"method": method, "coordinate_mode": mode}
    types = [((2, "n"), "float32")]
    check("nn.resize", types, {"size": (2 * n + 1,), **attrs},
          lambda x: resized(x, (1,), (2 * x.shape[1] + 1,), attrs), None, [{"n": 1}, {"n": 3}], 20)  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
def test_scales_are_the_simple_fractions_that_they_stand_for(check: Any, mode: str) -> None:
    attrs = {"method": "cubic", "coordinate_mode": mode}

    def oracle(x: Any) -> Any:
        return resized(x, (1,), (x.shape[1] * 3 // 5,), attrs, [Fraction(3, 5)])

    check("nn.resize", [((2, "n"), "float32")], {"scale": (0.6,), **attrs}, oracle, None, [{"n": 5}, {"n": 7}], 20)


def test_antialiasing_widens_with_a_symbolic_extent(check: Any) -> None:
    attrs = {"method": "linear", "antialias": True}
    check("nn.resize", [(("n",), "float32")], {"size": 3, **attrs},
          lambda x: resized(x, (0,), (3,), attrs), None, [{"n": 2}, {"n": 11}], 4)  # fmt: skip


@pytest.mark.parametrize("method", ["nearest", "linear"])
def test_a_part_is_cropped_and_resized(check: Any, method: str) -> None:
    attrs = {"method": method, "coordinate_mode": "tf_crop_and_resize", "roi": (0.4, 0.6, 0.1, 0.9, 1.2, 0.7),
             "extrapolation_value": 10.0}  # fmt: skip
    check("nn.resize", [((6, 4, 5), "float32")], {"size": (3, 1, 4), **attrs},
          lambda x: resized(x, (0, 1, 2), (3, 1, 4), attrs), scale=10)  # fmt: skip


@pytest.mark.parametrize(("policy", "size"), [("not_larger", (4, 3)), ("not_smaller", (7, 5))])
def test_the_aspect_ratio_is_kept(check: Any, policy: str, size: Any) -> None:
    attrs = {"keep_aspect_ratio": policy, "size": (7, 3)}
    factor = (min if policy == "not_larger" else max)(Fraction(7, 4), Fraction(3, 3))
    size = tuple(math.floor(factor * extent + Fraction(1, 2)) for extent in (4, 3))
    check("nn.resize", [((4, 3), "float32")], attrs, lambda x: resized(x, (0, 1), size, {}, [factor] * 2))
    check("nn.resize", [(("n", 3), "float32")], attrs, lambda x: resized(x, (0, 1), size, {}, [factor] * 2),
          None, [{"n": 4}])  # fmt: skip


def test_resizing_says_what_it_needs() -> None:
    x = gi.var("x", shape=(2, 3))
    for attrs, message in (
        ({}, "size: expected size or scale"),
        ({"size": (2,), "axes": (0, 1)}, "axes: expected 1 values, found 2"),
        ({"size": (2,), "method": "lanczos"}, "method: expected one of nearest, linear, cubic"),
        ({"scale": (-1.0,)}, "scale: expected positive numbers"),
        ({"size": (2, 2), "axes": (1, -1)}, "axes: expected different axes"),
    ):
        with pytest.raises(TypeInferenceError, match=message):
            gi.get_operator("nn.resize")(x, **attrs)


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
                weight = math.prod(weight_of(i - p, method, -0.75) for i, p in zip(index, at, strict=True))
            out[place] += weight * pixel(data[place[:2]], index, padding, align) if weight else 0.0
    return out


def grids(rng: Any, shape: Any, dtype: Any) -> Any:
    """Places of which some lie far outside; images of small integers, so that halves do not matter."""
    if shape[1:2] == (2,):
        return rng.integers(-4, 5, shape).astype(dtype)
    return (rng.integers(-13, 14, shape) / 8 + 1 / 64).astype(dtype)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("method", ["nearest", "linear", "cubic"])
def test_images_are_sampled_where_the_grid_says(check: Any, method: str, padding: str, align: bool) -> None:
    attrs = {"method": method, "padding_mode": padding, "align_corners": align}

    def oracle(data: Any, grid: Any) -> Any:
        return sampled(data, grid, method, padding, align)

    types = [((1, 2, "h", 5), "float32"), ((1, 3, 4, 2), "float32")]
    check("nn.grid_sample", types, attrs, oracle, grids, [{"h": 4}, {"h": 3}], 20, interpreted=method != "cubic")


@pytest.mark.parametrize("dtype", FLOATS)
def test_grids_have_any_rank_and_type(check: Any, dtype: str) -> None:
    def oracle(data: Any, grid: Any) -> Any:
        return sampled(data, grid, "linear", "zeros", False)

    check("nn.grid_sample", [((1, 2, 5), dtype), ((1, 3, 1), dtype)], {}, oracle, grids, scale=4)
    check("nn.grid_sample", [((1, 2, 2, 3, 4), dtype), ((1, 2, 1, 2, 3), dtype)], {}, oracle, grids, scale=4)


def test_a_grid_without_numbers_reads_nothing_outside(run: Any) -> None:
    data, grid = gi.var("data", shape=(1, 1, 2, 2)), gi.var("grid", shape=(1, 1, 3, 2))
    places = np.array([[[[np.nan, 0], [np.inf, 0], [1e38, -1e38]]]], np.float32)
    for padding in ("zeros", "border", "reflection"):
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


@pytest.mark.parametrize("dtype", FLOATS)
def test_regions_of_all_types(check: Any, dtype: str) -> None:
    attrs = {"output_size": (2, 2), "spatial_scale": 0.5, "sampling_ratio": 2, "method": "avg", "aligned": True}
    types = [((2, 1, 5, 6), dtype), ((4, 4), dtype), ((4,), "int32")]
    check("nn.roi_align", types, attrs, lambda *arrays: aligned_regions(*arrays, attrs), regions, scale=50)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_channels_become_pixels_and_back(check: Any, mode: str) -> None:
    def deep(x: Any) -> Any:
        n, c, h, w = x.shape
        out = np.zeros((n, c // 4, 2 * h, 2 * w))
        for at in np.ndindex(*out.shape):
            block = at[2] % 2 * 2 + at[3] % 2
            channel = block * (c // 4) + at[1] if mode == "DCR" else at[1] * 4 + block
            out[at] = x[at[0], channel, at[2] // 2, at[3] // 2]
        return out

    def flat(x: Any) -> Any:
        n, c, h, w = x.shape
        out = np.zeros((n, 4 * c, h // 2, w // 2))
        for at in np.ndindex(*out.shape):
            block, channel = divmod(at[1], c) if mode == "DCR" else (at[1] % 4, at[1] // 4)
            out[at] = x[at[0], channel, 2 * at[2] + block // 2, 2 * at[3] + block % 2]
        return out

    attrs = {"block_size": 2, "mode": mode}
    for dtype in ("int8", "float32", "float16"):
        check("nn.depth_to_space", [((1, 8, "h", 2), dtype)], attrs, deep, None, [{"h": 1}, {"h": 3}])
        check("nn.space_to_depth", [((2, 2, "h", 6), dtype)], attrs, flat, None, [{"h": 2}, {"h": 4}])


@pytest.mark.parametrize("dtype", NUMBERS)
def test_columns_add_up_to_an_image(check: Any, dtype: str) -> None:
    attrs = {
        "image_shape": (5, 6),
        "block_shape": (2, 3),
        "strides": (2, 1),
        "padding": (1, 0, 0, 2),
        "dilation": (1, 2),
    }

    def oracle(x: Any) -> Any:
        out = np.zeros((x.shape[0], x.shape[1] // 6, 5, 6))
        for n, row, column in np.ndindex(*x.shape):
            c, (ky, kx) = row // 6, divmod(row % 6, 3)
            wy, wx = divmod(column, 4)
            y, z = wy * 2 + ky - 1, wx + kx * 2
            if 0 <= y < 5 and 0 <= z < 6:
                out[n, c, y, z] += x[n, row, column]
        return out

    def small(rng: Any, shape: Any, kind: Any) -> Any:
        return rng.integers(0, 4, shape).astype(kind)

    check("nn.col2im", [(("n", 12, 12), dtype)], attrs, oracle, small, [{"n": 1}, {"n": 2}], 4)
