"""Repeat elements: along axes of extent 1, as whole tensors, or one by one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.broadcasting import chosen_size, is_one, joined, spread_over
from tilewright.graphir.dims import Dim, as_dim, dim_equal, format_shape, simplify
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import axis_index, normalize, read_broadcast, sequence_of
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.errors import ArgumentValueError
from tilewright.tensorir.expr import Expr, Var, minimum
from tilewright.tensorir.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class BroadcastToAttrs:
    """``shape``: the shape of the result."""

    shape: Any

    def __post_init__(self) -> None:
        normalize(self, shape=tuple(as_dim(dim) for dim in sequence_of(self.shape, "shape")))


@register_operator
class broadcast_to(Operator):
    """Broadcast ``x`` to ``shape``: repeat it along new leading axes and along axes of extent 1. Where it is not known
    whether a symbolic dimension is 1 or that of ``shape``, a compiled model finds out when it is called, and raises an
    error if it is neither."""

    name = "broadcast_to"
    arguments = ("x",)
    kind = "broadcast"
    moves_elements = True
    Attrs = BroadcastToAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: BroadcastToAttrs) -> TensorType:
        (x,) = args
        offset = len(attrs.shape) - x.ndim
        fits = offset >= 0
        for position, dim in enumerate(x.shape if fits else ()):
            wanted = attrs.shape[offset + position]
            fits = fits and (is_one(dim) or dim_equal(dim, wanted) or joined(dim, wanted) is not None)
        if not fits:
            raise self.error("shape", f"a shape that {format_shape(x.shape)} broadcasts to", format_shape(attrs.shape))
        return TensorType(attrs.shape, x.dtype)

    def reference(self, args: Sequence[Any], attrs: BroadcastToAttrs) -> Any:
        return np.broadcast_to(args[0], attrs.shape).copy()

    def is_identity(self, args: Sequence[GraphExpr], attrs: BroadcastToAttrs) -> bool:
        return True

    def claimed_sizes(self, args: Sequence[TensorType], attrs: BroadcastToAttrs) -> Sequence[tuple[str, Dim, Dim]]:
        return [
            (f"dimension {axis}, unless it is 1,", chosen_size(dim, wanted), wanted)
            for axis, dim, wanted in spread_over(args[0].shape, attrs.shape)
        ]

    def compute(self, args: Sequence[Tensor], attrs: BroadcastToAttrs, out: TensorType) -> Tensor:
        (x,) = args
        offset = len(out.shape) - x.ndim
        chosen = {axis + offset: dim for axis, dim, _ in spread_over([as_dim(dim) for dim in x.shape], out.shape)}

        def element(*place: Var) -> Expr:
            # The only place of a dimension that is 1, and each of one that is the result's.
            inside = [minimum(i, chosen[n] - 1) if n in chosen else i for n, i in enumerate(place)]
            return read_broadcast(x, inside)

        return te.compute(out.shape, element, name="broadcast_to")


@dataclasses.dataclass(frozen=True)
class TileAttrs:
    """``reps``: the number of repetitions along each of the last axes; they may be symbolic."""

    reps: Any

    def __post_init__(self) -> None:
        normalize(self, reps=tuple(as_dim(count) for count in sequence_of(self.reps, "reps")))


@register_operator
class tile(Operator):
    """Repeat ``x`` as a whole along axes, as ``numpy.tile``."""

    name = "tile"
    arguments = ("x",)
    kind = "injective"
    moves_elements = True
    Attrs = TileAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: TileAttrs) -> TensorType:
        (x,) = args
        ndim = max(x.ndim, len(attrs.reps))
        reps = (1,) * (ndim - len(attrs.reps)) + attrs.reps
        shape = (1,) * (ndim - x.ndim) + x.shape
        return TensorType([simplify(dim * count) for dim, count in zip(shape, reps, strict=True)], x.dtype)

    def reference(self, args: Sequence[Any], attrs: TileAttrs) -> Any:
        return np.tile(args[0], attrs.reps)

    def compute(self, args: Sequence[Tensor], attrs: TileAttrs, out: TensorType) -> Tensor:
        (x,) = args
        reps = (1,) * (x.ndim - len(attrs.reps)) + attrs.reps[max(0, len(attrs.reps) - x.ndim) :]

        def element(*place: Var) -> Expr:
            last = place[len(place) - x.ndim :]
            indices: list[Expr] = []
            for index, extent, count in zip(last, x.shape, reps, strict=True):
                is_whole = isinstance(count, int) and count == 1
                indices.append(index if is_whole or getattr(extent, "value", None) == 0 else index % extent)
            return x[tuple(indices)]

        return te.compute(out.shape, element, name="tile")


@dataclasses.dataclass(frozen=True)
class RepeatAttrs:
    """``repeats``: the number of repetitions of each element; ``axis``: the axis of the repetition."""

    repeats: int
    axis: int = 0

    def __post_init__(self) -> None:
        if type(self.repeats) is not int or self.repeats < 0:
            raise ArgumentValueError(f"repeats: expected a count, found {self.repeats!r}")


@register_operator
class repeat(Operator):
    """Repeat each element of ``x`` along an axis, as ``numpy.repeat``."""

    name = "repeat"
    arguments = ("x",)
    kind = "injective"
    moves_elements = True
    Attrs = RepeatAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: RepeatAttrs) -> TensorType:
        (x,) = args
        axis = axis_index(self, attrs.axis, x.ndim)
        shape = list(x.shape)
        shape[axis] = simplify(shape[axis] * attrs.repeats)
        return TensorType(shape, x.dtype)

    def reference(self, args: Sequence[Any], attrs: RepeatAttrs) -> Any:
        return np.repeat(args[0], attrs.repeats, attrs.axis)

    def compute(self, args: Sequence[Tensor], attrs: RepeatAttrs, out: TensorType) -> Tensor:
        (x,) = args
        axis = attrs.axis % x.ndim
        count = max(1, attrs.repeats)
        return te.compute(
            out.shape,
            lambda *place: x[tuple(i // count if n == axis else i for n, i in enumerate(place))],
            name="repeat",
        )
