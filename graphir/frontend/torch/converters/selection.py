"""Convert order statistics, running extremes, distinct elements and histograms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.graphir.dims import Dim, simplify
from tilewright.graphir.expr import Expr, TupleGetItem
from tilewright.graphir.frontend.runtime_sizes import as_number
from tilewright.graphir.frontend.torch.converters.indexing import ordered
from tilewright.graphir.frontend.torch.node import Node, axis_places, cast_to, dtype_of, reshaped, shape_of
from tilewright.graphir.frontend.torch.registry import converter
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import (
    add,
    divide,
    logical_not,
    multiply,
    reshape,
    squeeze,
    subtract,
    sum,
    take,
    where,
)
from tilewright.graphir.ops.unique import unique
from tilewright.graphir.runtime_sizes import with_runtime_size
from tilewright.tensorir.dtype import INT64, DataType


def _row(x: Expr) -> Expr:
    """Return ``x`` with at least one axis."""
    return x if shape_of(x) else reshape(x, newshape=(1,))


def _without_axis(x: Expr, results: Sequence[Expr], axis: int, keepdim: bool) -> list[Expr]:
    """Return results that have one element along ``axis``, without that axis unless it is kept."""
    if not shape_of(x):
        return [reshape(each, newshape=()) for each in results]
    return list(results) if keepdim else [squeeze(each, axis=(axis,)) for each in results]


# Order statistics.


@converter("aten.median.default", "aten.nanmedian.default")
def median(node: Node, x: Expr) -> Expr:
    """Return the lower median of all elements."""
    flat = reshape(x, newshape=(-1,))
    return reshape(_median(flat, 0, "nan" in node.label.partition(" ")[0])[0], newshape=())


@converter("aten.median.dim", "aten.nanmedian.dim")
def median_along(node: Node, x: Expr, dim: int, keepdim: bool) -> list[Expr]:
    """Return the lower median along an axis, and its place."""
    row = _row(x)
    axis = node.axis(dim, len(shape_of(row)))
    found = _median(row, axis, "nan" in node.label.partition(" ")[0])
    return _without_axis(x, found, axis, keepdim)


def _median(x: Expr, axis: int, skips_nan: bool) -> list[Expr]:
    """Return the lower median along an axis, which stays with one element, and its place: NaN if there is any, or the
    median of the numbers."""
    extent = shape_of(x)[axis]
    values, places = ordered(x, extent, axis, largest=False)
    one = (*shape_of(x)[:axis], 1, *shape_of(x)[axis + 1 :])
    if not dtype_of(x).is_float:
        middle = get_operator("broadcast_to")(as_number(simplify((extent - 1) // 2)), shape=one)
        return [get_operator("gather_elements")(each, middle, axis=axis) for each in (values, places)]
    is_nan = get_operator("isnan")(x)
    count = sum(cast_to(logical_not(is_nan), INT64), axis=(axis,), keepdims=True)
    middle = get_operator("maximum")(get_operator("floor_divide")(subtract(count, 1), 2), 0)
    found = [get_operator("gather_elements")(each, middle, axis=axis) for each in (values, places)]
    if skips_nan:
        return found
    first = get_operator("argmax")(cast_to(is_nan, INT64), axis=axis, keepdims=True)
    spoiled = get_operator("any")(is_nan, axis=(axis,), keepdims=True)
    nan = get_operator("full")(shape=one, fill=float("nan"), dtype=dtype_of(x))
    return [where(spoiled, nan, found[0]), where(spoiled, first, found[1])]


@converter("aten.mode.default")
def mode(node: Node, x: Expr, dim: int, keepdim: bool) -> list[Expr]:
    """Return the most frequent element along an axis, the least of several, and its last place: the end of the first of
    the longest runs of equal elements in order."""
    row = _row(x)
    axis = node.axis(dim, len(shape_of(row)))
    extent = shape_of(row)[axis]
    values, _ = ordered(row, extent, axis, largest=False)
    numbers = axis_places(extent, len(shape_of(row)) - axis - 1)
    # An element that is equal to the one before belongs to its run; the first one has none before.
    before = take(values, get_operator("maximum")(subtract(reshape(numbers, newshape=(-1,)), 1), 0), axis=axis)
    begins = where(get_operator("equal")(values, before), 0, numbers)
    begin = TupleGetItem(get_operator("cummax")(begins, axis=axis), 0)
    longest = get_operator("argmax")(subtract(numbers, begin), axis=axis, keepdims=True)
    often = get_operator("gather_elements")(values, longest, axis=axis)
    place = get_operator("argmax")(
        cast_to(get_operator("equal")(row, often), INT64), axis=axis, keepdims=True, select_last_index=True
    )
    return _without_axis(x, [often, place], axis, keepdim)


@converter("aten.cummax.default", "aten.cummin.default")
def running_extreme(node: Node, x: Expr, dim: int) -> list[Expr]:
    """Return the greatest or the least element so far along an axis, and its last place."""
    if not shape_of(x):
        return [x, get_operator("zeros")(shape=(), dtype=INT64)]
    name = "cummax" if node.label.startswith("aten.cummax") else "cummin"
    found = get_operator(name)(x, axis=node.axis(dim, len(shape_of(x))))
    return [TupleGetItem(found, 0), TupleGetItem(found, 1)]


# Distinct elements.


@converter("aten._unique2.default")
def distinct(node: Node, x: Expr, sorted: bool, return_inverse: bool, return_counts: bool) -> list[Expr]:
    """Return the distinct elements in order, for each element the number of its value, and the counts."""
    values, _, inverse, counts = unique(x)
    return [values, *_wanted((reshaped(inverse, shape_of(x)), return_inverse), (counts, return_counts))]


@converter("aten._unique.default")
def distinct_uncounted(node: Node, x: Expr, sorted: bool, return_inverse: bool) -> list[Expr]:
    """Return the distinct elements in order, and for each element the number of its value."""
    return distinct(node, x, sorted, return_inverse, False)[:2]


def _wanted(*results: tuple[Expr, bool]) -> list[Expr]:
    """Return results; those that are not asked for are empty."""
    return [found if asked else get_operator("zeros")(shape=(0,), dtype=INT64) for found, asked in results]


@converter("aten.unique_dim.default")
def distinct_slices(
    node: Node, x: Expr, dim: int, sorted: bool, return_inverse: bool, return_counts: bool
) -> list[Expr]:
    """Return the distinct slices along an axis in order, for each slice the number of its value, and the counts."""
    values, _, inverse, counts = unique(x, axis=node.axis(dim, len(shape_of(x))))
    return [values, inverse, counts]


@converter("aten.unique_consecutive.default")
def runs(node: Node, x: Expr, return_inverse: bool, return_counts: bool, dim: int | None) -> list[Expr]:
    """Return the first element of each run of equal ones, for each element the number of its run, and the lengths."""
    if dim is not None and len(shape_of(x)) > 1:
        raise node.unsupported("runs of slices")
    flat = reshape(x, newshape=(-1,))
    extent = shape_of(flat)[0]
    before = get_operator("slice")(flat, begin=(0,), end=(-1,), axes=(0,))
    behind = get_operator("slice")(flat, begin=(1,), end=(None,), axes=(0,))
    starts = get_operator("concatenate")(
        [
            get_operator("full")(shape=(1,), fill=True, dtype=DataType("bool")),
            get_operator("not_equal")(behind, before),
        ],
        axis=0,
    )
    places = squeeze(get_operator("nonzero")(starts), axis=(0,))
    number = subtract(get_operator("cumsum")(cast_to(starts, INT64), axis=0), 1)
    ends = get_operator("concatenate")([places, get_operator("sizes")(values=(extent,))], axis=0)
    lengths = subtract(get_operator("slice")(ends, begin=(1,), end=(None,), axes=(0,)), places)
    numbers = reshaped(number, shape_of(x))
    made = take(flat, places, axis=0)
    if dim is not None:  # PyTorch then returns the numbers, asked or not
        return [made, numbers, *_wanted((lengths, return_counts))]
    return [made, *_wanted((numbers, return_inverse), (lengths, return_counts))]


@converter("aten.nonzero_static.default")
def nonzero_static(node: Node, x: Expr, size: int, fill_value: int) -> Expr:
    """Return the places of the first ``size`` elements that are not 0, as rows; the rest is filled."""
    if not shape_of(x):  # an element has no place
        return get_operator("zeros")(shape=(size, 0), dtype=INT64)
    found = get_operator("transpose")(get_operator("nonzero")(x, size=size), axes=(1, 0))
    count = sum(cast_to(node.tensor(x, DataType("bool")), INT64), axis=tuple(range(len(shape_of(x)))))
    return where(get_operator("less")(axis_places(size, 1), count), found, fill_value)


# Histograms.


@converter("aten.bincount.default")
def bin_count(node: Node, x: Expr, weights: Expr | None, minlength: int) -> Expr:
    """Count how often each number from 0 on occurs, or add the weights of its places. A negative number is an error of
    the call, as in PyTorch: it becomes the size of the result."""
    numbers = cast_to(x, INT64)
    least = get_operator("min")(numbers, initial=0)
    greatest = get_operator("max")(numbers, initial=node.number(minlength, "a least length") - 1)
    size = where(get_operator("less")(least, 0), least, get_operator("add")(greatest, 1))
    values = get_operator("ones_like")(numbers) if weights is None else cast_to(weights, node.dtype)

    def counts(size: Dim) -> Expr:
        empty = get_operator("zeros")(shape=(size,), dtype=node.dtype)
        return get_operator("scatter_elements")(empty, numbers, values, axis=0, reduction="add")

    return with_runtime_size(size, counts, "bincount")


def _counts(node: Node, x: Expr, bins: int, low: Expr, high: Expr, weight: Expr | None) -> Expr:
    """Count the elements in bins of equal width from ``low`` to ``high``, which is inside; others do not count."""
    flat = reshape(x, newshape=(-1,))
    share = divide(multiply(subtract(flat, low), node.tensor(bins, dtype_of(flat))), subtract(high, low))
    place = get_operator("minimum")(cast_to(get_operator("floor")(share), INT64), bins - 1)
    inside = get_operator("logical_and")(
        get_operator("greater_equal")(flat, low), get_operator("less_equal")(flat, high)
    )
    outside = get_operator("full")(shape=shape_of(flat), fill=bins, dtype=INT64)
    place = where(inside, place, outside)  # no element has that place, so it is dropped
    ones = get_operator("full")(shape=shape_of(flat), fill=1.0, dtype=dtype_of(flat))
    empty = get_operator("zeros")(shape=(bins,), dtype=dtype_of(flat))
    weights = ones if weight is None else reshape(weight, newshape=(-1,))
    return get_operator("scatter_elements")(empty, place, weights, axis=0, reduction="add")


@converter("aten.histc.default")
def histogram_of_counts(node: Node, x: Expr, bins: int, low: Any, high: Any) -> Expr:
    """Count the elements in bins of equal width; those of the data's own range if the bounds are equal."""
    first, last = _bounds(node, x, float(low), float(high))
    if not dtype_of(x).is_float:
        raise node.unsupported(f"a histogram of {dtype_of(x)!s}")
    return _counts(node, x, bins, first, last, None)


def _bounds(node: Node, x: Expr, low: float, high: float) -> tuple[Expr, Expr]:
    dtype = dtype_of(x)
    if low != high:
        return node.tensor(low, dtype), node.tensor(high, dtype)
    flat = reshape(x, newshape=(-1,))
    if isinstance(shape_of(flat)[0], int) and shape_of(flat)[0] == 0:
        return node.tensor(0.0, dtype), node.tensor(1.0, dtype)
    first, last = (get_operator(name)(flat, axis=(0,)) for name in ("min", "max"))
    same = get_operator("equal")(first, last)
    one = node.tensor(1.0, dtype)
    return where(same, subtract(first, one), first), where(same, add(last, one), last)
