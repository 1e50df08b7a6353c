"""Compute softmax and its logarithm, shifted by the greatest value so that nothing overflows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir import meaning
from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import FLOATS, axis_index, check_dtype, compute_type, widened
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import Expr, Var, call, cast, const
from tilewright.tensorir.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class SoftmaxAttrs:
    """``axis``: the axis that sums to 1."""

    axis: int = -1


class Softmax(Operator):
    """Base of softmax and log_softmax."""

    arguments = ("x",)
    kind = "reduction"
    Attrs = SoftmaxAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: SoftmaxAttrs) -> TensorType:
        check_dtype(self, 0, args[0], FLOATS)
        axis_index(self, attrs.axis, args[0].ndim)
        return args[0]

    def rows(self, x: Tensor, attrs: SoftmaxAttrs, name: str) -> tuple[int, Tensor]:
        """Return the reduced axis, and the greatest value along it."""
        axis = attrs.axis % x.ndim
        wide = compute_type(x.dtype)
        k = te.reduce_axis(x.shape[axis], "k")
        kept = [extent for number, extent in enumerate(x.shape) if number != axis]
        return axis, te.compute(
            kept, lambda *row: te.max(cast(wide, x(*row[:axis], k, *row[axis:])), axis=k), name=f"{name}_max"
        )


def _row(place: Sequence[Expr], axis: int) -> tuple[Expr, ...]:
    return (*place[:axis], *place[axis + 1 :])


@register_operator
class softmax(Softmax):
    """Compute ``exp(x) / sum(exp(x))`` along ``axis``. Four stages: ``softmax_max``, ``softmax_exp``, ``softmax_sum``
    and ``softmax``; half types compute in float32."""

    name = "nn.softmax"

    def reference(self, args: Sequence[Any], attrs: SoftmaxAttrs) -> Any:
        x = widened(args[0])
        with np.errstate(all="ignore"):
            powers = np.exp(x - x.max(axis=attrs.axis, keepdims=True, initial=-np.inf))
            return (powers / powers.sum(axis=attrs.axis, keepdims=True)).astype(args[0].dtype)

    def meaning(self, args: Sequence[GraphExpr], attrs: SoftmaxAttrs) -> meaning.Softmax:
        return meaning.Softmax(args[0], attrs.axis)

    def compute(self, args: Sequence[Tensor], attrs: SoftmaxAttrs, out: TensorType) -> Tensor:
        (x,) = args
        wide = compute_type(x.dtype)
        axis, greatest = self.rows(x, attrs, "softmax")
        powers = te.compute(
            x.shape,
            lambda *place: call("exp", cast(wide, x[place]) - greatest[_row(place, axis)]),
            name="softmax_exp",
        )
        k = te.reduce_axis(x.shape[axis], "k")
        total = te.compute(
            greatest.shape,
            lambda *row: te.sum(powers(*row[:axis], k, *row[axis:]), axis=k),
            name="softmax_sum",
        )
        # One division for a row, and multiplications, which are ten times as fast; the sum is between 1 and the number
        # of elements, so that its reciprocal is accurate.
        return te.compute(
            x.shape,
            lambda *place: cast(out.dtype, powers[place] * (const(1.0, wide) / total[_row(place, axis)])),
            name="softmax",
        )


@register_operator
class log_softmax(Softmax):
    """Compute ``x - log(sum(exp(x)))`` along ``axis``. Three stages: ``log_softmax_max``, ``log_softmax_sum`` and
    ``log_softmax``; half types compute in float32."""

    name = "nn.log_softmax"

    def reference(self, args: Sequence[Any], attrs: SoftmaxAttrs) -> Any:
        x = widened(args[0])
        with np.errstate(all="ignore"):
            shifted = x - x.max(axis=attrs.axis, keepdims=True, initial=-np.inf)
            return (shifted - np.log(np.exp(shifted).sum(axis=attrs.axis, keepdims=True))).astype(args[0].dtype)

    def compute(self, args: Sequence[Tensor], attrs: SoftmaxAttrs, out: TensorType) -> Tensor:
        (x,) = args
        wide = compute_type(x.dtype)
        axis, greatest = self.rows(x, attrs, "log_softmax")
        k = te.reduce_axis(x.shape[axis], "k")

        def power(*row: Var) -> te.Reduction:
            value = cast(wide, x(*row[:axis], k, *row[axis:]))
            return te.sum(call("exp", value - greatest[row]), axis=k)

        total = te.compute(greatest.shape, power, name="log_softmax_sum")

        def element(*place: Var) -> Expr:
            row = _row(place, axis)
            return cast(out.dtype, cast(wide, x[place]) - greatest[row] - call("log", total[row]))

        return te.compute(x.shape, element, name="log_softmax")
