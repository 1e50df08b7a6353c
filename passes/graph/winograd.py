"""``Winograd``: compute 3x3 convolutions with fewer multiplications, where that is estimated to be faster.

Before::

    %0 = nn.conv2d(%x, const#0, padding=(1, 1, 1, 1), data_layout="NCHW16c", kernel_layout="OIHW16i16o")

After::

    %0 = nn.winograd_input(%x, tile=4, padding=(1, 1, 1, 1))
    %1 = nn.winograd_weight(const#0, tile=4)       # FoldConstant computes this; each call does for other weights
    %2 = nn.winograd_product(%0, %1)
    %3 = nn.winograd_output(%2, tile=4, size=(1, 56, 56))

The slices of a volume are transformed like images, and ``nn.winograd_product`` also sums over the depth of the windows,
which may have any extent.

The results round differently (see ``graphir.ops.nn.winograd`` for the method and its error). The estimate compares
operations at the rate of one core with bytes at the rates of memory and of the cache that holds the operators' results;
a remark states the times.
"""

from __future__ import annotations

import dataclasses
import math

from tilewright.graphir.dims import TYPICAL, estimate
from tilewright.graphir.expr import Call, Constant, Expr, Function
from tilewright.graphir.layout import parse_layout
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.nn.convolution import Convolution, ConvolutionAttrs
from tilewright.graphir.ops.nn.winograd_transforms import POINTS, WINDOW
from tilewright.graphir.printer import summary
from tilewright.graphir.types import TensorType
from tilewright.passes.base import FunctionPass
from tilewright.passes.config import register_config_option
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import function_pass
from tilewright.passes.graph.walk import is_primitive, rewrite_body
from tilewright.passes.properties import BLOCKED_LAYOUTS, FOLDED, TYPED, UNGROUPED
from tilewright.passes.registry import register_pass


@register_config_option("graphir.Winograd")
@dataclasses.dataclass(frozen=True)
class WinogradConfig:
    """Options of ``Winograd``: the rates for its estimate. Only their ratios matter; the defaults were measured on one
    core with AVX-512."""

    gain: float = dataclasses.field(default=1.15, metadata={"doc": "the least estimated speedup"})
    gflops: float = dataclasses.field(default=200.0, metadata={"doc": "10^9 floating-point operations a second"})
    memory: float = dataclasses.field(default=30.0, metadata={"doc": "10^9 bytes a second from memory"})
    cache: float = dataclasses.field(default=60.0, metadata={"doc": "10^9 bytes a second from and to the last cache"})
    unknown: int = dataclasses.field(default=TYPICAL, metadata={"doc": "assumed extent of a symbolic height or width"})


@register_pass
@function_pass(opt_level=3, name="Winograd", requires={TYPED, UNGROUPED, FOLDED, BLOCKED_LAYOUTS}, invalidates={FOLDED})
class Winograd(FunctionPass):
    """Replace convolutions by Winograd's transforms and products at their interpolation points."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return ``func`` with Winograd convolutions where they are estimated to be faster."""
        if is_primitive(func):
            return func
        config: WinogradConfig = ctx.get_config("graphir.Winograd")

        def change(node: Expr) -> Expr:
            if type(node) is not Call or not isinstance(node.op, Convolution) or node.attrs.space not in ("HW", "DHW"):
                return node
            reason = _unfit(node)
            if reason is None:
                tile, text = _fastest(node, config)
                ctx.remark(text, "applied" if tile else "missed", summary(node))
                return _transformed(node, tile) if tile else node
            if reason:
                ctx.remark(f"no Winograd: {reason}", "missed", summary(node))
            return node

        return rewrite_body(func, change)


def _unfit(node: Call) -> str | None:
    """Return the reason why a convolution cannot be transformed: empty for another window or stride, None if it can."""
    attrs: ConvolutionAttrs = node.attrs
    data, weight = node.args
    source, kernel = parse_layout(attrs.data_layout), parse_layout(attrs.kernel_layout)
    extents = kernel.extents(weight.shape)
    if (extents["H"], extents["W"]) != (WINDOW, WINDOW) or {*attrs.strides, *attrs.dilation} != {1}:
        return ""
    if attrs.groups != 1:
        return ""
    block, (image, window, _) = source.block("C"), attrs.plain_layouts
    if attrs.data_layout != f"{image}{block}c" or kernel.axes[: len(window)] != tuple((axis, 0) for axis in window):
        return f"its layouts are {attrs.data_layout} and {attrs.kernel_layout}, without blocks of channels"
    if attrs.kernel_layout != f"{window}{block}i{kernel.block('O')}o":
        return f"the kernel's layout {attrs.kernel_layout} does not match {attrs.data_layout}"
    if attrs.out_layout != f"{image}{kernel.block('O')}c":
        return f"the result's layout {attrs.out_layout} does not match {attrs.kernel_layout}"
    if attrs.channels:
        return "the number of channels is not a multiple of the block"
    if data.dtype not in ("float32", "float64"):
        return f"element type {data.dtype} is not float32 or float64"
    return None


def _fastest(node: Call, config: WinogradConfig) -> tuple[int, str]:
    """Return the tile size with the least estimated time, 0 for the direct sum, and a text with the times."""
    times = {0: _estimate(node, 0, config), **{tile: _estimate(node, tile, config) for tile in POINTS}}
    best = min(POINTS, key=lambda tile: times[tile])
    text = f"estimated {times[best] * 1e3:.3f} ms with F({best}x{best}, 3x3), {times[0] * 1e3:.3f} ms direct"
    return (best, f"Winograd: {text}") if times[best] * config.gain <= times[0] else (0, f"no Winograd: {text}")


def _estimate(node: Call, tile: int, config: WinogradConfig) -> float:
    """Estimate the seconds on one core with tiles of that size, or (0) by the direct sum."""
    data, weight = node.args
    attrs: ConvolutionAttrs = node.attrs
    kernel = parse_layout(attrs.kernel_layout).extents(weight.shape)
    inputs, outputs, depth = (estimate(kernel.get(axis, 1), 1) for axis in "IOD")
    image = parse_layout(attrs.out_layout).extents(node.shape)
    batch = estimate(image["N"], 1) * estimate(image.get("D", 1), config.unknown)
    height, width = (estimate(image[axis], config.unknown) for axis in "HW")
    size = 4 if data.dtype == "float32" else 8
    pixels = batch * height * width
    if tile:
        points, places = (tile + 2) ** 2, batch * math.ceil(height / tile) * math.ceil(width / tile)
        between = 2 * points * places * (inputs + outputs)  # written by one kernel, read by the next
    else:
        points, places, between = WINDOW**2, pixels, 2 * pixels * inputs  # the image within its border of zeros
    operations = 2 * points * depth * inputs * outputs * places
    moved = size * (between + pixels * (inputs + outputs))
    weights = size * points * depth * inputs * outputs
    if tile and not isinstance(weight, Constant):  # transformed in every call; a line of a cache is read to be written
        weights += size * (WINDOW**2 + 2 * points) * depth * inputs * outputs
    return operations / (config.gflops * 1e9) + moved / (config.cache * 1e9) + weights / (config.memory * 1e9)


def _transformed(node: Call, tile: int) -> Expr:
    data, weight = node.args
    attrs: ConvolutionAttrs = node.attrs
    assert isinstance(node.type, TensorType)
    image = get_operator("nn.winograd_input")(data, tile=tile, padding=attrs.padding)
    window = parse_layout(attrs.kernel_layout).position("H")
    at_points = get_operator("nn.winograd_weight")(weight, tile=tile, axis=window)
    products = get_operator("nn.winograd_product")(image, at_points)
    batch, _, *space, _ = node.type.shape
    return get_operator("nn.winograd_output")(products, tile=tile, size=(batch, *space))
