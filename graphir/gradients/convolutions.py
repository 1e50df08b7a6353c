"""Differentiate convolutions: by the data it is a transposed convolution of the cotangents with the weight, by the
weight a product of the cotangents with the windows of the data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from tilewright.graphir.base import call_operator
from tilewright.graphir.dims import Dim, dim_equal, format_shape, product, shape_equal, simplify
from tilewright.graphir.expr import Call, Expr
from tilewright.graphir.gradient import register_gradient, unsupported
from tilewright.graphir.gradients.common import reshaped, zeros_like
from tilewright.graphir.layout import parse_layout
from tilewright.graphir.ops import calls


def _order(source: str, target: str) -> tuple[int, ...]:
    """Return the axes by which a transpose makes layout ``target`` of ``source``."""
    return tuple(source.index(axis) for axis in target)


def to_layout(x: Expr, source: str, target: str) -> Expr:
    """Transpose from one layout without blocks to another."""
    return x if source == target else calls.transpose(x, axes=_order(source, target))


@register_gradient("nn.conv1d", "nn.conv2d", "nn.conv3d")
def convolution(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Return the cotangents of data and weight."""
    (data, weight), attrs = call.args, call.attrs
    layouts = [str(parse_layout(layout)) for layout in attrs.layouts]
    plain = attrs.plain_layouts
    blocked = any(sorted(layout) != sorted(wanted) for layout, wanted in zip(layouts, plain, strict=True))
    if blocked or attrs.pad_value or attrs.out_dtype is not None:
        raise unsupported(call, f"a convolution in the layouts {', '.join(layouts)} and of {data.dtype!s} numbers")
    x, w, g = [to_layout(*each) for each in zip((data, weight, cotangent), layouts, plain, strict=True)]
    rank = len(attrs.strides)
    window = w.shape[2:]
    if not all(isinstance(size, int) for size in w.shape[1:]):
        raise unsupported(call, f"a convolution with a weight of the shape {format_shape(w.shape)}")
    by_data = spread_by_weight(g, x, w, attrs)
    by_weight = window_products(g, x, attrs, attrs.padding[:rank], [int(size) for size in window])  # type: ignore[arg-type]
    return [
        to_layout(reshaped(by_data, x.shape), plain[0], layouts[0]),
        to_layout(reshaped(by_weight, w.shape), plain[1], layouts[1]),
    ]


def spread_by_weight(g: Expr, x: Expr, w: Expr, attrs: Any) -> Expr:
    """Return the cotangents of the data ``x`` of a convolution with the weight ``w``: those of its result, ``g``,
    spread by the weight, without what falls on the padding. With strides the windows may end before the data do."""
    rank = len(attrs.strides)
    before = attrs.padding[:rank]
    static = all(isinstance(amount, int) for amount in before)
    moves = {"strides": attrs.strides, "dilation": attrs.dilation, "groups": attrs.groups}
    cut = tuple(before) if static else (0,) * rank
    wanted = x.shape[2:]
    spread = call_operator("nn.conv_transpose", g, w, padding=(*cut, *_behind(g, w, attrs, cut, wanted)), **moves)
    return fitted(spread, wanted, (0,) * rank if static else before)


def _behind(g: Expr, w: Expr, attrs: Any, cut: Sequence[int], wanted: Sequence[Dim]) -> list[int]:
    """Return what to crop behind each dimension of a transposed convolution: as much as is known to be too much."""
    found = []
    for n, size in enumerate(wanted):
        reach = (w.shape[2 + n] - 1) * attrs.dilation[n] + 1
        whole = simplify((g.shape[2 + n] - 1) * attrs.strides[n] + reach)
        excess = simplify(whole - cut[n] - size)
        found.append(excess if isinstance(excess, int) else 0)
    return found


def fitted(x: Expr, wanted: Sequence[Dim], begin: Sequence[Dim]) -> Expr:
    """Return the part of the last dimensions of ``x`` from ``begin`` on that has the sizes ``wanted``, with zeros where
    ``x`` ends before."""
    first = x.ndim - len(wanted)
    widths: list[tuple[Dim, Dim]] = [(0, 0)] * first
    for n, (size, start) in enumerate(zip(wanted, begin, strict=True)):
        widths.append((simplify(0 - start), simplify(size + start - x.shape[first + n])))
    if all(dim_equal(width, 0) for pair in widths for width in pair):
        return x
    return calls.pad(x, pad_width=widths)


def window_products(g: Expr, x: Expr, attrs: Any, before: Sequence[Dim], window: Sequence[int]) -> Expr:
    """Return ``sum over n and p of g[n, o, p] * x[n, c, p * stride + i * dilation - before]`` for each output ``o``,
    channel ``c`` of its group, and place ``i`` in the window: ``[o, c, *window]``. It is one matrix product of all
    windows, side by side, with the cotangents (im2col: Chellapilla, Puri and Simard, "High Performance Convolutional
    Neural Networks for Document Processing", 2006)."""
    groups, places = attrs.groups, g.shape[2:]
    channels, outputs = simplify(x.shape[1] // groups), simplify(g.shape[1] // groups)
    rank, count = len(window), math.prod(window)
    items = product([x.shape[0], *places])
    # Channels first: so the windows are rows of a matrix as they are cut, [channels, window, places in all images].
    turned = calls.transpose(x, axes=(1, 0, *range(2, 2 + rank)))
    windows = [calls.expand_dims(part, axis=1) for part in _windows(turned, attrs, before, window, places)]
    columns = calls.concatenate(*windows, axis=1) if count > 1 else windows[0]
    columns = calls.reshape(columns, newshape=(groups, simplify(channels * count), items))
    rows = calls.reshape(g, newshape=(g.shape[0], groups, outputs, *places))
    rows = calls.transpose(rows, axes=(1, 0, *range(3, 3 + rank), 2))
    rows = calls.reshape(rows, newshape=(groups, items, outputs))
    if groups == 1:
        rows, columns = (calls.squeeze(part, axis=0) for part in (rows, columns))
    products = calls.reshape(calls.matmul(columns, rows), newshape=(groups, channels, *window, outputs))
    products = calls.transpose(products, axes=(0, 2 + rank, *range(1, 2 + rank)))
    return calls.reshape(products, newshape=(simplify(outputs * groups), channels, *window))


def _windows(x: Expr, attrs: Any, before: Sequence[Dim], window: Sequence[int], places: Sequence[Dim]) -> list[Expr]:
    """Return for each place in the window, in row-major order, the elements that it is over in all windows."""
    rank = len(window)
    strides, dilation = attrs.strides, attrs.dilation
    reach = [simplify((places[n] - 1) * strides[n] + (window[n] - 1) * dilation[n] + 1) for n in range(rank)]
    padded = fitted(x, reach, [simplify(0 - amount) for amount in before])
    offsets = [[i * distance for i in range(size)] for size, distance in zip(window, dilation, strict=True)]
    return [strided(padded, begin, strides, places) for begin in itertools.product(*offsets)]


def strided(x: Expr, begin: Sequence[int], strides: Sequence[int], places: Sequence[Dim]) -> Expr:
    """Return the elements of the last dimensions at ``begin + i * strides`` for all places ``i``."""
    ends = [
        simplify(first + (count - 1) * stride + 1) for first, stride, count in zip(begin, strides, places, strict=True)
    ]
    axes = tuple(range(x.ndim - len(places), x.ndim))
    found = calls.slice(x, begin=tuple(begin), end=tuple(ends), strides=tuple(strides), axes=axes)
    wanted = (*x.shape[: axes[0]], *places)
    # That a window fits, so that their number is not negative, is known where the number was made.
    return found if shape_equal(found.shape, wanted) else call_operator("match_shape", found, shape=wanted)


@register_gradient("nn.conv_transpose")
def transposed(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Convolve the cotangents with the weight for the data; for the weight, data and cotangents exchange roles."""
    data, weight = call.args
    if any(isinstance(size, int) and size == 0 for size in data.shape):
        return zeros_like(data), zeros_like(weight)
    rank = data.ndim - 2
    attrs = call.attrs.for_rank(rank)
    moves = {"strides": attrs.strides, "dilation": attrs.dilation}
    window = [int(size) for size in weight.shape[2:]]  # type: ignore[arg-type]
    reach = [
        simplify((data.shape[2 + n] - 1) * attrs.strides[n] + (window[n] - 1) * attrs.dilation[n] + 1)
        for n in range(rank)
    ]
    # The cotangents at all places that windows reach: zero where the result was cropped.
    whole = fitted(cotangent, reach, [-cut for cut in attrs.padding[:rank]])
    by_data = call_operator(f"nn.conv{rank}d", whole, weight, groups=attrs.groups, **moves)
    by_weight = window_products(data, whole, attrs, (0,) * rank, window)
    return reshaped(by_data, data.shape), reshaped(by_weight, weight.shape)


@register_gradient("nn.col2im")
def col2im(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Take the windows of the image again, as columns."""
    (data,), attrs = call.args, call.attrs
    op: Any = call.op
    counts, rank = op.windows(attrs), len(attrs.image_shape)
    if any(isinstance(count, int) and count <= 0 for count in counts):
        return (zeros_like(data),)
    widths = [(0, 0), (0, 0), *((attrs.padding[n], attrs.padding[n + rank]) for n in range(rank))]
    room = calls.pad(cotangent, pad_width=widths)
    taken = []
    for place in itertools.product(*map(range, attrs.block_shape)):
        begin = [at * step for at, step in zip(place, attrs.dilation, strict=True)]
        end = [first + (counts[n] - 1) * attrs.strides[n] + 1 for n, first in enumerate(begin)]
        axes = tuple(range(2, 2 + rank))
        part = calls.slice(room, begin=tuple(begin), end=tuple(end), strides=attrs.strides, axes=axes)
        taken.append(reshaped(part, (*part.shape[:2], 1, product(counts))))
    return (reshaped(calls.concatenate(*taken, axis=2), data.shape),)
