"""Convert products of groups of rows, each with a matrix of its own: those of mixtures of experts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.graphir.dims import Dim, simplify
from tilewright.graphir.expr import Expr
from tilewright.graphir.frontend.torch.converters.matrices import transposed
from tilewright.graphir.frontend.torch.node import Node, axis_places, cast_to, dtype_of, shape_of, with_shape
from tilewright.graphir.frontend.torch.registry import converter
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import add, concatenate, matmul, subtract, take
from tilewright.graphir.runtime_sizes import bind_size, fresh_symbol
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import Var

#: The rows of each group of a tensor, in order.
Groups = Callable[[Expr], list[Expr]]


@converter("transformers.grouped_mm_fallback.default")
def grouped_product(node: Node, x: Expr, weight: Expr, ends: Expr) -> Expr:
    """Multiply each group of rows, which ends at its element of ``ends``, by its matrix ``weight[group]``; rows behind
    the last group are zero."""
    rows = shape_of(x)[0]
    return _grouped(ends, _experts(node, weight), lambda groups: _products(node, groups(x), weight, rows))


@converter("aten._grouped_mm.default")
def grouped_product_of_matrices(
    node: Node, x: Expr, weight: Expr, ends: Expr | None, bias: Expr | None, out_dtype: Any
) -> Expr:
    """Multiply each group of rows by its matrix."""
    if ends is None or bias is not None or len(shape_of(x)) != 2 or len(shape_of(weight)) != 3:
        raise node.unsupported("a product of groups other than those of rows")
    return grouped_product(node, x, weight, ends)


@converter("transformers.grouped_mm_fallback_backward.default")
def grouped_product_backward(node: Node, x: Expr, weight: Expr, ends: Expr, grad: Expr) -> list[Expr]:
    """Return the gradients of the rows and of the matrices."""
    count = _experts(node, weight)
    rows = shape_of(x)[0]
    by_rows = _grouped(ends, count, lambda groups: _products(node, groups(grad), transposed(weight), rows))

    def of_matrices(groups: Groups) -> Expr:
        pairs = zip(groups(x), groups(grad), strict=True)
        return get_operator("stack")(*(matmul(transposed(own), upper) for own, upper in pairs), axis=0)

    return [by_rows, _grouped(ends, count, of_matrices)]


def _experts(node: Node, weight: Expr) -> int:
    count = shape_of(weight)[0]
    if not isinstance(count, int):
        raise node.unsupported(f"a number {count} of groups")
    return count


def _products(node: Node, groups: Sequence[Expr], weight: Expr, rows: Dim) -> Expr:
    rest = rows
    made = [matmul(own, take(weight, number, axis=0)) for number, own in enumerate(groups)]
    for own in groups:
        rest = simplify(rest - shape_of(own)[0])
    shape = (rest, shape_of(weight)[-1])
    made.append(get_operator("zeros")(shape=shape, dtype=dtype_of(made[0])))
    return cast_to(with_shape(concatenate(made, axis=0), (rows, shape[1])), node.dtype)


def _grouped(ends: Expr, count: int, make: Callable[[Groups], Expr]) -> Expr:
    """Return what ``make`` computes of the rows of groups, whose numbers are known when the model runs."""
    wide = cast_to(ends, INT64)
    stops = [take(wide, number, axis=0) for number in range(count)]
    starts = [get_operator("zeros_like")(stops[0]), *stops[:-1]] if stops else []
    sizes: list[tuple[Var, Expr]] = [
        (fresh_symbol("rows"), subtract(stop, start)) for start, stop in zip(starts, stops, strict=True)
    ]

    def groups(x: Expr) -> list[Expr]:
        return [take(x, add(axis_places(dim), start), axis=0) for (dim, _), start in zip(sizes, starts, strict=True)]

    result = make(groups)
    for dim, size in sizes:
        result = bind_size(result, size, dim)
    return result
