"""``TrimConvolutions``: leave out the elements of windows and images that a convolution does not need.

Before::

    %0 = nn.conv2d(%x, const#0, strides=(2, 2))                                  # %x: (1, 256, 56, 56), 1x1 windows
    %1 = nn.conv2d(%y, const#1, dilation=(36, 36), padding=(36, 36, 36, 36))     # %y: (1, 960, 33, 33), 3x3 windows

After::

    %0 = slice(%x, begin=(0, 0), end=(56, 56), strides=(2, 2), axes=(2, 3))
    %1 = nn.conv2d(%0, const#0)
    %2 = slice(const#1, begin=(1, 1), end=(2, 2), axes=(2, 3))                   # FoldConstant computes this
    %3 = nn.conv2d(%y, %2, dilation=(36, 36))

**Windows.** Elements of a window that meet only the border of zeros, wherever the window stands, add nothing: outer
elements of a dilated window that is larger than the image, as in the pyramids of DeepLab (Chen et al. 2017, Rethinking
Atrous Convolution for Semantic Image Segmentation, section 3.3, which notes that such windows degenerate to 1x1). They
are left out where they are finite constants: an infinite one makes NaN of zero.

**Images.** Each task of a convolution computes a few channels of the result and reads all pixels for it. Pixels that
strides skip lie in the cache lines of those that are read, or push these out of the cache, once for each task; a copy
of the others reads them once. Its pixels are also consecutive, so that height and width are tiled as one dimension
(``CollapseDims``), and convolutions of the same image share it, as the two branches of a residual block do. Larger
windows read the pixels that one of their elements skips through another.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np

from tilewright.graphir.constant import Constant
from tilewright.graphir.dims import dim_equal
from tilewright.graphir.expr import Call, Expr, Function
from tilewright.graphir.module import IRModule
from tilewright.graphir.ops import calls
from tilewright.graphir.ops.nn.convolution import Convolution, ConvolutionAttrs
from tilewright.graphir.printer import summary
from tilewright.passes.base import FunctionPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import function_pass
from tilewright.passes.graph.walk import is_primitive, rewrite_body
from tilewright.passes.properties import PLAIN_LAYOUTS, TYPED, UNGROUPED
from tilewright.passes.registry import register_pass

#: From this many channels of results on, which read each pixel, the copy of an image costs less than it saves.
_CHANNELS_WORTH_A_COPY = 64


@register_pass
@function_pass(opt_level=2, name="TrimConvolutions", requires={TYPED, UNGROUPED, PLAIN_LAYOUTS})
class TrimConvolutions(FunctionPass):
    """Leave out what convolutions do not need of windows and images."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return ``func`` with trimmed convolutions."""
        if is_primitive(func):
            return func
        return rewrite_body(func, functools.partial(_trimmed, ctx=ctx))


def _trimmed(node: Expr, ctx: PassContext) -> Expr:
    if type(node) is not Call or not isinstance(node.op, Convolution):
        return node
    attrs: ConvolutionAttrs = node.attrs
    if attrs.layouts != attrs.plain_layouts:
        return node
    smaller = _with_smaller_window(node)
    if smaller is not node:
        ctx.remark("left out elements of its window that meet only the border", "applied", summary(node))
    if _skips_pixels(smaller):
        ctx.remark("sliced its image to the pixels that it reads", "applied", summary(node))
        return _with_smaller_image(smaller)
    return smaller


def _with_smaller_window(node: Call) -> Call:
    """Return a convolution without the elements of its window that meet only the border; ``node`` if all others do."""
    attrs: ConvolutionAttrs = node.attrs
    data, weight = node.args
    if not isinstance(weight, Constant) or attrs.pad_value or _has_no_border(attrs):
        return node
    rank = len(attrs.space)
    padding, kept = list(attrs.padding), []
    for axis in range(rank):
        extents = (data.tensor_type.shape[2 + axis], node.tensor_type.shape[2 + axis], *padding[axis::rank])
        if not all(isinstance(extent, int) for extent in extents):
            kept.append((0, weight.data.shape[2 + axis]))
            continue
        extent, count, before, behind = map(int, extents)
        size, step = weight.data.shape[2 + axis], attrs.dilation[axis]
        inside = [at for at in range(size) if _meets(at * step - before, attrs.strides[axis], count, extent)]
        if not inside:
            return node
        first, last = inside[0], inside[-1]
        before, behind = before - first * step, behind - (size - 1 - last) * step
        if before < 0 or behind < 0:
            return node
        padding[axis], padding[axis + rank] = before, behind
        kept.append((first, last + 1))
    begin, end = (tuple(part) for part in zip(*kept, strict=True))
    if end == weight.data.shape[2:] and not any(begin):
        return node
    part: Any = (..., *(slice(*ends) for ends in kept))
    left = weight.data[part]
    if np.count_nonzero(~np.isfinite(weight.data)) != np.count_nonzero(~np.isfinite(left)):
        return node
    window = calls.slice(weight, begin=begin, end=end, axes=tuple(range(2, 2 + rank)))
    return Call(node.op, [data, window], dataclasses.replace(attrs, padding=tuple(padding)), None, node.span)


def _has_no_border(attrs: ConvolutionAttrs) -> bool:
    return all(dim_equal(amount, 0) for amount in attrs.padding)


def _meets(first: int, stride: int, count: int, extent: int) -> bool:
    """Return whether one of ``count`` places, ``stride`` apart from ``first`` on, is in ``range(extent)``."""
    skipped = max(0, -(first // stride))
    return skipped < count and first + skipped * stride < extent


def _skips_pixels(node: Call) -> bool:
    """Return whether a convolution reads single pixels, no border, skips some, and reads each one often."""
    attrs: ConvolutionAttrs = node.attrs
    if max(attrs.strides) == 1 or not _has_no_border(attrs):
        return False
    outputs, _, *window = node.args[1].tensor_type.shape
    often = isinstance(outputs, int) and outputs >= attrs.groups * _CHANNELS_WORTH_A_COPY
    return often and all(dim_equal(extent, 1) for extent in window)


def _with_smaller_image(node: Call) -> Call:
    """Return a convolution by single pixels of just those that it reads."""
    attrs: ConvolutionAttrs = node.attrs
    data, weight = node.args
    axes, extents = tuple(range(2, 2 + len(attrs.space))), data.tensor_type.shape[2:]
    pixels = calls.slice(data, begin=(0,) * len(axes), end=extents, strides=attrs.strides, axes=axes)
    return Call(node.op, [pixels, weight], dataclasses.replace(attrs, strides=1), None, node.span)
