"""Convert overloads of backward passes that PyTorch's tables do not take apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.graphir.dims import Dim, dim_equal, product, simplify
from tilewright.graphir.expr import Expr, const
from tilewright.graphir.frontend.runtime_sizes import as_number
from tilewright.graphir.frontend.torch.converters.windows import CONVOLUTIONS, per_axis
from tilewright.graphir.frontend.torch.node import Node, cast_to, dtype_of, reshaped, shape_of
from tilewright.graphir.frontend.torch.registry import converter
from tilewright.graphir.gradients.convolutions import spread_by_weight
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import (
    concatenate,
    divide,
    expand_dims,
    matmul,
    multiply,
    reshape,
    subtract,
    sum,
    take,
    transpose,
    where,
)
from tilewright.tensorir.dtype import INT64


@converter("aten.convolution_backward.default")
def convolution_backward(
    node: Node,
    grad: Expr,
    x: Expr,
    weight: Expr,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> list[Expr | None]:
    """Return the gradients of a convolution's data, weight and bias: each is a convolution, or a sum, too.

    A transposed convolution spreads its data as a convolution spreads gradients: the two change their roles.
    """
    rank = len(shape_of(weight)) - 2
    if rank not in CONVOLUTIONS or not all(isinstance(dim, int) for dim in shape_of(weight)):
        raise node.unsupported(f"the gradient of a convolution by a weight of shape {shape_of(weight)}")
    steps, margins, distances = (per_axis(value, rank) for value in (stride, padding, dilation))
    window = [int(size) for size in shape_of(weight)[2:]]  # type: ignore[arg-type]
    results: list[Expr | None] = [None, None, None]
    if output_mask[0]:
        if transposed:
            results[0] = get_operator(CONVOLUTIONS[rank])(
                grad, weight, strides=steps, padding=margins * 2, dilation=distances, groups=groups
            )
        else:
            attrs = get_operator(CONVOLUTIONS[rank]).Attrs(
                strides=steps, padding=margins, dilation=distances, groups=groups
            )
            results[0] = reshaped(spread_by_weight(grad, x, weight, attrs), shape_of(x))
    if output_mask[1]:
        spread, data = (x, grad) if transposed else (grad, x)
        results[1] = _of_weight(spread, data, steps, margins, distances, groups, window)
    if output_mask[2]:
        results[2] = sum(grad, axis=(0, *range(2, 2 + rank)))
    return results


def _of_weight(
    grad: Expr,
    x: Expr,
    steps: Sequence[int],
    margins: Sequence[int],
    distances: Sequence[int],
    groups: int,
    window: Sequence[int],
) -> Expr:
    """Convolve the data with the gradients over space; items take the place of channels. Strides and dilation change
    their roles."""
    rank = len(steps)
    per_group, outputs = (int(shape_of(each)[1]) // groups for each in (x, grad))  # type: ignore[arg-type]
    exchange = (1, 0, *range(2, 2 + rank))
    parts = []
    for group in range(groups):
        data, gradients = x, grad
        if groups > 1:
            data = _channels(x, group * per_group, per_group)
            gradients = _channels(grad, group * outputs, outputs)
        made = get_operator(CONVOLUTIONS[rank])(
            transpose(data, axes=exchange),
            transpose(gradients, axes=exchange),
            strides=tuple(distances),
            padding=tuple(margins),
            dilation=tuple(steps),
        )
        for n, size in enumerate(window):
            if not dim_equal(shape_of(made)[2 + n], size):
                made = get_operator("slice")(made, begin=(0,), end=(size,), axes=(2 + n,))
        parts.append(reshaped(transpose(made, axes=exchange), (outputs, per_group, *window)))
    return parts[0] if groups == 1 else concatenate(parts, axis=0)


def _channels(x: Expr, first: int, count: int) -> Expr:
    return get_operator("slice")(x, begin=(first,), end=(first + count,), axes=(1,))


@converter("aten._cdist_backward.default")
def cdist_backward(node: Node, grad: Expr, x1: Expr, x2: Expr, p: float, distances: Expr) -> Expr:
    """Return the gradient of the first points of distances between points; where two coincide it is zero."""
    away = subtract(expand_dims(x1, axis=-2), expand_dims(x2, axis=-3))
    slopes = _slopes(node, away, float(p), expand_dims(distances, axis=-1))
    return reshaped(sum(multiply(slopes, expand_dims(grad, axis=-1)), axis=(-2,)), node.shape)


@converter("aten._pdist_backward.default")
def pdist_backward(node: Node, grad: Expr, x: Expr, p: float, distances: Expr) -> Expr:
    """Return the gradient of points of the distances of each and each one behind it; where two coincide it is zero."""
    count = shape_of(x)[0]
    if not isinstance(count, int):
        raise node.unsupported(f"a number of rows {count}")
    first, second = (places.astype(np.int64) for places in np.triu_indices(count, 1))
    away = subtract(take(x, const(first), axis=0), take(x, const(second), axis=0))
    slopes = _slopes(node, away, float(p), expand_dims(distances, axis=-1))
    signs = np.zeros((count, len(first)))  # of each point, by the pairs in which it is
    signs[first, np.arange(len(first))], signs[second, np.arange(len(first))] = 1, -1
    return matmul(node.tensor(const(signs)), multiply(slopes, expand_dims(grad, axis=-1)))


def _slopes(node: Node, away: Expr, p: float, distance: Expr) -> Expr:
    """Return the derivative of a p-norm by each component of the vectors ``away``, whose norms are ``distance``."""
    call = get_operator
    sign, size = call("sign")(away), call("abs")(away)
    if p == 0:
        return call("zeros_like")(away)
    if p == float("inf"):
        return multiply(sign, cast_to(call("equal")(size, distance), node.dtype))
    if p == 1:
        return sign
    quotient = divide(size, where(call("greater")(distance, 0.0), distance, call("ones_like")(distance)))
    powers = call("power")(quotient, node.tensor(p - 1))
    return multiply(sign, where(call("greater")(size, 0.0), powers, call("zeros_like")(size)))


@converter("aten.masked_scatter_backward.default")
def masked_scatter_backward(node: Node, grad: Expr, mask: Expr, sizes: Sequence[Dim]) -> Expr:
    """Return the gradients of the elements that went to the places of a mask, one after the other."""
    count = product(sizes)
    chosen = reshape(get_operator("broadcast_to")(mask, shape=shape_of(grad)), newshape=(-1,))
    numbers = subtract(get_operator("cumsum")(cast_to(chosen, INT64), axis=0), 1)
    last = get_operator("minimum")(numbers, as_number(count))
    places = get_operator("where")(chosen, last, multiply(get_operator("ones_like")(last), as_number(count)))
    empty = get_operator("zeros")(shape=(simplify(count + 1),), dtype=dtype_of(grad))
    rows = reshape(grad, newshape=(-1,))
    found = get_operator("scatter_elements")(empty, places, rows, axis=0, reduction="add")
    kept = get_operator("slice")(found, begin=(0,), end=(count,), axes=(0,))
    return reshaped(kept, tuple(sizes))
