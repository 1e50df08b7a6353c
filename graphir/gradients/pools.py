"""Differentiate pooling, and normalization of neighbours."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.base import call_operator
from tilewright.graphir.dims import product, simplify
from tilewright.graphir.expr import Call, Expr, const
from tilewright.graphir.gradient import register_composition, register_gradient, unsupported
from tilewright.graphir.gradients.common import count_of, reshaped
from tilewright.graphir.gradients.convolutions import fitted, strided, to_layout
from tilewright.graphir.layout import parse_layout
from tilewright.graphir.ops import calls
from tilewright.graphir.ops.common import compute_type


def _layouts(call: Call, rank: int) -> tuple[str, str]:
    """Return the layout of the data, and that with channels before space.

    Raises:
        UnsupportedOperatorError: it has blocks.
    """
    plain = "NC" + "XYZ"[:rank]
    given = getattr(call.attrs, "layout", "")
    if not given:
        return plain, plain
    plain = f"NC{'DHW'[-rank:]}"
    if sorted(str(parse_layout(given))) != sorted(plain):
        raise unsupported(call, f"a tensor in layout {given}")
    return given, plain


@register_gradient("nn.max_pool2d", "nn.max_pool")
def max_pool(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Give each cotangent to the first of the greatest elements of its window (as PyTorch)."""
    (data,), attrs = call.args, call.attrs
    rank = len(attrs.pool_size)
    layout, plain = _layouts(call, rank)
    x, g = (to_layout(part, layout, plain) for part in (data, cotangent))
    if (
        attrs.strides == attrs.pool_size
        and not any(attrs.padding)
        and set(attrs.dilation) == {1}
        and not attrs.ceil_mode
    ):
        return (to_layout(_without_overlap(x, to_layout(call, layout, plain), g, attrs.pool_size), plain, layout),)
    indices = call_operator(
        "nn.max_pool_indices",
        x,
        pool_size=attrs.pool_size,
        strides=attrs.strides,
        padding=attrs.padding,
        dilation=attrs.dilation,
        ceil_mode=attrs.ceil_mode,
    )
    space = product(x.shape[2:])
    size = calls.reshape(call_operator("sizes", values=(space,)), newshape=())
    places = call_operator("floor_mod", indices, space if isinstance(space, int) else size)
    before, count = x.shape[:2], product(g.shape[2:])
    rows, places = (calls.reshape(part, newshape=(*before, count)) for part in (g, places))
    empty = call_operator("zeros", shape=(*before, space), dtype=x.dtype)
    found = call_operator("scatter_elements", empty, places, rows, axis=2, reduction="add")
    return (to_layout(reshaped(found, x.shape), plain, layout),)


def _without_overlap(x: Expr, y: Expr, g: Expr, window: Sequence[int]) -> Expr:
    """Return the cotangents of ``x``, whose windows do not overlap and have the greatest elements ``y``: elementwise,
    for each place in the windows, and then put side by side."""
    rank = len(window)
    places = y.shape[2:]
    parts: list[Expr] = []
    left: Expr | None = None  # the windows whose greatest element is not found yet
    for begin in itertools.product(*map(range, window)):
        element = strided(x, begin, window, places)
        wins = call_operator("logical_or", element.equal(y), call_operator("isnan", element))
        first = wins if left is None else call_operator("logical_and", wins, left)
        parts.append(calls.expand_dims(calls.where(first, g, 0.0), axis=2))
        others = calls.logical_not(wins)
        left = others if left is None else call_operator("logical_and", left, others)
    apart = calls.concatenate(*parts, axis=2) if len(parts) > 1 else parts[0]
    apart = calls.reshape(apart, newshape=(*x.shape[:2], *window, *places))
    order = [axis for n in range(rank) for axis in (2 + rank + n, 2 + n)]
    whole = [simplify(count * size) for count, size in zip(places, window, strict=True)]
    together = calls.reshape(calls.transpose(apart, axes=(0, 1, *order)), newshape=(*x.shape[:2], *whole))
    return fitted(together, x.shape[2:], (0,) * rank)


@register_gradient("nn.avg_pool2d", "nn.avg_pool")
def avg_pool(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Give each element of a window its share of the mean's cotangent: a transposed convolution with ones."""
    (data,), attrs = call.args, call.attrs
    rank = len(attrs.pool_size)
    layout, plain = _layouts(call, rank)
    x, g = (to_layout(part, layout, plain) for part in (data, cotangent))
    if rank > 3 or not all(isinstance(amount, int) for amount in attrs.padding):
        raise unsupported(call, f"windows over {rank} dimensions with the padding {attrs.padding}")
    g = g / _counts(x, g, attrs)
    flat = calls.reshape(g, newshape=(product(g.shape[:2]), 1, *g.shape[2:]))
    weight = const(np.ones((1, 1, *attrs.pool_size), x.dtype.numpy))
    moves = {"strides": attrs.strides, "dilation": attrs.dilation}
    spread = call_operator("nn.conv_transpose", flat, weight, **moves)
    fit = fitted(spread, x.shape[2:], attrs.padding[:rank])
    return (to_layout(calls.reshape(fit, newshape=x.shape), plain, layout),)


def _counts(x: Expr, g: Expr, attrs: Any) -> Any:
    """Return how many elements of its window each mean is over: a number if all windows are full, else a tensor of sums
    of ones, for which no element is needed."""
    rank = len(attrs.pool_size)
    if not attrs.ceil_mode and (attrs.count_include_pad or not any(attrs.padding)):
        return float(np.prod(attrs.pool_size))
    before, behind = attrs.padding[:rank], attrs.padding[rank:]
    space, padding = list(x.shape[2:]), attrs.padding
    if attrs.count_include_pad:
        space, padding = [simplify(size + before[n] + behind[n]) for n, size in enumerate(space)], 0
    moves = {"strides": attrs.strides, "dilation": attrs.dilation, "ceil_mode": attrs.ceil_mode}
    ones = call_operator("ones", shape=(1, 1, *space), dtype=x.dtype)
    counts = call_operator("nn.lp_pool", ones, pool_size=attrs.pool_size, padding=padding, p=1, **moves)
    return fitted(counts, g.shape[2:], (0,) * rank)  # one more window may start in padding that counts


@register_gradient("nn.global_avg_pool2d")
def global_avg_pool2d(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Give each pixel its share of the mean's cotangent."""
    (data,) = call.args
    op: Any = call.op
    count = count_of([data.shape[axis] for axis in op.spatial(call.attrs)], data.dtype)
    return (calls.broadcast_to(cotangent / count, shape=data.shape),)


@register_composition("nn.global_max_pool2d")
def global_max_pool2d(call: Call) -> Expr:
    """Reduce over space."""
    op: Any = call.op
    return calls.max(call.args[0], axis=op.spatial(call.attrs), keepdims=True)


@register_composition("nn.lp_pool")
def lp_pool(call: Call) -> Expr:
    """Sum powers as convolution with ones does, and take the root."""
    (data,), attrs = call.args, call.attrs
    rank = len(attrs.pool_size)
    layout, plain = _layouts(call, rank)
    if rank > 3 or attrs.ceil_mode:
        raise unsupported(call, f"windows over {rank} dimensions" + (" with ceil_mode" if attrs.ceil_mode else ""))
    x = to_layout(data, layout, plain)
    size = call_operator("abs", x)
    powers = size if attrs.p == 1 else call_operator("power", size, float(attrs.p))
    flat = calls.reshape(powers, newshape=(product(x.shape[:2]), 1, *x.shape[2:]))
    weight = const(np.ones((1, 1, *attrs.pool_size), x.dtype.numpy))
    moves = {"strides": attrs.strides, "padding": attrs.padding, "dilation": attrs.dilation}
    total = call_operator(f"nn.conv{rank}d", flat, weight, **moves)
    total = calls.reshape(total, newshape=(*x.shape[:2], *total.shape[2:]))
    empty = total.equal(0.0)  # where the root has no derivative
    root = total if attrs.p == 1 else call_operator("power", calls.where(empty, 1.0, total), 1 / attrs.p)
    return to_layout(calls.where(empty, 0.0, root), plain, layout)


@register_composition("nn.lrn")
def lrn(call: Call) -> Expr:
    """Sum the squares of neighbours as slices of the padded squares."""
    (data,), attrs = call.args, call.attrs
    axis = attrs.axis % data.ndim
    wide = calls.cast(data, dtype=compute_type(data.dtype))
    before = (attrs.size - 1) // 2
    widths = [(before, attrs.size - 1 - before) if n == axis else (0, 0) for n in range(data.ndim)]
    squares = calls.pad(calls.square(wide), pad_width=widths)
    total: Expr | None = None
    for first in range(attrs.size):
        end = simplify(data.shape[axis] + first)
        part = calls.slice(squares, begin=(first,), end=(end,), axes=(axis,))
        total = part if total is None else total + part
    assert total is not None
    size = total * (attrs.alpha / attrs.size) + attrs.bias
    return calls.cast(wide / call_operator("power", size, attrs.beta), dtype=data.dtype)
