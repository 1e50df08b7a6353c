"""Convert max pooling over windows that begin at random places (Graham, Fractional Max-Pooling, arXiv:1412.6071)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from tilewright.graphir.dims import Dim, dim_equal, product, simplify
from tilewright.graphir.expr import Expr
from tilewright.graphir.frontend.runtime_sizes import as_number
from tilewright.graphir.frontend.torch.converters.window_places import chosen_of_windows
from tilewright.graphir.frontend.torch.converters.windows import per_axis, rank_of
from tilewright.graphir.frontend.torch.node import Node, axis_places, cast_to, dtype_of, reshaped, shape_of, with_shape
from tilewright.graphir.frontend.torch.registry import converter
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import (
    add,
    concatenate,
    divide,
    expand_dims,
    multiply,
    reshape,
    subtract,
    take,
    where,
)
from tilewright.tensorir.dtype import INT64


@converter("aten.fractional_max_pool2d.default", "aten.fractional_max_pool3d.default")
def fractional_max_pool(node: Node, x: Expr, size: Any, count: Sequence[Dim], samples: Expr) -> list[Expr]:
    """Return the greatest element of each window, and its place in the channel: of equal ones the first, of several
    NaN the last. ``samples`` are the random numbers ``[batch, channels, axes]`` from which the windows' starts follow.
    """
    rank = rank_of(node)
    window = per_axis(size, rank)
    shape = node.result(0).shape
    space, counts = shape_of(x)[-rank:], shape[-rank:]
    batch, channels = shape_of(x)[0] if len(shape_of(x)) > rank + 1 else 1, shape_of(x)[-rank - 1]
    if not dim_equal(shape_of(samples)[0], batch):  # there may be more
        samples = get_operator("slice")(samples, begin=(0,), end=(batch,), axes=(0,))
    samples = with_shape(samples, (batch, channels, rank))
    corners: Expr | None = None
    for axis in range(rank):
        number = rank - 1 - axis if rank == 2 else axis  # PyTorch's order of the samples
        sample = take(samples, number, axis=-1)
        starts = _starts(sample, space[axis], window[axis], counts[axis])
        starts = reshape(starts, newshape=(batch, channels, *(counts[axis] if n == axis else 1 for n in range(rank))))
        corners = starts if corners is None else add(multiply(corners, as_number(space[axis])), starts)
    assert corners is not None
    rows = reshape(x, newshape=(batch, channels, product(space)))
    taken, found = [], []
    for tap in itertools.product(*map(range, window)):
        within: Dim = 0
        for step, extent in zip(tap, space, strict=True):
            within = simplify(within * extent + step)
        flat = reshape(add(corners, as_number(within)), newshape=(batch, channels, product(counts)))
        taken.append(expand_dims(get_operator("gather_elements")(rows, flat, axis=-1), axis=-1))
        found.append(expand_dims(flat, axis=-1))
    values, indices = concatenate(taken, axis=-1), concatenate(found, axis=-1)
    chosen = expand_dims(chosen_of_windows(values), axis=-1)
    results = (get_operator("gather_elements")(each, chosen, axis=-1) for each in (values, indices))
    return [reshaped(result, shape) for result in results]


def _starts(sample: Expr, size: Dim, window: int, count: Dim) -> Expr:
    """Return where the windows along an axis begin, ``[batch, channels, count]``: the last one ends with the axis."""
    dtype = dtype_of(sample)
    number, last = axis_places(count), simplify(size - window)
    gaps = get_operator("maximum")(as_number(simplify(count - 1)), as_number(1))
    step = divide(cast_to(as_number(last), dtype), cast_to(gaps, dtype))
    first = expand_dims(sample, axis=-1)
    moved = subtract(
        cast_to(multiply(add(cast_to(number, dtype), first), step), INT64), cast_to(multiply(first, step), INT64)
    )
    is_last = get_operator("equal")(number, as_number(simplify(count - 1)))
    return where(is_last, as_number(last), moved)
