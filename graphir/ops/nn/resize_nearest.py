"""Resize by nearest neighbours: elements are picked, not summed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.dims import Dim, as_dim
from tilewright.graphir.op import register_operator
from tilewright.graphir.ops.common import guarded
from tilewright.graphir.ops.nn.resize import Resize, ResizeAttrs
from tilewright.graphir.ops.nn.resize_coordinates import nearest_index, outside
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.expr import Expr, Var, as_expr, const, maximum, minimum, select
from tilewright.tensorir.tensor import Tensor


@register_operator
class resize_nearest(Resize):
    """Resize ``x`` along axes: each element is the one of the source nearest to its place."""

    name = "nn.resize_nearest"
    kind = "injective"

    def reference(self, args: Sequence[Any], attrs: ResizeAttrs) -> Any:
        (x,) = args
        result = x
        for step in self.steps(x.shape, attrs):
            (axis,), extent = step.axes, x.shape[step.axes[0]]
            place = self.place(np.arange(step.size[0]), extent, step)
            result = np.take(result, np.clip(nearest_index(*place, attrs.rounding), 0, extent - 1), axis=axis)
            if attrs.coordinate_mode == "tf_crop_and_resize":
                beyond = np.expand_dims(outside(place, extent), tuple(range(1, x.ndim - axis)))
                result = np.where(beyond, np.asarray(attrs.extrapolation_value).astype(x.dtype), result)
        return result.copy() if result is x else result

    def compute(self, args: Sequence[Tensor], attrs: ResizeAttrs, out: TensorType) -> Tensor:
        (x,) = args
        steps = self.steps([as_dim(extent) for extent in x.shape], attrs)

        def element(*place: Var) -> Expr:
            indices: list[Expr] = list(place)
            beyond: Expr = const(False, "bool")
            some = const(True, "bool")
            for step in steps:
                (axis,) = step.axes
                extent = as_dim(x.shape[axis])
                at = self.place(place[axis], extent, step)
                indices[axis] = maximum(minimum(as_expr(nearest_index(*at, attrs.rounding)), extent - 1), 0)
                some = _and(some, as_expr(extent) > 0, extent)
                if attrs.coordinate_mode == "tf_crop_and_resize":
                    beyond = beyond | outside(at, extent)
            value = guarded(some, x[tuple(indices)], 0)
            if attrs.coordinate_mode != "tf_crop_and_resize":
                return value
            return select(beyond, const(_as_type(attrs.extrapolation_value, x.dtype), x.dtype), value)

        return te.compute(out.shape, element, name="resize_nearest")


def _and(conditions: Expr, condition: Expr, extent: Dim) -> Expr:
    """Return the conjunction, if the second condition is not known already: an axis of symbolic extent may have no
    element to read."""
    if isinstance(extent, int):
        return conditions
    return condition if getattr(conditions, "value", None) else conditions & condition


def _as_type(value: float, dtype: DataType) -> float | int:
    return value if dtype.is_float else int(value)
