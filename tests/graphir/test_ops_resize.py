"""Resizing and sampling of images, against loops over one element at a time."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.graphir.together import together
from tilewright import graphir as gi
from tilewright.graphir.ops.common import ANY, FLOATS
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


@together("dtype", ANY)
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
    for size in ((3, 1, 4), (2, 2, 3)):  # of the second axis one place in the middle, or two, of which one is outside
        check("nn.resize", [((6, 4, 5), "float32")], {"size": size, **attrs},
              lambda x, size=size: resized(x, (0, 1, 2), size, attrs), scale=10)  # fmt: skip


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
