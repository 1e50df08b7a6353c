"""Convert operators with windows that slide over space: convolution and pooling."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from tilewright.graphir.dims import Dim, simplify
from tilewright.graphir.expr import Expr
from tilewright.graphir.frontend.onnx.node import Node
from tilewright.graphir.frontend.onnx.registry import converter
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import max as greatest
from tilewright.graphir.ops.calls import mean
from tilewright.tensorir.errors import InputError
from tilewright.tensorir.expr import as_expr, maximum

_CONVOLUTIONS = {1: "nn.conv1d", 2: "nn.conv2d", 3: "nn.conv3d"}


@dataclasses.dataclass(frozen=True)
class _Window:
    """The attributes that these operators share, one number for each spatial dimension."""

    size: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[Dim, ...]

    @property
    def moves(self) -> dict[str, Any]:
        """The movement of the window, as operators' attributes."""
        return {"strides": self.strides, "padding": self.padding, "dilation": self.dilation}


def _window(node: Node, size: tuple[int, ...] | None) -> _Window:
    """Return the window of a node, of ``size`` if no attribute states one."""
    size = node.attribute("kernel_shape", size)
    rank = len(node.shape()) - 2
    if size is None or len(size) != rank:
        raise InputError(f"{node.label}: kernel_shape: expected {rank} integers, found {size}")
    strides, dilation = _numbers(node, "strides", rank), _numbers(node, "dilations", rank)
    return _Window(size, strides, dilation, _padding(node, size, strides, dilation))


def _numbers(node: Node, name: str, rank: int, default: int = 1) -> tuple[int, ...]:
    """Return an attribute with a number for each spatial dimension."""
    found: tuple[int, ...] = node.attribute(name, (default,) * rank)
    if len(found) != rank:
        raise InputError(f"{node.label}: {name}: expected {rank} integers, found {found}")
    return found


def _padding(node: Node, size: tuple[int, ...], strides: tuple[int, ...], dilation: tuple[int, ...]) -> tuple[Dim, ...]:
    """Return ``pads``, or the padding of ``auto_pad``: SAME has as many windows as strides fit into the data (rounded
    up).

    Over a dimension of symbolic size the padding is an expression.
    """
    rank = len(size)
    mode = node.attribute("auto_pad", "NOTSET")
    if mode == "NOTSET":
        return _numbers(node, "pads", 2 * rank, 0)
    if mode == "VALID":
        return (0,) * (2 * rank)
    totals: list[Dim] = []
    for extent, k, stride, distance in zip(node.shape()[2:], size, strides, dilation, strict=True):
        span = (k - 1) * distance + 1
        reach = ((extent + (stride - 1)) // stride - 1) * stride + span
        totals.append(simplify(maximum(as_expr(reach - extent), 0)))
    return _halves(node, mode, totals)


def _halves(node: Node, mode: str, totals: Sequence[Dim]) -> tuple[Dim, ...]:
    """Split padding into that before and that behind; the odd one goes behind (UPPER) or before (LOWER)."""
    if mode == "SAME_UPPER":
        before = [simplify(total // 2) for total in totals]
    elif mode == "SAME_LOWER":
        before = [simplify(total - total // 2) for total in totals]
    else:
        raise InputError(f"{node.label}: auto_pad: unknown mode {mode!r}")
    return (*before, *(simplify(total - first) for total, first in zip(totals, before, strict=True)))


def _static_window(node: Node, weight: Expr) -> tuple[int, ...]:
    """Return the window of a weight."""
    size = weight.shape[2:]
    if not all(isinstance(extent, int) for extent in size):
        raise node.unsupported(f"a window of symbolic size {size}")
    return tuple(int(extent) for extent in size)  # type: ignore[arg-type]


def _biased(node: Node, result: Expr) -> Expr:
    bias = node.optional(2)
    return result if bias is None else get_operator("nn.bias_add")(result, bias, axis=1)


def convolved(node: Node, data: Expr, weight: Expr) -> Expr:
    """Convolve ``data``, which has the shape of the node's first input, by the node's attributes."""
    rank = len(node.shape()) - 2
    if rank not in _CONVOLUTIONS:
        raise node.unsupported(f"convolution in {rank} dimensions")
    window = _window(node, _static_window(node, weight))
    return get_operator(_CONVOLUTIONS[rank])(data, weight, groups=node.attribute("group", 1), **window.moves)


@converter("Conv")
def conv(node: Node) -> Expr:
    """Convolve."""
    return _biased(node, convolved(node, node[0], node[1]))


@converter("ConvTranspose")
def conv_transpose(node: Node) -> Expr:
    """Convolve transposed."""
    size = node.attribute("kernel_shape", _static_window(node, node[1]))
    rank = len(node.shape()) - 2
    if len(size) != rank:
        raise node.wrong(f"kernel_shape: expected {rank} integers, found {size}")
    strides, dilation = _numbers(node, "strides", rank), _numbers(node, "dilations", rank)
    extra = _numbers(node, "output_padding", rank, 0)
    result = get_operator("nn.conv_transpose")(
        node[0],
        node[1],
        strides=strides,
        dilation=dilation,
        padding=_transposed_padding(node, size, strides, dilation, extra),
        output_padding=extra,
        groups=node.attribute("group", 1),
    )
    return _biased(node, result)


def _transposed_padding(
    node: Node, size: tuple[int, ...], strides: tuple[int, ...], dilation: tuple[int, ...], extra: tuple[int, ...]
) -> tuple[Dim, ...]:
    """Return ``pads``, or the padding that yields ``output_shape`` or, with SAME, the data's size times the strides."""
    rank = len(size)
    mode = node.attribute("auto_pad", "NOTSET")
    target = node.attribute("output_shape")
    if target is None and mode in ("NOTSET", "VALID"):
        return _numbers(node, "pads", 2 * rank, 0) if mode == "NOTSET" else (0,) * (2 * rank)
    if target is not None and len(target) < rank:
        raise node.wrong(f"output_shape: expected {rank} integers, found {target}")
    totals = []
    for n, extent in enumerate(node.shape()[2:]):
        wanted = extent * strides[n] if target is None else target[len(target) - rank + n]
        total = simplify((extent - 1) * strides[n] + extra[n] + (size[n] - 1) * dilation[n] + 1 - wanted)
        if not isinstance(total, int):
            raise node.unsupported(f"output_shape for data of symbolic size {extent}")
        totals.append(total)
    return _halves(node, "SAME_UPPER" if mode == "SAME_UPPER" else "SAME_LOWER", totals)


def _pool(node: Node, name: str, **attrs: Any) -> Expr:
    """Return a pooling operator: that for images if the data are images."""
    window = _window(node, None)
    is_image = len(window.size) == 2 and name in ("nn.max_pool", "nn.avg_pool")
    operator = get_operator(f"{name}2d" if is_image else name)
    ceil_mode = bool(node.attribute("ceil_mode", 0))
    return operator(node[0], pool_size=window.size, ceil_mode=ceil_mode, **window.moves, **attrs)


@converter("MaxPool")
def max_pool(node: Node) -> list[Expr]:
    """Return the maximum of windows and, as a second result, its index."""
    results = [_pool(node, "nn.max_pool")]
    if node.num_outputs > 1:
        results.append(_pool(node, "nn.max_pool_indices", column_major=bool(node.attribute("storage_order", 0))))
    return results


@converter("AveragePool")
def average_pool(node: Node) -> Expr:
    """Return the mean of windows."""
    return _pool(node, "nn.avg_pool", count_include_pad=bool(node.attribute("count_include_pad", 0)))


@converter("LpPool")
def lp_pool(node: Node) -> Expr:
    """Return the norm of windows."""
    return _pool(node, "nn.lp_pool", p=node.attribute("p", 2))


@converter("MaxUnpool")
def max_unpool(node: Node) -> Expr:
    """Put values back to the indices where max pooling found them; fill the rest of a larger ``output_shape`` with
    zeros."""
    window = _window(node, None)
    rank = len(window.size)
    space = []
    for n, extent in enumerate(node.shape()[2:]):
        cut = window.padding[n] + window.padding[n + rank]
        space.append(simplify((extent - 1) * window.strides[n] + window.size[n] - cut))
    shape = (*node.shape()[:2], *space)
    result = get_operator("nn.max_unpool")(node[0], node[1], shape=shape)
    if node.optional(2) is None:
        return result
    if len(node.dims(2)) != len(shape):
        raise node.wrong(f"output_shape: expected {len(shape)} integers, found {node.dims(2)}")
    added = [simplify(wanted - extent) for wanted, extent in zip(node.dims(2), shape, strict=True)]
    if not all(isinstance(amount, int) and amount >= 0 for amount in added):
        raise node.unsupported(f"an output_shape {node.dims(2)} that is not above {shape} by known sizes")
    return get_operator("pad")(result, pad_width=[(0, amount) for amount in added]) if any(added) else result


# Pooling over all of space.


def _space(node: Node) -> tuple[int, ...]:
    return tuple(range(2, len(node.shape())))


@converter("GlobalAveragePool")
def global_average_pool(node: Node) -> Expr:
    """Return the mean of each channel."""
    if len(_space(node)) == 2:
        return get_operator("nn.global_avg_pool2d")(node[0])
    return mean(node[0], axis=_space(node), keepdims=True)


@converter("GlobalMaxPool")
def global_max_pool(node: Node) -> Expr:
    """Return the maximum of each channel."""
    if len(_space(node)) == 2:
        return get_operator("nn.global_max_pool2d")(node[0])
    return greatest(node[0], axis=_space(node), keepdims=True)


@converter("GlobalLpPool")
def global_lp_pool(node: Node) -> Expr:
    """Return the norm of each channel."""
    return get_operator("nn.lp_norm")(node[0], axis=_space(node), keepdims=True, p=node.attribute("p", 2))


@converter("DeformConv")
def deform_conv(node: Node) -> Expr:
    """Convolve with windows whose elements are displaced by offsets and, with a mask, weighted."""
    window = _window(node, _static_window(node, node[1]))
    mask = [] if node.optional(4) is None else [node[4]]
    if len(window.size) != 2:
        raise node.unsupported(f"deformable convolution in {len(window.size)} dimensions")
    result = get_operator("nn.deform_conv2d")(
        node[0],
        node[1],
        node[2],
        *mask,
        groups=node.attribute("group", 1),
        offset_groups=node.attribute("offset_group", 1),
        **window.moves,
    )
    bias = node.optional(3)
    return result if bias is None else get_operator("nn.bias_add")(result, bias, axis=1)
