"""Convert sequences of tensors, whose lengths are known at import: they are tuples of the graph. Optional values are
known to be present or not."""

from __future__ import annotations

import numpy as np

from tilewright.graphir.expr import Expr, Tuple, TupleGetItem, const
from tilewright.graphir.frontend.onnx.node import Node
from tilewright.graphir.frontend.onnx.registry import converter
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import concatenate, squeeze
from tilewright.graphir.types import TupleType
from tilewright.tensorir.errors import InputError


def elements(node: Node, number: int = 0) -> list[Expr]:
    """Return the tensors of the sequence that is input ``number``.

    Raises:
        InputError: it is not a sequence.
    """
    value = node[number]
    if isinstance(value, Tuple):
        return list(value.fields)
    if not isinstance(value.type, TupleType):
        raise InputError(f"{node.label}: input {number}: expected a sequence, found {value.type}")
    return [TupleGetItem(value, place) for place in range(len(value.type.fields))]


def _place(node: Node, number: int, count: int) -> int:
    """Return an index into a sequence of ``count`` elements, counted from the end if negative."""
    (place,) = node.integers(number)
    if not -count <= place < count:
        raise InputError(f"{node.label}: index {place} is out of range for a sequence of {count} values")
    return place % count


@converter("SequenceConstruct", since=11)
def sequence_construct(node: Node) -> list[Expr]:
    """Build a sequence of the inputs."""
    return [Tuple([node[number] for number in range(len(node.inputs))])]


@converter("SequenceEmpty", since=11)
def sequence_empty(node: Node) -> list[Expr]:
    """Return the empty sequence."""
    return [Tuple([])]


@converter("SequenceAt", since=11)
def sequence_at(node: Node) -> list[Expr]:
    """Return one element."""
    found = elements(node)
    return [found[_place(node, 1, len(found))]]


@converter("SequenceLength", since=11)
def sequence_length(node: Node) -> Expr:
    """Return the number of elements."""
    return const(np.array(len(elements(node)), np.int64))


@converter("SequenceInsert", since=11)
def sequence_insert(node: Node) -> list[Expr]:
    """Insert one element before an index or at the end."""
    found = elements(node)
    place = len(found) if node.optional(2) is None else node.integers(2)[0]
    if place != len(found):
        place = _place(node, 2, len(found))
    return [Tuple([*found[:place], node[1], *found[place:]])]


@converter("SequenceErase", since=11)
def sequence_erase(node: Node) -> list[Expr]:
    """Remove one element, the last one if no index is given."""
    found = elements(node)
    del found[len(found) - 1 if node.optional(1) is None else _place(node, 1, len(found))]
    return [Tuple(found)]


@converter("SplitToSequence", since=11)
def split_to_sequence(node: Node) -> list[Expr]:
    """Split a tensor along an axis: into parts of given sizes, of one size, or of one index each."""
    axis = node.attribute("axis", 0)
    extent = node.shape()[axis]
    if not isinstance(extent, int):
        raise node.unsupported(f"a split of the symbolic size {extent} into a sequence")
    if node.optional(1) is None:
        sizes = [1] * extent
    elif node.shape(1):
        sizes = list(node.integers(1))
    else:
        (size,) = node.integers(1)
        if size < 1:
            raise InputError(f"{node.label}: parts of size {size}")
        sizes = [min(size, extent - start) for start in range(0, extent, size)]
    if sum(sizes) != extent or min(sizes, default=0) < 0:
        raise InputError(f"{node.label}: parts of sizes {sizes} do not add up to {extent}")
    parts, start = [], 0
    for size in sizes:
        part = get_operator("slice")(node[0], begin=(start,), end=(start + size,), strides=(1,), axes=(axis,))
        keep = node.optional(1) is not None or node.attribute("keepdims", 1)
        parts.append(part if keep else squeeze(part, axis=(axis,)))
        start += size
    return [Tuple(parts)]


@converter("ConcatFromSequence", since=11)
def concat_from_sequence(node: Node) -> Expr:
    """Concatenate the elements along an axis, which may be a new one."""
    axis = node.required("axis")
    if node.attribute("new_axis", 0):
        return get_operator("stack")(elements(node), axis=axis)
    return concatenate(elements(node), axis=axis)


@converter("SequenceMap", since=17)
def sequence_map(node: Node) -> list[Expr]:
    """Apply a graph to each element of a sequence; further inputs are sequences, too, or a tensor that all of them
    share."""
    columns = [
        elements(node, number) if isinstance(node[number].type, TupleType) else None
        for number in range(len(node.inputs))
    ]
    count = len(elements(node))
    if any(column is not None and len(column) != count for column in columns):
        raise InputError(f"{node.label}: sequences of different lengths")
    results: list[list[Expr]] = [[] for _ in range(node.num_outputs)]
    for place in range(count):
        inputs = [node[number] if column is None else column[place] for number, column in enumerate(columns)]
        for collected, value in zip(results, node.subgraph("body", inputs), strict=True):
            collected.append(value)
    return [Tuple(collected) for collected in results]


@converter("Optional", since=15)
def optional(node: Node) -> list[Expr]:
    """Return the value itself, which is present."""
    if node.optional(0) is None:
        raise node.unsupported("an optional without a value")
    return [node[0]]


@converter("OptionalHasElement", since=15)
def optional_has_element(node: Node) -> Expr:
    """Return whether a value is present."""
    return const(np.array(node.optional(0) is not None))


@converter("OptionalGetElement", since=15)
def optional_get_element(node: Node) -> list[Expr]:
    """Return a value, which must be present."""
    return [node[0]]
