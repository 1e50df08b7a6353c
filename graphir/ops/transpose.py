"""Permute axes, and reverse the elements along them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.dims import dim_equal
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import axis_index, normalize, sequence_of
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class TransposeAttrs:
    """``axes``: the argument's axis for each axis of the result; None: reversed."""

    axes: Any = None

    def __post_init__(self) -> None:
        if self.axes is not None:
            normalize(self, axes=sequence_of(self.axes, "axes"))


@register_operator
class transpose(Operator):
    """Permute the axes of ``x``."""

    name = "transpose"
    total_reference = True
    arguments = ("x",)
    kind = "injective"
    reorders = True
    moves_elements = True
    Attrs = TransposeAttrs

    def order(self, ndim: int, attrs: TransposeAttrs) -> list[int]:
        """Return the argument's axis for each axis of the result, counted from the front.

        Raises:
            TypeInferenceError: the axes are no permutation.
        """
        if attrs.axes is None:
            return list(range(ndim))[::-1]
        axes = [axis_index(self, axis, ndim, "axes") for axis in attrs.axes]
        if sorted(axes) != list(range(ndim)):
            raise self.error("axes", f"a permutation of {ndim} axes", attrs.axes)
        return axes

    def infer_type(self, args: Sequence[TensorType], attrs: TransposeAttrs) -> TensorType:
        (x,) = args
        return TensorType([x.shape[axis] for axis in self.order(x.ndim, attrs)], x.dtype)

    def reference(self, args: Sequence[Any], attrs: TransposeAttrs) -> Any:
        return np.transpose(args[0], attrs.axes)

    def is_identity(self, args: Sequence[GraphExpr], attrs: TransposeAttrs) -> bool:
        return self.order(args[0].ndim, attrs) == list(range(args[0].ndim))

    def is_reshape(self, args: Sequence[TensorType], attrs: TransposeAttrs) -> bool:
        (x,) = args
        moved = [axis for axis in self.order(x.ndim, attrs) if not dim_equal(x.shape[axis], 1)]
        return moved == sorted(moved)

    def compute(self, args: Sequence[Tensor], attrs: TransposeAttrs, out: TensorType) -> Tensor:
        (x,) = args
        order = self.order(x.ndim, attrs)
        return te.compute(
            out.shape, lambda *place: x[tuple(place[order.index(axis)] for axis in range(x.ndim))], name="transpose"
        )


@dataclasses.dataclass(frozen=True)
class FlipAttrs:
    """``axis``: an axis or a tuple of axes; None: all."""

    axis: Any = None

    def __post_init__(self) -> None:
        if self.axis is not None:
            normalize(self, axis=sequence_of(self.axis, "axis"))


@register_operator
class flip(Operator):
    """Reverse the elements of ``x`` along axes."""

    name = "flip"
    arguments = ("x",)
    kind = "injective"
    moves_elements = True
    involution = True
    Attrs = FlipAttrs

    def _axes(self, ndim: int, attrs: FlipAttrs) -> set[int]:
        if attrs.axis is None:
            return set(range(ndim))
        return {axis_index(self, axis, ndim) for axis in attrs.axis}

    def infer_type(self, args: Sequence[TensorType], attrs: FlipAttrs) -> TensorType:
        self._axes(args[0].ndim, attrs)
        return args[0]

    def reference(self, args: Sequence[Any], attrs: FlipAttrs) -> Any:
        return np.flip(args[0], attrs.axis)

    def compute(self, args: Sequence[Tensor], attrs: FlipAttrs, out: TensorType) -> Tensor:
        (x,) = args
        axes = self._axes(x.ndim, attrs)
        return te.compute(
            out.shape,
            lambda *place: x[tuple(x.shape[n] - 1 - i if n in axes else i for n, i in enumerate(place))],
            name="flip",
        )
