"""TrimConvolutions: windows lose elements that meet only the border, and images pixels that strides skip."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.origins import operator_origins
from tilewright.passes.graph import EliminateCommonSubexpr, TrimConvolutions

STRIDED = """
def @main(%x: Tensor[(1, 3, H, 9), float32], %w: Tensor[(OUT, 3, 1, 1), float32]) {
  %0 = nn.conv2d(%x, %w, strides=(2, 3))
  %0
}
"""
SLICED = """
def @main(%x: Tensor[(1, 3, H, 9), float32], %w: Tensor[(OUT, 3, 1, 1), float32]) {
  %0 = slice(%x, begin=(0, 0), end=(END, 9), strides=(2, 3), axes=(2, 3))
  %1 = nn.conv2d(%0, %w)
  %1
}
"""


def _filled(text: str, height: str, outputs: int = 64) -> str:
    end = height if height.isdigit() else f"dim[{height}]"
    return text.replace("H", height).replace("END", end).replace("OUT", str(outputs))


def _dilated(weight: Any, extent: int = 5, **attrs: Any) -> gi.IRModule:
    x = gi.var("x", shape=(1, weight.shape[1], extent, extent))
    attrs = {"dilation": 5, "padding": 5, **attrs}
    return gi.IRModule.from_expr(gi.Function([x], gi.nn.conv2d(x, gi.const(weight), **attrs)))


def _weight(*shape: int) -> Any:
    return np.random.default_rng(1).standard_normal(shape).astype("f4")


@pytest.mark.parametrize("height", ["8", "h"])
def test_pixels_that_strides_skip_are_sliced_off(rewrites: Any, height: str) -> None:
    ctx = rewrites(TrimConvolutions(), _filled(STRIDED, height), _filled(SLICED, height))
    assert [remark.message for remark in ctx.remarks] == ["sliced its image to the pixels that it reads"]


@pytest.mark.parametrize(
    ("old", "new"), [("OUT", "63"), ("(2, 3)", "(1, 1)"), ("1, 1)", "1, 2)"), ("3))", "3), padding=1)")]
)
def test_images_stay_that_are_read_whole_or_seldom(rewrites: Any, old: str, new: str) -> None:
    text = _filled(STRIDED.replace(old, new), "8")
    rewrites(TrimConvolutions(), text, text)


def test_a_border_of_symbolic_width_is_a_border(rewrites: Any) -> None:
    x = gi.var("x", shape=(1, 3, "h", 9))
    border = (x.tensor_type.shape[2] % 2, 0, 0, 0)
    calls = [gi.nn.conv2d(x, gi.const(_weight(64, 3, 1, 1)), strides=by, padding=border) for by in (1, 2)]
    mod = gi.IRModule.from_expr(gi.Function([x], gi.Tuple(calls)))
    rewrites(TrimConvolutions(), mod, mod)


def test_each_group_counts_the_channels_that_read_its_pixels(rewrites: Any) -> None:
    text = _filled(STRIDED, "8", 3 * 63).replace("3, 1, 1", "1, 1, 1").replace("3))", "3), groups=3)")
    rewrites(TrimConvolutions(), text, text)


def test_convolutions_of_one_image_share_its_slice() -> None:
    x = gi.var("x", shape=(1, 3, 8, 8))
    both = gi.Tuple([gi.nn.conv2d(x, gi.const(_weight(64, 3, 1, 1) * by), strides=2) for by in (1, 2)])
    mod = EliminateCommonSubexpr()(TrimConvolutions()(gi.IRModule.from_expr(gi.Function([x], both))))
    assert [origin.operator for origin in operator_origins(mod["main"])].count("slice") == 1


def test_elements_of_a_window_that_meet_only_the_border_are_left_out(rewrites: Any) -> None:
    weight = _weight(4, 2, 3, 3)
    before = _dilated(weight)
    x = before["main"].params[0]
    centre = gi.slice(gi.const(weight), begin=(1, 1), end=(2, 2), axes=(2, 3))
    expected = gi.IRModule.from_expr(gi.Function([x], gi.nn.conv2d(x, centre, dilation=5)))
    ctx = rewrites(TrimConvolutions(), before, expected)
    assert [remark.message for remark in ctx.remarks] == ["left out elements of its window that meet only the border"]


@pytest.mark.parametrize("attrs", [{"extent": 6}, {"pad_value": 1}, {"padding": 6}])
def test_windows_stay_whose_elements_are_all_needed(rewrites: Any, attrs: dict[str, Any]) -> None:
    mod = _dilated(_weight(4, 2, 3, 3), **attrs)
    rewrites(TrimConvolutions(), mod, mod)


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_an_element_that_makes_nan_of_zero_is_needed(rewrites: Any, value: float) -> None:
    weight = _weight(4, 2, 3, 3)
    weight[1, 1, 0, 2] = value
    rewrites(TrimConvolutions(), _dilated(weight), _dilated(weight))


def test_a_window_of_unknown_values_stays(rewrites: Any) -> None:
    x, w = gi.var("x", shape=(1, 2, 5, 5)), gi.var("w", shape=(4, 2, 3, 3))
    mod = gi.IRModule.from_expr(gi.Function([x, w], gi.nn.conv2d(x, w, dilation=5, padding=5)))
    rewrites(TrimConvolutions(), mod, mod)


def test_a_trimmed_window_of_one_element_with_strides_reads_a_slice(rewrites: Any) -> None:
    mod = TrimConvolutions()(_dilated(_weight(64, 2, 3, 3), strides=2))
    assert [origin.operator for origin in operator_origins(mod["main"])] == ["slice", "slice", "nn.conv2d"]


AXIS = st.tuples(
    st.integers(1, 9), st.integers(1, 4), st.integers(1, 3), st.integers(1, 7), st.integers(0, 9), st.integers(0, 9)
)


@given(AXIS)
def test_the_elements_that_stay_are_those_between_the_first_and_the_last_that_meet_the_image(axis: Any) -> None:
    extent, size, stride, dilation, before, behind = axis
    room = extent + before + behind - (size - 1) * dilation - 1
    assume(room >= 0)
    places = range(0, room + 1, stride)
    met = [k for k in range(size) if any(0 <= i + k * dilation - before < extent for i in places)]
    x, weight = gi.var("x", shape=(1, 1, extent)), np.ones((1, 1, size), "f4")
    call = gi.nn.conv1d(x, gi.const(weight), strides=stride, dilation=dilation, padding=(before, behind))
    found = TrimConvolutions()(gi.IRModule.from_expr(gi.Function([x], call)))["main"].body
    left = found.args[1].tensor_type.shape[2]
    if (
        not met or before < met[0] * dilation or behind < (size - 1 - met[-1]) * dilation
    ):  # the border would be negative
        assert left == size
    else:
        assert left == met[-1] + 1 - met[0]


@given(AXIS, AXIS, st.integers(1, 2))
def test_values_stay(row: Any, column: Any, groups: int) -> None:
    (h, kh, sh, dh, *ph), (w, kw, sw, dw, *pw) = row, column
    assume(h + sum(ph) > (kh - 1) * dh and w + sum(pw) > (kw - 1) * dw)
    x = gi.var("x", shape=(1, 2 * groups, h, w))
    attrs = {"strides": (sh, sw), "dilation": (dh, dw), "padding": (ph[0], pw[0], ph[1], pw[1]), "groups": groups}
    call = gi.nn.conv2d(x, gi.const(_weight(64 * groups, 2, kh, kw)), **attrs)
    image = np.random.default_rng(0).standard_normal((1, 2 * groups, h, w)).astype("f4")
    mod = gi.IRModule.from_expr(gi.Function([x], call))
    found, expected = (gi.evaluate(each, image, dtype="float64") for each in (TrimConvolutions()(mod), mod))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("target", ["llvm", "numba"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_compiled_results_are_those_of_the_whole_window_and_image(target: str, dtype: str) -> None:
    rng = np.random.default_rng(3)
    weight, image = rng.standard_normal((64, 3, 3, 3)).astype(dtype), rng.standard_normal((2, 3, 7, 5)).astype(dtype)
    x = gi.var("x", shape=("n", 3, 7, "w"), dtype=dtype)
    narrow, wide = gi.const(weight[:, :, :1, :1]), gi.const(weight)
    body = gi.Tuple([gi.nn.conv2d(x, narrow, strides=2), gi.nn.conv2d(x, wide, dilation=(8, 1), padding=(8, 1, 8, 1))])
    model = tw.build(gi.Function([x], body), target=tw.Target(target, num_threads=1))
    for batch, columns in (2, 5), (1, 4):
        pixels = image[:batch, :, :, :columns]
        for found, expected in zip(
            model(pixels), gi.evaluate(gi.Function([x], body), pixels, dtype="float64"), strict=True
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
