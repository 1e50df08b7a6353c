"""Find the nonzero elements of a tensor; their number is known at run time."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.base import call_operator
from tilewright.graphir.dims import as_dim
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops import calls
from tilewright.graphir.ops.common import ANY, check_dtype, normalize
from tilewright.graphir.ops.loop_nests import nest
from tilewright.graphir.runtime_sizes import with_runtime_size
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import Buffer, Expr, as_expr, cast, const
from tilewright.tensorir.stmt import Allocate, BufferStore, IfThenElse, Stmt, sequence
from tilewright.tensorir.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class NonzeroAttrs:
    """``size``: the number of indices to return; it may be symbolic."""

    size: Any

    def __post_init__(self) -> None:
        normalize(self, size=as_dim(self.size))


@register_operator
class nonzero(Operator):
    """Find the indices of the nonzero elements of ``x``, in row-major order: int64 of shape (dimensions of ``x``,
    ``size``), a column for each element. If there are fewer than ``size``, the rest is zero; further ones are left out.

    Called without ``size``, the result has as many columns as there are such elements, which is a symbolic dimension
    that becomes known when the model runs.
    """

    name = "nonzero"
    arguments = ("x",)
    kind = "opaque"
    Attrs = NonzeroAttrs

    def __call__(self, *args: Any, **attrs: Any) -> GraphExpr:
        """Build a call of the operator; see the class for the meaning of ``size``."""
        make = super().__call__
        if len(args) != 1 or attrs:
            return make(*args, **attrs)
        there = call_operator("not_equal", args[0], call_operator("zeros_like", args[0]))
        count = calls.sum(calls.cast(there, dtype="int64"))
        return with_runtime_size(count, lambda size: make(args[0], size=size), "nonzero")

    def infer_type(self, args: Sequence[TensorType], attrs: NonzeroAttrs) -> TensorType:
        (x,) = args
        check_dtype(self, 0, x, ANY)
        return TensorType((x.ndim, attrs.size), INT64)

    def reference(self, args: Sequence[Any], attrs: NonzeroAttrs) -> Any:
        (x,) = args
        out = np.zeros((x.ndim, attrs.size), np.int64)
        found = np.argwhere(x != 0).T[:, : attrs.size]
        out[:, : found.shape[1]] = found
        return out

    def compute(self, args: Sequence[Tensor], attrs: NonzeroAttrs, out: TensorType) -> list[Tensor]:
        (x,) = args
        size = as_expr(attrs.size)
        rank = len(x.shape)

        def loops(outputs: list[Buffer]) -> Stmt:
            (places,) = outputs
            count = Buffer("count", (as_expr(1),), INT64, "register")

            def clear(place: list[Expr]) -> Stmt:
                return BufferStore(places, const(0, INT64), tuple(place))

            def visit(place: list[Expr]) -> Stmt:
                stores = [
                    BufferStore(places, cast(INT64, index), (as_expr(axis), count[0]))
                    for axis, index in enumerate(place)
                ]
                value = x(*place)
                is_counted = value.not_equal(const(0, value.dtype)) & (count[0] < size)
                return IfThenElse(is_counted, sequence(*stores, BufferStore(count, count[0] + 1, (as_expr(0),))))

            start = BufferStore(count, const(0, INT64), (as_expr(0),))
            cleared = nest([as_expr(rank), size], clear, parallel=False)
            return Allocate(count, sequence(cleared, start, nest(x.shape, visit, parallel=False)))

        return te.extern([(out.shape, out.dtype)], loops, "nonzero")
