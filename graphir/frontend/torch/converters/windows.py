"""Convert operators with windows that slide over space: convolution and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.graphir.dims import Dim, product, simplify
from tilewright.graphir.expr import Expr
from tilewright.graphir.frontend.runtime_sizes import as_number
from tilewright.graphir.frontend.torch.converters.window_places import chosen_of_windows, small_window_places
from tilewright.graphir.frontend.torch.node import Node, axis_places, dtype_of, reshaped, shape_of
from tilewright.graphir.frontend.torch.registry import converter
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import (
    concatenate,
    expand_dims,
    mean,
    multiply,
    pad,
    reshape,
    squeeze,
    take,
    transpose,
)
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import as_expr, maximum

#: The operators that convolve over so many axes.
CONVOLUTIONS = {1: "nn.conv1d", 2: "nn.conv2d", 3: "nn.conv3d"}


def per_axis(value: Any, rank: int) -> tuple[int, ...]:
    """Return a number for each spatial axis, of which PyTorch may state one for all."""
    found = (value,) if isinstance(value, int) else tuple(value)
    return found * rank if len(found) == 1 else found


@converter("aten.convolution.default", "aten._convolution.default")
def convolution(
    node: Node,
    x: Expr,
    weight: Expr,
    bias: Expr | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    *_: Any,
) -> Expr:
    """Convolve, or convolve transposed."""
    if not transposed:
        return convolved(node, x, weight, bias, stride, padding, dilation, groups)
    return _spread(node, x, weight, bias, stride, padding, dilation, output_padding, groups)


@converter(*(f"aten.conv{rank}d.default" for rank in (1, 2, 3)), *(f"aten.conv{rank}d.padding" for rank in (1, 2, 3)))
def convolved(
    node: Node,
    x: Expr,
    weight: Expr,
    bias: Expr | None,
    stride: Sequence[int],
    padding: Any,
    dilation: Sequence[int],
    groups: int,
) -> Expr:
    """Convolve data with or without a batch; padding may be a word."""
    rank = len(shape_of(weight)) - 2
    if rank not in CONVOLUTIONS:
        raise node.unsupported(f"convolution in {rank} dimensions")
    batch = x if len(shape_of(x)) == rank + 2 else expand_dims(x, axis=0)
    steps, distances = per_axis(stride, rank), per_axis(dilation, rank)
    result = get_operator(CONVOLUTIONS[rank])(
        batch,
        weight,
        strides=steps,
        padding=_margins(node, padding, shape_of(weight)[2:], distances),
        dilation=distances,
        groups=groups,
    )
    return _finished(node, result, bias)


def _margins(node: Node, padding: Any, window: Sequence[Dim], dilation: Sequence[int]) -> tuple[int, ...]:
    """Return the padding before each axis and then behind each; ``same`` is that which keeps sizes."""
    rank = len(window)
    if padding == "valid":
        return (0,) * (2 * rank)
    if padding != "same":
        return per_axis(padding, rank) * 2
    if not all(isinstance(size, int) for size in window):
        raise node.unsupported(f"a window of symbolic size {tuple(window)}")
    totals = [(int(size) - 1) * distance for size, distance in zip(window, dilation, strict=True)]  # type: ignore[arg-type]
    return (*(total // 2 for total in totals), *(total - total // 2 for total in totals))


def _finished(node: Node, result: Expr, bias: Expr | None) -> Expr:
    if bias is not None:
        result = get_operator("nn.bias_add")(result, bias, axis=1)
    return result if len(shape_of(result)) == len(node.shape) else squeeze(result, axis=(0,))


@converter("aten.conv_transpose1d.default", "aten.conv_transpose2d.input", "aten.conv_transpose3d.input")
def conv_transpose(
    node: Node,
    x: Expr,
    weight: Expr,
    bias: Expr | None,
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
    dilation: Sequence[int],
) -> Expr:
    """Convolve transposed."""
    return _spread(node, x, weight, bias, stride, padding, dilation, output_padding, groups)


def _spread(
    node: Node,
    x: Expr,
    weight: Expr,
    bias: Expr | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
) -> Expr:
    rank = len(shape_of(weight)) - 2
    batch = x if len(shape_of(x)) == rank + 2 else expand_dims(x, axis=0)
    result = get_operator("nn.conv_transpose")(
        batch,
        weight,
        strides=per_axis(stride, rank),
        padding=per_axis(padding, rank),
        dilation=per_axis(dilation, rank),
        output_padding=per_axis(output_padding, rank),
        groups=groups,
    )
    return _finished(node, result, bias)


# Pooling.


def _batched(x: Expr, rank: int) -> tuple[Expr, int]:
    """Return ``x`` with as many axes before those of space as operators expect, and how many were added."""
    missing = rank + 2 - len(shape_of(x))
    return (expand_dims(x, axis=0, num_newaxis=missing) if missing else x), missing


def _unbatched(x: Expr, added: int) -> Expr:
    return squeeze(x, axis=tuple(range(added))) if added else x


def _pool(name: str, rank: int, x: Expr, **attrs: Any) -> Expr:
    batch, added = _batched(x, rank)
    return _unbatched(get_operator(name)(batch, **_within(shape_of(batch)[2:], attrs)), added)


def _within(sizes: Sequence[Dim], attrs: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of a pool for windows that are no greater than the image and its padding: with
    ``ceil_mode`` PyTorch cuts one off that reaches beyond the end, even if it is the only one; operators refuse it."""
    if not attrs.get("ceil_mode"):
        return attrs
    spread = attrs.get("dilation", (1,) * len(sizes))
    parts = zip(sizes, attrs["pool_size"], attrs["padding"], spread, strict=True)
    windows = (
        min(extent, size + 2 * margin) if isinstance(size, int) and step == 1 else extent
        for size, extent, margin, step in parts
    )
    return {**attrs, "pool_size": tuple(windows)}


def window_of(rank: int, size: Any, stride: Any, padding: Any) -> dict[str, Any]:
    """Return the attributes of an operator for windows of ``rank`` axes: sizes, strides and padding."""
    window = per_axis(size, rank)
    steps = per_axis(stride, rank) if stride not in (None, [], ()) else window
    return {"pool_size": window, "strides": steps, "padding": per_axis(padding, rank)}


_POOLED_RANKS = (1, 2, 3)


def rank_of(node: Node) -> int:
    """Return the number of spatial axes that the overload's name states."""
    return next(rank for rank in _POOLED_RANKS if f"{rank}d" in node.label.partition(" ")[0])


@converter(*(f"aten.max_pool{rank}d.default" for rank in _POOLED_RANKS))
def max_pool(
    node: Node, x: Expr, size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, *_: Any
) -> Expr:
    """Return the greatest element of each window."""
    rank = rank_of(node)
    attrs = {**window_of(rank, size, stride, padding), "dilation": per_axis(dilation, rank), "ceil_mode": ceil_mode}
    return _pool("nn.max_pool2d" if rank == 2 else "nn.max_pool", rank, x, **attrs)


@converter(*(f"aten.max_pool{rank}d_with_indices.default" for rank in _POOLED_RANKS))
def max_pool_with_indices(
    node: Node, x: Expr, size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> list[Expr]:
    """Return the greatest element of each window, and its place in the channel."""
    rank = rank_of(node)
    attrs = {**window_of(rank, size, stride, padding), "dilation": per_axis(dilation, rank), "ceil_mode": ceil_mode}
    batch, added = _batched(x, rank)
    values = _pool("nn.max_pool2d" if rank == 2 else "nn.max_pool", rank, batch, **attrs)
    places = small_window_places(batch, attrs, tuple(shape_of(values)[2:]))
    return [_unbatched(values, added), _places(batch, added, attrs) if places is None else _unbatched(places, added)]


def _places(batch: Expr, added: int, attrs: dict[str, Any]) -> Expr:
    """Return the places of the greatest elements in their channels; the operator counts them in the whole tensor."""
    places = get_operator("nn.max_pool_indices")(batch, **_within(shape_of(batch)[2:], attrs))
    space = squeeze(get_operator("sizes")(values=(product(shape_of(batch)[2:]),)), axis=(0,))
    return _unbatched(get_operator("floor_mod")(places, space), added)


@converter(*(f"aten.avg_pool{rank}d.default" for rank in _POOLED_RANKS))
def avg_pool(
    node: Node,
    x: Expr,
    size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None = None,
) -> Expr:
    """Return the mean of each window, or its sum over a divisor."""
    rank = rank_of(node)
    window = window_of(rank, size, stride, padding)
    name = "nn.avg_pool2d" if rank == 2 else "nn.avg_pool"
    if divisor is None:
        return _pool(name, rank, x, ceil_mode=ceil_mode, count_include_pad=bool(count_include_pad), **window)
    batch, added = _batched(x, rank)
    widths: list[tuple[Dim, Dim]] = [(0, 0), (0, 0)]
    for n, margin in enumerate(per_axis(padding, rank)):
        # With ``ceil_mode`` a last window may stand out.
        reach = (node.shape[n - rank] - 1) * window["strides"][n] + window["pool_size"][n]
        extra = simplify(reach - shape_of(batch)[2 + n] - 2 * margin) if ceil_mode else 0
        widths.append((margin, simplify(margin + maximum(as_expr(extra), 0))))
    wide = pad(batch, pad_width=widths)
    count = 1
    for extent in window["pool_size"]:
        count *= extent
    found = get_operator(name)(wide, pool_size=window["pool_size"], strides=window["strides"])
    return _unbatched(multiply(found, node.tensor(count / divisor)), added)


@converter(*(f"aten.lp_pool{rank}d.default" for rank in (1, 2)))
def lp_pool(node: Node, x: Expr, p: Any, size: Any, stride: Any, ceil_mode: bool) -> Expr:
    """Return the norm of each window."""
    rank = rank_of(node)
    return _pool("nn.lp_pool", rank, x, p=p, ceil_mode=ceil_mode, **window_of(rank, size, stride, 0))


@converter(
    *(f"aten.adaptive_avg_pool{rank}d.default" for rank in _POOLED_RANKS),
    *(f"aten._adaptive_avg_pool{rank}d.default" for rank in _POOLED_RANKS),
)
def adaptive_avg_pool(node: Node, x: Expr, size: Sequence[Dim]) -> Expr:
    """Return the means of so many windows as the result has elements."""
    rank = rank_of(node)
    sizes = (size,) * rank if isinstance(size, int) else tuple(size)
    if all(isinstance(extent, int) and extent == 1 for extent in sizes):
        return mean(x, axis=tuple(range(-rank, 0)), keepdims=True)
    window = _even_windows(x, sizes, rank)
    if window is not None:
        return _pool("nn.avg_pool2d" if rank == 2 else "nn.avg_pool", rank, x, pool_size=window, strides=window)
    return _along_each_axis(node, x, sizes, rank, "mean")


@converter(*(f"aten.adaptive_max_pool{rank}d.default" for rank in _POOLED_RANKS))
def adaptive_max_pool(node: Node, x: Expr, size: Sequence[Dim]) -> list[Expr]:
    """Return the greatest elements of so many windows as the result has elements, and their places."""
    rank = rank_of(node)
    sizes = (size,) * rank if isinstance(size, int) else tuple(size)
    window = _even_windows(x, sizes, rank)
    if window is None:
        return _greatest_of_parts(node, x, sizes, rank)
    attrs = {"pool_size": window, "strides": window}
    values = _pool("nn.max_pool2d" if rank == 2 else "nn.max_pool", rank, x, **attrs)
    batch, added = _batched(x, rank)
    return [values, _places(batch, added, attrs)]


def _greatest_of_parts(node: Node, x: Expr, sizes: Sequence[Dim], rank: int) -> list[Expr]:
    """Return the greatest elements of windows of different sizes, and their places: windows are gathered side by side,
    with the last element of each axis repeated to the size of the largest."""
    before, space = shape_of(x)[:-rank], shape_of(x)[-rank:]
    if any(isinstance(size, int) and size == 0 for size in sizes):
        return [get_operator("zeros")(shape=(*before, *sizes), dtype=dtype) for dtype in (dtype_of(x), INT64)]
    rows = reshape(x, newshape=(*before, product(space)))
    if all(isinstance(size, int) and size == 1 for size in sizes):
        chosen = chosen_of_windows(rows)
        greatest = get_operator("gather_elements")(rows, expand_dims(chosen, axis=-1), axis=-1)
        return [reshape(found, newshape=(*before, *sizes)) for found in (greatest, chosen)]
    inside = _window_places(space, sizes)
    count, length = shape_of(inside)
    windows = take(rows, inside, axis=len(before))
    chosen = chosen_of_windows(windows)
    values = get_operator("gather_elements")(windows, expand_dims(chosen, axis=-1), axis=-1)
    numbers = get_operator("add")(chosen, multiply(axis_places(count), as_number(length)))
    places = take(reshape(inside, newshape=(-1,)), numbers, axis=0)
    return [reshaped(found, (*before, *sizes)) for found in (values, places)]


def _window_places(space: Sequence[Dim], sizes: Sequence[Dim]) -> Expr:
    """Return the places in a channel of the elements of windows that share its axes: a row for each window."""
    result = get_operator("zeros")(shape=(1, 1), dtype=INT64)
    for extent, size in zip(space, sizes, strict=True):
        begin, last = window_bounds(extent, size)
        longest = simplify((extent + size - 1) // size + 1)
        if isinstance(extent, int) and isinstance(size, int):
            longest = max((extent * (n + 1) + size - 1) // size - extent * n // size for n in range(size))
        own = get_operator("minimum")(get_operator("add")(begin, axis_places(longest)), last)
        count, length = shape_of(result)
        rows = multiply(reshape(result, newshape=(count, 1, length, 1)), as_number(extent))
        joined = get_operator("add")(rows, reshape(own, newshape=(size, 1, longest)))
        result = reshape(joined, newshape=(product([count, size]), product([length, longest])))
    return result


def window_bounds(extent: Dim, count: Dim) -> tuple[Expr, Expr]:
    """Return the first and the last place of each of ``count`` windows that share an axis, as columns: window n is from
    ``floor(n * extent / count)`` to ``ceil((n + 1) * extent / count)``."""
    starts = multiply(axis_places(count, 1), as_number(extent))
    ends = get_operator("add")(starts, as_number(simplify(extent - 1)))
    first, last = (get_operator("floor_divide")(each, as_number(count)) for each in (starts, ends))
    return first, last


def _even_windows(x: Expr, sizes: Sequence[Dim], rank: int) -> tuple[int, ...] | None:
    """Return the size of windows that tile the axes of space; None if there is none."""
    found = []
    for extent, size in zip(shape_of(x)[-rank:], sizes, strict=True):
        if not (isinstance(extent, int) and isinstance(size, int) and size and extent and extent % size == 0):
            return None
        found.append(extent // size)
    return tuple(found)


def _along_each_axis(node: Node, x: Expr, sizes: Sequence[Dim], rank: int, name: str) -> Expr:
    """Reduce windows of different sizes, one axis after the other."""
    result = x
    for n, size in enumerate(sizes):
        axis = len(shape_of(x)) - rank + n
        extent = shape_of(x)[axis]
        if not isinstance(size, int):
            raise node.unsupported(f"{size} windows, a number that depends on sizes,")
        parts = []
        for number in range(size):
            begin, end = simplify(extent * number // size), simplify((extent * (number + 1) + size - 1) // size)
            part = get_operator("slice")(result, begin=(begin,), end=(end,), axes=(axis,))
            parts.append(get_operator(name)(part, axis=(axis,), keepdims=True))
        result = concatenate(parts, axis=axis)
    return result


@converter("aten.max_unpool2d.default", "aten.max_unpool3d.default")
def max_unpool(node: Node, x: Expr, indices: Expr, size: Sequence[Dim], *_: Any) -> Expr:
    """Put elements to their places in each channel of zeros."""
    rank = rank_of(node)
    shape = shape_of(x)
    rows = reshape(x, newshape=(*shape[:-rank], -1))
    places = reshape(indices, newshape=(*shape[:-rank], -1))
    empty = get_operator("zeros")(shape=(*shape[:-rank], product(size)), dtype=dtype_of(x))
    found = get_operator("scatter_elements")(empty, places, rows, axis=-1)
    return reshaped(found, node.shape)


@converter("aten.im2col.default")
def im2col(node: Node, x: Expr, size: Sequence[int], dilation: Any, padding: Any, stride: Any) -> Expr:
    """Return the elements of each window as a column."""
    batch, added = _batched(x, 2)
    steps, distances, margins = (per_axis(value, 2) for value in (stride, dilation, padding))
    wide = pad(batch, pad_width=[(0, 0), (0, 0), *((margin, margin) for margin in margins)])
    items, channels, *space = shape_of(wide)
    counts = [
        simplify((extent - (k - 1) * distance - 1) // step + 1)
        for extent, k, distance, step in zip(space, size, distances, steps, strict=True)
    ]
    result = wide
    for n in range(2):
        axis = 2 + 2 * n
        offsets = multiply(axis_places(size[n], 1), distances[n])
        inside = get_operator("add")(offsets, multiply(axis_places(counts[n]), steps[n]))
        result = get_operator("take")(result, inside, axis=axis)
    columns = transpose(result, axes=(0, 1, 2, 4, 3, 5))
    rows = simplify(channels * size[0] * size[1])
    return _unbatched(reshaped(columns, (items, rows, simplify(counts[0] * counts[1]))), added)


@converter("aten.col2im.default")
def col2im(
    node: Node, x: Expr, output_size: Sequence[Dim], size: Sequence[int], dilation: Any, padding: Any, stride: Any
) -> Expr:
    """Add the columns of windows at their places."""
    batch = x if len(shape_of(x)) == 3 else expand_dims(x, axis=0)
    result = get_operator("nn.col2im")(
        batch,
        image_shape=tuple(output_size),
        block_shape=tuple(size),
        strides=per_axis(stride, 2),
        padding=per_axis(padding, 2) * 2,
        dilation=per_axis(dilation, 2),
    )
    return result if len(shape_of(x)) == 3 else squeeze(result, axis=(0,))
