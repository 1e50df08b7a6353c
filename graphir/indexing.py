"""Index graph expressions, as in ``x[1:, None, ..., ::2, -1]``: NumPy's basic indexing, and one array of indices."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from tilewright.graphir.dims import Dim
from tilewright.graphir.expr import Expr, TupleGetItem, const
from tilewright.graphir.ops.calls import expand_dims, squeeze, take
from tilewright.graphir.ops.calls import slice as slice_of
from tilewright.graphir.types import TupleType
from tilewright.tensorir.errors import ArgumentIndexError, ArgumentTypeError
from tilewright.tensorir.expr import Expr as ScalarExpr


def index(value: Expr, key: Any) -> Expr:
    """Build ``value[key]``: a field of a tuple, or a part of a tensor.

    Raises:
        IndexError: too many indices, or one that is out of bounds of a static extent.
        TypeError: something that is no index, or a mixture that NumPy treats as advanced indexing.
    """
    if isinstance(value.type, TupleType):
        return _field(value, key, len(value.type.fields))
    items = _expanded(key if isinstance(key, tuple) else (key,), value.ndim)
    arrays = [item for item in items if isinstance(item, (Expr, np.ndarray, list))]
    integers = [item for item in items if _is_integer(item)]
    if len(arrays) > 1 or (arrays and integers):
        raise ArgumentTypeError("indexing with an array goes with slices only; index in two steps, or use gi.take")
    result, dropped = _slice(value, [item for item in items if item is not None])
    axis = 0
    added: list[int] = []
    place = 0
    for item in items:
        if item is None:
            added.append(place)
            place += 1
        elif isinstance(item, (Expr, np.ndarray, list)):
            indices = _index_array(item)
            result = take(result, indices, axis=axis)
            rank = indices.ndim
            axis, place = axis + rank, place + rank
        elif _is_integer(item):
            if axis in dropped:
                dropped.remove(axis)
                result = squeeze(result, axis=axis)
            else:  # of a symbolic extent
                result = take(result, np.asarray(operator.index(item), np.int64), axis=axis)
            dropped = {number - 1 for number in dropped}
        else:
            axis, place = axis + 1, place + 1
    return expand_dims(result, axis=tuple(added)) if added else result


def _field(value: Expr, key: Any, count: int) -> Expr:
    try:
        number = operator.index(key)
    except TypeError:
        raise ArgumentTypeError(f"a tuple of {count} values is indexed by an integer, found {key!r}") from None
    if not -count <= number < count:
        raise ArgumentIndexError(f"index {number} is out of bounds of a tuple of {count} values")
    return TupleGetItem(value, number % count)


def _is_integer(item: Any) -> bool:
    return isinstance(item, (int, np.integer)) and not isinstance(item, (bool, np.bool_))


def _expanded(items: tuple[Any, ...], ndim: int) -> list[Any]:
    """Replace the ellipsis, or the missing end, by whole slices."""
    used = 0
    for item in items:
        if item is None or item is Ellipsis:
            continue
        if not (_is_integer(item) or isinstance(item, (slice, Expr, np.ndarray, list))):
            raise ArgumentTypeError(
                f"expected an integer, a slice, None, ... or an integer tensor as index, found {item!r}"
            )
        used += 1
    if used > ndim:
        raise ArgumentIndexError(f"too many indices: the tensor has {ndim} dimensions, found {used} indices")
    whole = [slice(None)] * (ndim - used)
    places = [number for number, item in enumerate(items) if item is Ellipsis]
    if len(places) > 1:
        raise ArgumentIndexError("an index can have one ellipsis (...) only")
    at = places[0] if places else len(items)
    return [*items[:at], *whole, *items[at + 1 :]]


def _index_array(item: Any) -> Expr:
    array = item if isinstance(item, Expr) else np.asarray(item)
    if str(array.dtype) == "bool":
        raise ArgumentTypeError("a bool mask selects a number of elements that is not known; use gi.where")
    if isinstance(array, Expr):
        return array
    return const(array.astype(np.int64) if array.size == 0 else array)


def _slice(value: Expr, items: list[Any]) -> tuple[Expr, set[int]]:
    """Apply the slices; return the result and the axes of extent 1 to be dropped, where an integer was the
    index."""
    begin: list[Any] = []
    end: list[Any] = []
    strides: list[int] = []
    axes: list[int] = []
    dropped: set[int] = set()
    for axis, item in enumerate(items):
        extent: Dim = value.shape[axis]
        if _is_integer(item):
            number = operator.index(item)
            if not isinstance(extent, int):
                continue
            if not -extent <= number < extent:
                raise ArgumentIndexError(f"index {number} is out of bounds of axis {axis} with extent {extent}")
            dropped.add(axis)
            bounds = (number % extent, number % extent + 1, 1)
        elif isinstance(item, slice) and item != slice(None):
            bounds = (item.start, item.stop, 1 if item.step is None else operator.index(item.step))
        else:
            continue
        for bound in bounds[:2]:
            if bound is not None and not isinstance(bound, (int, np.integer, ScalarExpr)):
                raise ArgumentTypeError(
                    f"expected integers or symbolic dimensions as bounds of a slice, found {bound!r}"
                )
        axes.append(axis)
        begin.append(bounds[0])
        end.append(bounds[1])
        strides.append(bounds[2])
    if not axes:
        return value, dropped
    sliced = slice_of(value, begin=tuple(begin), end=tuple(end), strides=tuple(strides), axes=tuple(axes))
    return sliced, dropped
