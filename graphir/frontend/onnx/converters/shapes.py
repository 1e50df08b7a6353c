"""Constants, shapes, and operators that move elements without looking at them."""

from __future__ import annotations

import numpy as np

from tilewright.graphir.dims import Dim, product
from tilewright.graphir.expr import Constant, Expr, const
from tilewright.graphir.frontend.onnx.node import Node
from tilewright.graphir.frontend.onnx.registry import converter
from tilewright.graphir.frontend.onnx.sizes import with_elements
from tilewright.graphir.known_values import known_values
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import concatenate, reshape, squeeze, take, transpose
from tilewright.tensorir.dtype import as_dtype

#: Exporters write an end that no axis reaches for "up to the end": INT64_MAX, INT32_MAX or a thousand millions.
FAR = 10**9


@converter("Constant")
def constant(node: Node) -> Expr:
    """A tensor from one of several attributes."""
    if node.has("value"):
        return Constant(node.attribute("value"))
    for name, dtype in (("value_float", np.float32), ("value_floats", np.float32), ("value_int", np.int64)):
        if node.has(name):
            return const(np.array(node.attribute(name), dtype))
    if node.has("value_ints"):
        return const(np.array(node.attribute("value_ints"), np.int64))
    raise node.unsupported("a constant of text, or a sparse one,")


@converter("Identity")
def identity(node: Node) -> Expr:
    """The input itself."""
    return node[0]


@converter("Shape")
def shape(node: Node) -> Expr:
    """Sizes as data; from opset 15 on those of some axes."""
    sizes = node.shape()
    return get_operator("sizes")(values=sizes[slice(node.attribute("start", 0), node.attribute("end", len(sizes)))])


@converter("Size")
def size(node: Node) -> Expr:
    """The number of elements."""
    return squeeze(get_operator("sizes")(values=(product(node.shape()),)), axis=(0,))


@converter("Reshape")
def reshape_by_attribute(node: Node) -> Expr:
    """Before opset 5 the shape is an attribute."""
    return _reshape(node, node.required("shape"), False)


@converter("Reshape", since=5)
def reshape_by_input(node: Node) -> Expr:
    """The shape is an input: 0 keeps a size (unless ``allowzero``), -1 is what is left."""
    return _reshape(node, node.dims(1), bool(node.attribute("allowzero", 0)))


def _reshape(node: Node, wanted: tuple[Dim, ...], allowzero: bool) -> Expr:
    old = node.shape()
    new = [
        old[axis] if isinstance(dim, int) and dim == 0 and not allowzero and axis < len(old) else dim
        for axis, dim in enumerate(wanted)
    ]
    return reshape(with_elements(node[0], new), newshape=tuple(new))


@converter("Flatten")
def flatten(node: Node) -> Expr:
    """Two dimensions: those before an axis, and those from it on."""
    old = node.shape()
    axis = node.attribute("axis", 1)
    axis = axis + len(old) if axis < 0 else axis
    return reshape(node[0], newshape=(product(old[:axis]), product(old[axis:])))


@converter("Transpose")
def transpose_axes(node: Node) -> Expr:
    """The axes in another order; reversed without one."""
    axes = node.attribute("perm", tuple(reversed(range(len(node.shape())))))
    return transpose(node[0], axes=axes)


@converter("Concat")
def concat(node: Node) -> Expr:
    """Joined along an axis, which is 1 before opset 4."""
    values = [value for value in node.inputs if value is not None]
    return concatenate(values, axis=node.attribute("axis", 1))


@converter("Squeeze")
def squeeze_by_attribute(node: Node) -> Expr:
    """Before opset 13 the axes are an attribute."""
    return squeeze(node[0], axis=node.attribute("axes", _ones(node)))


@converter("Squeeze", since=13)
def squeeze_by_input(node: Node) -> Expr:
    """The axes are an input; without it, all of size 1."""
    return squeeze(node[0], axis=_ones(node) if node.optional(1) is None else node.integers(1))


def _ones(node: Node) -> tuple[int, ...]:
    return tuple(axis for axis, dim in enumerate(node.shape()) if isinstance(dim, int) and dim == 1)


@converter("Unsqueeze")
def unsqueeze_by_attribute(node: Node) -> Expr:
    """Before opset 13 the axes are an attribute."""
    return _unsqueeze(node, node.required("axes"))


@converter("Unsqueeze", since=13)
def unsqueeze_by_input(node: Node) -> Expr:
    """The axes, of the result, are an input."""
    return _unsqueeze(node, node.integers(1))


def _unsqueeze(node: Node, axes: tuple[int, ...]) -> Expr:
    rank = len(node.shape()) + len(axes)
    places = {axis % rank for axis in axes}
    if len(places) != len(axes):
        raise node.unsupported(f"an axis twice in {axes}")
    old = iter(node.shape())
    return reshape(node[0], newshape=tuple(1 if axis in places else next(old) for axis in range(rank)))


@converter("Expand", since=8)
def expand(node: Node) -> Expr:
    """Broadcast with a shape: either may have the greater sizes."""
    old, wanted = node.shape(), node.dims(1)
    rank = max(len(old), len(wanted))
    a, b = (1,) * (rank - len(old)) + old, (1,) * (rank - len(wanted)) + wanted
    new = tuple(y if isinstance(x, int) and x == 1 else x for x, y in zip(a, b, strict=True))
    return get_operator("broadcast_to")(reshape(node[0], newshape=a), shape=new)


@converter("Tile", since=6)
def tile(node: Node) -> Expr:
    """Repeated along each axis."""
    return get_operator("tile")(node[0], reps=node.integers(1))


@converter("Gather")
def gather(node: Node) -> Expr:
    """Slices picked by indices."""
    return take(node[0], node[1], axis=node.attribute("axis", 0))


@converter("Slice")
def slice_by_attributes(node: Node) -> Expr:
    """Before opset 10 the bounds are attributes."""
    starts, ends = node.required("starts"), node.required("ends")
    return _slice(node, starts, ends, node.attribute("axes", tuple(range(len(starts)))), (1,) * len(starts))


@converter("Slice", since=10)
def slice_by_inputs(node: Node) -> Expr:
    """The bounds are inputs, and steps may be negative."""
    starts, ends = node.dims(1), node.dims(2)
    axes = tuple(range(len(starts))) if node.optional(3) is None else node.integers(3)
    steps = (1,) * len(starts) if node.optional(4) is None else node.integers(4)
    return _slice(node, starts, ends, axes, steps)


def _slice(
    node: Node, starts: tuple[Dim, ...], ends: tuple[Dim, ...], axes: tuple[int, ...], steps: tuple[int, ...]
) -> Expr:
    # Far above, or below for a slice that runs backwards, stands for the last, or first, element.
    bounds = tuple(
        None if isinstance(end, int) and (end >= FAR if step > 0 else end <= -FAR) else end
        for end, step in zip(ends, steps, strict=True)
    )
    return get_operator("slice")(node[0], begin=starts, end=bounds, strides=steps, axes=axes)


@converter("Split")
def split(node: Node) -> list[Expr]:
    """Before opset 13 the sizes are an attribute (an input in opset 1)."""
    return _split(node, node.attribute("split"))


@converter("Split", since=13)
def split_by_input(node: Node) -> list[Expr]:
    """The sizes are an input."""
    return _split(node, None if node.optional(1) is None else node.integers(1))


def _split(node: Node, sizes: tuple[int, ...] | None) -> list[Expr]:
    axis = node.attribute("axis", 0)
    axis = axis + len(node.shape()) if axis < 0 else axis
    if sizes is None:
        extent = node.shape()[axis]
        if not isinstance(extent, int):
            raise node.unsupported(f"a split of the symbolic size {extent} without the sizes of the parts")
        count = node.attribute("num_outputs", node.num_outputs)
        part = -(-extent // count)
        sizes = tuple(max(0, min(part, extent - number * part)) for number in range(count))
    results, start = [], 0
    for part in sizes:
        results.append(get_operator("slice")(node[0], begin=(start,), end=(start + part,), strides=(1,), axes=(axis,)))
        start += part
    return results


@converter("ConstantOfShape", since=9)
def constant_of_shape(node: Node) -> Expr:
    """One value everywhere."""
    value = node.attribute("value", np.zeros(1, np.float32)).reshape(-1)[0]
    return get_operator("full")(shape=node.dims(0), fill=value.item(), dtype=as_dtype(value.dtype))


@converter("Range", since=11)
def arange(node: Node) -> Expr:
    """Numbers at equal distances; the count must be known, be it as an expression."""
    dtype = node.type(0).dtype
    start, limit, delta = (known_values(node[number]) for number in range(3))
    if start is None or limit is None or delta is None:
        raise node.unsupported("a range whose bounds depend on data")
    first, last, step = (value.reshape(-1)[0] for value in (start, limit, delta))
    symbolic = any(value.dtype == object for value in (start, limit, delta))
    if not symbolic:
        return const(np.arange(first.item(), last.item(), step.item()).astype(dtype.numpy))
    return get_operator("arange")(start=first, stop=last, step=step, dtype=dtype)
