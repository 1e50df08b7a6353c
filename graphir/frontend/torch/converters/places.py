"""Convert indexing by tensors of places, and by masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.graphir.broadcasting import joined
from tilewright.graphir.dims import Dim, product
from tilewright.graphir.expr import Expr
from tilewright.graphir.frontend.torch.node import Node, cast_to, dtype_of, shape_of
from tilewright.graphir.frontend.torch.registry import converter
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import add, concatenate, reshape, squeeze, take, transpose, where
from tilewright.tensorir.dtype import INT64, DataType

_UINT8 = DataType("uint8")


def scattered(name: str, x: Expr, places: Expr, values: Expr, reduction: str, **attributes: Any) -> Expr:
    """Replace elements of ``x`` by the operator ``name``, or combine them with others: the sum of bools is whether one
    holds, their product whether all do."""
    operator = get_operator(name)
    if not dtype_of(x).is_bool or reduction == "none":
        return operator(x, places, values, reduction=reduction, **attributes)
    bytes_of = [cast_to(each, _UINT8) for each in (x, values)]
    of_bools = {"add": "max", "mul": "min"}.get(reduction, reduction)
    return cast_to(operator(bytes_of[0], places, bytes_of[1], reduction=of_bools, **attributes), dtype_of(x))


@converter("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index_tensors(node: Node, x: Expr, indices: Sequence[Expr | None]) -> Expr:
    """Return the elements at places that tensors state for some of the axes, by NumPy's rules."""
    where_ = _Places(node, x, indices)
    if not where_.axes:
        return x
    if len(where_.axes) == 1:
        return take(x, where_.indices[0], axis=where_.axes[0])
    found = get_operator("gather_nd")(transpose(x, axes=where_.order), where_.tuples())
    return transpose(found, axes=where_.placed()) if where_.first else found


class _Places:
    """The places that tensors state for some axes of ``x``: those axes, and the tensors as integers of one shape.

    Attributes:
        axes: the axes.
        indices: for each a tensor of int64.
        order: the axes of ``x`` with these first.
        first: the place of the index's axes in the result.
    """

    def __init__(self, node: Node, x: Expr, indices: Sequence[Expr | None]) -> None:
        self.axes: list[int] = []
        self.indices: list[Expr] = []
        axis = 0
        for index in indices:
            if index is None:
                axis += 1
            elif dtype_of(index).is_bool or str(dtype_of(index)) == "uint8":
                for places in _true_places(node, index):
                    self.axes.append(axis)
                    self.indices.append(places)
                    axis += 1
            else:
                self.axes.append(axis)
                self.indices.append(cast_to(index, INT64))
                axis += 1
        rank = len(shape_of(x))
        rest = [n for n in range(rank) if n not in self.axes]
        self.order = (*self.axes, *rest)
        together = self.axes == list(range(self.axes[0], self.axes[0] + len(self.axes))) if self.axes else True
        self.first = self.axes[0] if self.axes and together else 0
        self.shape = self._broadcast(node)
        self.rest = tuple(shape_of(x)[n] for n in rest)

    def _broadcast(self, node: Node) -> tuple[Dim, ...]:
        shapes = [shape_of(index) for index in self.indices]
        rank = max(map(len, shapes), default=0)
        result: list[Dim] = [1] * rank
        for shape in shapes:
            for n, dim in enumerate(shape, rank - len(shape)):
                both = joined(result[n], dim)
                if both is None:
                    raise node.unsupported(f"indices of shapes {shapes} that do not broadcast")
                result[n] = both
        return tuple(result)

    def tuples(self) -> Expr:
        """Return the indices of one element as the last axis."""
        columns = [get_operator("broadcast_to")(index, shape=self.shape) for index in self.indices]
        return concatenate([reshape(column, newshape=(*self.shape, 1)) for column in columns], axis=len(self.shape))

    def placed(self) -> tuple[int, ...]:
        """Return the permutation that moves the index's axes, which are first, to their place."""
        count = len(self.shape)
        rest = list(range(count, count + len(self.rest)))
        return (*rest[: self.first], *range(count), *rest[self.first :])


def _true_places(node: Node, mask: Expr) -> list[Expr]:
    """Return for each axis of a mask the places where it holds; their number is known when the program runs."""
    rank = len(shape_of(mask))
    if not rank:
        raise node.unsupported("a mask without dimensions")
    found = get_operator("nonzero")(mask)
    return [
        squeeze(get_operator("slice")(found, begin=(axis,), end=(axis + 1,), axes=(0,)), axis=(0,))
        for axis in range(rank)
    ]


@converter("aten.index_put.default", "aten._unsafe_index_put.default", "aten._index_put_impl.default")
def index_put(node: Node, x: Expr, indices: Sequence[Expr | None], values: Expr, accumulate: bool, *_: Any) -> Expr:
    """Replace the elements at places that tensors state, or add to them."""
    new = node.tensor(values)
    masks = [index for index in indices if index is not None and dtype_of(index).is_bool]
    if len(indices) == len(masks) == 1 and product(shape_of(new)) == 1:
        behind = len(shape_of(x)) - len(shape_of(masks[0]))
        there = reshape(masks[0], newshape=(*shape_of(masks[0]), *(1,) * behind))
        one = reshape(new, newshape=())
        if accumulate:
            one = get_operator("logical_or")(x, one) if dtype_of(x).is_bool else add(x, one)
        return where(there, one, x)
    places = _Places(node, x, indices)
    wanted = (*places.rest[: places.first], *places.shape, *places.rest[places.first :])
    spread = get_operator("broadcast_to")(new, shape=wanted)
    if places.first:
        back = places.placed()
        spread = transpose(spread, axes=tuple(back.index(n) for n in range(len(back))))
    moved = transpose(x, axes=places.order)
    result = scattered("scatter_nd", moved, places.tuples(), spread, "add" if accumulate else "none")
    return transpose(result, axes=tuple(places.order.index(n) for n in range(len(places.order))))


@converter("aten.masked_scatter.default")
def masked_scatter(node: Node, x: Expr, mask: Expr, source: Expr) -> Expr:
    """Replace the elements where a mask holds by the elements of ``source``, in order."""
    there = get_operator("broadcast_to")(mask, shape=node.shape)
    value = get_operator("broadcast_to")(x, shape=node.shape)
    flat = reshape(there, newshape=(-1,))
    number = get_operator("cumsum")(cast_to(flat, INT64), axis=0, exclusive=True)
    picked = take(reshape(source, newshape=(-1,)), number, axis=0)
    return where(there, reshape(picked, newshape=node.shape), value)


@converter("aten.nonzero.default")
def nonzero(node: Node, x: Expr) -> Expr:
    """Return the places of the elements that are not 0, as rows."""
    if not shape_of(x):  # a row for the element, if it is not 0; without a place
        found = get_operator("nonzero")(reshape(x, newshape=(1,)))
        return get_operator("slice")(transpose(found, axes=(1, 0)), begin=(0,), end=(0,), axes=(1,))
    return transpose(get_operator("nonzero")(x), axes=(1, 0))


@converter("aten.masked_select.default")
def masked_select(node: Node, x: Expr, mask: Expr) -> Expr:
    """Return the elements where a mask holds."""
    a, b = shape_of(x), shape_of(mask)
    rank = max(len(a), len(b))
    shape = [
        joined(first, second)
        for first, second in zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b, strict=True)
    ]
    if any(dim is None for dim in shape):
        raise node.unsupported(f"a mask of shape {b} for a tensor of shape {a}")
    flat, there = (
        reshape(get_operator("broadcast_to")(each, shape=tuple(shape)), newshape=(-1,)) for each in (x, mask)
    )
    return take(flat, _true_places(node, there)[0], axis=0)
