"""Convert sums, means and maxima over lists of rows of a table (bags), and their backward passes.

A bag is a run of indices, which begins at its offset.
"""

from __future__ import annotations

from typing import Any

from tilewright.graphir.dims import Dim
from tilewright.graphir.expr import Expr
from tilewright.graphir.frontend.runtime_sizes import as_number
from tilewright.graphir.frontend.torch.converters.reductions import vector_norm
from tilewright.graphir.frontend.torch.node import Node, axis_places, cast_to, dtype_of, shape_of
from tilewright.graphir.frontend.torch.registry import converter
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import add, divide, expand_dims, multiply, reshape, subtract, sum, take, where
from tilewright.tensorir.dtype import INT64, DataType

#: The numbers that PyTorch gives the modes.
_SUM, _MEAN, _MAX = 0, 1, 2


def _bags(indices: Expr, offsets: Expr, count: Dim) -> Expr:
    """Return for each index the number of its bag."""
    starts = get_operator("slice")(offsets, begin=(0,), end=(count,), axes=(0,))
    places = get_operator("arange")(start=0, stop=shape_of(indices)[0], step=1, dtype=dtype_of(offsets))
    begun = get_operator("less_equal")(reshape(starts, newshape=(1, count)), reshape(places, newshape=(-1, 1)))
    return subtract(sum(cast_to(begun, INT64), axis=(1,)), 1)


def _counted(indices: Expr, padding_idx: int, dtype: DataType) -> Expr:
    """Return 1 for each index that counts, 0 for padding."""
    if padding_idx < 0:
        return get_operator("full")(shape=shape_of(indices), fill=1.0, dtype=dtype)
    return cast_to(get_operator("not_equal")(indices, padding_idx), dtype)


def _added(rows: Expr, bags: Expr, count: Dim) -> Expr:
    """Add the rows of each bag."""
    empty = get_operator("zeros")(shape=(count, *shape_of(rows)[1:]), dtype=dtype_of(rows))
    return get_operator("scatter_nd")(empty, expand_dims(bags, axis=-1), rows, reduction="add")


def _sizes(counted: Expr, bags: Expr, count: Dim) -> Expr:
    """Return how many indices of each bag count, at least 1."""
    return get_operator("maximum")(_added(counted, bags, count), 1.0)


@converter("aten._embedding_bag_forward_only.default", "aten._embedding_bag.default")
def embedding_bag(
    node: Node,
    weight: Expr,
    indices: Expr,
    offsets: Expr,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Expr | None,
    include_last_offset: bool,
    padding_idx: int,
) -> list[Expr]:
    """Return sums, means or maxima of rows of a table, for lists of rows. Of the results behind, which are only for
    gradients, those of maxima are the rows that were chosen, -1 for none; the others follow from the arguments."""
    dtype = dtype_of(weight)
    count = node.result(0).shape[0]
    bags, counted = _bags(indices, offsets, count), _counted(indices, padding_idx, dtype)
    rows = take(weight, indices, axis=0)
    others = [get_operator("zeros")(shape=node.result(n).shape, dtype=node.result(n).dtype) for n in (1, 2, 3)]
    if mode == _MAX:
        greatest, chosen = _greatest(rows, indices, counted, bags, count)
        return [greatest, *others[:2], cast_to(chosen, node.result(3).dtype)]
    scale = counted if per_sample_weights is None else multiply(counted, cast_to(per_sample_weights, dtype))
    total = _added(multiply(rows, expand_dims(scale, axis=-1)), bags, count)
    if mode == _MEAN:
        total = divide(total, expand_dims(_sizes(counted, bags, count), axis=-1))
    return [total, *others]


def _greatest(rows: Expr, indices: Expr, counted: Expr, bags: Expr, count: Dim) -> tuple[Expr, Expr]:
    """Return the greatest elements of the rows of each bag, 0 without any, and their indices, -1 without any."""
    shape, targets = (count, shape_of(rows)[1]), expand_dims(bags, axis=-1)
    counts = expand_dims(get_operator("greater")(counted, 0.0), axis=-1)
    lowest = get_operator("full")(shape=shape, fill=float("-inf"), dtype=dtype_of(rows))
    shown = where(counts, rows, get_operator("full")(shape=(1, 1), fill=float("-inf"), dtype=dtype_of(rows)))
    greatest = get_operator("scatter_nd")(lowest, targets, shown, reduction="max")
    is_greatest = get_operator("logical_and")(counts, get_operator("equal")(rows, take(greatest, bags, axis=0)))
    extent = shape_of(indices)[0]
    last = get_operator("full")(shape=shape, fill=_NONE, dtype=INT64)
    own = where(is_greatest, axis_places(extent, 1), get_operator("full")(shape=(1, 1), fill=_NONE, dtype=INT64))
    first = get_operator("scatter_nd")(last, targets, own, reduction="min")
    is_any = get_operator("less")(first, _NONE)
    found = cast_to(take(indices, where(is_any, first, 0), axis=0), INT64)
    return where(is_any, greatest, 0.0), where(is_any, found, -1)


@converter("aten.embedding_renorm.default")
def embedding_renorm(node: Node, table: Expr, indices: Expr, max_norm: float, norm_type: float) -> Expr:
    """Scale the rows that are taken, and whose norm is greater, to a norm."""
    flat = reshape(indices, newshape=(-1,))
    rows = take(table, flat, axis=0)
    size = vector_norm(node, rows, float(norm_type), [1], True, None)
    factor = divide(node.tensor(max_norm), add(size, node.tensor(_NORM_MARGIN)))
    scaled = where(get_operator("greater")(size, node.tensor(max_norm)), multiply(rows, factor), rows)
    return get_operator("scatter_nd")(table, expand_dims(flat, axis=-1), scaled)


#: What PyTorch adds to a norm that it divides by.
_NORM_MARGIN = 1e-7
#: A number above those of all indices.
_NONE = (1 << 62) - 1


@converter("aten._embedding_bag_backward.default")
def embedding_bag_backward(
    node: Node,
    grad: Expr,
    indices: Expr,
    offsets: Expr,
    offset2bag: Any,
    bag_size: Any,
    chosen: Expr,
    num_weights: Dim,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Expr | None,
    padding_idx: int,
) -> Expr:
    """Return the gradient of the table: each bag's gradient is added at its rows."""
    if sparse:
        raise node.unsupported("a sparse gradient")
    count, dtype = shape_of(grad)[0], dtype_of(grad)
    table = get_operator("zeros")(shape=node.shape, dtype=dtype)
    if mode == _MAX:
        lost = where(get_operator("less")(chosen, 0), as_number(num_weights), chosen)  # no row: dropped
        return get_operator("scatter_elements")(table, cast_to(lost, INT64), grad, axis=0, reduction="add")
    bags, counted = _bags(indices, offsets, count), _counted(indices, padding_idx, dtype)
    scale = counted if per_sample_weights is None else multiply(counted, cast_to(per_sample_weights, dtype))
    if mode == _MEAN:
        scale = divide(scale, take(_sizes(counted, bags, count), bags, axis=0))
    if scale_grad_by_freq:
        ones = get_operator("ones_like")(counted)
        scale = divide(scale, take(_added(ones, cast_to(indices, INT64), num_weights), indices, axis=0))
    rows = multiply(take(grad, bags, axis=0), expand_dims(scale, axis=-1))
    return get_operator("scatter_nd")(table, expand_dims(indices, axis=-1), rows, reduction="add")


@converter("aten._embedding_bag_per_sample_weights_backward.default")
def embedding_bag_weights_backward(
    node: Node, grad: Expr, weight: Expr, indices: Expr, offsets: Expr, offset2bag: Any, mode: int, padding_idx: int
) -> Expr:
    """Return the gradients of the factors of rows: products of a row and its bag's gradient."""
    bags = _bags(indices, offsets, shape_of(grad)[0])
    products = sum(multiply(take(weight, indices, axis=0), take(grad, bags, axis=0)), axis=(1,))
    return multiply(products, _counted(indices, padding_idx, dtype_of(products)))
