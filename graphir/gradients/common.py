"""Share code among gradients: undo broadcasting and reductions, and count elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.graphir.base import call_operator
from tilewright.graphir.dims import Dim, dim_equal, format_shape, product, shape_equal
from tilewright.graphir.expr import Expr
from tilewright.graphir.ops import calls
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.errors import UnsupportedOperatorError


def collapse(cotangent: Expr, like: Expr) -> Expr:
    """Sum ``cotangent`` over the axes along which ``like`` was broadcast to its shape (Relay's ``collapse_sum_like``):
    the cotangent of an argument that NumPy's rule broadcast.

    Raises:
        UnsupportedOperatorError: a dimension of ``like`` may be 1 or not, which is known only when a model runs.
    """
    extra = cotangent.ndim - like.ndim
    added = tuple(range(extra))
    repeated = []
    for axis, dim in enumerate(like.shape):
        whole = cotangent.shape[extra + axis]
        if dim_equal(dim, whole):
            continue
        if not (isinstance(dim, int) and dim == 1):
            raise UnsupportedOperatorError(
                f"no gradient of a broadcast from {format_shape(like.shape)} to {format_shape(cotangent.shape)}: it is "
                f"not known whether dimension {axis} is 1"
            )
        repeated.append(extra + axis)
    if repeated:
        cotangent = calls.sum(cotangent, axis=tuple(repeated), keepdims=True)
    return calls.sum(cotangent, axis=added) if added else cotangent


def spread(reduced: Expr, like: Expr, axes: Sequence[int], keepdims: bool) -> Expr:
    """Broadcast the result of a reduction of ``like`` over ``axes``, or its cotangent, to the shape of ``like``."""
    if reduced.ndim:
        reduced = with_axes(reduced, axes, keepdims)
    return calls.broadcast_to(reduced, shape=like.shape)


def with_axes(reduced: Expr, axes: Sequence[int], keepdims: bool) -> Expr:
    """Return the result of a reduction over ``axes`` with these axes, of extent 1."""
    return reduced if keepdims or not axes else calls.expand_dims(reduced, axis=tuple(axes))


def along(vector: Expr, ndim: int, axis: int) -> Expr:
    """Append axes to ``vector``, so that it broadcasts along ``axis`` of a tensor with ``ndim`` dimensions."""
    behind = ndim - 1 - axis % ndim
    return calls.expand_dims(vector, axis=1, num_newaxis=behind) if behind else vector


def channel_sum(cotangent: Expr, axis: int) -> Expr:
    """Sum over all axes but ``axis``: the cotangent of a vector that was broadcast along it. The axes stay until the
    sum is made, so that it can be made in a layout with blocks of channels."""
    others = tuple(n for n in range(cotangent.ndim) if n != axis % cotangent.ndim)
    if not others:
        return cotangent
    return calls.reshape(calls.sum(cotangent, axis=others, keepdims=True), newshape=(cotangent.shape[axis],))


def count_of(dims: Sequence[Dim], dtype: DataType, less: int = 0) -> Any:
    """Return the product of ``dims``, less ``less``, as a factor of tensors of ``dtype``: a number, or a scalar
    expression if it is known only when the model runs."""
    count = product(dims)
    if isinstance(count, int):
        return float(count - less)
    return calls.cast(calls.reshape(call_operator("sizes", values=(count - less,)), newshape=()), dtype=dtype)


def zeros_like(x: Expr) -> Expr:
    """Return zeros of the type of ``x``, which does not need to be computed."""
    return call_operator("zeros", shape=x.shape, dtype=x.dtype)


def masked(condition: Expr, cotangent: Expr) -> Expr:
    """Return ``cotangent`` where ``condition`` holds, else 0."""
    return calls.where(condition, cotangent, 0.0)


def reshaped(x: Expr, shape: Sequence[Dim]) -> Expr:
    """Return ``x`` under ``shape``; itself if it has that."""
    return x if shape_equal(x.shape, shape) else calls.reshape(x, newshape=tuple(shape))


def field(cotangent: Expr, number: int) -> Expr:
    """Return the cotangent of field ``number`` of a tuple."""
    found: Expr = cotangent[number]
    return found
