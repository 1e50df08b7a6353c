"""Encode indices as one-hot vectors."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.dims import as_dim
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import axis_index, normalize
from tilewright.graphir.ops.gather import from_the_end, positions
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import Expr, Var, as_expr, select
from tilewright.tensorir.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class OneHotAttrs:
    """``depth``: the length of the vectors, which may be symbolic; ``axis``: the axis of the result along which they
    lie."""

    depth: Any
    axis: int = -1

    def __post_init__(self) -> None:
        normalize(self, depth=as_dim(self.depth))


@register_operator
class one_hot(Operator):
    """Encode indices along a new axis: ``on`` at the index, ``off`` elsewhere (scalars). Negative indices count from
    the end; if an index is outside of ``[-depth, depth)``, all elements are ``off``."""

    name = "one_hot"
    arguments = ("indices", "on", "off")
    kind = "injective"
    Attrs = OneHotAttrs
    literals_from = 1

    def infer_type(self, args: Sequence[TensorType], attrs: OneHotAttrs) -> TensorType:
        indices, on, off = args
        if not indices.dtype.is_integer:
            raise self.error(0, "an integer tensor", indices)
        if on.ndim:
            raise self.error(1, "a scalar", on)
        if off.ndim or off.dtype is not on.dtype:
            raise self.error(2, f"a scalar of type {on.dtype!s}", off)
        axis = axis_index(self, attrs.axis, indices.ndim + 1)
        return TensorType((*indices.shape[:axis], attrs.depth, *indices.shape[axis:]), on.dtype)

    def reference(self, args: Sequence[Any], attrs: OneHotAttrs) -> Any:
        indices, on, off = args
        axis = attrs.axis % (indices.ndim + 1)
        numbers = np.arange(attrs.depth).reshape(-1, *[1] * (indices.ndim - axis))
        return np.where(np.expand_dims(positions(indices, attrs.depth), axis) == numbers, on, off).astype(on.dtype)

    def compute(self, args: Sequence[Tensor], attrs: OneHotAttrs, out: TensorType) -> Tensor:
        indices, on, off = args
        axis = attrs.axis % (indices.ndim + 1)

        def element(*place: Var) -> Expr:
            index = from_the_end(indices(*place[:axis], *place[axis + 1 :]), as_expr(attrs.depth))
            return select(index.equal(place[axis]), on[()], off[()])

        return te.compute(out.shape, element, name="one_hot")
