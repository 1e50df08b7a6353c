"""Insert and remove axes of extent 1."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import axis_index, normalize, sequence_of
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.errors import ArgumentValueError
from tilewright.tensorir.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class ExpandDimsAttrs:
    """The positions of new axes.

    Attributes:
        axis: a position in the result, or a tuple of positions.
        num_newaxis: the number of axes to add at one position.
    """

    axis: Any
    num_newaxis: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.axis, list):
            normalize(self, axis=tuple(self.axis))
        if type(self.num_newaxis) is not int or self.num_newaxis < 0:
            raise ArgumentValueError(f"num_newaxis: expected a number of axes, found {self.num_newaxis!r}")
        if isinstance(self.axis, tuple) and self.num_newaxis != 1:
            raise ArgumentValueError("num_newaxis: expected 1 where axis is a tuple of places")


@register_operator
class expand_dims(Operator):
    """Insert axes of extent 1 into the shape of ``x``."""

    name = "expand_dims"
    arguments = ("x",)
    kind = "injective"
    keeps_order = True
    Attrs = ExpandDimsAttrs

    def _added(self, ndim: int, attrs: ExpandDimsAttrs) -> set[int]:
        """Return the positions of the new axes in the result."""
        if not isinstance(attrs.axis, tuple):
            first = axis_index(self, attrs.axis, ndim + 1)
            return set(range(first, first + attrs.num_newaxis))
        places = [axis_index(self, axis, ndim + len(attrs.axis)) for axis in attrs.axis]
        if len(set(places)) != len(places):
            raise self.error("axis", "different places", attrs.axis)
        return set(places)

    def infer_type(self, args: Sequence[TensorType], attrs: ExpandDimsAttrs) -> TensorType:
        (x,) = args
        added = self._added(x.ndim, attrs)
        rest = iter(x.shape)
        return TensorType([1 if n in added else next(rest) for n in range(x.ndim + len(added))], x.dtype)

    def reference(self, args: Sequence[Any], attrs: ExpandDimsAttrs) -> Any:
        return np.expand_dims(args[0], tuple(sorted(self._added(args[0].ndim, attrs))))

    def compute(self, args: Sequence[Tensor], attrs: ExpandDimsAttrs, out: TensorType) -> Tensor:
        (x,) = args
        added = self._added(x.ndim, attrs)
        return te.compute(
            out.shape,
            lambda *place: x[tuple(index for n, index in enumerate(place) if n not in added)],
            name="expand_dims",
        )


@dataclasses.dataclass(frozen=True)
class SqueezeAttrs:
    """``axis``: an axis of extent 1 or a tuple of them; None: all axes that are known to have extent 1 in the call."""

    axis: Any = None

    def __post_init__(self) -> None:
        if self.axis is not None:
            normalize(self, axis=sequence_of(self.axis, "axis"))


@register_operator
class squeeze(Operator):
    """Remove axes of extent 1 from the shape of ``x``."""

    name = "squeeze"
    arguments = ("x",)
    kind = "injective"
    keeps_order = True
    Attrs = SqueezeAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: SqueezeAttrs) -> TensorType:
        (x,) = args
        dropped = self._dropped(x.shape, attrs)
        for axis in dropped:
            if x.shape[axis] != 1 if isinstance(x.shape[axis], int) else True:
                raise self.error("axis", "axes of extent 1", f"axis {axis} of {x}")
        return TensorType([dim for n, dim in enumerate(x.shape) if n not in dropped], x.dtype)

    def complete(self, args: Sequence[Any], attrs: SqueezeAttrs) -> SqueezeAttrs:
        """Name the axes: a size that is not known here may be 1 in a call, or where the graph is specialized."""
        if attrs.axis is not None or len(args) != 1 or not isinstance(args[0], TensorType):
            return attrs
        return SqueezeAttrs(tuple(sorted(self._dropped(args[0].shape, attrs))))

    def _dropped(self, shape: Sequence[Any], attrs: SqueezeAttrs) -> set[int]:
        if attrs.axis is None:
            return {n for n, dim in enumerate(shape) if isinstance(dim, int) and dim == 1}
        return {axis_index(self, axis, len(shape)) for axis in attrs.axis}

    def reference(self, args: Sequence[Any], attrs: SqueezeAttrs) -> Any:
        return np.squeeze(args[0], attrs.axis)

    def compute(self, args: Sequence[Tensor], attrs: SqueezeAttrs, out: TensorType) -> Tensor:
        (x,) = args
        dropped = self._dropped(x.shape, attrs)

        def element(*place: Any) -> Any:
            rest = iter(place)
            return x[tuple(0 if n in dropped else next(rest) for n in range(x.ndim))]

        return te.compute(out.shape, element, name="squeeze")
