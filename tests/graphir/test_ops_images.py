"""Convolution and pooling, against loops over pixels."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.graphir.together import together
from tilewright import graphir as gi
from tilewright.graphir.ops.common import FLOATS, NUMBERS

N = ({"n": 1}, {"n": 2})


def convolve(
    x: Any, w: Any, strides: Any = (1, 1), padding: Any = (0, 0, 0, 0), dilation: Any = (1, 1), groups: int = 1
) -> Any:
    """One product at a time."""
    top, left, bottom, right = padding
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    (sh, sw), (dh, dw) = strides, dilation
    o, i, kh, kw = w.shape
    oh = len(range(0, x.shape[2] - (kh - 1) * dh, sh))
    ow = len(range(0, x.shape[3] - (kw - 1) * dw, sw))
    out = np.zeros((x.shape[0], o, oh, ow), x.dtype)
    for n, c, y, z in np.ndindex(*out.shape):
        first = c // (o // groups) * i
        window = x[n, first : first + i, y * sh : y * sh + kh * dh : dh, z * sw : z * sw + kw * dw : dw]
        out[n, c, y, z] = (window[:, :kh, :kw] * w[c]).sum()
    return out


def pool(x: Any, size: Any, strides: Any, padding: Any, dilation: Any, ceil: bool, kind: str) -> Any:
    """One window at a time; ``kind`` is max, avg, or pad (avg that counts padding)."""
    top, left, bottom, right = padding
    extents = []
    for n, (before, behind) in enumerate(((top, bottom), (left, right))):
        room = x.shape[2 + n] + before + behind - (size[n] - 1) * dilation[n] - 1
        count = (-(-room // strides[n]) if ceil else room // strides[n]) + 1
        if ceil and (count - 1) * strides[n] >= x.shape[2 + n] + before:
            count -= 1
        extents.append(count)
    out = np.zeros((*x.shape[:2], *extents), x.dtype)
    for n, c, y, z in np.ndindex(*out.shape):
        inside, padded = [], 0
        for i, j in itertools.product(range(size[0]), range(size[1])):
            row = y * strides[0] + i * dilation[0] - top
            column = z * strides[1] + j * dilation[1] - left
            if 0 <= row < x.shape[2] and 0 <= column < x.shape[3]:
                inside.append(x[n, c, row, column])
            elif -top <= row < x.shape[2] + bottom and -left <= column < x.shape[3] + right:
                padded += 1
        count = len(inside) + (padded if kind == "pad" else 0)
        out[n, c, y, z] = max(inside) if kind == "max" else sum(inside) / count
    return out


@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"padding": (1, 1, 1, 1)},
        {"strides": (2, 1), "padding": (0, 1, 2, 0)},
        {"dilation": (2, 1), "padding": (2, 0, 1, 0)},
        {"groups": 2, "padding": (1, 0, 1, 0)},
    ],
    ids=str,
)
def test_conv2d_agrees_with_loops_over_pixels(check: Any, attrs: dict[str, Any]) -> None:
    weight = (4, 2 // attrs.get("groups", 1), 3, 2)
    check("nn.conv2d", [(("n", 2, 5, 4), "float32"), (weight, "float32")], attrs,
          lambda x, w: convolve(x, w, **attrs), None, N, 4)  # fmt: skip


@together("dtype", NUMBERS)
def test_conv2d_takes_all_numbers(check: Any, dtype: str) -> None:
    types = [((1, 2, 3, 3), dtype), ((2, 2, 2, 2), dtype)]
    check("nn.conv2d", types, {"padding": 1}, lambda x, w: convolve(x, w, padding=(1, 1, 1, 1)), None, scale=20)


def test_depthwise_convolution_has_a_group_for_each_channel(check: Any) -> None:
    types = [((1, 3, 4, 4), "float32"), ((6, 1, 3, 3), "float32")]
    check("nn.conv2d", types, {"groups": 3}, lambda x, w: convolve(x, w, groups=3), scale=4)


def test_conv2d_over_a_symbolic_image(check: Any) -> None:
    types = [((1, 1, "h", "w"), "float32"), ((1, 1, 3, 2), "float32")]
    attrs = {"strides": (2, 1), "padding": (1, 0)}
    sizes = [{"h": 3, "w": 4}, {"h": 6, "w": 2}]
    check("nn.conv2d", types, attrs, lambda x, w: convolve(x, w, (2, 1), (1, 0, 1, 0)), None, sizes, 4)


def test_conv2d_reads_the_layouts_of_other_frameworks(check: Any) -> None:
    def oracle(x: Any, w: Any) -> Any:
        return convolve(x.transpose(0, 3, 1, 2), w.transpose(3, 2, 0, 1)).transpose(0, 2, 3, 1)

    attrs = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    check("nn.conv2d", [(("n", 4, 4, 2), "float32"), ((3, 2, 2, 3), "float32")], attrs, oracle, None, N, 4)


def blocked(x: Any, block: int) -> Any:
    return x.reshape(x.shape[0], -1, block, *x.shape[2:]).transpose(0, 1, 3, 4, 2)


def plain(x: Any) -> Any:
    return x.transpose(0, 1, 4, 2, 3).reshape(x.shape[0], -1, *x.shape[2:4])


@pytest.mark.parametrize("channels", [1, 5, 7])
def test_conv2d_never_reads_behind_the_channels_of_the_last_block(channels: int) -> None:
    rng = np.random.default_rng(channels)
    data = np.full((1, -(-channels // 4) * 4, 6, 5), np.nan, np.float32)
    data[:, :channels] = rng.standard_normal((1, channels, 6, 5))
    weight = rng.standard_normal((8, data.shape[1], 3, 3)).astype(np.float32)
    lanes = weight.reshape(2, 4, -1, 4, 3, 3).transpose(0, 2, 4, 5, 3, 1).copy()
    attrs = {"data_layout": "NCHW4c", "kernel_layout": "OIHW4i4o", "padding": 1, "channels": channels}
    x = gi.var("x", shape=blocked(data, 4).shape)
    mod = gi.IRModule.from_expr(gi.Function([x], gi.nn.conv2d(x, gi.const(lanes), **attrs)))
    expected = convolve(data[:, :channels].astype("f8"), weight[:, :channels].astype("f8"), padding=(1, 1, 1, 1))
    image = np.ascontiguousarray(blocked(data, 4))
    for target in ("llvm", "numba"):
        np.testing.assert_allclose(plain(tw.build(mod, target=target)(image)), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("groups", "channels", "kernel", "shape"),
    [
        (1, 8, "OIHW4i4o", (3, 2, 3, 2, 4, 4)),
        (8, 8, "OIHW1i4o", (2, 1, 3, 2, 1, 4)),
        (2, 8, "OIHW4i4o", (2, 1, 3, 2, 4, 4)),
        (2, 8, "OIHW2i4o", (2, 2, 3, 2, 2, 4)),
        (4, 8, "OIHW2i4o", (2, 1, 3, 2, 2, 4)),
    ],
)
def test_conv2d_in_blocked_layouts_is_that_in_plain_ones(
    check: Any, groups: int, channels: int, kernel: str, shape: Any
) -> None:
    def oracle(x: Any, w: Any) -> Any:
        weight = w.transpose(0, 5, 1, 4, 2, 3).reshape(shape[0] * shape[5], shape[1] * shape[4], 3, 2)
        return blocked(convolve(plain(x), weight, padding=(1, 0, 0, 1), groups=groups), 4)

    attrs = {"data_layout": "NCHW4c", "kernel_layout": kernel, "groups": groups, "padding": (1, 0, 0, 1)}
    types = [((1, channels // 4, 3, 3, 4), "float32"), (shape, "float32")]
    check("nn.conv2d", types, attrs, oracle, scale=10)


def test_the_first_layer_reads_a_plain_image_and_writes_blocks(check: Any) -> None:
    def oracle(x: Any, w: Any) -> Any:
        return blocked(convolve(x, w.transpose(0, 4, 1, 2, 3).reshape(8, 3, 2, 2)), 4)

    attrs = {"kernel_layout": "OIHW4o", "out_layout": "NCHW4c"}
    check("nn.conv2d", [((1, 3, 3, 3), "float32"), ((2, 3, 2, 2, 4), "float32")], attrs, oracle, scale=4)


@pytest.mark.parametrize(
    ("size", "strides", "padding", "dilation", "ceil"),
    [
        ((2, 2), None, (0, 0, 0, 0), (1, 1), False),
        ((3, 2), (2, 1), (1, 0, 2, 1), (1, 1), False),
        ((2, 2), (2, 2), (0, 0, 0, 0), (1, 1), True),
        ((3, 3), (2, 2), (1, 1, 1, 1), (1, 1), True),
        ((2, 2), (1, 2), (1, 0, 1, 0), (2, 1), False),
    ],
)
@pytest.mark.parametrize("layout", ["NCHW", "NCHW2c"])
def test_pooling_agrees_with_loops_over_windows(
    check: Any, size: Any, strides: Any, padding: Any, dilation: Any, ceil: bool, layout: str
) -> None:
    attrs = {"pool_size": size, "strides": strides, "padding": padding, "dilation": dilation, "ceil_mode": ceil}
    attrs["layout"] = layout

    def oracle(kind: str) -> Any:
        def run(x: Any) -> Any:
            image = x if layout == "NCHW" else plain(x)
            found = pool(image, size, strides or size, padding, dilation, ceil, kind)
            return found if layout == "NCHW" else blocked(found, 2)

        return run

    types = [((1, 2, 5, 5), "float32") if layout == "NCHW" else ((1, 1, 5, 5, 2), "float32")]
    check("nn.max_pool2d", types, attrs, oracle("max"))
    check("nn.avg_pool2d", types, attrs, oracle("avg"))
    check("nn.avg_pool2d", types, {**attrs, "count_include_pad": True}, oracle("pad"))


@together("dtype", NUMBERS)
def test_max_pooling_of_all_numbers_never_takes_the_padding(check: Any, dtype: str) -> None:
    def values(rng: Any, shape: Any, kind: Any) -> Any:
        return (rng.integers(0 if kind.kind == "u" else -9, 3, shape) - (kind.kind != "u")).astype(kind)

    attrs = {"pool_size": 2, "strides": 1, "padding": 1}
    check("nn.max_pool2d", [(("n", 1, 2, 2), dtype)], attrs,
          lambda x: pool(x, (2, 2), (1, 1), (1, 1, 1, 1), (1, 1), False, "max"), values, N)  # fmt: skip
    check("nn.global_max_pool2d", [(("n", 2, 2, 3), dtype)], {}, lambda x: x.max((2, 3), keepdims=True), values, N)


@together("dtype", FLOATS)
def test_average_pooling_of_all_floats(check: Any, dtype: str) -> None:
    attrs = {"pool_size": (2, 2), "padding": 1}
    check("nn.avg_pool2d", [(("n", 1, 3, 3), dtype)], attrs,
          lambda x: pool(x, (2, 2), (2, 2), (1, 1, 1, 1), (1, 1), False, "avg"), None, N)  # fmt: skip
    check("nn.global_avg_pool2d", [(("n", 2, "h", 3), dtype)], {}, lambda x: x.mean((2, 3), keepdims=True), None,
          [{"n": 2, "h": 1}, {"n": 1, "h": 3}])  # fmt: skip
    check("nn.global_avg_pool2d", [((1, 2, 2, 3, 4), dtype)], {"layout": "NCHW4c"},
          lambda x: x.mean((2, 3), keepdims=True))  # fmt: skip


def test_nan_is_the_greatest_value_of_its_windows(run: Any) -> None:
    x = gi.var("x", shape=(1, 1, 2, 4))
    value = np.array([[1, np.nan, 3, 4], [0, 0, 0, 0]], np.float32).reshape(1, 1, 2, 4)
    np.testing.assert_array_equal(run([x], gi.nn.max_pool2d(x, 2), [value]).ravel(), [np.nan, 4])
