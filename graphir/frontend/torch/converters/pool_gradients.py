"""Convert backward passes of pooling: each gradient is spread over the window that it comes from."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.graphir.dims import Dim, product, simplify
from tilewright.graphir.expr import Expr, const
from tilewright.graphir.frontend.torch.converters.axis_maps import along
from tilewright.graphir.frontend.torch.converters.windows import rank_of, window_bounds, window_of
from tilewright.graphir.frontend.torch.node import Node, axis_places, cast_to, dtype_of, reshaped, shape_of
from tilewright.graphir.frontend.torch.registry import converter
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import multiply, pad, reshape, where
from tilewright.tensorir.dtype import DataType


@converter(
    *(f"aten.max_pool{rank}d_with_indices_backward.default" for rank in (2, 3)),
    *(f"aten.adaptive_max_pool{rank}d_backward.default" for rank in (2, 3)),
    *(f"aten.fractional_max_pool{rank}d_backward.default" for rank in (2, 3)),
)
def max_pool_backward(node: Node, grad: Expr, x: Expr, *options: Any) -> Expr:
    """Add each gradient at the place that its window's greatest element has in the channel."""
    indices = options[-1]
    rank = rank_of(node)
    shape = shape_of(x)
    before, space = shape[:-rank], product(shape[-rank:])
    empty = get_operator("zeros")(shape=(*before, space), dtype=dtype_of(x))
    rows, places = (reshape(each, newshape=(*before, product(shape_of(each)[-rank:]))) for each in (grad, indices))
    return reshaped(get_operator("scatter_elements")(empty, places, rows, axis=-1, reduction="add"), shape)


@converter("aten.avg_pool2d_backward.default", "aten.avg_pool3d_backward.default")
def avg_pool_backward(
    node: Node,
    grad: Expr,
    x: Expr,
    size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> Expr:
    """Spread each gradient evenly over its window: a transposed convolution by ones."""
    rank = rank_of(node)
    window = window_of(rank, size, stride, padding)
    extents, steps, margins = window["pool_size"], window["strides"], window["padding"]
    shape, results = shape_of(x)[-rank:], shape_of(grad)[-rank:]
    dtype = dtype_of(x)
    if divisor is not None:
        scaled = multiply(grad, node.tensor(1 / divisor))
    elif ceil_mode or (any(margins) and not count_include_pad):
        if not all(isinstance(dim, int) for dim in (*shape, *results)):
            raise node.unsupported(f"windows of different sizes over symbolic sizes {shape}")
        counts = np.ones((1,) * rank)
        for n in range(rank):
            margin = margins[n] if count_include_pad else 0
            counts = counts * _counts(shape[n], results[n], extents[n], steps[n], margins[n], margin, n, rank)
        scaled = multiply(grad, const((1 / counts).astype(dtype.numpy)))
    else:
        scaled = multiply(grad, node.tensor(1 / float(np.prod(extents))))
    rows = reshape(scaled, newshape=(-1, 1, *results))
    ones = get_operator("full")(shape=(1, 1, *extents), fill=1.0, dtype=dtype)
    made = get_operator("nn.conv_transpose")(rows, ones, strides=steps, padding=(0,) * rank)
    widths: list[tuple[Dim, Dim]] = [(0, 0), (0, 0)]
    for n, margin in enumerate(margins):
        widths.append((-margin, simplify(shape[n] - shape_of(made)[2 + n] + margin)))
    return reshaped(pad(made, pad_width=widths), shape_of(x))


def _counts(
    size: Any, count: Any, extent: int, step: int, padding: int, counted: int, axis: int, rank: int
) -> np.ndarray[Any, Any]:
    """Return how many elements of an axis, and of ``counted`` at each of its ends, each window has; the axis is one of
    ``rank``."""
    begin = np.arange(count) * step - padding
    end = np.minimum(begin + extent, size + padding)
    inside = np.minimum(end, size + counted) - np.maximum(begin, -counted)
    return np.asarray(inside).reshape([-1 if n == axis else 1 for n in range(rank)])


@converter("aten._adaptive_avg_pool2d_backward.default", "aten._adaptive_avg_pool3d_backward.default")
def adaptive_avg_pool_backward(node: Node, grad: Expr, x: Expr) -> Expr:
    """Spread each gradient evenly over its window, one axis after the other: a product with a matrix of parts."""
    rank = rank_of(node)
    result = grad
    for n in range(-rank, 0):
        result = along(result, n, _parts(shape_of(x)[n], shape_of(grad)[n], dtype_of(x)))
    return result


def _parts(size: Dim, count: Dim, dtype: DataType) -> np.ndarray[Any, Any] | Expr:
    """Return for each of ``count`` windows over ``size`` elements the part of its mean that each element has."""
    if isinstance(size, int) and isinstance(count, int):
        numbers = np.arange(count)
        begin, end = numbers * size // count, -(-(numbers + 1) * size // count)
        places = np.arange(size)
        inside = (places >= begin[:, None]) & (places < end[:, None])
        return inside / (end - begin)[:, None]
    first, last = window_bounds(size, count)
    own = axis_places(size)
    within = get_operator("logical_and")(get_operator("less_equal")(first, own), get_operator("less_equal")(own, last))
    lengths = cast_to(get_operator("add")(get_operator("subtract")(last, first), 1), dtype)
    return where(within, get_operator("divide")(1.0, lengths), 0.0)
