"""Convert reductions, and functions along an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.dims import product
from tilewright.graphir.expr import Expr, const
from tilewright.graphir.frontend.runtime_sizes import as_number
from tilewright.graphir.frontend.torch.node import Node, cast_to, dtype_of, reshaped, shape_of, with_shape
from tilewright.graphir.frontend.torch.registry import converter
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import add, divide, exp, log, reshape, sqrt, square, subtract, sum, take, where
from tilewright.tensorir.dtype import BOOL, INT64
from tilewright.tensorir.expr import minimum

Axes = Sequence[int] | int | None


def _reduced(node: Node, name: str, x: Expr, dim: Axes, keepdim: bool, number: int | None = None) -> Expr:
    """Reduce over axes, all if there are none; a tensor without dimensions is a row of one element."""
    rank = len(shape_of(x))
    if not rank:
        x, dim, keepdim, rank = reshape(x, newshape=(1,)), None, False, 1
    return get_operator(name)(x, axis=node.axes(dim, rank), keepdims=keepdim)


@converter("aten.sum.default", "aten.sum.dim_IntList")
def total(node: Node, x: Expr, *options: Any) -> Expr:
    """Add the elements over axes; integers and bools as int64."""
    dim, keepdim = options[:2] if len(options) == 3 else (None, False)
    return _reduced(node, "sum", node.tensor(x), dim, keepdim)


@converter("aten.prod.default", "aten.prod.dim_int")
def total_product(node: Node, x: Expr, *options: Any) -> Expr:
    """Multiply the elements over axes; integers and bools as int64."""
    dim, keepdim = options[:2] if len(options) == 3 else (None, False)
    return _reduced(node, "prod", node.tensor(x), dim, keepdim)


@converter("aten.mean.default", "aten.mean.dim")
def mean(node: Node, x: Expr, *options: Any) -> Expr:
    """Average the elements over axes."""
    dim, keepdim = options[:2] if len(options) == 3 else (None, False)
    return _reduced(node, "mean", node.tensor(x), dim, keepdim)


@converter("aten.amax.default", "aten.amin.default", "aten.max.default", "aten.min.default")
def extreme(node: Node, x: Expr, dim: Axes = None, keepdim: bool = False) -> Expr:
    """Return the greatest or the least element over axes."""
    return _extreme(node, "max" if "max" in node.label.partition(" ")[0] else "min", x, dim, keepdim)


def _extreme(node: Node, name: str, x: Expr, dim: Axes, keepdim: bool) -> Expr:
    if dtype_of(x).is_bool:
        return _reduced(node, "any" if name == "max" else "all", x, dim, keepdim)
    return _reduced(node, name, x, dim, keepdim)


@converter("aten.max.dim", "aten.min.dim")
def extreme_with_place(node: Node, x: Expr, dim: int, keepdim: bool) -> list[Expr]:
    """Return the greatest or the least element along an axis, and its first place."""
    name = "max" if node.label.startswith("aten.max") else "min"
    return [_extreme(node, name, x, dim, keepdim), _place(node, f"arg{name}", x, dim, keepdim)]


@converter("aten.argmax.default", "aten.argmin.default")
def place_of_extreme(node: Node, x: Expr, dim: int | None, keepdim: bool) -> Expr:
    """Return the first place of the greatest or the least element, along an axis or in all."""
    return _place(node, "argmax" if "argmax" in node.label else "argmin", x, dim, keepdim)


def _place(node: Node, name: str, x: Expr, dim: int | None, keepdim: bool) -> Expr:
    if dtype_of(x).is_bool:
        x = cast_to(x, INT64)
    if not shape_of(x):
        return get_operator(name)(reshape(x, newshape=(1,)), axis=0, keepdims=False)
    axis = None if dim is None else node.axis(dim, len(shape_of(x)))
    return get_operator(name)(x, axis=axis, keepdims=keepdim)


@converter("aten.any.default", "aten.any.dim", "aten.any.dims")
def any_true(node: Node, x: Expr, dim: Axes = None, keepdim: bool = False) -> Expr:
    """Test whether any element over axes is not 0."""
    return _truth(node, "any", x, dim, keepdim)


@converter("aten.all.default", "aten.all.dim", "aten.all.dims")
def all_true(node: Node, x: Expr, dim: Axes = None, keepdim: bool = False) -> Expr:
    """Test whether no element over axes is 0."""
    return _truth(node, "all", x, dim, keepdim)


def _truth(node: Node, name: str, x: Expr, dim: Axes, keepdim: bool) -> Expr:
    return cast_to(_reduced(node, name, node.tensor(x, BOOL), dim, keepdim), node.dtype)


@converter("aten.var.correction", "aten.std.correction", "aten.var.dim", "aten.std.dim", "aten.var_mean.correction")
@converter("aten.std_mean.correction")
def variance(node: Node, x: Expr, dim: Axes, correction: Any, keepdim: bool) -> Expr | list[Expr]:
    """Return the variance over axes, or its root: the sum of squared distances from the mean over their number less a
    correction; with the mean, if asked for."""
    if node.label.startswith(("aten.var.dim", "aten.std.dim")):
        correction = int(bool(correction))
    rest = 1 if correction is None else correction
    value = x if shape_of(x) else reshape(x, newshape=(1,))
    kept = keepdim and bool(shape_of(x))
    axes = node.axes(dim if shape_of(x) else None, len(shape_of(value)))
    count = cast_to(as_number(product([shape_of(value)[axis] for axis in axes])), dtype_of(value))
    centre = get_operator("mean")(value, axis=axes, keepdims=True)
    squares = sum(square(subtract(value, centre)), axis=axes, keepdims=kept)
    divisor = get_operator("maximum")(subtract(count, const(float(rest), dtype_of(value))), 0.0)
    found = divide(squares, divisor)
    found = sqrt(found) if node.label.startswith("aten.std") else found
    if not isinstance(node.value, (list, tuple)):
        return found
    return [found, reshaped(centre, shape_of(found))]


@converter("aten.logsumexp.default")
def log_sum_exp(node: Node, x: Expr, dim: Axes, keepdim: bool) -> Expr:
    """Return the logarithm of the sum of exponentials over axes, shifted so that nothing overflows."""
    return _reduced(node, "logsumexp", node.tensor(x), dim, keepdim)


@converter("aten.linalg_vector_norm.default")
def vector_norm(node: Node, x: Expr, ord: Any, dim: Axes, keepdim: bool, dtype: Any) -> Expr:
    """Return the norm of order ``ord`` over axes."""
    value = get_operator("abs")(node.tensor(x))
    if ord == math.inf:
        return _reduced(node, "max", value, dim, keepdim)
    if ord == -math.inf:
        return _reduced(node, "min", value, dim, keepdim)
    if ord == 0:
        there = cast_to(get_operator("not_equal")(value, 0.0), node.dtype)
        return _reduced(node, "sum", there, dim, keepdim)
    if ord == 1:
        return _reduced(node, "sum", value, dim, keepdim)
    if ord == 2:
        return sqrt(_reduced(node, "sum_squares", value, dim, keepdim))
    power = get_operator("power")
    summed = _reduced(node, "sum", power(value, node.tensor(float(ord))), dim, keepdim)
    return power(summed, node.tensor(1.0 / ord))


@converter("aten.cumsum.default", "aten.cumprod.default")
def cumulative(node: Node, x: Expr, dim: int, dtype: Any) -> Expr:
    """Return running sums or products along an axis; of integers as int64."""
    if not shape_of(x):
        return node.tensor(x)
    name = "cumsum" if node.label.startswith("aten.cumsum") else "cumprod"
    return get_operator(name)(node.tensor(x), axis=node.axis(dim, len(shape_of(x))))


@converter("aten.logcumsumexp.default")
def log_cumulative_exp(node: Node, x: Expr, dim: int) -> Expr:
    """Return logarithms of running sums of exponentials, shifted by the greatest element of the row."""
    if not shape_of(x):
        return x
    axis = node.axis(dim, len(shape_of(x)))
    greatest = get_operator("max")(x, axis=(axis,), keepdims=True)
    shift = where(get_operator("isfinite")(greatest), greatest, node.tensor(0.0))
    return add(log(get_operator("cumsum")(exp(subtract(x, shift)), axis=axis)), shift)


@converter("aten.count_nonzero.default", "aten.count_nonzero.dim_IntList")
def count_nonzero(node: Node, x: Expr, dim: Axes = None) -> Expr:
    """Count the elements over axes that are not 0."""
    return _reduced(node, "sum", cast_to(node.tensor(x, BOOL), INT64), dim, False)


@converter("aten.trace.default")
def trace(node: Node, x: Expr) -> Expr:
    """Add the diagonal."""
    rows, columns = shape_of(x)
    size = min(rows, columns) if isinstance(rows, int) and isinstance(columns, int) else minimum(rows, columns)
    square_part = get_operator("slice")(node.tensor(x), begin=(0, 0), end=(size, size), axes=(0, 1))
    square_part = with_shape(square_part, (size, size))
    return sum(get_operator("diagonal")(square_part, axis1=0, axis2=1), axis=(0,))


@converter("aten.dist.default")
def distance(node: Node, x: Expr, y: Expr, p: Any) -> Expr:
    """Return the norm of a difference."""
    return vector_norm(node, subtract(node.tensor(x), node.tensor(y)), p, None, False, None)


@converter("aten.nansum.default")
def sum_of_numbers(node: Node, x: Expr, dim: Axes, keepdim: bool, dtype: Any) -> Expr:
    """Add the elements over axes that are not NaN."""
    value = node.tensor(x)
    if dtype_of(value).is_float:
        value = where(get_operator("isnan")(value), node.tensor(0.0), value)
    return _reduced(node, "sum", value, dim, keepdim)


@converter("aten._cdist_forward.default")
def distances(node: Node, x: Expr, y: Expr, p: float, compute_mode: Any) -> Expr:
    """Return the norms of the differences of all pairs of rows."""
    a = get_operator("expand_dims")(x, axis=len(shape_of(x)) - 1)
    b = get_operator("expand_dims")(y, axis=len(shape_of(y)) - 2)
    return vector_norm(node, subtract(a, b), p, [-1], False, None)


@converter("aten._pdist_forward.default")
def distances_of_rows(node: Node, x: Expr, p: float) -> Expr:
    """Return the norms of the differences of each row and each one behind it."""
    count = shape_of(x)[0]
    if not isinstance(count, int):
        raise node.unsupported(f"a number of rows {count}")
    first, second = (const(places.astype(np.int64)) for places in np.triu_indices(count, 1))
    difference = subtract(take(x, first, axis=0), take(x, second, axis=0))
    return vector_norm(node, difference, p, [-1], False, None)
