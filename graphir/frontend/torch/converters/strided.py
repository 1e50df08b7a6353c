"""Convert operators that look at the memory of a tensor, past its shape: ``as_strided`` and its kin.

What they read depends on where PyTorch keeps the elements, so on the strides of the argument, which the traced program
knows. A value here has no strides: its elements are put in the order of PyTorch's memory first, or each place in memory
is looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch._prims_common import is_contiguous_or_false

from tilewright.graphir.dims import Dim, dim_equal, never_negative, product, simplify
from tilewright.graphir.expr import Expr, const
from tilewright.graphir.frontend.runtime_sizes import as_number
from tilewright.graphir.frontend.torch.node import Node, axis_places, reshaped, shape_of
from tilewright.graphir.frontend.torch.registry import converter
from tilewright.graphir.frontend.torch.strides import memory_order
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import add, multiply, reshape, take, transpose


class _Memory:
    """The elements of a tensor as they lie in memory.

    Attributes:
        flat: the elements in a row: those of a tensor that fills its memory in the order of the memory, others in
            row-major order.
    """

    def __init__(self, node: Node, x: Expr) -> None:
        value = node.arguments[0]
        if not isinstance(value, torch.Tensor):
            raise node.unsupported("memory of unknown strides")
        self.node, self.shape = node, shape_of(x)
        self.strides = node.dims(value.stride())
        (self.start,) = node.dims([value.storage_offset()])
        self.order = memory_order(value) or tuple(range(len(self.shape)))
        self.is_full = is_contiguous_or_false(value) or self._is_full()
        if not self.is_full:
            self.order = tuple(range(len(self.shape)))
        self.flat = reshape(self._ordered(x), newshape=(-1,))

    def _is_full(self) -> bool:
        expected: Dim = 1
        for axis in reversed(self.order):
            if isinstance(self.shape[axis], int) and self.shape[axis] == 1:
                continue
            if not dim_equal(self.strides[axis], expected):
                return False
            expected = product([expected, self.shape[axis]])
        return True

    def _ordered(self, x: Expr) -> Expr:
        return x if self.order == tuple(range(len(self.order))) else transpose(x, axes=self.order)

    def restored(self, flat: Expr) -> Expr:
        """Return changed elements of ``flat`` in the shape of the tensor."""
        found = reshaped(flat, [self.shape[axis] for axis in self.order])
        return transpose(found, axes=tuple(map(self.order.index, range(len(self.order))))) if self.order else found

    def places(self, size: Sequence[Dim], stride: Sequence[Dim], offset: Dim | None) -> Expr:
        """Return the places in ``flat`` of the elements of a tensor of these sizes and strides.

        Args:
            offset: the place of its first element in the whole memory; None: where the tensor begins.

        Raises:
            UnsupportedOperatorError: elements are not proved to be elements of the tensor.
        """
        first = simplify(0 if offset is None else offset - self.start)
        if self.is_full:
            last = first + sum((extent - 1) * step for extent, step in zip(size, stride, strict=True))
            behind = simplify(product(self.shape) - 1 - last)
            if 0 not in size and not (never_negative(first) and never_negative(behind)):
                raise self.node.unsupported("memory outside the tensor")
            return _strided(size, stride, first)
        if not all(isinstance(each, int) for each in (first, *size, *stride, *self.shape, *self.strides)):
            raise self.node.unsupported("memory of symbolic sizes and with gaps")
        wanted = _places(size, stride) + first
        own = _places(self.shape, self.strides).reshape(-1)
        known, numbers = np.unique(own, return_index=True)  # of repeated elements the first
        if not np.isin(wanted, known).all():
            raise self.node.unsupported("memory outside the tensor")
        return const(numbers[np.searchsorted(known, wanted)].astype(np.int64))


def _strided(size: Sequence[Dim], stride: Sequence[Dim], first: Dim) -> Expr:
    place = as_number(first)
    for axis, (extent, step) in enumerate(zip(size, stride, strict=True)):
        place = add(place, multiply(axis_places(extent, len(size) - axis - 1), as_number(step)))
    return get_operator("broadcast_to")(place, shape=tuple(size))


def _places(size: Sequence[Any], stride: Sequence[Any]) -> np.ndarray[Any, Any]:
    """Return the place of each element of a tensor of these sizes and strides, counted from the first."""
    places = np.zeros((), np.int64)
    for extent, step in zip(size, stride, strict=True):
        places = places[..., None] + np.arange(extent) * step
    return places


@converter("aten.as_strided.default", "aten.as_strided_copy.default")
def as_strided(node: Node, x: Expr, size: Sequence[Dim], stride: Sequence[Dim], offset: Dim | None) -> Expr:
    """Read elements at places in memory that are sums of strides."""
    memory = _Memory(node, x)
    return take(memory.flat, memory.places(size, stride, offset), axis=0)


@converter("aten.as_strided_scatter.default")
def as_strided_scatter(
    node: Node, x: Expr, source: Expr, size: Sequence[Dim], stride: Sequence[Dim], offset: Dim | None
) -> Expr:
    """Replace elements at places in memory that are sums of strides."""
    memory = _Memory(node, x)
    if any(isinstance(step, int) and step == 0 for step in memory.strides):
        raise node.unsupported("writing to repeated elements")
    places = reshape(memory.places(size, stride, offset), newshape=(-1,))
    values = reshape(node.tensor(source), newshape=(-1,))
    return memory.restored(get_operator("scatter_elements")(memory.flat, places, values, axis=0))


@converter("aten.resize.default")
def resize(node: Node, x: Expr, size: Sequence[Dim], *_: Any) -> Expr:
    """Return the first elements in memory in another shape."""
    count, known = product(node.shape), product(shape_of(x))
    if not (isinstance(count, int) and isinstance(known, int) and count <= known):
        raise node.unsupported("a size of more elements")
    memory = _Memory(node, x)
    return reshape(take(memory.flat, memory.places((count,), (1,), None), axis=0), newshape=node.shape)
