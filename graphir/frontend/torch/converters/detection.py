"""Convert torchvision's operators of detectors: the regions of an image, and the boxes that overlap no better one."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.graphir.dims import Dim
from tilewright.graphir.expr import Expr, const
from tilewright.graphir.frontend.torch.converters.indexing import ordered
from tilewright.graphir.frontend.torch.node import Node, axis_places, cast_to, dtype_of, reshaped, shape_of
from tilewright.graphir.frontend.torch.registry import converter
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import add, concatenate, take, where
from tilewright.graphir.ops.nn.non_max_suppression import non_max_suppression
from tilewright.graphir.vjp import vjp
from tilewright.tensorir.dtype import FLOAT32, FLOAT64, INT64


def _columns(x: Expr, first: int, end: int) -> Expr:
    return get_operator("slice")(x, begin=(first,), end=(end,), axes=(1,))


def _sampled(x: Expr, rois: Expr, scale: float, height: Dim, width: Dim, sampling_ratio: int, aligned: bool) -> Expr:
    """Sample regions, rows of the number of an image and two corners (x, y)."""
    images = cast_to(reshaped(_columns(rois, 0, 1), (shape_of(rois)[0],)), INT64)
    return get_operator("nn.roi_align")(
        x,
        _columns(rois, 1, 5),
        images,
        output_size=(height, width),
        spatial_scale=scale,
        sampling_ratio=max(sampling_ratio, 0),
        aligned=aligned,
    )


@converter("torchvision.roi_align.default")
def roi_align(
    node: Node, x: Expr, rois: Expr, scale: float, height: Dim, width: Dim, ratio: int, aligned: bool
) -> Expr:
    """Sample the regions of images to one size."""
    return _sampled(x, rois, scale, height, width, ratio, aligned)


@converter("torchvision._roi_align_backward.default")
def roi_align_backward(
    node: Node,
    grad: Expr,
    rois: Expr,
    scale: float,
    height: Dim,
    width: Dim,
    *rest: Any,
) -> Expr:
    """Return the gradient of the images."""
    *shape, ratio, aligned = rest
    if ratio <= 0:
        raise node.unsupported("samples whose number depends on the regions (sampling_ratio <= 0)")
    images = get_operator("zeros")(shape=tuple(shape), dtype=dtype_of(grad))
    return vjp(_sampled(images, rois, scale, height, width, ratio, aligned), [images], grad)[0]


@converter("torchvision.nms.default")
def suppressed(node: Node, boxes: Expr, scores: Expr, threshold: float) -> Expr:
    """Return the numbers of the boxes (x, y, x, y) that overlap no better one by more than a threshold, the best ones
    first."""
    if dtype_of(boxes) is FLOAT64:
        raise node.unsupported("boxes in double precision")
    count = shape_of(scores)[0]
    # By their ranks instead of their scores: infinities and NaN are compared as PyTorch sorts them.
    order = ordered(scores, count, 0, largest=True)[1]
    low, high = _columns(boxes, 0, 2), _columns(boxes, 2, 4)
    # A box whose corners are exchanged overlaps none here; the operator would exchange them back.
    is_box = get_operator("all")(get_operator("less_equal")(low, high), axis=1, keepdims=True)
    corners = take(concatenate([low, where(is_box, high, low)], axis=1), order, axis=0)
    ranks = cast_to(get_operator("negative")(axis_places(count)), FLOAT32)
    found = non_max_suppression(
        cast_to(reshaped(corners, (1, count, 4)), FLOAT32),
        reshaped(ranks, (1, 1, count)),
        const(np.int64(np.iinfo(np.int64).max)),
        float(threshold),
    )
    kept = reshaped(_columns(found, 2, 3), (shape_of(found)[0],))
    return take(order, kept, axis=0)


@converter("torchvision.deform_conv2d.default")
def deform_conv2d(node: Node, x: Expr, weight: Expr, offset: Expr, mask: Expr, bias: Expr, *rest: Any) -> Expr:
    """Convolve with windows whose elements are displaced by offsets and, with a mask, weighted."""
    *moves, groups, offset_groups, use_mask = rest
    result = get_operator("nn.deform_conv2d")(
        x,
        weight,
        offset,
        *[mask] * use_mask,
        strides=tuple(moves[:2]),
        padding=tuple(moves[2:4]),
        dilation=tuple(moves[4:]),
        groups=groups,
        offset_groups=offset_groups,
    )
    return add(result, reshaped(bias, (1, shape_of(bias)[0], 1, 1)))
