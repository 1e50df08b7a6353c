"""Windows that slide over data of any size: SAME padding is computed with the sizes that come.

The oracle lays every window out in float64; what lies outside of the data is NaN there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from tilewright.tensorir.errors import UnsupportedOperatorError

FLOAT, UINT8 = TensorProto.FLOAT, TensorProto.UINT8
MODES = ("SAME_UPPER", "SAME_LOWER")

Array = np.ndarray[Any, Any]


def model(
    node: str, inputs: dict[str, tuple[int, Any]], constants: dict[str, Array], attrs: dict[str, Any], outputs: int = 1
) -> onnx.ModelProto:
    """One node; its inputs come in the order of ``inputs``, then of ``constants``."""
    names = ["y", "where"][:outputs]
    graph = helper.make_graph(
        [helper.make_node(node, [*inputs, *constants], names, **attrs)],
        "test",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info(name, 0, None) for name in names],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def laid_out(
    x: Array, size: Sequence[int], strides: Sequence[int], dilation: Sequence[int], padding: str | Sequence[int]
) -> Array:
    """The elements of every window along three new axes per dimension at the end, in float64; NaN outside."""
    rank, space = len(size), x.shape[2:]
    spans = [(k - 1) * d + 1 for k, d in zip(size, dilation, strict=True)]
    if isinstance(padding, str):
        counts = [-(-n // s) for n, s in zip(space, strides, strict=True)]
        totals = [max((c - 1) * s + k - n, 0) for c, s, k, n in zip(counts, strides, spans, space, strict=True)]
        before = [total // 2 if padding == "SAME_UPPER" else -(-total // 2) for total in totals]
    else:
        before = list(padding[:rank])
        room = [n + padding[i] + padding[i + rank] for i, n in enumerate(space)]
        counts = [(n - k) // s + 1 for n, k, s in zip(room, spans, strides, strict=True)]
    result = np.full((*x.shape[:2], *counts, *size), np.nan)
    for place in itertools.product(*map(range, counts)):
        for element in itertools.product(*map(range, size)):
            at = [p * s + e * d - b for p, s, e, d, b in zip(place, strides, element, dilation, before, strict=True)]
            if all(0 <= i < n for i, n in zip(at, space, strict=True)):
                result[(slice(None), slice(None), *place, *element)] = x[(slice(None), slice(None), *at)]
    return result


def convolution(x: Array, w: Array, groups: int, *how: Any) -> Array:
    windows = np.nan_to_num(laid_out(x, w.shape[2:], *how))
    rank = w.ndim - 2
    windows = windows.reshape(x.shape[0], groups, -1, *windows.shape[2:])
    filters = w.reshape(groups, -1, *w.shape[1:]).astype(np.float64)
    space, window = "xyz"[:rank], "ijk"[:rank]
    found = np.einsum(f"ngc{space}{window},goc{window}->ngo{space}", windows, filters)
    return found.reshape(x.shape[0], -1, *found.shape[3:])


def over_windows(reduce: Callable[..., Array]) -> Callable[..., Array]:
    return lambda x, size, *how: reduce(laid_out(x, size, *how), axis=tuple(range(-len(size), 0)))


def image(shape: Sequence[int]) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


#: Size, strides and dilation of windows: narrow ones, wide ones, and such that leave elements out.
WINDOWS = [
    ((3,), (2,), (1,)),
    ((2,), (3,), (1,)),
    ((3, 3), (2, 2), (1, 1)),
    ((1, 4), (2, 3), (1, 1)),
    ((2, 3), (2, 3), (3, 1)),
    ((5, 2), (1, 2), (1, 2)),
    ((2, 3, 3), (2, 1, 2), (1, 2, 1)),
]
#: One build is run for each; even and odd, smaller than a window and larger.
SIZES = [(7, 7, 7), (8, 5, 6), (1, 2, 3), (4, 13, 2), (6, 9, 5)]


def check(proto: onnx.ModelProto, rank: int, expected: Callable[[Array], Any]) -> None:
    built = tw.build(tw.from_onnx(proto))
    for sizes in SIZES:
        x = image((2, 4, *sizes[:rank]))
        found, wanted = built(x), expected(x)
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def any_size(rank: int) -> dict[str, tuple[int, Any]]:
    return {"x": (FLOAT, ["n", 4, *"hwd"[:rank]])}


def attributes(size: Any, strides: Any, dilation: Any, mode: str) -> dict[str, Any]:
    return {"kernel_shape": size, "strides": strides, "dilations": dilation, "auto_pad": mode}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("size", "strides", "dilation"), WINDOWS, ids=str)
def test_convolution_of_the_same_size_divided_by_strides(size: Any, strides: Any, dilation: Any, mode: str) -> None:
    w = image((6, 2, *size))
    attrs = {**attributes(size, strides, dilation, mode), "group": 2}
    proto = model("Conv", any_size(len(size)), {"w": w}, attrs)
    check(proto, len(size), lambda x: convolution(x, w, 2, strides, dilation, mode))


POOLS: dict[str, tuple[str, dict[str, Any], Callable[..., Array]]] = {
    "max": ("MaxPool", {}, over_windows(np.nanmax)),
    "mean inside": ("AveragePool", {}, over_windows(np.nanmean)),
    "mean": ("AveragePool", {"count_include_pad": 1}, over_windows(lambda x, axis: np.nan_to_num(x).mean(axis))),
    "norm": ("LpPool", {"p": 3}, over_windows(lambda x, axis: np.nansum(np.abs(x) ** 3, axis) ** (1 / 3))),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", POOLS)
@pytest.mark.parametrize(("size", "strides", "dilation"), WINDOWS[1:4], ids=str)
def test_pooling_of_the_same_size_divided_by_strides(
    size: Any, strides: Any, dilation: Any, kind: str, mode: str
) -> None:
    name, more, reduce = POOLS[kind]
    proto = model(name, any_size(len(size)), {}, {**attributes(size, strides, dilation, mode), **more})
    check(proto, len(size), lambda x: reduce(x, size, strides, dilation, mode))


@pytest.mark.parametrize("mode", MODES)
def test_places_of_the_greatest_count_the_data_alone(mode: str) -> None:
    size, strides, dilation = (3, 2), (2, 3), (1, 1)
    proto = model("MaxPool", any_size(2), {}, attributes(size, strides, dilation, mode), outputs=2)
    built = tw.build(tw.from_onnx(proto))
    for sizes in SIZES:
        x = image((2, 4, *sizes[:2]))
        values, where = built(x)
        numbers = np.arange(x.size).reshape(x.shape)
        windows, places = (laid_out(of, size, strides, dilation, mode) for of in (x, numbers))
        flat = windows.reshape(*windows.shape[:4], -1)
        best = np.nanargmax(flat, axis=-1)[..., None]
        np.testing.assert_array_equal(values, np.take_along_axis(flat, best, -1)[..., 0])
        np.testing.assert_array_equal(where, np.take_along_axis(places.reshape(flat.shape), best, -1)[..., 0])


def test_the_size_of_the_result_is_known_as_a_formula() -> None:
    attrs = attributes((3, 3), (2, 2), (1, 1), "SAME_UPPER")
    mod = tw.from_onnx(model("Conv", any_size(2), {"w": image((6, 4, 3, 3))}, attrs))
    assert str(mod["main"].body.type) == "Tensor[(n, 6, (h + 1) // 2, (w + 1) // 2), float32]"


# Convolutions of integers.

#: Size of the filters, groups, and the attributes.
INTEGER = [
    ((3,), 1, {"strides": (2,), "pads": (1, 0)}),
    ((3, 2), 2, {"dilations": (1, 2), "pads": (1, 0, 2, 1)}),
    ((3, 3), 4, {"strides": (2, 3), "auto_pad": "SAME_LOWER"}),
    ((2, 3), 1, {"auto_pad": "VALID"}),
    ((2, 2, 3), 2, {"strides": (2, 1, 2), "auto_pad": "SAME_UPPER"}),
]


def moves(rank: int, attrs: dict[str, Any]) -> tuple[Any, Any, Any]:
    pads = attrs.get("pads", (0,) * (2 * rank))
    mode = attrs.get("auto_pad", "VALID")
    return attrs.get("strides", (1,) * rank), attrs.get("dilations", (1,) * rank), pads if mode == "VALID" else mode


def bytes_of(dtype: Any, shape: Sequence[int]) -> Array:
    info = np.iinfo(dtype)
    return np.random.default_rng(sum(shape)).integers(info.min, info.max, shape, dtype, endpoint=True)


def column(zero: Array, rank: int) -> Array:
    """A zero point for each filter, or for all."""
    return zero.astype(np.float64).reshape(-1, *[1] * (rank + 1))


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(("size", "groups", "attrs"), INTEGER, ids=str)
def test_convolution_of_integers(size: Any, groups: int, attrs: Any, per_channel: bool) -> None:
    rank = len(size)
    w, x_zero = bytes_of(np.int8, (8, 4 // groups, *size)), np.uint8(119)
    w_zero = np.arange(-4, 4, dtype=np.int8) * np.int8(9) if per_channel else np.int8(-3)
    constants = {"w": w, "x_zero": np.array(x_zero), "w_zero": np.array(w_zero)}
    inputs = {"x": (UINT8, ["n", 4, *"hwd"[:rank]])}
    built = tw.build(tw.from_onnx(model("ConvInteger", inputs, constants, {**attrs, "group": groups})))
    for sizes in ((7, 8, 6), (4, 5, 9)):
        x = bytes_of(np.uint8, (2, 4, *sizes[:rank]))
        shifted = x - np.float64(x_zero), w - column(np.array(w_zero), rank)
        expected = convolution(*shifted, groups, *moves(rank, attrs))
        found = built(x)
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("size", "groups", "attrs"), INTEGER, ids=str)
def test_convolution_of_quantized_numbers(size: Any, groups: int, attrs: Any) -> None:
    """Scales are powers of two, so that the quotients, and with them the halves that are rounded, are exact."""
    rank = len(size)
    w, bias = bytes_of(np.int8, (8, 4 // groups, *size)), np.arange(-400, 400, 100, dtype=np.int32)
    w_zero, w_scale = np.arange(8, dtype=np.int8) - np.int8(4), np.float32(2.0) ** -np.arange(8, dtype=np.float32)
    constants = {
        "x_scale": np.array(0.25, np.float32),
        "x_zero": np.array(100, np.uint8),
        "w": w,
        "w_scale": w_scale,
        "w_zero": w_zero,
        "y_scale": np.array(32.0, np.float32),
        "y_zero": np.array(-5, np.int8),
        "bias": bias,
    }
    inputs = {"x": (UINT8, ["n", 4, *"hwd"[:rank]])}
    built = tw.build(tw.from_onnx(model("QLinearConv", inputs, constants, {**attrs, "group": groups})))
    along = (-1, *[1] * rank)
    for sizes in ((7, 8, 6), (4, 5, 9)):
        x = bytes_of(np.uint8, (2, 4, *sizes[:rank]))
        product = convolution(x - 100.0, w - column(w_zero, rank), groups, *moves(rank, attrs))
        product = (product + bias.reshape(along)) * 0.25 * w_scale.reshape(along) / 32
        found = built(x)
        assert found.dtype == np.int8
        np.testing.assert_array_equal(found, np.clip(np.rint(product) - 5, -128, 127))


def test_convolution_over_four_dimensions_is_refused() -> None:
    inputs = {"x": (UINT8, ["n", 1, 4, 4, 4, 4])}
    w = {"w": np.ones((1, 1, 2, 2, 2, 2), np.uint8)}
    with pytest.raises(UnsupportedOperatorError, match="convolution in 4 dimensions"):
        tw.from_onnx(model("ConvInteger", inputs, w, {}))
