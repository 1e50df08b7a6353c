"""Convert operators that move elements without computing with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.graphir.dims import Dim, dim_equal, never_negative, simplify
from tilewright.graphir.expr import Expr
from tilewright.graphir.frontend.runtime_sizes import as_number
from tilewright.graphir.frontend.torch.node import Node, axis_places, dtype_of, reshaped, shape_of, with_shape
from tilewright.graphir.frontend.torch.registry import converter
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import add, concatenate, multiply, reshape, take, transpose
from tilewright.tensorir.expr import Expr as Scalar
from tilewright.tensorir.expr import as_expr, maximum, select

#: The least end of a slice that means "up to the end": PyTorch writes the greatest int64.
_FAR = 2**62


@converter(
    *("aten.view.default", "aten.reshape.default", "aten._unsafe_view.default", "aten.view_copy.default"),
    *("aten.unsqueeze.default", "aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims"),
    *("aten.flatten.using_ints", "aten.unflatten.int", "aten._reshape_copy.default", "aten.ravel.default"),
    *("aten._reshape_alias.default", "aten._unsafe_view.default", "aten.view_as.default"),
    *("aten.unsqueeze_copy.default", "aten.squeeze_copy.default", "aten.squeeze_copy.dim", "aten.squeeze_copy.dims"),
)
def to_shape(node: Node, x: Expr, *_: Any) -> Expr:
    """Reshape to the shape that PyTorch found."""
    return reshaped(x, node.shape)


@converter("aten.permute.default", "aten.permute_copy.default")
def permute(node: Node, x: Expr, dims: Sequence[int]) -> Expr:
    """Permute the axes."""
    rank = len(shape_of(x))
    return transpose(x, axes=tuple(node.axis(dim, rank) for dim in dims)) if rank else x


@converter("aten.t.default", "aten.numpy_T.default", "aten.t_copy.default")
def reverse_axes(node: Node, x: Expr) -> Expr:
    """Reverse the axes of a matrix."""
    return transpose(x, axes=tuple(reversed(range(len(shape_of(x)))))) if len(shape_of(x)) > 1 else x


@converter("aten.transpose.int", "aten.transpose_copy.int", "aten.swapaxes.default")
def exchange_axes(node: Node, x: Expr, first: int, second: int) -> Expr:
    """Exchange two axes."""
    rank = len(shape_of(x))
    if not rank:
        return x
    axes = list(range(rank))
    a, b = node.axis(first, rank), node.axis(second, rank)
    axes[a], axes[b] = b, a
    return transpose(x, axes=tuple(axes))


@converter("aten.expand.default", "aten.expand_copy.default", "aten.broadcast_to.default", "aten.expand_as.default")
def expand(node: Node, x: Expr, *_: Any) -> Expr:
    """Repeat along axes of size 1, and along new ones."""
    return get_operator("broadcast_to")(x, shape=node.shape)


@converter("aten.repeat.default", "aten.tile.default")
def repeat(node: Node, x: Expr, repeats: Sequence[Dim]) -> Expr:
    """Repeat as a whole along each axis."""
    return get_operator("tile")(x, reps=tuple(repeats)) if repeats or shape_of(x) else x


@converter("aten.repeat_interleave.self_int")
def repeat_elements(node: Node, x: Expr, repeats: Dim, dim: int | None, output_size: Any) -> Expr:
    """Repeat each element along an axis."""
    if not isinstance(repeats, int):
        raise node.unsupported("a number of repetitions that is not known when the program is imported")
    flat = reshape(x, newshape=(-1,)) if dim is None or not shape_of(x) else x
    axis = 0 if dim is None else node.axis(dim, len(shape_of(flat)))
    return get_operator("repeat")(flat, repeats=repeats, axis=axis)


@converter("aten.cat.default", "aten.concat.default")
def concatenate_tensors(node: Node, tensors: Sequence[Expr], dim: int) -> Expr:
    """Concatenate along an axis; empty vectors count for nothing, whatever the shape of the others is."""
    rank = len(node.shape)
    parts = [node.tensor(x) for x in tensors if len(shape_of(x)) == rank]
    axis = node.axis(dim, rank)
    parts = [_beside(part, node.shape, axis) for part in parts]
    return parts[0] if len(parts) == 1 else concatenate(parts, axis=axis)


def _beside(x: Expr, shape: Sequence[Dim], axis: int) -> Expr:
    """Return ``x`` with the sizes of ``shape`` on all other axes than ``axis``."""
    return with_shape(x, [*shape[:axis], shape_of(x)[axis], *shape[axis + 1 :]])


@converter("aten.stack.default")
def stack(node: Node, tensors: Sequence[Expr], dim: int) -> Expr:
    """Concatenate along a new axis."""
    axis = node.axis(dim, len(node.shape))
    one = (*node.shape[:axis], 1, *node.shape[axis + 1 :])
    return concatenate([reshaped(node.tensor(x), one) for x in tensors], axis=axis)


@converter("aten.slice.Tensor", "aten.slice_copy.Tensor")
def slice_axis(node: Node, x: Expr, dim: int, start: Any, end: Any, step: Any) -> Expr:
    """Slice an axis."""
    axis = node.axis(dim, len(shape_of(x)))
    return _sliced(node, x, axis, start, end, step, node.shape[axis])


def _sliced(node: Node, x: Expr, axis: int, start: Any, end: Any, step: Any, count: Dim) -> Expr:
    """Slice an axis by bounds that are numbers, sizes, or data; the result has ``count`` elements there."""
    stride = node.number(step, "a step")
    first = 0 if start is None else start
    stop = None if end is None or (isinstance(end, int) and end >= _FAR) else end
    if isinstance(first, Expr) or isinstance(stop, Expr):
        return _taken(x, axis, as_number(first), stride, count)
    if isinstance(stop, Scalar) and dim_equal(stop, shape_of(x)[axis]):
        stop = None
    size = shape_of(x)[axis]
    past = size if stop is None else stop
    if stride != 1 or not dim_equal(simplify(as_expr(past) - first), count):
        first, stop = _from_start(first, size), _from_start(stop, size)
    return get_operator("slice")(x, begin=(first,), end=(stop,), strides=(stride,), axes=(axis,))


def _from_start(place: Any, size: Dim) -> Any:
    """Return a place on an axis counted from its start: a formula that is negative counts from the end."""
    if not isinstance(place, Scalar) or never_negative(place):
        return place
    return simplify(select(place < 0, maximum(place + size, 0), place))


def _taken(x: Expr, axis: int, first: Expr, stride: int, count: Dim) -> Expr:
    """Return ``count`` elements along an axis, from ``first`` on."""
    found = axis_places(count)
    if stride != 1:
        found = multiply(found, stride)
    return take(x, add(found, first), axis=axis)


@converter("aten.select.int", "aten.select_copy.int")
def select_place(node: Node, x: Expr, dim: int, index: Any) -> Expr:
    """Return one slice along an axis."""
    return selected(x, node.axis(dim, len(shape_of(x))), index)


def selected(x: Expr, axis: int, index: Any) -> Expr:
    """Return slice ``index`` along an axis, without the axis."""
    if isinstance(index, int):
        end = None if index == -1 else index + 1
        part = get_operator("slice")(x, begin=(index,), end=(end,), axes=(axis,))
        return get_operator("squeeze")(
            with_shape(part, [*shape_of(x)[:axis], 1, *shape_of(x)[axis + 1 :]]), axis=(axis,)
        )
    return take(x, as_number(index), axis=axis)


@converter("aten.narrow.default", "aten.narrow_copy.default")
def narrow(node: Node, x: Expr, dim: int, start: Any, length: Dim) -> Expr:
    """Return consecutive slices along an axis."""
    axis = node.axis(dim, len(shape_of(x)))
    if isinstance(start, int) and isinstance(length, int) and start >= 0:
        return get_operator("slice")(x, begin=(start,), end=(start + length,), axes=(axis,))
    return _taken(x, axis, as_number(start), 1, length)


@converter(
    *("aten.split.Tensor", "aten.split_with_sizes.default", "aten.chunk.default", "aten.split.sizes"),
    *("aten.split_copy.Tensor", "aten.split_with_sizes_copy.default", "aten.unsafe_split.Tensor"),
    *("aten.tensor_split.sections", "aten.tensor_split.indices", "aten.unsafe_chunk.default"),
    "aten.unsafe_split_with_sizes.default",
)
def split(node: Node, x: Expr, sizes: Any, dim: int) -> list[Expr]:
    """Split along an axis into parts of the sizes that PyTorch found."""
    axis = node.axis(dim, len(shape_of(x)))
    parts: list[Expr] = []
    start: Dim = 0
    for number in range(len(node.value)):
        count = node.result(number).shape[axis]
        if isinstance(start, int) and isinstance(count, int):
            parts.append(get_operator("slice")(x, begin=(start,), end=(start + count,), axes=(axis,)))
        else:
            parts.append(_taken(x, axis, as_number(start), 1, count))
        start = simplify(start + count)
    return parts


@converter("aten.unbind.int", "aten.unbind_copy.int")
def unbind(node: Node, x: Expr, dim: int) -> list[Expr]:
    """Return all slices along an axis."""
    axis = node.axis(dim, len(shape_of(x)))
    return [selected(x, axis, number) for number in range(len(node.value))]


@converter("aten.flip.default")
def flip(node: Node, x: Expr, dims: Sequence[int]) -> Expr:
    """Reverse axes."""
    if not shape_of(x) or not dims:
        return x
    return get_operator("flip")(x, axis=node.axes(dims, len(shape_of(x))))


@converter("aten.roll.default")
def roll(node: Node, x: Expr, shifts: Sequence[Any], dims: Sequence[int]) -> Expr:
    """Move elements along axes; those that leave come in at the other end."""
    shape = shape_of(x)
    result = x if dims else reshape(x, newshape=(-1,))
    for shift, dim in zip(shifts, dims or [0], strict=True):
        axis = node.axis(dim, len(shape_of(result)))
        extent = shape_of(result)[axis]
        cut: Dim = simplify((extent - shift) % extent if extent != 0 else 0)
        front = get_operator("slice")(result, begin=(0,), end=(cut,), axes=(axis,))
        behind = get_operator("slice")(result, begin=(cut,), end=(None,), axes=(axis,))
        result = with_shape(concatenate([behind, front], axis=axis), shape_of(result))
    return result if dims else reshaped(result, shape)


@converter("aten.diagonal.default", "aten.diagonal_copy.default")
def diagonal(node: Node, x: Expr, offset: int, dim1: int, dim2: int) -> Expr:
    """Return a diagonal of two axes, as the last axis."""
    rank = len(shape_of(x))
    first, second = node.axis(dim1, rank), node.axis(dim2, rank)
    cut = (first, (-offset,)) if offset < 0 else (second, (offset,))
    moved = x if not offset else get_operator("slice")(x, begin=cut[1], end=(None,), axes=(cut[0],))
    rows, columns = shape_of(moved)[first], shape_of(moved)[second]
    if not dim_equal(rows, columns):
        size = node.shape[-1]
        moved = get_operator("slice")(moved, begin=(0, 0), end=(size, size), axes=(first, second))
        moved = with_shape(moved, [size if axis in (first, second) else n for axis, n in enumerate(shape_of(moved))])
    return get_operator("diagonal")(moved, axis1=first, axis2=second)


@converter("aten.tril.default", "aten.triu.default")
def triangle(node: Node, x: Expr, diagonal: int) -> Expr:
    """Keep the elements on one side of a diagonal."""
    name = "tril" if node.label.startswith("aten.tril") else "triu"
    return get_operator(name)(x, as_number(diagonal))


@converter("aten.constant_pad_nd.default", "aten.pad.default")
def pad_constant(node: Node, x: Expr, pad: Sequence[Dim], *options: Any) -> Expr:
    """Add a border of one value; negative widths remove elements."""
    mode, value = options if len(options) == 2 else ("constant", options[0])
    if mode != "constant":
        return padded(node, x, pad, _MODES[mode])
    fill = 0 if value is None else node.number(value, "a value")
    if not dtype_of(x).is_float:
        fill = bool(fill) if dtype_of(x).is_bool else int(fill)
    return get_operator("pad")(x, pad_width=_widths(x, pad), pad_value=float(fill) if dtype_of(x).is_float else fill)


_MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@converter(*(f"aten.reflection_pad{rank}d.default" for rank in (1, 2, 3)))
def pad_reflected(node: Node, x: Expr, pad: Sequence[Dim]) -> Expr:
    """Mirror at the outermost elements."""
    return padded(node, x, pad, "reflect")


@converter(*(f"aten.replication_pad{rank}d.default" for rank in (1, 2, 3)))
def pad_replicated(node: Node, x: Expr, pad: Sequence[Dim]) -> Expr:
    """Repeat the outermost elements."""
    return padded(node, x, pad, "edge")


def padded(node: Node, x: Expr, pad: Sequence[Dim], mode: str) -> Expr:
    """Pad from the elements themselves."""
    widths = _widths(x, pad)
    added: list[tuple[Dim, Dim]] = []
    removed: list[tuple[Dim, Dim]] = []
    for pair in widths:
        before, behind = ((width, 0) if not isinstance(width, int) or width >= 0 else (0, width) for width in pair)
        added.append((before[0], behind[0]))
        removed.append((before[1], behind[1]))
    made = get_operator("pad")(x, pad_width=added, mode=mode)
    if not any(width for pair in removed for width in pair):
        return made
    return get_operator("pad")(made, pad_width=removed)  # what is added is made of all elements, also those removed


def _widths(x: Expr, pad: Sequence[Dim]) -> list[tuple[Dim, Dim]]:
    """Return the widths for each axis; PyTorch lists those of the last axis first."""
    pairs = [(pad[n], pad[n + 1]) for n in range(0, len(pad), 2)]
    return [(0, 0)] * (len(shape_of(x)) - len(pairs)) + pairs[::-1]


@converter("aten.unfold.default", "aten.unfold_copy.default")
def unfold(node: Node, x: Expr, dim: int, size: int, step: int) -> Expr:
    """Return windows along an axis; their elements are the last axis."""
    rank = len(shape_of(x))
    if not rank:
        return reshape(x, newshape=node.shape)
    axis = node.axis(dim, rank)
    inside = add(multiply(axis_places(node.shape[axis], 1), step), axis_places(size))
    windows = take(x, inside, axis=axis)  # ..., window, element, ...
    order = [n for n in range(rank + 1) if n != axis + 1] + [axis + 1]
    return transpose(windows, axes=tuple(order))


@converter("aten.movedim.int", "aten.movedim.intlist")
def move_axes(node: Node, x: Expr, source: Any, destination: Any) -> Expr:
    """Move axes to other places."""
    rank = len(shape_of(x))
    old = [node.axis(dim, rank) for dim in ([source] if isinstance(source, int) else source)]
    new = [node.axis(dim, rank) for dim in ([destination] if isinstance(destination, int) else destination)]
    order = dict(zip(new, old, strict=True))
    rest = iter(axis for axis in range(rank) if axis not in old)
    return transpose(x, axes=tuple(order[axis] if axis in order else next(rest) for axis in range(rank))) if rank else x
