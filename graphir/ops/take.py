"""Gather elements by a tensor of indices."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import axis_index, guarded
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import Expr, Var, cast, maximum, minimum, select
from tilewright.tensorir.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class TakeAttrs:
    """``axis``: the axis that the indices refer to."""

    axis: int = 0


@register_operator
class take(Operator):
    """Gather slices along an axis, as ``numpy.take(x, indices, axis)``. Negative indices count from the end; an index
    that is still out of bounds is clamped to the nearest element, as compiled code cannot raise an error. If there is
    no element the result is zero."""

    name = "take"
    arguments = ("x", "indices")
    kind = "injective"
    Attrs = TakeAttrs
    literals_from = 2

    def infer_type(self, args: Sequence[TensorType], attrs: TakeAttrs) -> TensorType:
        x, indices = args
        if not indices.dtype.is_integer:
            raise self.error(1, "an integer tensor", indices)
        axis = axis_index(self, attrs.axis, x.ndim)
        return TensorType((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype)

    def reference(self, args: Sequence[Any], attrs: TakeAttrs) -> Any:
        x, indices = args
        extent = x.shape[attrs.axis]
        signed = indices.astype(np.int64)
        if extent == 0:
            axis = attrs.axis % x.ndim
            return np.zeros((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype)
        places = np.clip(np.where(signed < 0, signed + extent, signed), 0, extent - 1)
        return np.take(x, places, axis=attrs.axis)

    def symbolic_value(self, args: Sequence[np.ndarray[Any, Any]], attrs: TakeAttrs, out: TensorType) -> Any:
        x, indices = args
        return None if indices.dtype == object or x.shape[attrs.axis] == 0 else self.reference(args, attrs)

    def compute(self, args: Sequence[Tensor], attrs: TakeAttrs, out: TensorType) -> Tensor:
        x, indices = args
        axis = attrs.axis % x.ndim
        extent = x.shape[axis]

        def element(*place: Var) -> Expr:
            index = cast("int64", indices[place[axis : axis + indices.ndim]])
            if indices.dtype.is_int:
                index = select(index < 0, index + extent, index)
            index = maximum(minimum(index, extent - 1), 0)
            load = x(*place[:axis], index, *place[axis + indices.ndim :])
            is_known = isinstance(getattr(extent, "value", None), int) and extent.value > 0  # type: ignore[attr-defined]
            return load if is_known else guarded(extent > 0, load, 0)

        return te.compute(out.shape, element, name="take")
