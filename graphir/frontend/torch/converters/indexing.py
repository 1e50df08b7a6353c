"""Convert gathering, scattering, sorting and embedding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.graphir.dims import Dim
from tilewright.graphir.expr import Expr, TupleGetItem, as_expr
from tilewright.graphir.frontend.runtime_sizes import as_number
from tilewright.graphir.frontend.torch.converters.places import scattered
from tilewright.graphir.frontend.torch.node import Node, axis_places, cast_to, dtype_of, reshaped, shape_of
from tilewright.graphir.frontend.torch.registry import converter
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import add, multiply, reshape, squeeze, subtract, sum, take, transpose, where
from tilewright.graphir.runtime_sizes import with_runtime_size
from tilewright.tensorir.dtype import INT64

_ADD = "add"


@converter("aten.embedding.default")
def embedding(node: Node, weight: Expr, indices: Expr, *_: Any) -> Expr:
    """Return rows of a table."""
    return take(weight, indices, axis=0)


@converter("aten.index_select.default", "aten.index_select_copy.default")
def index_select(node: Node, x: Expr, dim: int, index: Expr) -> Expr:
    """Return slices along an axis."""
    if not shape_of(x):
        return reshaped(take(reshape(x, newshape=(1,)), index, axis=0), node.shape)
    places = index if shape_of(index) else reshape(index, newshape=(1,))
    return take(x, places, axis=node.axis(dim, len(shape_of(x))))


@converter("aten.take.default")
def take_flat(node: Node, x: Expr, index: Expr) -> Expr:
    """Return elements by their places in row-major order."""
    return take(reshape(x, newshape=(-1,)), index, axis=0)


@converter("aten.gather.default")
def gather(node: Node, x: Expr, dim: int, index: Expr, *_: Any) -> Expr:
    """Return elements by their places along an axis; no places may have any number of dimensions."""
    if any(isinstance(dim, int) and dim == 0 for dim in node.shape):
        return get_operator("zeros")(shape=node.shape, dtype=node.dtype)
    if not shape_of(index):
        return reshape(take(reshape(x, newshape=(-1,)), reshape(index, newshape=(1,)), axis=0), newshape=())
    if not shape_of(x):
        x = reshape(x, newshape=(1,))
    return get_operator("gather_elements")(x, index, axis=node.axis(dim, len(shape_of(x))))


# Scattering along an axis.


def _scattered(node: Node, x: Expr, dim: int, index: Expr, updates: Any, reduction: str) -> Expr:
    """Replace the elements at places along an axis, or combine them with others."""
    if not shape_of(x):
        row, places = reshape(x, newshape=(1,)), reshaped(index, (1,))
        new = reshaped(node.tensor(updates), (1,)) if isinstance(updates, Expr) else updates
        return reshape(_scattered_rows(node, row, 0, places, new, reduction), newshape=())
    return _scattered_rows(node, x, node.axis(dim, len(shape_of(x))), index, updates, reduction)


def _scattered_rows(node: Node, x: Expr, axis: int, index: Expr, updates: Any, reduction: str) -> Expr:
    if not shape_of(index):
        index = reshape(index, newshape=(1,))
    if isinstance(updates, Expr) and shape_of(updates):
        values = node.tensor(updates)
        ends = shape_of(index)
        values = get_operator("slice")(values, begin=(0,) * len(ends), end=ends, axes=tuple(range(len(ends))))
        values = reshaped(values, ends)
    else:
        values = get_operator("broadcast_to")(node.tensor(updates), shape=shape_of(index))
    return scattered("scatter_elements", x, index, values, reduction, axis=axis)


@converter("aten.scatter.src", "aten.scatter.value")
def scatter(node: Node, x: Expr, dim: int, index: Expr, updates: Any) -> Expr:
    """Replace elements by their places along an axis."""
    return _scattered(node, x, dim, index, updates, "none")


@converter("aten.scatter.reduce", "aten.scatter.value_reduce")
def scatter_combining(node: Node, x: Expr, dim: int, index: Expr, updates: Any, reduce: str) -> Expr:
    """Combine elements, by their places along an axis, with others."""
    return _scattered(node, x, dim, index, updates, {"add": _ADD, "multiply": "mul"}[reduce])


@converter("aten.scatter_add.default")
def scatter_add(node: Node, x: Expr, dim: int, index: Expr, updates: Expr) -> Expr:
    """Add to elements by their places along an axis."""
    return _scattered(node, x, dim, index, updates, _ADD)


@converter("aten.scatter_reduce.two")
def scatter_reduce(node: Node, x: Expr, dim: int, index: Expr, updates: Expr, reduce: str, include_self: bool) -> Expr:
    """Combine elements, by their places along an axis, with others: by sum, product, extremes or mean; without the old
    ones, unless ``include_self``."""

    def scattered(base: Expr, values: Any, reduction: str) -> Expr:
        return _scattered(node, base, dim, index, values, reduction)

    return _combined(node, x, updates, reduce, include_self, scattered)


def _combined(
    node: Node, x: Expr, updates: Expr, reduce: str, include_self: bool, scattered: Callable[[Expr, Any, str], Expr]
) -> Expr:
    """Combine elements with updates by ``scattered(base, updates, reduction)``."""
    dtype = dtype_of(x)
    if not include_self:
        neutral = {"sum": 0, "mean": 0, "prod": 1, "amax": _lowest(dtype, True), "amin": _lowest(dtype, False)}[reduce]
        x = scattered(x, neutral, "none")
    name = {"sum": _ADD, "mean": _ADD, "prod": "mul", "amax": "max", "amin": "min"}[reduce]
    result = scattered(x, updates, name)
    if reduce != "mean":
        return result
    ones = get_operator("full")(shape=shape_of(x), fill=1.0 if dtype.is_float else 1, dtype=dtype)
    if not include_self:
        ones = scattered(ones, 0, "none")
    counts = get_operator("maximum")(scattered(ones, 1, _ADD), node.tensor(1))
    return get_operator("divide" if dtype.is_float else "floor_divide")(result, counts)


def _lowest(dtype: Any, least: bool) -> Any:
    """Return a number that no element is below, or above."""
    if dtype.is_float:
        return float("-inf") if least else float("inf")
    bits = dtype.bits - dtype.is_int
    return (-(1 << bits) if dtype.is_int else 0) if least else (1 << bits) - 1


@converter("aten.repeat_interleave.Tensor")
def numbers_repeated(node: Node, repeats: Expr, output_size: Any) -> Expr:
    """Return each number from 0 on as often as its element of ``repeats`` says: how many other numbers have begun."""
    counts = cast_to(repeats, INT64)
    starts = get_operator("slice")(subtract(get_operator("cumsum")(counts, axis=0), counts), begin=(1,), end=(None,))
    ones = get_operator("ones_like")(starts)

    def numbers(total: Dim) -> Expr:
        empty = get_operator("zeros")(shape=(total,), dtype=INT64)  # what begins behind its end is left out
        begun = get_operator("scatter_elements")(empty, starts, ones, axis=0, reduction="add")
        return cast_to(get_operator("cumsum")(begun, axis=0), node.dtype)

    return with_runtime_size(sum(counts), numbers) if output_size is None else numbers(output_size)


# Slices that are replaced.


@converter("aten.select_scatter.default")
def select_scatter(node: Node, x: Expr, source: Expr, dim: int, index: Any) -> Expr:
    """Replace one slice along an axis."""
    axis = node.axis(dim, len(shape_of(x)))
    extent = shape_of(x)[axis]
    place = as_number(index)
    if not isinstance(index, int) or index < 0:
        place = where(get_operator("less")(place, 0), add(place, as_number(extent)), place)
    behind = len(shape_of(x)) - axis - 1
    there = get_operator("equal")(axis_places(extent, behind), place)
    return where(there, get_operator("expand_dims")(node.tensor(source), axis=axis), x)


@converter("aten.slice_scatter.default")
def slice_scatter(node: Node, x: Expr, source: Expr, dim: int, start: Any, end: Any, step: Any) -> Expr:
    """Replace a slice of an axis: each place outside of it keeps its element."""
    axis = node.axis(dim, len(shape_of(x)))
    extent, count = shape_of(x)[axis], shape_of(source)[axis]
    stride = node.number(step, "a step")
    places = axis_places(extent)
    size = as_number(extent)
    first = as_number(0 if start is None else start)
    first = where(get_operator("less")(first, 0), add(first, size), first)
    first = get_operator("minimum")(get_operator("maximum")(first, 0), size)
    distance = get_operator("subtract")(places, first)
    rank, last = get_operator("floor_divide")(distance, stride), as_number(count)
    inside = get_operator("logical_and")(get_operator("greater_equal")(distance, 0), get_operator("less")(rank, last))
    if stride != 1:
        exact = get_operator("equal")(multiply(rank, stride), distance)
        inside = get_operator("logical_and")(inside, exact)
    nearest = get_operator("maximum")(get_operator("minimum")(rank, get_operator("subtract")(last, 1)), 0)
    behind = len(shape_of(x)) - axis - 1
    there = reshape(inside, newshape=(extent, *(1,) * behind))
    return where(there, take(node.tensor(source), nearest, axis=axis), x)


@converter("aten.diagonal_scatter.default")
def diagonal_scatter(node: Node, x: Expr, source: Expr, offset: int, dim1: int, dim2: int) -> Expr:
    """Replace a diagonal of two axes."""
    rank = len(shape_of(x))
    a, b = node.axis(dim1, rank), node.axis(dim2, rank)
    order = [axis for axis in range(rank) if axis not in (a, b)] + [a, b]
    moved = transpose(x, axes=tuple(order))
    rows, columns = shape_of(moved)[-2:]
    count = shape_of(source)[-1]
    row, column = axis_places(rows, 1), axis_places(columns, 0)
    there = get_operator("equal")(get_operator("subtract")(column, row), offset)
    number = get_operator("minimum")(row, column)
    nearest = get_operator("maximum")(get_operator("minimum")(number, get_operator("subtract")(as_number(count), 1)), 0)
    spread = take(node.tensor(source), nearest, axis=rank - 2)
    result = where(there, spread, moved)
    return transpose(result, axes=tuple(order.index(axis) for axis in range(rank)))


@converter("aten.index_copy.default")
def index_copy(node: Node, x: Expr, dim: int, index: Expr, source: Expr) -> Expr:
    """Replace slices along an axis."""
    return _slices_scattered(node, x, dim, index, node.tensor(source), "none")


@converter("aten.index_add.default")
def index_add(node: Node, x: Expr, dim: int, index: Expr, source: Expr, alpha: Any) -> Expr:
    """Add to slices along an axis."""
    values = node.tensor(source)
    if dtype_of(x).is_bool:
        values = get_operator("logical_and")(values, node.tensor(alpha))
    elif alpha != 1:
        values = multiply(values, node.tensor(alpha))
    return _slices_scattered(node, x, dim, index, values, _ADD)


@converter("aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor")
def index_fill(node: Node, x: Expr, dim: int, index: Expr, value: Any) -> Expr:
    """Fill slices along an axis with one value."""
    return _slices_scattered(node, x, dim, index, node.tensor(value), "none")


def _slices_scattered(node: Node, x: Expr, dim: int, index: Expr, values: Expr, reduction: str) -> Expr:
    shape = shape_of(x)
    row = x if shape else reshape(x, newshape=(1,))
    axis = node.axis(dim, len(shape))
    places = index if shape_of(index) else reshape(index, newshape=(1,))
    count = shape_of(places)[0]
    wanted = (*shape_of(row)[:axis], count, *shape_of(row)[axis + 1 :])
    spread = values
    if shape_of(values) and len(shape_of(values)) != len(wanted):
        spread = reshaped(values, wanted)
    spread = get_operator("broadcast_to")(spread, shape=wanted)
    order = [axis, *(n for n in range(len(wanted)) if n != axis)]
    moved, rows = (transpose(each, axes=tuple(order)) for each in (row, spread))
    pairs = reshape(places, newshape=(count, 1))
    result = scattered("scatter_nd", moved, pairs, rows, reduction)
    return reshaped(transpose(result, axes=tuple(order.index(n) for n in range(len(wanted)))), shape)


# Sorting.


@converter("aten.topk.default")
def top_k(node: Node, x: Expr, k: Dim, dim: int, largest: bool, sorted: bool) -> Sequence[Expr]:
    """Return the greatest or the least elements along an axis, in order, and their places."""
    return _ordered(node, x, k, dim, largest)


@converter("aten.sort.default", "aten.sort.stable")
def sort(node: Node, x: Expr, *options: Any) -> Sequence[Expr]:
    """Sort along an axis; return the elements and their places."""
    dim, descending = options[-2:]
    axis = node.axis(dim, len(shape_of(x)))
    return _ordered(node, x, shape_of(x)[axis] if shape_of(x) else 1, dim, descending)


@converter("aten.argsort.default", "aten.argsort.stable")
def argsort(node: Node, x: Expr, *options: Any) -> Expr:
    """Return the places of the elements in order along an axis."""
    dim, descending = options[-2:]
    axis = node.axis(dim, len(shape_of(x)))
    return _ordered(node, x, shape_of(x)[axis] if shape_of(x) else 1, dim, descending)[1]


@converter("aten.kthvalue.default")
def kth_value(node: Node, x: Expr, k: int, dim: int, keepdim: bool) -> Sequence[Expr]:
    """Return the ``k``-th least element along an axis, and its place."""
    found = _ordered(node, x, k, dim, False)
    axis = node.axis(dim, len(shape_of(x)))
    if not shape_of(x):
        return found
    last = [get_operator("slice")(each, begin=(k - 1,), end=(k,), axes=(axis,)) for each in found]
    return last if keepdim else [squeeze(each, axis=(axis,)) for each in last]


def _ordered(node: Node, x: Expr, k: Dim, dim: int, largest: bool) -> list[Expr]:
    row = x if shape_of(x) else reshape(x, newshape=(1,))
    results = ordered(row, k, node.axis(dim, len(shape_of(row))), largest)
    return results if shape_of(x) else [reshape(each, newshape=()) for each in results]


def ordered(x: Expr, k: Dim, axis: int, largest: bool) -> list[Expr]:
    """Return the ``k`` greatest or least elements along an axis, in order, and their places; NaN is the greatest."""
    value = cast_to(x, INT64) if dtype_of(x).is_bool else x
    made = get_operator("top_k")(value, k=k, axis=axis, largest=largest)
    return [cast_to(TupleGetItem(made, 0), dtype_of(x)), TupleGetItem(made, 1)]


@converter("aten.one_hot.default")
def one_hot(node: Node, indices: Expr, classes: int) -> Expr:
    """Return rows that are 1 at an index."""
    if classes < 0:
        raise node.unsupported("a number of classes that depends on data")
    return get_operator("one_hot")(indices, as_expr(1, INT64), as_expr(0, INT64), depth=classes, axis=-1)


#: Number of elements that each of others is compared with at once; more are sorted and searched.
_COMPARED = 16


@converter("aten.isin.Tensor_Tensor")
def is_in(node: Node, elements: Expr, tests: Expr, assume_unique: bool, invert: bool) -> Expr:
    """Test whether each element is among others."""
    a, b = node.promoted(elements, tests)
    flat = reshape(b, newshape=(-1,))
    count = shape_of(flat)[0]
    if dtype_of(a).is_bool or (isinstance(count, int) and count <= _COMPARED):
        column = reshape(a, newshape=(*shape_of(a), 1))
        found = get_operator("any")(get_operator("equal")(column, flat), axis=(-1,))
    else:
        known, _ = ordered(flat, count, 0, largest=False)
        below, up_to = [get_operator("searchsorted")(known, a, right=right) for right in (False, True)]
        found = get_operator("less")(below, up_to)
        if dtype_of(a).is_float:  # a NaN has a place among others, but is equal to none
            found = get_operator("logical_and")(found, get_operator("equal")(a, a))
    return get_operator("logical_not")(found) if invert else found


@converter("aten.bucketize.Tensor", "aten.searchsorted.Tensor", "aten.searchsorted.Scalar")
def search_sorted(
    node: Node,
    first: Expr,
    second: Any,
    out_int32: bool,
    right: bool,
    side: str | None = None,
    sorter: Expr | None = None,
) -> Expr:
    """Return the number of sorted bounds below each value, or with ``right`` not above it."""
    bounds, values = (first, second) if node.label.startswith("aten.searchsorted") else (second, first)
    a, b = node.promoted(bounds, values)
    if sorter is not None:
        a = get_operator("gather_elements")(a, sorter, axis=-1)
    if dtype_of(a).is_bool:
        a, b = cast_to(a, INT64), cast_to(b, INT64)
    return cast_to(get_operator("searchsorted")(a, b, right=right or side == "right"), node.dtype)


@converter("aten.put.default")
def put(node: Node, x: Expr, index: Expr, source: Expr, accumulate: bool) -> Expr:
    """Replace elements by their places in row-major order, or add to them."""
    flat, places = reshape(x, newshape=(-1,)), reshape(index, newshape=(-1,))
    values = reshape(node.tensor(source), newshape=(-1,))
    made = scattered("scatter_elements", flat, places, values, _ADD if accumulate else "none", axis=0)
    return reshaped(made, shape_of(x))


@converter("aten.index_reduce.default")
def index_reduce(node: Node, x: Expr, dim: int, index: Expr, source: Expr, reduce: str, include_self: bool) -> Expr:
    """Combine slices along an axis with others: by product, extremes or mean; without the old ones, unless
    ``include_self``."""

    def scattered(base: Expr, values: Any, reduction: str) -> Expr:
        return _slices_scattered(node, base, dim, index, node.tensor(values), reduction)

    return _combined(node, x, source, reduce, include_self, scattered)
