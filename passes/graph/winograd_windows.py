"""``WinogradWindows``: compute convolutions whose results have 3x3 pixels, as gradients of 3x3 weights have, with fewer
multiplications, where that is estimated to be faster.

Before::

    %0 = transpose(%x, axes=(1, 0, 2, 3))            # images by channel
    %1 = transpose(%g, axes=(1, 0, 2, 3))            # cotangents of the convolution's result
    %2 = nn.conv2d(%0, %1, padding=(1, 1, 1, 1))     # (64, 128, 3, 3)

After::

    %0 = layout_transform(%x, src_layout="NCHW", dst_layout="NCHW16c")
    %1 = nn.winograd_input(%0, tile=4, padding=(1, 1, 1, 1))
    %2 = layout_transform(%g, src_layout="NCHW", dst_layout="NCHW16c")
    %3 = nn.winograd_window(%2, tile=4)
    %4 = nn.winograd_sums(%1, %3)
    %5 = nn.winograd_sums_output(%4, tile=4)
    %6 = layout_transform(%5, src_layout="OIHW16i16o", dst_layout="IOHW")

``graphir.ops.nn.winograd_windows`` has the method. The estimate is that of ``Winograd``, with its options.
"""

from __future__ import annotations

import functools
import math

from tilewright.graphir.dims import dim_equal, estimate
from tilewright.graphir.expr import Call, Expr, Function
from tilewright.graphir.layout_rewrite import transform
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import transpose
from tilewright.graphir.ops.nn.channel_blocks import channel_block
from tilewright.graphir.ops.nn.convolution import Convolution, ConvolutionAttrs
from tilewright.graphir.ops.nn.winograd_transforms import POINTS, WINDOW
from tilewright.graphir.printer import summary
from tilewright.passes.base import FunctionPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import function_pass
from tilewright.passes.graph.walk import is_primitive, rewrite_body
from tilewright.passes.graph.winograd import WinogradConfig
from tilewright.passes.properties import FOLDED, PLAIN_LAYOUTS, TYPED, UNGROUPED
from tilewright.passes.registry import register_pass
from tilewright.tensorir.target import Target

_EXCHANGED = (1, 0, 2, 3)


@register_pass
@function_pass(
    opt_level=3, name="WinogradWindows", requires={TYPED, UNGROUPED, FOLDED, PLAIN_LAYOUTS}, invalidates={FOLDED}
)
class WinogradWindows(FunctionPass):
    """Replace convolutions by large windows by Winograd's transforms and sums at their interpolation points."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return ``func`` with transforms where they are estimated to be faster."""
        if is_primitive(func):
            return func
        change = functools.partial(_changed, ctx=ctx, config=ctx.get_config("graphir.Winograd"))
        return rewrite_body(func, change)


def _changed(node: Expr, ctx: PassContext, config: WinogradConfig) -> Expr:
    """Return a node in the form that is estimated to be fastest."""
    if type(node) is not Call or not isinstance(node.op, Convolution) or not _fits(node):
        return node
    lanes = Target.current().lanes(node.tensor_type.dtype)
    blocks = [channel_block(arg.shape[0], lanes, whole=True) for arg in node.args]
    if blocks[0] is None or blocks[1] is None:
        ctx.remark("no Winograd: the channels do not fill blocks", "missed", summary(node))
        return node
    times = {tile: _estimate(node, tile, lanes / blocks[1], config) for tile in (0, *POINTS)}
    best = min(POINTS, key=times.__getitem__)
    gains = times[best] * config.gain <= times[0]
    text = f"estimated {times[best] * 1e3:.3f} ms with F(3x3, {best}x{best}), {times[0] * 1e3:.3f} ms direct"
    ctx.remark(f"{'' if gains else 'no '}Winograd: {text}", "applied" if gains else "missed", summary(node))
    return _transformed(node, best, blocks[0], blocks[1]) if gains else node


def _fits(node: Call) -> bool:
    """Return whether a convolution in plain layouts has results of 3x3 and no gaps in its windows."""
    attrs: ConvolutionAttrs = node.attrs
    if attrs.space != "HW" or attrs.layouts != attrs.plain_layouts or attrs.groups != 1 or attrs.pad_value:
        return False
    if attrs.out_dtype is not None or {*attrs.strides, *attrs.dilation} != {1}:
        return False
    is_static = all(isinstance(amount, int) and amount >= 0 for amount in attrs.padding)
    return (
        is_static
        and node.tensor_type.dtype in ("float32", "float64")
        and all(dim_equal(extent, WINDOW) for extent in node.tensor_type.shape[2:])
    )


def _estimate(node: Call, tile: int, vectors: float, config: WinogradConfig) -> float:
    """Estimate the seconds on one core with tiles of that size, or (0) by the direct sum.

    Args:
        vectors: how many times as many vectors the blocks of channels take as full ones.
    """
    data, window = node.args
    inputs, outputs, images = (estimate(dim, 1) for dim in (data.shape[0], window.shape[0], data.shape[1]))
    height, width = (estimate(dim, config.unknown) for dim in window.shape[2:])
    size = 4 if data.tensor_type.dtype == "float32" else 8
    pixels = images * height * width
    if tile:
        points, places = (tile + 2) ** 2, images * math.ceil(height / tile) * math.ceil(width / tile)
        between = 2 * points * places * (inputs + outputs)  # written by one kernel, read by the next
        sums = 3 * size * points * inputs * outputs  # written, which reads a line of a cache, and read
    else:
        points, places, between, sums = WINDOW**2, pixels, 2 * pixels * inputs, 0
    operations = 2 * points * inputs * outputs * places * (vectors if tile else 1)
    moved = size * (between + pixels * (inputs + outputs))
    return operations / (config.gflops * 1e9) + moved / (config.cache * 1e9) + sums / (config.memory * 1e9)


def _transformed(node: Call, tile: int, inner: int, lanes: int) -> Expr:
    data, window = (transpose(arg, axes=_EXCHANGED) for arg in node.args)
    image = get_operator("nn.winograd_input")(
        transform(data, "NCHW", f"NCHW{inner}c"), tile=tile, padding=node.attrs.padding
    )
    at_points = get_operator("nn.winograd_window")(transform(window, "NCHW", f"NCHW{lanes}c"), tile=tile)
    sums = get_operator("nn.winograd_sums")(image, at_points)
    result = get_operator("nn.winograd_sums_output")(sums, tile=tile)
    return transform(result, f"OIHW{inner}i{lanes}o", "IOHW")
