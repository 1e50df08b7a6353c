"""Differentiate determinants through the steps of Gaussian elimination."""

from __future__ import annotations

from tilewright.graphir.base import call_operator
from tilewright.graphir.dims import product
from tilewright.graphir.expr import Call, Expr
from tilewright.graphir.gradient import register_composition, unsupported
from tilewright.graphir.gradients.common import reshaped
from tilewright.graphir.ops import calls
from tilewright.graphir.ops.common import compute_type
from tilewright.tensorir.dtype import INT64


@register_composition("det")
def det(call: Call) -> Expr:
    """Multiply the pivots of an elimination with complete pivoting (Golub and Van Loan, Matrix Computations, 3.4.8).

    A pivot is the greatest element that is left. If it is zero, so are the others: the matrix lacks that many ranks,
    and what is left out by not dividing is zero, too. So gradients are also right for singular matrices.
    """
    (x,) = call.args
    extent = x.shape[-1]
    if not isinstance(extent, int):
        raise unsupported(call, f"matrices of {extent} rows: the number of steps must be known")
    batch = product(x.shape[:-2])
    left = reshaped(calls.cast(x, dtype=compute_type(x.dtype)), (batch, extent, extent))
    result = call_operator("ones", shape=(batch,), dtype=left.dtype)
    for size in range(extent, 0, -1):
        place = calls.cast(call_operator("argmax", reshaped(abs(left), (batch, size * size)), axis=1), dtype=INT64)
        row, column = call_operator("floor_divide", place, size), call_operator("floor_mod", place, size)
        below = _at(left, row, 1)
        pivot = _at(below, column, 2)
        sign = 1 - 2 * call_operator("floor_mod", row + column, 2)
        result = result * reshaped(pivot, (batch,)) * calls.cast(sign, dtype=left.dtype)
        divisor = calls.where(call_operator("equal", pivot, 0.0), 1.0, pivot)
        others = _without(left, row, 1)
        left = _without(others, column, 2) - _at(others, column, 2) * (_without(below, column, 2) / divisor)
    return calls.cast(reshaped(result, call.shape), dtype=x.dtype)


def _at(x: Expr, number: Expr, axis: int) -> Expr:
    """Return a row (axis 1), or a column (axis 2), of each matrix; its axis stays."""
    return _gathered(x, calls.expand_dims(number, axis=1), axis)


def _without(x: Expr, number: Expr, axis: int) -> Expr:
    """Return each matrix without a row, or without a column."""
    places = call_operator("arange", start=0, stop=x.shape[axis] - 1, step=1, dtype=INT64)
    behind = call_operator("greater_equal", places, calls.expand_dims(number, axis=1))
    return _gathered(x, places + calls.cast(behind, dtype=INT64), axis)


def _gathered(x: Expr, places: Expr, axis: int) -> Expr:
    shape = tuple(places.shape[1] if n == axis else dim for n, dim in enumerate(x.shape))
    spread = calls.broadcast_to(calls.expand_dims(places, axis=3 - axis), shape=shape)
    return call_operator("gather_elements", x, spread, axis=axis)
