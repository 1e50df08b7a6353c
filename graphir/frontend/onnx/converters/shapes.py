"""Convert constants, shapes, and operators that move elements without computing with them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.graphir.broadcasting import chosen_size, joined
from tilewright.graphir.dims import Dim, dim_equal, product, simplify
from tilewright.graphir.expr import Constant, Expr, const
from tilewright.graphir.frontend.checked_sizes import with_elements
from tilewright.graphir.frontend.onnx.node import Node
from tilewright.graphir.frontend.onnx.registry import converter
from tilewright.graphir.frontend.onnx.sizes import with_remaining
from tilewright.graphir.frontend.runtime_sizes import as_number, range_count, reshape_sizes, slice_bounds
from tilewright.graphir.known_values import known_values
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import add, cast, concatenate, multiply, reshape, squeeze, take, transpose
from tilewright.tensorir.dtype import as_dtype

#: The least end that means "up to the end": exporters write INT64_MAX, INT32_MAX or a thousand millions.
FAR = 10**9


@converter("Constant")
def constant(node: Node) -> Expr:
    """Build a tensor from one of several attributes."""
    if node.has("value"):
        return Constant(node.attribute("value"))
    for name, dtype in (("value_float", np.float32), ("value_floats", np.float32), ("value_int", np.int64)):
        if node.has(name):
            return const(np.array(node.attribute(name), dtype))
    if node.has("value_ints"):
        return const(np.array(node.attribute("value_ints"), np.int64))
    if not any(node.has(name) for name in ("sparse_value", "value_string", "value_strings")):
        raise node.wrong("a constant without a value")
    raise node.unsupported("a constant of text, or a sparse one,")


@converter("Identity")
def identity(node: Node) -> list[Expr]:
    """Return the input itself."""
    return [node[0]]


@converter("Shape")
def shape(node: Node) -> Expr:
    """Return the sizes as data; from opset 15 on optionally those of some axes."""
    sizes = node.shape()
    return get_operator("sizes")(values=sizes[slice(node.attribute("start", 0), node.attribute("end", len(sizes)))])


@converter("Size")
def size(node: Node) -> Expr:
    """Return the number of elements."""
    return squeeze(get_operator("sizes")(values=(product(node.shape()),)), axis=(0,))


@converter("Reshape")
def reshape_by_attribute(node: Node) -> Expr:
    """Convert before opset 5, where the shape is an attribute."""
    return _reshape(node, node.required("shape"), False)


@converter("Reshape", since=5)
def reshape_by_input(node: Node) -> Expr:
    """Reshape to an input: 0 keeps a size (unless ``allowzero``), -1 is the remaining size."""
    return _reshape(node, node.elements(1), bool(node.attribute("allowzero", 0)))


def _reshape(node: Node, wanted: Sequence[Dim | Expr], allowzero: bool) -> Expr:
    new = with_remaining(node.shape(), [node.size(size) for size in reshape_sizes(node.shape(), wanted, allowzero)])
    return reshape(with_elements(node[0], new), newshape=tuple(new))


@converter("Flatten")
def flatten(node: Node) -> Expr:
    """Flatten to two dimensions: those before an axis, and those from it on."""
    old, axis = node.shape(), node.axis("axis", 1, last=True)
    return reshape(node[0], newshape=(product(old[:axis]), product(old[axis:])))


@converter("Transpose")
def transpose_axes(node: Node) -> Expr:
    """Permute the axes; without a permutation, reverse them."""
    axes = node.attribute("perm", tuple(reversed(range(len(node.shape())))))
    return transpose(node[0], axes=axes)


@converter("Concat")
def concat(node: Node) -> Expr:
    """Concatenate along an axis, which is 1 by default before opset 4."""
    values = [value for value in node.inputs if value is not None]
    return concatenate(values, axis=node.attribute("axis", 1))


@converter("Squeeze")
def squeeze_by_attribute(node: Node) -> Expr:
    """Convert before opset 13, where the axes are an attribute."""
    return _squeeze(node, node.attribute("axes", _ones(node)))


@converter("Squeeze", since=13)
def squeeze_by_input(node: Node) -> Expr:
    """Squeeze the axes of an input; without it, all of size 1."""
    return _squeeze(node, _ones(node) if node.optional(1) is None else node.integers(1))


def _squeeze(node: Node, axes: Sequence[int]) -> Expr:
    """Squeeze; a call checks that an axis of a symbolic size has one element."""
    places = {node.checked_axis(axis, len(node.shape()), "axes") for axis in axes}
    shape = tuple(1 if n in places and not isinstance(dim, int) else dim for n, dim in enumerate(node.shape()))
    return squeeze(_matched(node, shape), axis=tuple(axes))


def _matched(node: Node, shape: Sequence[Dim]) -> Expr:
    """Return the first input with a shape that a call checks, where it differs from its own."""
    if all(found is wanted for found, wanted in zip(node.shape(), shape, strict=True)):
        return node[0]
    return get_operator("match_shape")(node[0], shape=tuple(shape))


def _ones(node: Node) -> tuple[int, ...]:
    return tuple(axis for axis, dim in enumerate(node.shape()) if isinstance(dim, int) and dim == 1)


@converter("Unsqueeze")
def unsqueeze_by_attribute(node: Node) -> Expr:
    """Convert before opset 13, where the axes are an attribute."""
    return _unsqueeze(node, node.required("axes"))


@converter("Unsqueeze", since=13)
def unsqueeze_by_input(node: Node) -> Expr:
    """Insert the axes of an input; they count in the result."""
    return _unsqueeze(node, node.integers(1))


def _unsqueeze(node: Node, axes: tuple[int, ...]) -> Expr:
    rank = len(node.shape()) + len(axes)
    places = {node.checked_axis(axis, rank, "axes") for axis in axes}
    if len(places) != len(axes):
        raise node.wrong(f"an axis twice in {axes}")
    old = iter(node.shape())
    return reshape(node[0], newshape=tuple(1 if axis in places else next(old) for axis in range(rank)))


@converter("Expand", since=8)
def expand(node: Node) -> Expr:
    """Broadcast with a shape: either may have the greater sizes, and a symbolic one may be 1."""
    old, wanted = node.shape(), node.dims(1)
    rank = max(len(old), len(wanted))
    a, b = (1,) * (rank - len(old)) + old, (1,) * (rank - len(wanted)) + wanted
    new: list[Dim] = []
    for x, y in zip(a, b, strict=True):
        if isinstance(x, int) and not isinstance(y, int):  # no tensor has the size y, which broadcast_to would check
            new.append(chosen_size(y, x))
        else:
            both = joined(x, y)
            new.append(x if both is None else both)
    return get_operator("broadcast_to")(reshape(node[0], newshape=a), shape=tuple(new))


@converter("Tile", since=6)
def tile(node: Node) -> Expr:
    """Repeat along each axis."""
    return get_operator("tile")(node[0], reps=node.dims(1))


@converter("Gather")
def gather(node: Node) -> Expr:
    """Pick slices by indices."""
    return take(node[0], node[1], axis=node.attribute("axis", 0))


@converter("Slice")
def slice_by_attributes(node: Node) -> Expr:
    """Convert before opset 10, where the bounds are attributes."""
    starts, ends = node.required("starts"), node.required("ends")
    return _slice(node, starts, ends, node.attribute("axes", tuple(range(len(starts)))), (1,) * len(starts))


@converter("Slice", since=10)
def slice_by_inputs(node: Node) -> Expr:
    """Slice between bounds that are inputs; steps may be negative."""
    starts, ends = node.elements(1), node.elements(2)
    axes = tuple(range(len(starts))) if node.optional(3) is None else node.integers(3)
    steps = (1,) * len(starts) if node.optional(4) is None else node.integers(4)
    return _slice(node, starts, ends, axes, steps)


def _slice(
    node: Node,
    starts: Sequence[Dim | Expr],
    ends: Sequence[Dim | Expr],
    axes: tuple[int, ...],
    steps: tuple[int, ...],
) -> Expr:
    x = node[0]
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise node.wrong(f"{len(starts)} starts, {len(ends)} ends, {len(axes)} axes and {len(steps)} steps")
    axes = tuple(node.checked_axis(axis, len(node.shape()), "axes") for axis in axes)
    known: list[tuple[int, Dim, Dim | None, int]] = []
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        # A bound far above (below, for a backward slice) means the last (first) element.
        is_far = isinstance(end, int) and (end >= FAR if step > 0 else end <= -FAR)
        if isinstance(start, Expr) or isinstance(end, Expr):
            first, count = slice_bounds(start, None if is_far else end, step, node.shape()[axis])
            places = get_operator("arange")(start=0, stop=node.size(count), step=1, dtype="int64")
            x = take(x, add(multiply(places, step), first), axis=axis)
        else:
            known.append((axis, start, None if is_far else end, step))
    if not known:
        return x
    order, begin, bounds, strides = zip(*known, strict=True)
    return get_operator("slice")(x, begin=begin, end=bounds, strides=strides, axes=order)


@converter("Split")
def split(node: Node) -> list[Expr]:
    """Convert before opset 13, where the sizes are an attribute (an input in opset 1)."""
    return _split(node, node.attribute("split"))


@converter("Split", since=13)
def split_by_input(node: Node) -> list[Expr]:
    """Split into the sizes of an input."""
    return _split(node, None if node.optional(1) is None else node.dims(1))


def _split(node: Node, sizes: Sequence[Dim] | None) -> list[Expr]:
    axis = node.axis("axis", 0)
    extent, count = node.shape()[axis], node.num_outputs
    if sizes is None:
        if node.attribute("num_outputs", count) != count:
            stated = node.attribute("num_outputs")
            raise node.wrong(f"attribute 'num_outputs': expected {count}, as the node has, found {stated}")
        if not isinstance(extent, int):
            return _equal_parts(node, axis, extent, count)
        part = -(-extent // count)
        sizes = tuple(max(0, min(part, extent - number * part)) for number in range(count))
    else:
        known = [part for part in sizes if isinstance(part, int)]
        short = len(known) == len(sizes) and isinstance(extent, int) and sum(known) != extent
        if len(sizes) != count or min(known, default=0) < 0 or short:
            raise node.wrong(f"expected the sizes of {count} parts of {extent}, found {tuple(sizes)}")
    return _parts(node, axis, sizes)


def _equal_parts(node: Node, axis: int, extent: Dim, count: int) -> list[Expr]:
    """Slice a tensor of symbolic size into equal parts; a call checks that they are. From opset 18 on the last part may
    be smaller."""
    if node.opset >= 18:
        part = simplify((extent + (count - 1)) // count)
        return _parts(node, axis, [*[part] * (count - 1), simplify(extent - part * (count - 1))])
    before, after = node.shape()[:axis], node.shape()[axis + 1 :]
    part = simplify(extent // count)
    whole = simplify(part * count)
    x = node[0] if dim_equal(whole, extent) else _matched(node, (*before, whole, *after))
    rows = reshape(x, newshape=(*before, count, part, *after))
    return [
        squeeze(get_operator("slice")(rows, begin=(n,), end=(n + 1,), strides=(1,), axes=(axis,)), axis=(axis,))
        for n in range(count)
    ]


def _parts(node: Node, axis: int, sizes: Sequence[Dim]) -> list[Expr]:
    """Slice a tensor into consecutive parts of these sizes."""
    results: list[Expr] = []
    start: Dim = 0
    for part in sizes:
        if isinstance(part, int) and isinstance(start, int):
            bounds = {"begin": (start,), "end": (start + part,), "strides": (1,), "axes": (axis,)}
            results.append(get_operator("slice")(node[0], **bounds))
        else:  # it cannot be proved that they are in range
            places = get_operator("arange")(start=0, stop=part, step=1, dtype="int64")
            results.append(take(node[0], add(places, as_number(start)), axis=axis))
        start = start + part
    return results


@converter("ConstantOfShape", since=9)
def constant_of_shape(node: Node) -> Expr:
    """Fill a shape with one value."""
    given = node.attribute("value", np.zeros(1, np.float32)).reshape(-1)
    if given.size != 1:
        raise node.wrong(f"attribute 'value': expected one element, found {given.size}")
    value = given[0]
    return get_operator("full")(shape=node.dims(0), fill=value.item(), dtype=as_dtype(value.dtype))


@converter("Range", since=11)
def arange(node: Node) -> Expr:
    """Return numbers at equal distances."""
    dtype = node.type(0).dtype
    start, limit, delta = (known_values(node[number]) for number in range(3))
    if start is None or limit is None or delta is None:
        begin, end, distance = (reshape(node[number], newshape=()) for number in range(3))
        count = node.size(range_count(begin, end, distance))
        numbers = get_operator("arange")(start=0, stop=count, step=1, dtype="int64")
        return add(multiply(cast(numbers, dtype=dtype), distance), begin)
    if not start.size == limit.size == delta.size == 1:
        raise node.wrong("expected bounds and a step of one element each")
    first, last, step = (value.reshape(-1)[0] for value in (start, limit, delta))
    return get_operator("arange")(start=first, stop=last, step=step, dtype=dtype)
