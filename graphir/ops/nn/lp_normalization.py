"""Compute norms over axes, and divide by them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.base import call_operator
from tilewright.graphir.expr import const
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.calls import cast, divide, where
from tilewright.graphir.ops.common import FLOATS, Reduce, ReduceAttrs, axis_index, check_dtype, compute_type
from tilewright.graphir.ops.nn.pool_nd import power_root, power_sum
from tilewright.graphir.types import TensorType
from tilewright.tensorir import expr as scalar
from tilewright.tensorir import tensor as te
from tilewright.tensorir.errors import ArgumentValueError
from tilewright.tensorir.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class LpNormAttrs(ReduceAttrs):
    """As :class:`ReduceAttrs`; ``p`` is the exponent of the norm, above 0."""

    p: float = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.p > 0:
            raise ArgumentValueError(f"p: expected a number above 0, found {self.p!r}")


@register_operator
class lp_norm(Reduce):
    """Compute the norm over axes, ``sum(abs(x) ** p) ** (1 / p)``."""

    name = "nn.lp_norm"
    dtypes = FLOATS
    Attrs = LpNormAttrs

    def evaluate(self, x: np.ndarray[Any, Any], axes: tuple[int, ...], attrs: Any) -> Any:
        p = x.dtype.type(attrs.p)
        return np.sum(np.abs(x) ** p, axis=axes, keepdims=attrs.keepdims) ** (1 / p)

    def compute(self, args: Sequence[Tensor], attrs: LpNormAttrs, out: TensorType) -> Tensor:
        (x,) = args
        wide = compute_type(x.dtype)
        axes = self.axes(x.ndim, attrs)
        total = self.stage(
            x, axes, attrs, out, "lp_norm_sum", lambda _, value: power_sum(scalar.cast(wide, value), attrs.p), te.sum
        )
        return te.compute(
            out.shape, lambda *place: scalar.cast(out.dtype, power_root(total[place], attrs.p)), name="lp_norm"
        )


@dataclasses.dataclass(frozen=True)
class LpNormalizeAttrs:
    """``axis``: the axis of the norm; ``p``: its exponent, above 0."""

    axis: int = -1
    p: float = 2

    def __post_init__(self) -> None:
        if not self.p > 0:
            raise ArgumentValueError(f"p: expected a number above 0, found {self.p!r}")


@register_operator
class lp_normalize(Operator):
    """Divide ``x`` by its norm along ``axis``; where the norm is zero, so is the result."""

    name = "nn.lp_normalize"
    arguments = ("x",)
    kind = "reduction"
    Attrs = LpNormalizeAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: LpNormalizeAttrs) -> TensorType:
        check_dtype(self, 0, args[0], FLOATS)
        axis_index(self, attrs.axis, args[0].ndim)
        return args[0]

    def decompose(self, args: Sequence[GraphExpr], attrs: LpNormalizeAttrs) -> GraphExpr:
        (x,) = args
        dtype = x.dtype
        wide = cast(x, dtype=compute_type(dtype))
        size = call_operator("nn.lp_norm", wide, axis=attrs.axis, keepdims=True, p=attrs.p)
        one = const(1, size.dtype)
        size = where(call_operator("equal", size, const(0, size.dtype)), one, size)
        return cast(divide(wide, size), dtype=dtype)
