"""Differentiate operators that move, repeat, join or drop elements: cotangents go back to where the elements came
from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.base import call_operator
from tilewright.graphir.dims import Dim, dim_equal, simplify
from tilewright.graphir.expr import Call, Expr, const
from tilewright.graphir.gradient import register_gradient, unsupported
from tilewright.graphir.gradients.common import collapse, reshaped, zeros_like
from tilewright.graphir.ops import calls


@register_gradient("reshape", "expand_dims", "squeeze", "nn.batch_flatten", "match_shape")
def reshape(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Give the cotangents the argument's shape."""
    shape = call.args[0].shape
    if len(cotangent.shape) == len(shape) and call.op.name == "match_shape":  # type: ignore[union-attr]
        return (call_operator("match_shape", cotangent, shape=shape),)
    return (reshaped(cotangent, shape),)


@register_gradient("transpose")
def transpose(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Permute the axes back."""
    op: Any = call.op
    order = op.order(call.args[0].ndim, call.attrs)
    return (calls.transpose(cotangent, axes=tuple(order.index(axis) for axis in range(len(order)))),)


@register_gradient("flip")
def flip(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Reverse again."""
    return (call_operator("flip", cotangent, axis=call.attrs.axis),)


@register_gradient("broadcast_to")
def broadcast_to(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Sum over the copies."""
    return (collapse(cotangent, call.args[0]),)


@register_gradient("tile")
def tile(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Sum over the copies of the whole."""
    (x,), reps = call.args, call.attrs.reps
    ndim = len(cotangent.shape)
    counts: list[Dim] = [*[1] * (ndim - len(reps)), *reps]
    sizes: list[Dim] = [*[1] * (ndim - x.ndim), *x.shape]
    apart = [dim for pair in zip(counts, sizes, strict=True) for dim in pair]
    total = calls.sum(calls.reshape(cotangent, newshape=tuple(apart)), axis=tuple(range(0, 2 * ndim, 2)))
    return (reshaped(total, x.shape),)


@register_gradient("repeat")
def repeat(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Sum over the copies of each element."""
    (x,), attrs = call.args, call.attrs
    axis = attrs.axis % x.ndim
    shape = (*x.shape[: axis + 1], attrs.repeats, *x.shape[axis + 1 :])
    return (calls.sum(calls.reshape(cotangent, newshape=shape), axis=axis + 1),)


@register_gradient("concatenate")
def concatenate(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Cut the cotangents into the parts."""
    axis = call.attrs.axis % cotangent.ndim
    found: list[Expr | None] = []
    start: Dim = 0
    for arg in call.args:
        end = simplify(start + arg.shape[axis])
        found.append(calls.slice(cotangent, begin=(start,), end=(end,), axes=(axis,)))
        start = end
    return found


@register_gradient("slice")
def slice(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Put the cotangents at the places of the slice, with zeros around them and, for strides, between them."""
    op: Any = call.op
    (x,) = call.args
    ranges = op.ranges(x.shape, call.attrs)
    backwards = tuple(axis for axis, (_, _, stride) in enumerate(ranges) if stride < 0)
    if backwards:
        cotangent = call_operator("flip", cotangent, axis=backwards)
    widths: list[tuple[Dim, Dim]] = []
    strides = []
    for (first, count, stride), extent in zip(ranges, x.shape, strict=True):
        if isinstance(count, int) and count == 0:
            return (zeros_like(x),)
        if abs(stride) > 1 and not isinstance(count, int):
            raise unsupported(call, f"a slice in steps of {stride} with {count} elements")
        reach = (count - 1) * abs(stride)
        before = first if stride > 0 else simplify(first - reach)
        strides.append(abs(stride))
        widths.append((before, simplify(extent - before - reach - 1)))
    if any(stride > 1 for stride in strides):
        cotangent = call_operator("nn.dilate", cotangent, strides=tuple(strides))
    if all(dim_equal(width, 0) for pair in widths for width in pair):
        return (cotangent,)
    return (calls.pad(cotangent, pad_width=widths),)


@register_gradient("nn.dilate")
def dilate(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Take every ``stride``-th cotangent; elements that padding cropped get zero."""
    (x,), attrs = call.args, call.attrs
    rank = len(attrs.strides)
    first = x.ndim - rank
    uncropped = [(0, 0)] * first + [(-attrs.padding[n], -attrs.padding[n + rank]) for n in range(rank)]
    if any(width for pair in uncropped for width in pair):
        cotangent = calls.pad(cotangent, pad_width=uncropped)
    if any(stride > 1 for stride in attrs.strides):
        axes = tuple(range(first, x.ndim))
        cotangent = calls.slice(
            cotangent, begin=(0,) * rank, end=(None,) * rank, strides=tuple(attrs.strides), axes=axes
        )
    return (reshaped(cotangent, x.shape),)


@register_gradient("pad")
def pad(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Take the padding off; what repeats elements adds its cotangents to theirs."""
    (x,), attrs = call.args, call.attrs
    if attrs.mode == "constant":
        widths = [(0 - before, 0 - behind) for before, behind in attrs.pad_width]
        return (calls.pad(cotangent, pad_width=widths),)
    for axis, (extent, width) in enumerate(zip(x.shape, attrs.pad_width, strict=True)):
        if not all(isinstance(number, int) for number in (extent, *width)):
            raise unsupported(call, f"a padding of {width[0]} and {width[1]} elements in mode {attrs.mode}")
        if not any(width):
            continue
        before, behind = (int(number) for number in width)
        places = np.arange(int(extent))  # type: ignore[arg-type]  # it is an integer
        kept = places[max(-before, 0) : extent - max(-behind, 0)]
        source = np.pad(kept, (max(before, 0), max(behind, 0)), mode=attrs.mode)
        cotangent = scattered(cotangent, const(source), extent, axis)
    return (cotangent,)


def scattered(updates: Expr, indices: Expr, extent: Dim, axis: int) -> Expr:
    """Add the slices of ``updates`` along ``axis`` to slices of zeros, at the places ``indices``, a vector: the
    transpose of taking them."""
    order = (axis, *(n for n in range(updates.ndim) if n != axis))
    moved = calls.transpose(updates, axes=order)
    empty = call_operator("zeros", shape=(extent, *moved.shape[1:]), dtype=updates.dtype)
    rows = call_operator("scatter_nd", empty, calls.expand_dims(indices, axis=1), moved, reduction="add")
    return calls.transpose(rows, axes=tuple(order.index(n) for n in range(updates.ndim)))


@register_gradient("tril", "triu")
def triangle(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Keep the cotangents of the triangle."""
    _x, *k = call.args
    op: Any = call.op
    return (op(cotangent, *k), *[None] * len(k))


@register_gradient("diagonal")
def diagonal(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Put the cotangents on the diagonal, and zeros beside it."""
    (x,), attrs = call.args, call.attrs
    axes = (attrs.axis1 % x.ndim, attrs.axis2 % x.ndim)
    order = (*(n for n in range(x.ndim) if n not in axes), *axes)
    size = cotangent.shape[-1]
    on = calls.expand_dims(call_operator("arange", size), axis=1).equal(call_operator("arange", size))
    moved = calls.where(on, calls.expand_dims(cotangent, axis=-1), 0.0)
    return (calls.transpose(moved, axes=tuple(order.index(n) for n in range(x.ndim))),)
