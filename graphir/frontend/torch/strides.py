"""Describe where the elements of a tensor lie in memory, as what PyTorch knows of it tells: the order of its axes, and
the box of which it is a part."""

from __future__ import annotations

import dataclasses
import itertools

import torch
from torch._prims_common import is_contiguous_or_false

#: A size that depends on data, where one must be assumed.
_SOME = 8


@dataclasses.dataclass(frozen=True)
class Box:
    """An array without gaps of which a tensor is a part, in the memory that the tensor looks at.

    Attributes:
        order: the tensor's axes in the order of the box's, slowest first.
        shape: the shape of the box.
        starts: the index of the tensor's first element along each axis of the box.
        sizes: the tensor's shape.
        strides: the tensor's strides.
    """

    order: tuple[int, ...]
    shape: tuple[int, ...]
    starts: tuple[int, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def offset(self) -> int:
        """The number of elements from the first of the box to the first of the tensor."""
        return sum(start * self.strides[axis] for start, axis in zip(self.starts, self.order, strict=True))


def memory_order(value: torch.Tensor) -> tuple[int, ...] | None:
    """Return the order of the axes of a tensor in memory, slowest first, if that is not row-major order."""
    if is_contiguous_or_false(value):  # sizes may depend on data: then nothing may be asked of them
        return None
    order = tuple(sorted(range(value.ndim), key=lambda axis: -_hint(value.stride(axis))))
    return None if order == tuple(range(value.ndim)) else order


def dense_order(value: torch.Tensor) -> tuple[int, ...] | None:
    """Return the order of the axes of a tensor that fills its memory without gaps, such as a transposed one, slowest
    first; None if that is row-major order, or if the tensor has gaps, or repeats elements."""
    sizes, strides = [list(map(_hint, each)) for each in (value.shape, value.stride())]
    long = sorted((axis for axis, size in enumerate(sizes) if size != 1), key=lambda axis: -strides[axis])
    expected = 1
    for axis in reversed(long):
        if strides[axis] != expected:
            return None
        expected *= sizes[axis]
    order = (*(axis for axis, size in enumerate(sizes) if size == 1), *long)
    return None if long == sorted(long) else order


def enclosing_box(value: torch.Tensor) -> Box | None:
    """Return the box of which a tensor with gaps is a part, such as some columns of a matrix, or a third of the heads
    that one product computes; None if there is none, the tensor has no gaps, or its sizes are not known."""
    sizes, strides = list(value.shape), list(value.stride())
    if value.is_complex() or not all(isinstance(each, int) for each in (*sizes, *strides, value.storage_offset())):
        return None
    short = [axis for axis, size in enumerate(sizes) if size == 1]
    long = sorted((axis for axis, size in enumerate(sizes) if size != 1), key=lambda axis: -strides[axis])
    if len(long) < 2 or 0 in sizes or strides[long[-1]] != 1:
        return None
    shape, starts = [sizes[long[0]]], [0]
    rest = value.storage_offset() % strides[long[0]]
    for outer, axis in itertools.pairwise(long):
        extent, beyond = divmod(strides[outer], strides[axis])
        start, rest = divmod(rest, strides[axis])
        if beyond or start + sizes[axis] > extent:
            return None
        shape.append(extent)
        starts.append(start)
    if shape == [sizes[axis] for axis in long]:
        return None
    before = len(short)
    return Box((*short, *long), (*[1] * before, *shape), (*[0] * before, *starts), tuple(sizes), tuple(strides))


def _hint(stride: int | torch.SymInt) -> int:
    """Return a size or a stride: of symbolic sizes that of the values that PyTorch saw, or where one depends on data,
    that for a few elements along each axis."""
    if not isinstance(stride, torch.SymInt):
        return int(stride)
    if stride.node.has_hint():
        return int(stride.node.hint)
    formula = stride.node.expr
    return int(formula.subs(dict.fromkeys(formula.free_symbols, _SOME)))
