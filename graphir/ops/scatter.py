"""Replace some elements of a tensor by others, or combine them.

Negative indices count from the end. An update whose index is out of bounds is dropped, as compiled code cannot raise an
error. Updates of one element are applied in row-major order, so the last one stays; half types are combined in float32.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.graphir.dims import shape_equal
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import (
    ANY,
    NUMBERS,
    axis_index,
    check_dtype,
    compute_type,
    guarded,
    normalize,
    widened,
)
from tilewright.graphir.ops.gather import check_beside, check_indices, fits, from_the_end, index_depth, positions
from tilewright.graphir.ops.loop_nests import let, nest
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.errors import ArgumentValueError
from tilewright.tensorir.expr import Buffer, Expr, IntImm, Var, all_of, as_expr, binary, cast, select
from tilewright.tensorir.stmt import BufferStore, IfThenElse, Stmt, sequence
from tilewright.tensorir.tensor import Tensor

#: The in-place combination of an element and an update on NumPy arrays; ``none`` takes the update.
_REDUCTIONS: dict[str, Callable[..., None]] = {
    "add": np.add.at,
    "mul": np.multiply.at,
    "max": np.maximum.at,
    "min": np.minimum.at,
}


@dataclasses.dataclass(frozen=True)
class ScatterNDAttrs:
    """``reduction``: ``none`` (the update replaces the element), ``add``, ``mul``, ``max`` or ``min``."""

    reduction: str = "none"

    def __post_init__(self) -> None:
        if self.reduction not in ("none", *_REDUCTIONS):
            raise ArgumentValueError(
                f"reduction: expected one of none, {', '.join(_REDUCTIONS)}, found {self.reduction!r}"
            )


@dataclasses.dataclass(frozen=True)
class ScatterElementsAttrs(ScatterNDAttrs):
    """As :class:`ScatterNDAttrs`; ``axis``: the axis that the indices refer to."""

    axis: int = 0


class Scatter(Operator):
    """Base of the scatter operators."""

    arguments = ("x", "indices", "updates")
    literals_from = 3

    def check_types(self, args: Sequence[TensorType], attrs: ScatterNDAttrs) -> None:
        """Check the element types.

        Raises:
            TypeInferenceError: they do not fit.
        """
        x, indices, updates = args
        check_dtype(self, 0, x, ANY if attrs.reduction == "none" else NUMBERS)
        check_indices(self, indices)
        if updates.dtype is not x.dtype:
            raise self.error(2, f"element type {x.dtype!s}", updates)

    def combined(self, x: Any, place: Any, updates: Any, attrs: ScatterNDAttrs) -> Any:
        """Return a copy of the array ``x``, with ``updates`` combined at ``place``."""
        if attrs.reduction == "none":
            result = x.copy()
            result[place] = updates
            return result
        result = widened(x).copy()
        with np.errstate(all="ignore"):
            _REDUCTIONS[attrs.reduction](result, place, widened(updates))
            return result.astype(x.dtype, copy=False)

    def scattered(
        self,
        x: Tensor,
        attrs: ScatterNDAttrs,
        out: TensorType,
        updates: Callable[[Callable[[Sequence[Expr], Expr, Expr], Stmt]], Stmt],
    ) -> Tensor:
        """Copy ``x``, then run the loops ``updates(store)``; ``store(place, inside, value)`` is one update."""
        wide = x.dtype if attrs.reduction == "none" else compute_type(x.dtype)

        def loops(outputs: list[Buffer]) -> Stmt:
            (result,) = outputs

            def store(place: Sequence[Expr], inside: Expr, value: Expr) -> Stmt:
                value = cast(wide, value)
                if attrs.reduction != "none":
                    value = binary(attrs.reduction, result[tuple(place)], value)
                stmt = BufferStore(result, value, tuple(place))
                return stmt if isinstance(inside, IntImm) and inside.value else IfThenElse(inside, stmt)

            copy = nest(x.shape, lambda place: BufferStore(result, cast(wide, x[tuple(place)]), tuple(place)))
            return sequence(copy, updates(store))

        (result,) = te.extern([(out.shape, wide)], loops, self.__name__)
        if wide is out.dtype:
            return result
        return te.compute(out.shape, lambda *place: cast(out.dtype, result[place]), name=f"{self.__name__}_cast")


@register_operator
class scatter_elements(Scatter):
    """Scatter along an axis by one index for each update: ``result[indices[i, j], j] = updates[i, j]`` for axis 0,
    starting from a copy of ``x``."""

    name = "scatter_elements"
    Attrs = ScatterElementsAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: ScatterElementsAttrs) -> TensorType:
        x, indices, updates = args
        self.check_types(args, attrs)
        check_beside(self, x, indices, axis_index(self, attrs.axis, x.ndim))
        if not shape_equal(indices.shape, updates.shape):
            raise self.error(2, f"the shape of the indices, {indices}", updates)
        return x

    def reference(self, args: Sequence[Any], attrs: ScatterElementsAttrs) -> Any:
        x, indices, updates = args
        axis = attrs.axis % x.ndim
        place = list(np.indices(indices.shape))
        place[axis] = positions(indices, x.shape[axis])
        inside = (place[axis] >= 0) & (place[axis] < x.shape[axis])
        return self.combined(x, tuple(part[inside] for part in place), updates[inside], attrs)

    def compute(self, args: Sequence[Tensor], attrs: ScatterElementsAttrs, out: TensorType) -> Tensor:
        x, indices, updates = args
        axis = attrs.axis % x.ndim
        # Rows along the axis are independent, so the axis is the innermost loop.
        order = [number for number in range(x.ndim) if number != axis] + [axis]

        def loops(store: Callable[[Sequence[Expr], Expr, Expr], Stmt]) -> Stmt:
            def update(ordered: list[Expr]) -> Stmt:
                source = tuple(ordered[order.index(number)] for number in range(x.ndim))

                def at(index: Var) -> Stmt:
                    place = [*source[:axis], index, *source[axis + 1 :]]
                    conditions = [index >= 0, index < x.shape[axis]]
                    for number, (size, extent) in enumerate(zip(indices.shape, x.shape, strict=True)):
                        if number != axis and not fits(size, extent):
                            conditions.append(source[number] < extent)
                    return store(place, all_of(*conditions), updates[source])

                return let("index", from_the_end(indices[source], x.shape[axis]), at)

            return nest([indices.shape[number] for number in order], update, parallel=x.ndim > 1)

        return self.scattered(x, attrs, out, loops)


@register_operator
class scatter_nd(Scatter):
    """Scatter elements or slices by tuples of indices: ``result[indices[i, 0], indices[i, 1], ...] = updates[i]``,
    starting from a copy of ``x``. The last axis of ``indices`` holds the leading indices of the updated element or
    slice."""

    name = "scatter_nd"
    Attrs = ScatterNDAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: ScatterNDAttrs) -> TensorType:
        x, indices, updates = args
        self.check_types(args, attrs)
        expected = (*indices.shape[:-1], *x.shape[index_depth(self, x, indices) :])
        if not shape_equal(updates.shape, expected):
            raise self.error(2, f"a tensor of shape {TensorType(expected, x.dtype)}", updates)
        return x

    def reference(self, args: Sequence[Any], attrs: ScatterNDAttrs) -> Any:
        x, indices, updates = args
        depth = indices.shape[-1]
        parts = [positions(indices[..., number], x.shape[number]).reshape(-1) for number in range(depth)]
        count = int(np.prod(indices.shape[:-1]))
        inside = np.ones(count, bool)
        for part, extent in zip(parts, x.shape, strict=False):
            inside &= (part >= 0) & (part < extent)
        rows = updates.reshape(count, *x.shape[depth:])
        if depth == 0:  # every update replaces the whole tensor
            result = x
            for row in rows:
                result = self.combined(result, ..., row, attrs)
            return result.copy()
        return self.combined(x, tuple(part[inside] for part in parts), rows[inside], attrs)

    def compute(self, args: Sequence[Tensor], attrs: ScatterNDAttrs, out: TensorType) -> Tensor:
        x, indices, updates = args
        depth = index_depth(self, x, indices)

        def loops(store: Callable[[Sequence[Expr], Expr, Expr], Stmt]) -> Stmt:
            def slice_at(row: list[Expr], place: list[Expr]) -> Stmt:
                if len(place) < depth:
                    number = len(place)
                    index = from_the_end(indices(*row, number), x.shape[number])
                    return let(f"index{number}", index, lambda var: slice_at(row, [*place, var]))
                pairs = zip(place, x.shape, strict=False)
                inside = all_of(*(condition for index, extent in pairs for condition in (index >= 0, index < extent)))
                return nest(
                    x.shape[depth:],
                    lambda rest: store([*place, *rest], inside, updates(*row, *rest)),
                    parallel=False,
                )

            return nest(indices.shape[:-1], lambda row: slice_at(row, []), parallel=False)

        return self.scattered(x, attrs, out, loops)


@dataclasses.dataclass(frozen=True)
class TensorScatterAttrs:
    """``axis``: the axis along which updates are written; ``mode``: ``linear``, or ``circular``: elements beyond the
    end wrap to the beginning."""

    axis: int = -2
    mode: str = "linear"

    def __post_init__(self) -> None:
        if self.mode not in ("linear", "circular"):
            raise ArgumentValueError(f"mode: expected linear or circular, found {self.mode!r}")
        normalize(self, axis=int(self.axis))


@register_operator
class tensor_scatter(Operator):
    """Write a run of new elements in each batch of ``x`` (a cache), beginning at ``starts[b]`` along an axis. A run is
    not longer than the axis."""

    name = "tensor_scatter"
    arguments = ("x", "update", "starts")
    kind = "injective"
    Attrs = TensorScatterAttrs
    literals_from = 3

    def infer_type(self, args: Sequence[TensorType], attrs: TensorScatterAttrs) -> TensorType:
        x, update, starts = args
        axis = axis_index(self, attrs.axis, x.ndim)
        if axis == 0:
            raise self.error("axis", "an axis other than that of the batch, 0", attrs.axis)
        if update.dtype is not x.dtype:
            raise self.error(1, f"element type {x.dtype!s}", update)
        expected = (*x.shape[:axis], *update.shape[axis : axis + 1], *x.shape[axis + 1 :])
        if not shape_equal(update.shape, expected):
            raise self.error(1, f"the shape of x beside axis {axis}, {x}", update)
        if not starts.dtype.is_integer or not shape_equal(starts.shape, x.shape[:1]):
            raise self.error(2, f"a vector of {x.shape[0]} integers", starts)
        run, extent = update.shape[axis], x.shape[axis]
        if isinstance(run, int) and isinstance(extent, int) and run > extent:
            raise self.error(1, f"at most {extent} elements along axis {axis}", update)
        return x

    def reference(self, args: Sequence[Any], attrs: TensorScatterAttrs) -> Any:
        x, update, starts = args
        axis = attrs.axis % x.ndim
        result = x.copy()
        moved, source = np.moveaxis(result, axis, 1), np.moveaxis(update, axis, 1)
        for batch, start in enumerate(starts.astype(np.int64)):
            for number in range(source.shape[1]):
                at = (start + number) % moved.shape[1] if attrs.mode == "circular" else start + number
                if 0 <= at < moved.shape[1]:
                    moved[batch, at] = source[batch, number]
        return result

    def compute(self, args: Sequence[Tensor], attrs: TensorScatterAttrs, out: TensorType) -> Tensor:
        x, update, starts = args
        axis = attrs.axis % x.ndim

        def element(*place: Var) -> Expr:
            number = place[axis] - cast("int64", starts[place[0]])
            if attrs.mode == "circular":
                number = number % as_expr(x.shape[axis])
            inside = all_of(number >= 0, number < update.shape[axis])
            at = (*place[:axis], number, *place[axis + 1 :])
            return select(inside, guarded(inside, update[at], 0), x[place])

        return te.compute(out.shape, element, name="tensor_scatter")
