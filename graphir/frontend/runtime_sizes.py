"""Track sizes that a model computes from its data: bind numbers of the graph to symbolic dimensions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.graphir.dims import Dim, product
from tilewright.graphir.expr import Call, Expr, const
from tilewright.graphir.known_values import known_values
from tilewright.graphir.op import Operator, get_operator
from tilewright.graphir.ops.calls import cast, divide, multiply, reshape, squeeze, subtract, take, where
from tilewright.graphir.runtime_sizes import fresh_symbol
from tilewright.graphir.types import TensorType
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import Expr as Scalar
from tilewright.tensorir.expr import Var

#: Operators that keep a vector's elements and their order.
_SAME_ELEMENTS = frozenset(("cast", "reshape", "squeeze", "expand_dims", "copy"))


class RuntimeSizes:
    """Maps each number of the graph that is a size to one symbolic dimension, for all nodes that use it."""

    def __init__(self) -> None:
        self._dims: dict[Expr, tuple[Var, Expr]] = {}

    def dim(self, number: Expr) -> tuple[Var, Expr]:
        """Return the symbolic dimension for a tensor of one element, and that tensor as an int64 scalar."""
        if number not in self._dims:
            self._dims[number] = fresh_symbol(), as_size(number)
        return self._dims[number]


def as_size(number: Expr) -> Expr:
    """Convert a tensor of one integer to an int64 scalar."""
    assert isinstance(number.type, TensorType)
    scalar = reshape(number, newshape=()) if number.type.shape else number
    return scalar if number.type.dtype is INT64 else cast(scalar, dtype=INT64)


def elements_of(vector: Expr) -> list[Dim | Expr] | None:
    """Return the elements of a small tensor: integers and integer expressions where they are known, scalars of the
    graph otherwise; None if their number is unknown."""
    known = known_values(vector)
    if known is not None:
        return [value if isinstance(value, Scalar) else int(value) for value in known.reshape(-1).tolist()]
    found = vector.type
    if not isinstance(found, TensorType):
        return None
    count = product(found.shape)
    if not isinstance(count, int):
        return None
    if isinstance(vector, Call) and isinstance(vector.op, Operator):
        if vector.op.name in _SAME_ELEMENTS and not _rounds(vector):
            return elements_of(vector.args[0])
        if vector.op.name == "concatenate" and found.ndim == 1:
            parts = [elements_of(part) for part in vector.args]
            return None if None in parts else [element for part in parts if part is not None for element in part]
    if count == 1:
        return [vector]
    flat = vector if found.ndim == 1 else reshape(vector, newshape=(count,))
    return [take(flat, const(np.array(number, np.int64)), axis=0) for number in range(count)]


def _rounds(call: Call) -> bool:
    """Return whether a cast may change numbers."""
    return not all(isinstance(x.type, TensorType) and x.type.dtype.is_integer for x in (call, *call.args))


def as_number(size: Dim | Expr) -> Expr:
    """Convert a size to an int64 scalar of the graph."""
    if isinstance(size, Expr):
        return as_size(size)
    return squeeze(get_operator("sizes")(values=(size,)), axis=(0,))


def reshape_sizes(old: Sequence[Dim], wanted: Sequence[Dim | Expr], allowzero: bool) -> list[Dim | Expr]:
    """Return the sizes that ``wanted`` denotes in a reshape of a tensor of shape ``old``: 0 is the old size, unless
    ``allowzero``, and -1 is the remaining size. A -1 that is known stays."""
    sizes = [
        old[axis] if isinstance(size, int) and size == 0 and not allowzero and axis < len(old) else size
        for axis, size in enumerate(wanted)
    ]
    if not any(isinstance(size, Expr) for size in sizes):
        return sizes
    found: list[Dim | Expr] = []
    for axis, size in enumerate(sizes):
        if isinstance(size, Expr) and not allowzero and axis < len(old):
            number = as_size(size)
            size = where(get_operator("equal")(number, 0), as_number(old[axis]), number)
        found.append(size)
    if any(isinstance(size, int) and size == -1 for size in found):
        return found
    others = as_number(1)
    for size in found:
        number = as_number(size)
        others = multiply(others, where(get_operator("less")(number, 0), as_number(1), number))
    left = get_operator("floor_divide")(as_number(product(old)), get_operator("maximum")(others, 1))
    return [
        where(get_operator("less")(size, 0), left, size) if isinstance(size, Expr) else size
        for size in (as_size(each) if isinstance(each, Expr) else each for each in found)
    ]


def slice_bounds(begin: Dim | Expr, end: Dim | Expr | None, step: int, extent: Dim) -> tuple[Expr, Expr]:
    """Return the begin of a slice of an axis of size ``extent`` and its number of elements, as int64 scalars, by
    NumPy's rules for bounds that are negative or out of range."""
    size = as_number(extent)
    low, high = (as_number(0), size) if step > 0 else (as_number(-1), subtract(size, 1))

    def inside(bound: Dim | Expr) -> Expr:
        number = as_number(bound)
        counted = where(get_operator("less")(number, 0), get_operator("add")(number, size), number)
        return get_operator("minimum")(get_operator("maximum")(counted, low), high)

    first = inside(begin)
    last = (high if step > 0 else low) if end is None else inside(end)
    return first, range_count(first, last, as_number(step))


def range_count(start: Expr, stop: Expr, step: Expr) -> Expr:
    """Return the length of a range as an int64 scalar."""
    distance = subtract(stop, start)
    assert isinstance(distance.type, TensorType)
    if distance.type.dtype.is_float:
        count = cast(get_operator("ceil")(divide(distance, step)), dtype=INT64)
    else:
        # Rounds up: negates the floor of the negated quotient.
        distance, step = cast(distance, dtype=INT64), cast(step, dtype=INT64)
        count = get_operator("negative")(get_operator("floor_divide")(get_operator("negative")(distance), step))
    return get_operator("maximum")(count, 0)
