"""Join tensors along an axis."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.dims import Dim, dim_equal, simplify
from tilewright.graphir.layout import parse_layout
from tilewright.graphir.layout_rewrite import divides, operands_in_layout
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops import calls
from tilewright.graphir.ops.common import axis_index, same_dtype
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import Expr, Var, all_of, as_expr, select
from tilewright.tensorir.guards import guarded
from tilewright.tensorir.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class JoinAttrs:
    """``axis``: the axis along which tensors are joined."""

    axis: int = 0


@register_operator
class concatenate(Operator):
    """Concatenate tensors along an existing axis; the extents of the others are equal."""

    name = "concatenate"
    arguments = ("*data",)
    kind = "injective"
    contiguous_reads = True
    moves_elements = True
    Attrs = JoinAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: JoinAttrs) -> TensorType:
        if not args:
            raise self.error("data", "at least one tensor", "none")
        first = args[0]
        dtype = same_dtype(self, args)
        axis = axis_index(self, attrs.axis, first.ndim)
        total: Dim = 0
        for number, arg in enumerate(args):
            fits = arg.ndim == first.ndim and all(
                n == axis or dim_equal(dim, first.shape[n]) for n, dim in enumerate(arg.shape)
            )
            if not fits:
                raise self.error(number, f"the shape of data[0], {first}, but for axis {axis}", arg)
            total = simplify(total + arg.shape[axis])
        return TensorType((*first.shape[:axis], total, *first.shape[axis + 1 :]), dtype)

    def reference(self, args: Sequence[Any], attrs: JoinAttrs) -> Any:
        return np.concatenate(list(args), axis=attrs.axis)

    def is_identity(self, args: Sequence[GraphExpr], attrs: JoinAttrs) -> bool:
        return True

    def in_layout(
        self,
        args: Sequence[GraphExpr],
        blocked: Sequence[GraphExpr | None],
        attrs: JoinAttrs,
        plain: str,
        target: str,
    ) -> GraphExpr | None:
        if args[0].ndim != parse_layout(plain).ndim or parse_layout(plain).primal != parse_layout(target).primal:
            return None
        if not all(divides(arg.tensor_type, plain, target) for arg in args):
            return None
        operands = operands_in_layout(args, blocked, plain, target)
        axis = attrs.axis % args[0].ndim
        return None if operands is None else calls.concatenate(*operands, axis=axis)

    def places(self, args: Sequence[TensorType], attrs: JoinAttrs) -> list[tuple[Dim, ...]]:
        axis = attrs.axis % args[0].ndim
        found: list[tuple[Dim, ...]] = []
        start: Dim = 0
        for arg in args:
            found.append((0,) * axis + (start,) + (0,) * (arg.ndim - axis - 1))
            start = simplify(start + arg.shape[axis])
        return found

    def compute(self, args: Sequence[Tensor], attrs: JoinAttrs, out: TensorType) -> Tensor:
        axis = attrs.axis % out.ndim
        starts: list[Expr] = [as_expr(0)]
        for arg in args:
            starts.append(starts[-1] + arg.shape[axis])

        def element(*place: Var) -> Expr:
            at = place[axis]

            def chosen(first: int, last: int) -> Expr:
                """The element, which is of an input from ``first`` up to ``last``: found by bisection, so that any
                number of inputs is nested by its logarithm only."""
                if first < last:
                    middle = (first + last) // 2
                    return select(at < starts[middle + 1], chosen(first, middle), chosen(middle + 1, last))
                above = at >= starts[first] if first else as_expr(True)
                below = at < starts[first + 1] if first + 1 < len(args) else as_expr(True)
                indices = (*place[:axis], at - starts[first], *place[axis + 1 :])
                return guarded(args[first][indices], all_of(above, below))

            return chosen(0, len(args) - 1)

        return te.compute(out.shape, element, name="concatenate")


@register_operator
class stack(Operator):
    """Stack tensors of one shape along a new axis, whose position in the result is ``axis``."""

    name = "stack"
    arguments = ("*data",)
    kind = "injective"
    contiguous_reads = True
    moves_elements = True
    Attrs = JoinAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: JoinAttrs) -> TensorType:
        if not args:
            raise self.error("data", "at least one tensor", "none")
        first = args[0]
        for number, arg in enumerate(args):
            if arg != first:
                raise self.error(number, f"the type of data[0], {first}", arg)
        axis = axis_index(self, attrs.axis, first.ndim + 1)
        return TensorType((*first.shape[:axis], len(args), *first.shape[axis:]), first.dtype)

    # Also serves arrays of integer expressions (``known_values.py``), which no type describes.
    def reference(self, args: Sequence[Any], attrs: JoinAttrs) -> Any:
        return np.stack(list(args), axis=attrs.axis)

    def decompose(self, args: Sequence[GraphExpr], attrs: JoinAttrs) -> GraphExpr:
        axis = attrs.axis % (args[0].ndim + 1)
        return calls.concatenate(*[calls.expand_dims(arg, axis=axis) for arg in args], axis=axis)
