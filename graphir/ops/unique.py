"""Find the distinct elements of a tensor; their number becomes known when the model runs."""

from __future__ import annotations

import numpy as np

from tilewright.graphir.base import Expr, call_operator
from tilewright.graphir.dims import product
from tilewright.graphir.expr import TupleGetItem, const
from tilewright.graphir.ops import calls
from tilewright.graphir.types import TensorType
from tilewright.tensorir.errors import TypeInferenceError

#: Slices of more elements are not compared, as each element costs a sort.
_MOST_KEYS = 256


def unique(x: Expr, sorted: bool = True, axis: int | None = None) -> tuple[Expr, Expr, Expr, Expr]:
    """Find the distinct elements of ``x``, or its distinct slices along ``axis``, as ``numpy.unique`` does.

    Args:
        x: a tensor of numbers or bools.
        sorted: whether they are in ascending order (slices: by their first elements, then the second ...) rather than
            in order of first occurrence.
        axis: the axis whose slices are compared; None: compare the elements of the flattened tensor.

    Returns:
        The elements or slices; the index of the first occurrence of each; for each element or slice of ``x`` the number
        of its value among them; and the number of occurrences of each (the last three int64 vectors).

    Raises:
        TypeInferenceError: ``x`` is no tensor, has no such axis, or has slices of too many or an unknown number of
            elements.
    """
    if not isinstance(x.type, TensorType):
        raise TypeInferenceError(f"unique: expected a tensor, found {x.type}")
    if axis is not None and not -x.type.ndim <= axis < x.type.ndim:
        raise TypeInferenceError(f"unique: axis: expected an axis of {x.type}, found {axis}")
    slices = calls.reshape(x, newshape=(product(x.type.shape),)) if axis is None else x
    along = 0 if axis is None else axis % x.type.ndim
    # Numbers are sorted, not bools.
    keys = calls.cast(slices, dtype="uint8") if slices.tensor_type.dtype.is_bool else slices
    order, starts_group = _sorted(keys, along)
    assert isinstance(order.type, TensorType)
    extent = order.type.shape[0]
    group = calls.subtract(call_operator("cumsum", calls.cast(starts_group, dtype="int64"), axis=0), 1)
    starts = calls.squeeze(call_operator("nonzero", starts_group), axis=(0,))
    first = calls.take(order, starts, axis=0)
    ends = calls.concatenate([starts, call_operator("sizes", values=(extent,))], axis=0)
    counts = calls.subtract(call_operator("slice", ends, begin=(1,), end=(None,), strides=(1,), axes=(0,)), starts)
    inverse = call_operator("scatter_elements", call_operator("zeros_like", group), order, group, axis=0)
    if not sorted:
        by_place = _argsort(first)
        inverse = calls.take(_argsort(by_place), inverse, axis=0)
        first, counts = calls.take(first, by_place, axis=0), calls.take(counts, by_place, axis=0)
    return calls.take(slices, first, axis=along), first, inverse, counts


def _argsort(vector: Expr) -> Expr:
    """Return the indices that sort a vector in ascending order; the sort is stable."""
    assert isinstance(vector.type, TensorType)
    return TupleGetItem(call_operator("top_k", vector, k=vector.type.shape[0], axis=0, largest=False), 1)


def _sorted(x: Expr, axis: int) -> tuple[Expr, Expr]:
    """Return the order of the slices along ``axis``, and for each position in it whether the slice differs from the one
    before."""
    assert isinstance(x.type, TensorType)
    extent = x.type.shape[axis]
    rest = [dim for number, dim in enumerate(x.type.shape) if number != axis]
    count = product(rest)
    if not isinstance(count, int) or count > _MOST_KEYS:
        raise TypeInferenceError(f"unique: expected slices of at most {_MOST_KEYS} elements, found {count!s}")
    axes = (axis, *(number for number in range(x.type.ndim) if number != axis))
    rows = calls.reshape(calls.transpose(x, axes=axes), newshape=(extent, count))
    order: Expr = call_operator("arange", start=0, stop=extent, step=1, dtype="int64")
    # The last key first: a stable sort keeps the order of equal elements.
    for key in reversed(range(count)):
        column = calls.take(rows, const(np.array(key, np.int64)), axis=1)
        order = calls.take(order, _argsort(calls.take(column, order, axis=0)), axis=0)
    in_order = calls.take(rows, order, axis=0)
    number = call_operator("arange", start=0, stop=extent, step=1, dtype="int64")
    before = calls.take(in_order, call_operator("maximum", calls.subtract(number, 1), 0), axis=0)
    differs = call_operator("any", call_operator("not_equal", in_order, before), axis=(1,))
    return order, call_operator("logical_or", differs, call_operator("equal", number, 0))
