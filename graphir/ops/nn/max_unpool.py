"""Invert max pooling as far as possible: put the greatest values back at their places, zeros elsewhere."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.base import call_operator
from tilewright.graphir.dims import as_dim, product, shape_equal
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.calls import reshape
from tilewright.graphir.ops.common import NUMBERS, check_dtype, normalize, sequence_of
from tilewright.graphir.types import TensorType


@dataclasses.dataclass(frozen=True)
class MaxUnpoolAttrs:
    """``shape``: the shape of the result."""

    shape: Any

    def __post_init__(self) -> None:
        normalize(self, shape=tuple(as_dim(dim) for dim in sequence_of(self.shape, "shape")))


@register_operator
class max_unpool(Operator):
    """Scatter ``x`` into a tensor of zeros: each element goes to its index in ``indices``, counted in the flattened
    result, as ``nn.max_pool_indices`` returns them. Of several elements for one place the last stays."""

    name = "nn.max_unpool"
    arguments = ("x", "indices")
    literals_from = 2
    Attrs = MaxUnpoolAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: MaxUnpoolAttrs) -> TensorType:
        x, indices = args
        check_dtype(self, 0, x, NUMBERS)
        if not indices.dtype.is_integer or not shape_equal(indices.shape, x.shape):
            raise self.error(1, f"integers of shape {x.shape} as x", indices)
        return TensorType(attrs.shape, x.dtype)

    def decompose(self, args: Sequence[GraphExpr], attrs: MaxUnpoolAttrs) -> GraphExpr:
        x, indices = args
        empty = call_operator("zeros", shape=(product(attrs.shape),), dtype=x.dtype)
        flat = [reshape(arg, newshape=(product(arg.shape),)) for arg in (indices, x)]
        return reshape(call_operator("scatter_elements", empty, *flat, axis=0), newshape=attrs.shape)
