"""Convert operators that are linear along each axis: backward passes of resizing and of padding by edges.

Such an operator multiplies each axis by a matrix; its gradient multiplies by the transposed one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from tilewright.graphir.dims import Dim
from tilewright.graphir.expr import Expr, const
from tilewright.graphir.frontend.torch.converters.windows import rank_of
from tilewright.graphir.frontend.torch.node import Node, dtype_of, shape_of
from tilewright.graphir.frontend.torch.registry import converter
from tilewright.graphir.ops.calls import matmul, transpose

Array = np.ndarray[Any, Any]


def along(x: Expr, axis: int, matrix: Array | Expr) -> Expr:
    """Multiply an axis, counted from the end, by a matrix: its rows are the elements of the axis."""
    axes = list(range(len(shape_of(x))))
    axes[axis], axes[-1] = axes[-1], axes[axis]
    factor = matrix
    if not isinstance(factor, Expr):
        factor = const(np.ascontiguousarray(factor).astype(dtype_of(x).numpy))
    if axis == -1:
        return matmul(x, factor)
    return transpose(matmul(transpose(x, axes=tuple(axes)), factor), axes=tuple(axes))


def _extents(node: Node, sizes: Sequence[Dim]) -> list[int]:
    if not all(isinstance(size, int) for size in sizes):
        raise node.unsupported(f"a gradient of symbolic sizes {tuple(sizes)}")
    return [int(size) for size in sizes]  # type: ignore[arg-type]


@converter(*(f"aten.replication_pad{rank}d_backward.default" for rank in (1, 2, 3)))
def replication_pad_backward(node: Node, grad: Expr, x: Expr, padding: Sequence[int]) -> Expr:
    """Add the gradients of what was added at an edge to that of the edge; padding is of the last axis first."""
    result = grad
    for number, axis in enumerate(range(-1, -rank_of(node) - 1, -1)):
        before = int(node.number(padding[2 * number], "padding"))
        size, count = _extents(node, (shape_of(x)[axis], shape_of(grad)[axis]))
        places = np.clip(np.arange(count) - before, 0, size - 1)
        result = along(result, axis, np.eye(size)[places])
    return result


#: The overloads that resize one axis, by what the name of the backward pass says.
_RESIZES = {
    "linear": torch.ops.aten.upsample_linear1d.default,
    "nearest": torch.ops.aten.upsample_nearest1d.default,
    "exact": torch.ops.aten._upsample_nearest_exact1d.default,
}
#: Those that PyTorch has for two axes only.
_PLANE_RESIZES = {
    "aten.upsample_bicubic2d": torch.ops.aten.upsample_bicubic2d.default,
    "aten._upsample_bilinear2d_aa": torch.ops.aten._upsample_bilinear2d_aa.default,
    "aten._upsample_bicubic2d_aa": torch.ops.aten._upsample_bicubic2d_aa.default,
}


@converter(
    "aten.upsample_linear1d_backward.default",
    "aten.upsample_bilinear2d_backward.default",
    "aten.upsample_trilinear3d_backward.default",
    "aten.upsample_bicubic2d_backward.default",
    "aten._upsample_bilinear2d_aa_backward.default",
    "aten._upsample_bicubic2d_aa_backward.default",
)
def resize_backward(
    node: Node, grad: Expr, size: Sequence[Dim], input_size: Sequence[Dim], align_corners: bool, *scales: Any
) -> Expr:
    """Return the gradient of a resize that weighs neighbours."""
    overload = node.label.partition("_backward")[0]
    kind = overload if overload in _PLANE_RESIZES else "linear"
    return _resized_back(node, grad, kind, size, input_size, scales, bool(align_corners))


@converter(
    *(f"aten.upsample_nearest{rank}d_backward.default" for rank in (1, 2, 3)),
    *(f"aten._upsample_nearest_exact{rank}d_backward.default" for rank in (1, 2, 3)),
)
def nearest_backward(node: Node, grad: Expr, size: Sequence[Dim], input_size: Sequence[Dim], *scales: Any) -> Expr:
    """Return the gradient of a resize that repeats elements."""
    kind = "exact" if "exact" in node.label else "nearest"
    return _resized_back(node, grad, kind, size, input_size, scales)


def resized_plane(node: Node, x: Expr, overload: str, align_corners: bool, scales: Sequence[Any] | None) -> Expr:
    """Resize height and width to the result's sizes as ``overload`` does, such as ``aten._upsample_bilinear2d_aa``."""
    extents, counts = _extents(node, shape_of(x)[-2:]), _extents(node, node.shape[-2:])
    for number in range(2):
        scale = None if scales is None else scales[number]
        matrix = _weights(overload, extents[number], counts[number], scale, align_corners)
        x = along(x, number - 2, matrix.T)
    return x


def _resized_back(
    node: Node,
    grad: Expr,
    kind: str,
    size: Sequence[Dim],
    input_size: Sequence[Dim],
    scales: Sequence[Any],
    *options: bool,
) -> Expr:
    rank = rank_of(node)
    counts, extents = _extents(node, size), _extents(node, input_size[-rank:])
    result = grad
    for number in range(rank):
        scale = scales[number] if number < len(scales) else None
        matrix = _weights(kind, extents[number], counts[number], scale, *options)
        result = along(result, number - rank, matrix)
    return result


def _weights(kind: str, extent: int, count: int, scale: float | None, *options: bool) -> Array:
    """Return the matrix by which PyTorch resizes an axis of ``extent`` to ``count`` elements, a row for each of these:
    what it makes of unit vectors."""
    with unset_fake_temporarily():  # PyTorch compiles graphs under a mode in which tensors have no elements
        units = torch.eye(extent, dtype=torch.float64)
        if kind in _PLANE_RESIZES:
            made = _PLANE_RESIZES[kind](units.reshape(1, 1, extent, extent), [count, extent], *options, scale, 1.0)
            return np.asarray(made.reshape(count, extent))
        made = _RESIZES[kind](units.reshape(1, extent, extent), [count], *options, scale)
        return np.asarray(made.reshape(extent, count).T)
