"""Operators refuse what they cannot compute where the graph is made, and say what they expected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright import graphir as gi
from tilewright.tensorir import Var
from tilewright.tensorir.errors import TilewrightError

nn = gi.nn
N = Var("n")
Call = tuple[Callable[[], Any], str]


def t(*shape: Any, dtype: str = "float32") -> gi.Var:
    return gi.var("t", shape=shape, dtype=dtype)


SHAPES: list[Call] = [
    (lambda: gi.diagonal(t(2, 3), 0, -2), "diagonal: axis2: expected another axis than axis1, 0, found -2"),
    (lambda: gi.expand_dims(t(2), 0, num_newaxis=-1), "num_newaxis: expected a number of axes, found -1"),
    (lambda: gi.expand_dims(t(2), (0, 1), num_newaxis=2), "num_newaxis: expected 1 where axis is a tuple of places"),
    (lambda: gi.expand_dims(t(2), (0, -3)), "expand_dims: axis: expected different places, found (0, -3)"),
    (lambda: gi.repeat(t(2), -1), "repeats: expected a count, found -1"),
    (lambda: gi.slice(t(2, 3), (0,), (1, 2)), "end: expected as many values as in begin, 1, found (1, 2)"),
    (lambda: gi.slice(t(2, 3), (0, 0), (1, 1), axes=(0, -2)), "slice: axes: expected different axes, found (0, -2)"),
    (lambda: gi.slice(t(2), ({},), (1,)), "begin: expected integers, symbolic dimensions or None, found {}"),
    (lambda: gi.slice(t(2), 5.5, (1,)), "begin: expected integers, symbolic dimensions or None, found 5.5"),
    (lambda: gi.split(t(4), 0), "indices_or_sections: expected a positive number of parts, found 0"),
    (lambda: gi.layout_transform(t(2, 4), "AB", "AB2b", extents={"C": 4}), "extents: expected axes of AB, found 'C'"),
    (lambda: gi.sizes((t(2),)), "values: expected integers and integer expressions, found"),
    (lambda: gi.sizes((Var("f", "float32"),)), "values: expected integer expressions, found float32: f"),
    (
        lambda: gi.bind_size(t(2), t(dtype="int32"), N),
        "bind_size: size: expected a number of type int64 (no dimensions)",
    ),
    (
        lambda: gi.bind_size(t(2), t(dtype="int64"), N + 1),
        "bind_size: dim: expected a symbolic dimension (one variable)",
    ),
    (lambda: gi.pad(t(2, dtype="int8"), ((1, 1),), pad_value=0.5), "pad: pad_value: expected a value of type int8"),
    (lambda: gi.TensorType(5), "a shape is a sequence of dimensions, found 5"),
    (lambda: gi.TensorType((Var("f", "float32"),)), "a dimension is an integer expression, found float32: f"),
    (lambda: gi.TensorType((1.5,)), "1.5"),
]

VALUES: list[Call] = [
    (lambda: gi.full((2,), "x"), "fill: expected a number, found 'x'"),
    (lambda: gi.arange(N, step=0.5), "start, stop, step: expected integers beside a symbolic bound"),
    (lambda: gi.arange([]), "expected a number or a symbolic dimension, found []"),
    (lambda: gi.arange(0.0, float("inf")), "arange: stop: expected a finite count of numbers"),
    (lambda: gi.clip(t(2), "x", 1), "a_min: expected a number or None, found 'x'"),
    (lambda: gi.triu(t(2, 2), t(2)), "triu: k: expected a scalar integer"),
    (lambda: gi.one_hot(t(2, dtype="int64"), t(1), t(), 3), "one_hot: on: expected a scalar, found"),
    (lambda: gi.one_hot(t(2, dtype="int64"), t(), t(1), 3), "one_hot: off: expected a scalar of type float32, found"),
    (lambda: gi.norm(t(2), ord=3), "ord: expected 1 or 2, found 3"),
    (lambda: gi.logical_and(t(2, dtype="bool"), 2), "expected a bool, found 2"),
    (lambda: gi.Var("x", 5), "variable x: expected a type, found 5"),
    (lambda: gi.Function([], 5), "a function's body is a graph expression, found int"),
    (lambda: gi.Call("add", [t(2), t(2)], 3), "add: expected attributes NoAttrs, found 3"),
    (
        lambda: gi.to_text(gi.IRModule({}), constants="all"),
        "constants: expected 'digest', 'inline' or 'type', found 'all'",
    ),
]

PRODUCTS: list[Call] = [
    (lambda: gi.gemm(t(2, 3), t(3)), "gemm: b: expected 2 dimensions"),
    (lambda: gi.gemm(t(2, 3, dtype="int8"), t(3, 4, dtype="int8"), alpha=0.5), "gemm: alpha: expected a whole number"),
    (lambda: gi.gemm(t(2, 3), t(3, 4), t(5)), "gemm: c: expected a shape that broadcasts with (2, 4), found (5,)"),
    (lambda: gi.gemm(t(2, 3), t(3, 4), t(3, 2, 4)), "gemm: c: expected a shape that broadcasts to (2, 4)"),
    (lambda: nn.dense(t(), t(2, 3)), "nn.dense: data: expected at least one dimension"),
    (lambda: nn.batch_flatten(t()), "nn.batch_flatten: data: expected at least one dimension"),
    (lambda: nn.attention(*[t(2, 4, 8)] * 3, scale=float("nan")), "scale: expected a finite number, found nan"),
    (
        lambda: nn.attention(t(2, 4, 8), t(2, 4, 8, dtype="float16"), t(2, 4, 8)),
        "nn.attention: key: expected element type float32 as query",
    ),
    (
        lambda: nn.attention(t(3, 2, 4, 8), *[t(5, 2, 4, 8)] * 2),
        "nn.attention: key: expected leading dimensions (3,) as query",
    ),
    (
        lambda: nn.attention(*[t(2, 4, 8)] * 3, t(4, 4, dtype="int8")),
        "nn.attention: mask: expected element type bool or float32",
    ),
    (lambda: nn.attention(*[t(2, 4, 8)] * 3, t(4, 5)), "nn.attention: mask: expected a shape that broadcasts with"),
    (lambda: nn.attention(*[t(2, 4, 8)] * 3, t(3, 1, 4, 4)), "mask: expected a shape that broadcasts to (2, 4, 4)"),
]

WINDOWS: list[Call] = [
    (lambda: nn.conv2d(t(1, 4, 8, 8), t(4, 4, 3, 3), groups=0), "groups: expected a positive integer, found 0"),
    (
        lambda: nn.conv2d(t(1, 4, 8, 8), t(4, 2, 3, 3), groups=2, channels=4),
        "nn.conv2d: channels: expected 0 for groups of channels, found 4",
    ),
    (lambda: nn.conv2d(t(1, 4, 8, 8), t(4, 4, 3, 3), strides="x"), "strides: expected integers, found 'x'"),
    (lambda: nn.conv2d(t(1, 4, 8, 8), t(4, 4, 3, 3), strides=()), "strides: expected integers, found none"),
    (lambda: nn.conv_transpose(t(1, 4, 8), t(4, 4, 3), groups=0), "groups: expected a positive integer, found 0"),
    (
        lambda: nn.conv_transpose(t(1, 4), t(4, 4)),
        "data: expected 1, 2 or 3 spatial dimensions behind batch and channels",
    ),
    (
        lambda: nn.conv_transpose(t(1, 4, 8), t(4, 4, 3, 3)),
        "weight: expected a tensor with 3 dimensions and a window of",
    ),
    (
        lambda: nn.conv_transpose(t(1, 3, 8), t(3, 4, 3), groups=2),
        "weight: expected a number of input channels divisible by 2 groups",
    ),
    (lambda: nn.conv_transpose(t(1, 4, 2), t(4, 4, 3), padding=9), "padding: expected less than the result has"),
    (lambda: nn.dilate(t(2), (2, 2)), "nn.dilate: x: expected at least 2 dimensions"),
    (lambda: nn.dilate(t(2), (1,), padding=-3), "expected more elements than padding cuts off"),
    (
        lambda: nn.deform_conv2d(t(1, 4, 8, 8), t(4, 4, 3, 3), t(1, 18, 6), groups=1),
        "offset: expected a tensor with 4 dim",
    ),
    (
        lambda: nn.deform_conv2d(*[t(1, 4, 8, 8)] * 3, offset_groups=0),
        "offset_groups: expected a positive integer, found 0",
    ),
    (
        lambda: nn.deform_conv2d(t(1, 4, 8, 8), t(4, 4, 3, 3), t(1, 54, 6, 6), offset_groups=3),
        "data: expected channels divisible by 3 offset groups",
    ),
    (
        lambda: nn.deform_conv2d(t(1, 4, 8, 8), t(4, 3, 3, 3), t(1, 18, 6, 6)),
        "weight: expected 4 input channels in 1 groups",
    ),
    (
        lambda: nn.deform_conv2d(t(1, 4, 8, 8), t(3, 2, 3, 3), t(1, 18, 6, 6), groups=2),
        "weight: expected output channels divisible by 2 groups",
    ),
    (lambda: nn.avg_pool2d(t(1, 4, 8), (2, 2)), "nn.avg_pool2d: data: expected a tensor in layout NCHW (4 dimensions)"),
    (
        lambda: nn.max_unpool(t(1, 1, 2, 2), t(1, 1, 2, 2), (1, 1, 4, 4)),
        "nn.max_unpool: indices: expected integers of shape",
    ),
    (lambda: nn.col2im(t(1, 4, 4), (3, 3), (0, 2)), "block_shape: expected 2 integers of at least 1, found (0, 2)"),
    (lambda: nn.col2im(t(4, 4), (3, 3), (2, 2)), "data: expected columns (N, C * pixels of a window, windows)"),
    (lambda: nn.col2im(t(1, 5, 4), (3, 3), (2, 2)), "data: expected a number of rows that 4 divides"),
    (lambda: nn.col2im(t(1, 4, 5), (3, 3), (2, 2)), "data: expected 4 columns, as (2, 2) windows fit"),
]

IMAGES: list[Call] = [
    (lambda: nn.depth_to_space(t(1, 4, 2, 2), 0), "block_size: expected a positive integer, found 0"),
    (lambda: nn.depth_to_space(t(1, 4, 2, 2), 2, mode="X"), "mode: expected one of DCR, CRD, found 'X'"),
    (lambda: nn.depth_to_space(t(1, 4, 2), 2), "data: expected a tensor in layout NCHW (4 dimensions)"),
    (lambda: nn.depth_to_space(t(1, 5, 2, 2), 2), "data: expected a number of channels that 4 divides"),
    (lambda: nn.space_to_depth(t(1, 4, 3, 2), 2), "data: expected height and width that 2 divides"),
    (lambda: nn.interleave(t(1, 4, 2), (2,), groups=0), "groups: expected a positive integer, found 0"),
    (lambda: nn.interleave(t(1, 4, 2), (2, 2)), "data: expected 2 dimensions behind batch and channels"),
    (lambda: nn.interleave(t(1, 5, 2), (2,)), "data: expected a number of channels that 2 divides"),
    (lambda: nn.grid_sample(t(1, 1, 4, 4), t(1, 2, 2, 2), method="x"), "method: expected one of"),
    (lambda: nn.grid_sample(t(1, 1), t(1, 2)), "data: expected images (N, C, and one axis or more)"),
    (lambda: nn.grid_sample(t(1, 1, 4, 4), t(1, 2, 2, 3)), "grid: expected places (N, 2 extents, 2) for the images"),
    (
        lambda: nn.roi_align(t(1, 1, 4, 4), t(2, 4), t(2, dtype="int64"), sampling_ratio=-1),
        "expected no negative number",
    ),
    (lambda: nn.roi_align(t(1, 1, 4, 4), t(2, 4), t(2, dtype="int64"), method="x"), "method: expected one of"),
    (lambda: nn.roi_align(t(1, 4, 4), t(2, 4), t(2, dtype="int64")), "data: expected images in layout NCHW"),
    (
        lambda: nn.roi_align(t(1, 1, 4, 4), t(2, 5), t(2, dtype="int64")),
        "rois: expected regions (R, 4) of type float32",
    ),
    (
        lambda: nn.roi_align(t(1, 1, 4, 4), t(2, 4), t(2)),
        "batch_indices: expected an integer for each of the 2 regions",
    ),
    (lambda: nn.roi_align(t(1, 1, 0, 4), t(2, 4), t(2, dtype="int64")), "data: expected images with pixels"),
    (
        lambda: nn.resize(t(1, 1, 4, 4), (1, 1, 8, 8), coordinate_mode="tf_crop_and_resize"),
        "roi: expected the part that is",
    ),
    (
        lambda: nn.resize(t(1, 1, 4, 4), (1, 1, 8, 8), antialias=True),
        "antialias: expected method linear or cubic, found",
    ),
    (lambda: nn.resize(t(0, 4), (3, 4)), "nn.resize: x: expected elements along axis 0"),
    (
        lambda: nn.suppress_overlaps(t(1, 5, 3), t(1, 1, 5), t(dtype="int64"), t(), t()),
        "boxes: expected boxes (images, boxes, 4)",
    ),
    (
        lambda: nn.suppress_overlaps(t(1, 5, 4), t(1, 1, 6), t(dtype="int64"), t(), t()),
        "scores: expected scores (images, classes, boxes) of the boxes",
    ),
    (
        lambda: nn.suppress_overlaps(t(1, 5, 4), t(1, 1, 5), t(), t(), t()),
        "max_output_size: expected a number of type int64",
    ),
]

NORMALIZATIONS: list[Call] = [
    (lambda: nn.dropout(t(2), rate=1.5), "rate: expected a share between 0 and 1, found 1.5"),
    (lambda: nn.dropout(t(2), rate=-0.5), "rate: expected a share between 0 and 1, found -0.5"),
    (lambda: nn.lp_normalize(t(2, 3), p=0), "p: expected a number above 0, found 0"),
    (lambda: nn.lp_norm(t(2, 3), p=0), "p: expected a number above 0, found 0"),
    (lambda: nn.group_norm(t(2, 3, 4), t(4), t(4), 2, axis=2), "axis: expected axis 1 of a tensor with the batch"),
    (lambda: nn.instance_norm(t(2, 3), t(3), t(3)), "data: expected at least 3 dimensions (batch, channels, space)"),
    (lambda: gi.quantize(t(2, 3), t(3), block_size=-1), "block_size: expected a positive integer or 0, found -1"),
    (lambda: gi.quantize(t(2, 3), t(3, 1)), "quantize: scale: expected one scale, or a vector of them"),
    (
        lambda: gi.quantize(t(2, 3), t(3), t(2, dtype="uint8")),
        "quantize: zero_point: expected the shape of scale, (3,)",
    ),
]

SEQUENCES: list[Call] = [
    (
        lambda: gi.reverse_sequence(t(2, 3), t(3, dtype="int64"), 0, 0),
        "time_axis: expected another axis than batch_axis = 0",
    ),
    (lambda: nn.rnn(t(3, 2, 4), t(1, 5, 4), t(1, 5), t(1, 10), t(1, 2, 5)), "recurrent_weight: expected 3 dimensions"),
    (
        lambda: nn.rnn(t(3, 2, 4), t(1, 5, 4), t(1, 5, 5), t(1, 10), t(1, 2, 5), activations=("tanh", "tanh")),
        "activations: expected 1 for each direction",
    ),
    (
        lambda: nn.rnn(t(3, 2, 4), t(1, 5, 4, dtype="float64"), t(1, 5, 5), t(1, 10), t(1, 2, 5)),
        "weight: expected element type float32 as x",
    ),
    (
        lambda: nn.rnn(t(3, 2, 4), t(1, 5, 4), t(1, 5, 5), t(1, 10), t(1, 2, 5), t(2)),
        "nn.rnn: lengths: expected integers",
    ),
    (
        lambda: gi.scatter_elements(t(3), t(2, dtype="int64"), t(2, dtype="int8")),
        "updates: expected element type float32",
    ),
    (lambda: gi.tensor_scatter(t(2, 4), t(2, 1), t(2, dtype="int64"), mode="x"), "mode: expected linear or circular"),
    (
        lambda: gi.tensor_scatter(t(2, 4), t(2, 4), t(2, dtype="int64"), axis=0),
        "axis: expected an axis other than that of",
    ),
    (
        lambda: gi.tensor_scatter(t(2, 4), t(2, 1, dtype="int8"), t(2, dtype="int64"), axis=1),
        "update: expected element type float32",
    ),
    (
        lambda: gi.tensor_scatter(t(2, 4), t(3, 1), t(2, dtype="int64"), axis=1),
        "update: expected the shape of x beside axis 1",
    ),
    (lambda: gi.tensor_scatter(t(2, 4), t(2, 1), t(2), axis=1), "starts: expected a vector of 2 integers"),
    (
        lambda: gi.tensor_scatter(t(2, 4), t(2, 5), t(2, dtype="int64"), axis=1),
        "update: expected at most 4 elements along",
    ),
    (lambda: gi.dft(t(2, 8, 1), length=0), "length: expected a positive integer, found 0"),
    (lambda: gi.dft(t(2, 0, 1)), "dft: x: expected a signal that is not empty"),
    (lambda: gi.stft(t(1, 8, 1), frame_step=0, frame_length=4), "frame_step: expected a positive integer, found 0"),
    (lambda: gi.stft(t(1, 8, 3), frame_step=1, frame_length=4), "stft: x: expected a shape (batch, time, 1 or 2)"),
    (lambda: gi.stft(t(1, 8, 1), frame_step=1, frame_length=9), "stft: x: expected signals of at least 9 samples"),
    (lambda: gi.stft(t(1, 8, 1), t(3), frame_step=1, frame_length=4), "stft: window: expected a shape (4,)"),
]

NUMPY: list[Call] = [
    (lambda: np.var(t(2, 3), ddof=2), "expected ddof 0 or 1, found 2"),
    (lambda: np.dot(t(2, 3), t(2, 3, 4)), "takes at most 2 dimensions on the right; use np.matmul"),
    (lambda: np.round(t(2), 2), "np.round of a graph expression rounds to integers, found decimals=2"),
    (lambda: gi.Tuple([t(2)])["x"], "a tuple of 1 values is indexed by an integer, found 'x'"),
    (lambda: t(4)[1.5:], "1.5"),
]

REFUSED = [*SHAPES, *VALUES, *PRODUCTS, *WINDOWS, *IMAGES, *NORMALIZATIONS, *SEQUENCES, *NUMPY]


@pytest.mark.parametrize(("make", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_an_operator_cannot_compute_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        make()
    assert message in str(caught.value)
