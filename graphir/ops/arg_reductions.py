"""Find the index of an extreme value along axes: argmax, argmin."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import NUMBERS, axis_index, check_dtype, compute_type, widened
from tilewright.graphir.ops.reductions import check_not_empty
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import Expr, Var, as_expr, cast
from tilewright.tensorir.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class ArgReduceAttrs:
    """The axis of a search for an extreme value.

    Attributes:
        axis: an axis; None: all, counted in row-major order.
        keepdims: whether reduced axes stay with extent 1.
        select_last_index: whether to return the last of equal values rather than the first.
    """

    axis: Any = None
    keepdims: bool = False
    select_last_index: bool = False


class ArgReduce(Operator):
    """Base of argmax and argmin: indices are int64. A NaN is the extreme value, and NaNs count as equal."""

    arguments = ("x",)
    kind = "reduction"
    Attrs = ArgReduceAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: ArgReduceAttrs) -> TensorType:
        (x,) = args
        check_dtype(self, 0, x, NUMBERS)
        axes = self._axes(x.ndim, attrs)
        check_not_empty(self, x, axes)
        kept = [1 if n in axes else dim for n, dim in enumerate(x.shape) if attrs.keepdims or n not in axes]
        return TensorType(kept, INT64)

    def _axes(self, ndim: int, attrs: ArgReduceAttrs) -> list[int]:
        return list(range(ndim)) if attrs.axis is None else [axis_index(self, attrs.axis, ndim)]

    def find(self, x: np.ndarray[Any, Any], axis: int | None) -> Any:
        """Return the index of the first extreme value."""
        raise NotImplementedError(f"operator {self.name} states no NumPy reference")

    def reference(self, args: Sequence[Any], attrs: ArgReduceAttrs) -> Any:
        x = widened(args[0])
        if attrs.axis is None:
            flat = x.reshape(-1)
            place = np.asarray(
                flat.size - 1 - self.find(flat[::-1], 0) if attrs.select_last_index else self.find(x, None)
            )
            place = place.reshape((1,) * x.ndim) if attrs.keepdims else place
        elif attrs.select_last_index:
            place = x.shape[attrs.axis] - 1 - self.find(np.flip(x, attrs.axis), attrs.axis)
        else:
            place = self.find(x, attrs.axis)
        if attrs.keepdims and attrs.axis is not None:
            place = np.expand_dims(place, attrs.axis)
        return np.asarray(place, np.int64)

    def arg(self, source: Expr, axes: Sequence[Var], index: Expr, last: bool) -> te.Reduction:
        """Return the reduction."""
        raise NotImplementedError(f"operator {self.name} states no reduction")

    def compute(self, args: Sequence[Tensor], attrs: ArgReduceAttrs, out: TensorType) -> Tensor:
        (x,) = args
        reduced = self._axes(x.ndim, attrs)
        wide = compute_type(x.dtype)
        if not reduced:
            return te.compute(out.shape, lambda *place: as_expr(0), name=self.__name__)
        over = {axis: te.reduce_axis(x.shape[axis], f"k{axis}") for axis in reduced}
        flat = as_expr(0)
        for axis, var in over.items():
            flat = flat * x.shape[axis] + var

        def element(*place: Var) -> te.Reduction:
            rest = list(place)
            indices: list[Expr] = []
            for axis in range(x.ndim):
                if axis in over:
                    indices.append(over[axis])
                    if attrs.keepdims:
                        rest.pop(0)
                else:
                    indices.append(rest.pop(0))
            value = cast(wide, x[tuple(indices)])
            return self.arg(value, list(over.values()), flat, attrs.select_last_index)

        return te.compute(out.shape, element, name=self.__name__)


@register_operator
class argmax(ArgReduce):
    """Find the index (int64) of the greatest value along an axis; NaN is greater than all numbers."""

    name = "argmax"

    def find(self, x: np.ndarray[Any, Any], axis: int | None) -> Any:
        return np.argmax(x, axis)

    def arg(self, source: Expr, axes: Sequence[Var], index: Expr, last: bool) -> te.Reduction:
        return te.argmax(source, axes, index, last)  # type: ignore[arg-type]


@register_operator
class argmin(ArgReduce):
    """Find the index (int64) of the least value along an axis; NaN is less than all numbers."""

    name = "argmin"

    def find(self, x: np.ndarray[Any, Any], axis: int | None) -> Any:
        return np.argmin(x, axis)

    def arg(self, source: Expr, axes: Sequence[Var], index: Expr, last: bool) -> te.Reduction:
        return te.argmin(source, axes, index, last)  # type: ignore[arg-type]
