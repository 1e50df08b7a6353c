"""Gather elements by tensors of indices of the result's shape, or by tuples of indices, and reverse sequences by
length.

As in ``take``, negative indices count from the end, an index that is still out of bounds is clamped to the nearest
element, as compiled code cannot raise an error, and if there is no element to gather the result is zero.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.dims import dim_equal
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import axis_index, guarded
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import Expr, IntImm, Var, all_of, as_expr, cast, maximum, minimum, select
from tilewright.tensorir.tensor import Tensor


def from_the_end(index: Expr, extent: Expr) -> Expr:
    """Convert ``index`` to int64, counted from the front: a negative one of a signed type counts from the end."""
    wide = cast("int64", index)
    return select(wide < 0, wide + extent, wide) if index.dtype.is_int else wide


def nearest(index: Expr, extent: Expr) -> Expr:
    """Clamp ``index`` to ``[0, extent)``; return 0 for an axis without elements."""
    return maximum(minimum(index, extent - 1), 0)


def positions(indices: np.ndarray[Any, Any], extent: int) -> np.ndarray[Any, Any]:
    """Convert an array of indices as :func:`from_the_end` does an expression."""
    wide = indices.astype(np.int64)
    return np.where(wide < 0, wide + extent, wide) if indices.dtype.kind == "i" else wide


def check_indices(op: Operator, indices: TensorType) -> None:
    """Check that argument 1 holds integers.

    Raises:
        TypeInferenceError: it does not.
    """
    if not indices.dtype.is_integer:
        raise op.error(1, "an integer tensor", indices)


def check_beside(op: Operator, x: TensorType, indices: TensorType, axis: int) -> None:
    """Check that argument 1 has the dimensions of argument 0 and, beside ``axis``, is not larger.

    Raises:
        TypeInferenceError: otherwise.
    """
    if indices.ndim != x.ndim:
        raise op.error(1, f"{x.ndim} dimensions", indices)
    for number, (size, extent) in enumerate(zip(indices.shape, x.shape, strict=True)):
        if number != axis and isinstance(size, int) and isinstance(extent, int) and size > extent:
            raise op.error(1, f"at most {extent} elements along axis {number}", indices)


def _picked(x: Tensor, place: Sequence[Expr]) -> Expr:
    """Return the element of ``x`` at ``place``; 0 if ``x`` has none."""
    sizes = [extent for extent in x.shape if getattr(extent, "value", 0) == 0]
    return guarded(all_of(*(extent > 0 for extent in sizes)), x[tuple(place)], 0)


@dataclasses.dataclass(frozen=True)
class AxisAttrs:
    """``axis``: the axis that the indices refer to."""

    axis: int = 0


@register_operator
class gather_elements(Operator):
    """Gather along an axis by one index for each result: ``result[i, j] = x[indices[i, j], j]`` for axis 0. This is
    ``numpy.take_along_axis``, where ``indices`` may be shorter than ``x`` along the other axes."""

    name = "gather_elements"
    arguments = ("x", "indices")
    kind = "injective"
    Attrs = AxisAttrs
    literals_from = 2

    def infer_type(self, args: Sequence[TensorType], attrs: AxisAttrs) -> TensorType:
        x, indices = args
        check_indices(self, indices)
        check_beside(self, x, indices, axis_index(self, attrs.axis, x.ndim))
        return TensorType(indices.shape, x.dtype)

    def reference(self, args: Sequence[Any], attrs: AxisAttrs) -> Any:
        x, indices = args
        if x.size == 0:
            return np.zeros(indices.shape, x.dtype)
        axis = attrs.axis % x.ndim
        place = list(np.indices(indices.shape, sparse=True))
        place[axis] = np.clip(positions(indices, x.shape[axis]), 0, x.shape[axis] - 1)
        return x[tuple(place)]

    def compute(self, args: Sequence[Tensor], attrs: AxisAttrs, out: TensorType) -> Tensor:
        x, indices = args
        axis = attrs.axis % x.ndim

        def element(*place: Var) -> Expr:
            at: list[Expr] = []
            for number, (extent, size) in enumerate(zip(x.shape, indices.shape, strict=True)):
                if number == axis:
                    at.append(nearest(from_the_end(indices[place], extent), extent))
                else:
                    at.append(place[number] if fits(size, extent) else nearest(place[number], extent))
            return _picked(x, at)

        return te.compute(out.shape, element, name="gather_elements")


def fits(size: Expr, extent: Expr) -> bool:
    """Return whether ``size`` is provably at most ``extent``."""
    if isinstance(size, IntImm) and isinstance(extent, IntImm):
        return size.value <= extent.value
    return dim_equal(size, extent)


@dataclasses.dataclass(frozen=True)
class GatherNDAttrs:
    """``batch_dims``: the number of leading dimensions that ``x`` and ``indices`` share."""

    batch_dims: int = 0


@register_operator
class gather_nd(Operator):
    """Gather elements or slices by tuples of indices: ``result[i] = x[indices[i, 0], indices[i, 1], ...]``. The last
    axis of ``indices`` holds the leading indices of an element or a slice. With shared batch dimensions, each batch
    gathers from its own."""

    name = "gather_nd"
    arguments = ("x", "indices")
    kind = "injective"
    Attrs = GatherNDAttrs
    literals_from = 2

    def infer_type(self, args: Sequence[TensorType], attrs: GatherNDAttrs) -> TensorType:
        x, indices = args
        batch = attrs.batch_dims
        check_indices(self, indices)
        if not 0 <= batch < max(1, min(x.ndim, indices.ndim)):
            raise self.error("batch_dims", f"less than the {min(x.ndim, indices.ndim)} dimensions", batch)
        depth = index_depth(self, x, indices, batch)
        for number in range(batch):
            if not dim_equal(x.shape[number], indices.shape[number]):
                raise self.error(1, f"{x.shape[number]} elements along batch dimension {number}", indices)
        return TensorType((*indices.shape[:-1], *x.shape[batch + depth :]), x.dtype)

    def reference(self, args: Sequence[Any], attrs: GatherNDAttrs) -> Any:
        x, indices = args
        batch, depth = attrs.batch_dims, indices.shape[-1]
        if x.size == 0:
            return np.zeros((*indices.shape[:-1], *x.shape[batch + depth :]), x.dtype)
        place = list(np.indices(indices.shape[:-1], sparse=True))[:batch]
        for number in range(depth):
            extent = x.shape[batch + number]
            place.append(np.clip(positions(indices[..., number], extent), 0, extent - 1))
        picked = x[tuple(place)]
        return np.broadcast_to(picked, (*indices.shape[:-1], *x.shape[batch + depth :])).copy()

    def compute(self, args: Sequence[Tensor], attrs: GatherNDAttrs, out: TensorType) -> Tensor:
        x, indices = args
        batch, depth = attrs.batch_dims, index_depth(self, x, indices, attrs.batch_dims)

        def element(*place: Var) -> Expr:
            row = place[: indices.ndim - 1]
            at: list[Expr] = list(place[:batch])
            for number in range(depth):
                extent = x.shape[batch + number]
                at.append(nearest(from_the_end(indices(*row, number), extent), extent))
            return _picked(x, [*at, *place[indices.ndim - 1 :]])

        return te.compute(out.shape, element, name="gather_nd")


def index_depth(op: Operator, x: TensorType | Tensor, indices: TensorType | Tensor, batch: int = 0) -> int:
    """Return the number of indices that the last axis of ``indices`` holds.

    Raises:
        TypeInferenceError: that is not known, or more than ``x`` has dimensions.
    """
    size = indices.shape[-1] if indices.ndim else None
    depth = getattr(size, "value", size)
    if not isinstance(depth, int) or depth > x.ndim - batch:
        raise op.error(1, f"a last axis of known size, at most {x.ndim - batch}", indices)
    return depth


@dataclasses.dataclass(frozen=True)
class ReverseSequenceAttrs:
    """``batch_axis``: the axis of the sequences; ``time_axis``: the axis along which they run."""

    batch_axis: int = 1
    time_axis: int = 0


@register_operator
class reverse_sequence(Operator):
    """Reverse the first ``lengths[b]`` elements of each sequence, and keep the rest."""

    name = "reverse_sequence"
    arguments = ("x", "lengths")
    kind = "injective"
    Attrs = ReverseSequenceAttrs
    literals_from = 2

    def infer_type(self, args: Sequence[TensorType], attrs: ReverseSequenceAttrs) -> TensorType:
        x, lengths = args
        check_indices(self, lengths)
        batch = axis_index(self, attrs.batch_axis, x.ndim, "batch_axis")
        if batch == axis_index(self, attrs.time_axis, x.ndim, "time_axis"):
            raise self.error("time_axis", f"another axis than batch_axis = {attrs.batch_axis}", attrs.time_axis)
        if lengths.ndim != 1 or not dim_equal(lengths.shape[0], x.shape[batch]):
            raise self.error(1, f"a vector of {x.shape[batch]} lengths", lengths)
        return x

    def reference(self, args: Sequence[Any], attrs: ReverseSequenceAttrs) -> Any:
        x, lengths = args
        moved = np.moveaxis(x, (attrs.batch_axis, attrs.time_axis), (0, 1))
        result = moved.copy()
        for number, length in enumerate(np.clip(lengths.astype(np.int64), 0, moved.shape[1])):
            result[number, :length] = moved[number, :length][::-1]
        return np.ascontiguousarray(np.moveaxis(result, (0, 1), (attrs.batch_axis, attrs.time_axis)))

    def compute(self, args: Sequence[Tensor], attrs: ReverseSequenceAttrs, out: TensorType) -> Tensor:
        x, lengths = args
        batch, time = attrs.batch_axis % x.ndim, attrs.time_axis % x.ndim

        def element(*place: Var) -> Expr:
            length = minimum(cast("int64", lengths[place[batch]]), as_expr(x.shape[time]))
            at: list[Expr] = list(place)
            at[time] = select(place[time] < length, length - 1 - place[time], place[time])
            return x[tuple(at)]

        return te.compute(out.shape, element, name="reverse_sequence")
