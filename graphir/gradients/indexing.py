"""Differentiate operators that choose elements by indices: cotangents are added at the places of the elements.

An index out of bounds is clamped where elements are gathered, and so it is here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.graphir.base import call_operator
from tilewright.graphir.dims import Dim, product
from tilewright.graphir.expr import Call, Expr
from tilewright.graphir.gradient import register_gradient, unsupported
from tilewright.graphir.gradients.common import masked, reshaped, zeros_like
from tilewright.graphir.gradients.shapes import scattered
from tilewright.graphir.ops import calls


def _within(indices: Expr, extent: Dim) -> Expr:
    """Clamp ``indices`` to the places of an axis; negative ones count from its end."""
    wide = calls.cast(indices, dtype="int64")
    size = _size(extent)
    if indices.dtype.is_int:
        wide = calls.where(wide < 0, wide + size, wide)
    return call_operator("maximum", call_operator("minimum", wide, size - 1), 0)


def _size(extent: Dim) -> Expr:
    return calls.reshape(call_operator("sizes", values=(extent,)), newshape=())


def _is_inside(indices: Expr, extent: Dim) -> Expr:
    """Return where ``indices`` are places of an axis; updates at others are dropped."""
    wide, size = calls.cast(indices, dtype="int64"), _size(extent)
    return call_operator("logical_and", wide < size, wide >= -size if indices.dtype.is_int else wide >= 0)


@register_gradient("take")
def take(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Add each slice at its index."""
    x, indices = call.args
    axis = call.attrs.axis % x.ndim
    count = product(indices.shape)
    rows = reshaped(cotangent, (*x.shape[:axis], count, *x.shape[axis + 1 :]))
    places = reshaped(_within(indices, x.shape[axis]), (count,))
    return scattered(rows, places, x.shape[axis], axis), None


@register_gradient("gather_elements")
def gather_elements(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Add each element at its index."""
    x, indices = call.args
    axis = call.attrs.axis % x.ndim
    places = _within(indices, x.shape[axis])
    return call_operator("scatter_elements", zeros_like(x), places, cotangent, axis=axis, reduction="add"), None


def _columns(indices: Expr) -> list[Expr]:
    """Return the indices of each dimension, which the last axis of ``indices`` holds."""
    depth = indices.shape[-1]
    assert isinstance(depth, int)  # as for every gather and scatter of this kind
    return [calls.slice(indices, begin=(n,), end=(n + 1,), axes=(-1,)) for n in range(depth)]


@register_gradient("gather_nd")
def gather_nd(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Add each element, or slice, at its tuple of indices."""
    x, indices = call.args
    if call.attrs.batch_dims:
        raise unsupported(call, f"{call.attrs.batch_dims} batch dimensions")
    columns = [_within(column, extent) for column, extent in zip(_columns(indices), x.shape, strict=False)]
    places = calls.concatenate(*columns, axis=-1) if columns else indices
    return call_operator("scatter_nd", zeros_like(x), places, cotangent, reduction="add"), None


@register_gradient("reverse_sequence")
def reverse_sequence(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Reverse again."""
    op: Any = call.op
    attrs = call.attrs
    return op(cotangent, call.args[1], batch_axis=attrs.batch_axis, time_axis=attrs.time_axis), None


@register_gradient("scatter_elements")
def scatter_elements(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Gather the cotangents of the updates; those of replaced elements are 0. Updates of one element that replace each
    other all get its cotangent."""
    x, indices, updates = call.args
    attrs = call.attrs
    if attrs.reduction not in ("none", "add"):
        raise unsupported(call, f"the reduction {attrs.reduction}")
    by_x = cotangent
    if attrs.reduction == "none":
        by_x = call_operator("scatter_elements", cotangent, indices, zeros_like(updates), axis=attrs.axis)
    gathered = call_operator("gather_elements", cotangent, indices, axis=attrs.axis)
    return by_x, None, masked(_is_inside(indices, x.shape[attrs.axis]), gathered)


@register_gradient("scatter_nd")
def scatter_nd(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Gather the cotangents of the updates; those of replaced elements are 0. Updates of one element that replace each
    other all get its cotangent."""
    x, indices, updates = call.args
    if call.attrs.reduction not in ("none", "add"):
        raise unsupported(call, f"the reduction {call.attrs.reduction}")
    by_x = cotangent
    if call.attrs.reduction == "none":
        by_x = call_operator("scatter_nd", cotangent, indices, zeros_like(updates))
    gathered = call_operator("gather_nd", cotangent, indices)
    for column, extent in zip(_columns(indices), x.shape, strict=False):
        inside = calls.squeeze(_is_inside(column, extent), axis=-1)
        behind = gathered.ndim - inside.ndim
        inside = calls.expand_dims(inside, axis=inside.ndim, num_newaxis=behind) if behind else inside
        gathered = masked(inside, gathered)
    return by_x, None, gathered


@register_gradient("tensor_scatter")
def tensor_scatter(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Take the cotangents of the updates from where they were written; those of replaced elements are 0."""
    x, update, starts = call.args
    op: Any = call.op
    axis = call.attrs.axis % x.ndim
    by_x = op(cotangent, zeros_like(update), starts, axis=axis, mode=call.attrs.mode)
    numbers = call_operator("arange", start=0, stop=update.shape[axis], step=1, dtype="int64")
    places = calls.expand_dims(calls.cast(starts, dtype="int64"), axis=1) + numbers
    if call.attrs.mode == "circular":
        places = call_operator("floor_mod", places, _size(x.shape[axis]))
    shape = tuple(dim if n in (0, axis) else 1 for n, dim in enumerate(update.shape))
    spread = calls.broadcast_to(reshaped(places, shape), shape=update.shape)
    inside = call_operator("logical_and", spread >= 0, spread < _size(x.shape[axis]))
    gathered = call_operator("gather_elements", cotangent, _within(spread, x.shape[axis]), axis=axis)
    return by_x, masked(inside, gathered), None
