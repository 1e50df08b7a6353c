"""Differentiate resizing, which is a product with a matrix along each axis that depends on sizes only."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.dims import Dim
from tilewright.graphir.expr import Call, Expr, const
from tilewright.graphir.gradient import register_gradient, unsupported
from tilewright.graphir.gradients.shapes import scattered
from tilewright.graphir.ops import calls


def _axis(call: Call, number: int) -> tuple[int, int]:
    """Return a resized axis, and its extent before.

    Raises:
        UnsupportedOperatorError: sizes are symbolic, so that the matrix is not known.
    """
    (x,), attrs = call.args, call.attrs
    axis = attrs.axes[number] % x.ndim
    extent = x.shape[axis]
    sizes: Sequence[Dim] = (extent, attrs.size[number], *(attrs.scale[number] if attrs.scale else ()))
    if not isinstance(extent, int) or not all(isinstance(size, int) for size in sizes):
        raise unsupported(call, f"a resize of {extent} elements to {attrs.size[number]}")
    return axis, extent


def _resized(call: Call, number: int, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Resize the first axis of an array as the call does one of its axes."""
    attrs, op = call.attrs, call.op
    given = {"size": (attrs.size[number],), "scale": attrs.scale and (attrs.scale[number],), "axes": (0,)}
    if attrs.roi is not None:
        given["roi"] = (attrs.roi[number], attrs.roi[len(attrs.axes) + number])
    found: np.ndarray[Any, Any] = op.reference([rows], dataclasses.replace(attrs, **given))  # type: ignore[union-attr]
    return found


@register_gradient("nn.resize_axis")
def resize_axis(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Multiply by the transposed matrix, whose columns are what the resize makes of unit vectors."""
    axis, extent = _axis(call, 0)
    unit = np.eye(extent, dtype=call.dtype.numpy)
    matrix = _resized(call, 0, unit) - _resized(call, 0, np.zeros_like(unit))  # without what it puts outside
    last = call.args[0].ndim - 1
    order = (*(n for n in range(last + 1) if n != axis), axis)
    moved = calls.matmul(calls.transpose(cotangent, axes=order), const(matrix))
    return (calls.transpose(moved, axes=tuple(order.index(n) for n in range(last + 1))),)


@register_gradient("nn.resize_nearest")
def resize_nearest(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Add each cotangent to the element that was taken."""
    if call.attrs.coordinate_mode == "tf_crop_and_resize":
        raise unsupported(call, "a resize that crops")
    for number in range(len(call.attrs.axes)):
        axis, extent = _axis(call, number)
        places = _resized(call, number, np.arange(extent, dtype=np.int64))
        cotangent = scattered(cotangent, const(places), extent, axis)
    return (cotangent,)
