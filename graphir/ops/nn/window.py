"""Describe windows that slide over the spatial axes of a tensor, for convolution and pooling."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from tilewright.graphir.dims import Dim, as_amount, simplify
from tilewright.graphir.op import Operator
from tilewright.graphir.ops.common import guarded
from tilewright.tensorir import tensor as te
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.errors import ArgumentTypeError, ArgumentValueError
from tilewright.tensorir.expr import Expr, Var, all_of, as_expr, cast, maximum, minimum
from tilewright.tensorir.tensor import Tensor

T = TypeVar("T")


def per_axis(value: Any, name: str, rank: int, least: int = 1) -> tuple[int, ...]:
    """Return a size for each of ``rank`` spatial axes, given once for all or for each.

    Raises:
        TypeError: it is neither.
        ValueError: it is below ``least``.
    """
    sizes = _integers(value, name)
    if len(sizes) == 1:
        sizes = sizes * rank
    if len(sizes) != rank:
        counts = f"1 or {rank} integers" if rank > 1 else "1 integer"
        raise ArgumentValueError(f"{name}: expected {counts}, found {value!r}")
    if min(sizes) < least:
        raise ArgumentValueError(f"{name}: expected at least {least}, found {value!r}")
    return sizes


def margins(value: Any, name: str, rank: int) -> tuple[Dim, ...]:
    """Return the padding before each of ``rank`` spatial axes and then behind each, given once, for each axis, or in
    full.

    Each is an integer, or an expression over symbolic dimensions that is never negative.

    Raises:
        TypeError: it is none of these.
        ValueError: it is negative.
    """
    items = value if isinstance(value, (tuple, list)) else (value,)
    try:
        sizes = tuple(map(as_amount, items))
    except TypeError:
        raise ArgumentTypeError(f"{name}: expected integers or integer expressions, found {value!r}") from None
    if any(isinstance(size, int) and size < 0 for size in sizes):
        raise ArgumentValueError(f"{name}: expected no negative size, found {value!r}")
    return _in_full(sizes, value, name, rank)


def cuts(value: Any, name: str, rank: int) -> tuple[int, ...]:
    """Return integers as :func:`margins` does, to crop each side of a result; negative ones extend it."""
    return _in_full(_integers(value, name), value, name, rank)


def _in_full(sizes: tuple[T, ...], value: Any, name: str, rank: int) -> tuple[T, ...]:
    """Return sizes before each axis and then behind each, of which ``sizes`` may state fewer."""
    if len(sizes) not in (1, rank, 2 * rank):
        counts = "1, 2 (height, width) or 4 (top, left, bottom, right)" if rank == 2 else f"1, {rank} or {2 * rank}"
        raise ArgumentValueError(f"{name}: expected {counts}, found {value!r}")
    if len(sizes) == 1:
        sizes = sizes * rank
    return sizes * 2 if len(sizes) == rank else sizes


def pair(value: Any, name: str, least: int = 1) -> tuple[int, int]:
    """Return :func:`per_axis` for height and width."""
    height, width = per_axis(value, name, 2, least)
    return height, width


def borders(value: Any, name: str = "padding") -> tuple[Dim, Dim, Dim, Dim]:
    """Return :func:`margins` for an image: the padding at top, left, bottom and right."""
    top, left, bottom, right = margins(value, name, 2)
    return top, left, bottom, right


def _integers(value: Any, name: str) -> tuple[int, ...]:
    items = value if isinstance(value, (tuple, list)) else (value,)
    try:
        sizes = tuple(operator.index(item) for item in items)
    except TypeError:
        raise ArgumentTypeError(f"{name}: expected integers, found {value!r}") from None
    if not sizes:
        raise ArgumentValueError(f"{name}: expected integers, found none")
    return sizes


def window_count(
    op: Operator, extent: Dim, size: Dim, stride: int, dilation: int, padding: Sequence[Dim], ceil_mode: bool = False
) -> Dim:
    """Return the number of windows that fit along one axis.

    Args:
        size: elements of the window; ``dilation`` apart.
        padding: before and behind.
        ceil_mode: whether a last window that only partly fits counts, as long as it starts inside the image or the
            padding before it.

    Raises:
        TypeInferenceError: a static image is smaller than the window.
    """
    before, behind = padding
    span = simplify((size - 1) * dilation + 1)
    room = simplify(extent + (before + behind) - span)
    if isinstance(room, int) and room < 0:
        raise op.error(0, f"an image of at least {span} pixels with its padding", f"{extent} + {before + behind}")
    if not ceil_mode:
        return simplify(room // stride + 1)
    # The windows needed for the last one to reach the end, limited to those that start before the padding behind.
    reaching = simplify((room + (stride - 1)) // stride + 1)
    starting = simplify((extent + (before + stride - 1)) // stride)
    if isinstance(reaching, int) and isinstance(starting, int):
        return min(reaching, starting)
    return simplify(minimum(as_expr(reaching), as_expr(starting)))


def is_padded(padding: Sequence[Dim]) -> bool:
    """Return whether there is anything to pad: a size that is not 0, or not known."""
    return any(not isinstance(amount, int) or amount != 0 for amount in padding)


def pad_image(data: Tensor, positions: Sequence[int], padding: Sequence[Dim], value: int | float) -> Tensor:
    """Pad ``data`` with ``value`` around its spatial axes, in a stage named ``pad``; return it unchanged if all padding
    is 0.

    Args:
        positions: the dimensions that are padded.
        padding: before each of them, then behind each.
    """
    if not is_padded(padding):
        return data
    rank = len(positions)
    begin = {position: padding[n] for n, position in enumerate(positions)}
    behind = {position: padding[n + rank] for n, position in enumerate(positions)}
    shape = [extent + (begin.get(n, 0) + behind.get(n, 0)) for n, extent in enumerate(data.shape)]

    def element(*place: Var) -> Expr:
        moved = [index - begin[number] if number in begin else index for number, index in enumerate(place)]
        conditions: list[Expr] = []
        for number in positions:
            if is_padded([begin[number]]):
                conditions.append(place[number] >= begin[number])
            if is_padded([behind[number]]):
                conditions.append(moved[number] < data.shape[number])
        return guarded(all_of(*conditions), data[tuple(moved)], value)

    return te.compute(shape, element, name="pad")


def _number(size: Dim) -> int:
    """Return a size that is known: references run when all are."""
    assert isinstance(size, int)
    return size


@dataclasses.dataclass(frozen=True)
class Windows:
    """Windows that slide over some dimensions of a tensor.

    Attributes:
        positions: those dimensions.
        size: elements of a window along each.
        strides: the steps from one window to the next.
        padding: elements before each dimension, then behind each; sizes over symbolic dimensions may be among them.
        dilation: the distance between a window's elements.
        ceil_mode: whether a last window that only partly fits counts.
    """

    positions: tuple[int, ...]
    size: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[Dim, ...]
    dilation: tuple[int, ...]
    ceil_mode: bool = False

    @property
    def rank(self) -> int:
        """The number of dimensions that they slide over."""
        return len(self.positions)

    def spans(self) -> list[int]:
        """Return the distance from the first element of a window to behind its last, along each dimension."""
        return [(size - 1) * distance + 1 for size, distance in zip(self.size, self.dilation, strict=True)]

    def check_padding(self) -> None:
        """Check that every window has an element inside, as far as padding is known.

        Raises:
            ValueError: padding is as wide as the window.
        """
        for amount, span in zip(self.padding, self.spans() * 2, strict=True):
            if isinstance(amount, int) and amount >= span:
                raise ArgumentValueError(f"padding: expected less than the window's span {span}, found {amount}")

    def shape(self, op: Operator, shape: Sequence[Dim]) -> list[Dim]:
        """Return the shape of a result with one element for each window.

        Raises:
            TypeInferenceError: a static image is smaller than the window.
        """
        result = list(shape)
        for n, position in enumerate(self.positions):
            padding = self.padding[n], self.padding[n + self.rank]
            result[position] = window_count(
                op, shape[position], self.size[n], self.strides[n], self.dilation[n], padding, self.ceil_mode
            )
        return result

    def axes(self) -> list[Var]:
        """Create reduction axes over a window, named for depth, height and width."""
        names = ("kd", "kh", "kw")[-self.rank :] if self.rank <= 3 else [f"k{n}" for n in range(self.rank)]
        return [te.reduce_axis(size, name) for size, name in zip(self.size, names, strict=True)]

    def element(self, data: Tensor, place: Sequence[Expr], axes: Sequence[Var]) -> tuple[list[Expr], Expr]:
        """Return the indices of the element at ``axes`` in the window of ``place``, and whether it is inside."""
        indices = list(place)
        conditions: list[Expr] = []
        for n, position in enumerate(self.positions):
            at = place[position] * self.strides[n] + axes[n] * self.dilation[n] - self.padding[n]
            indices[position] = at
            if is_padded([self.padding[n]]):
                conditions.append(at >= 0)
            if is_padded([self.padding[n + self.rank]]) or self.ceil_mode:
                conditions.append(at < data.shape[position])
        return indices, all_of(*conditions)

    def count(self, data: Tensor, place: Sequence[Expr], with_padding: bool, dtype: DataType) -> Expr:
        """Return the number of elements of the window of ``place`` that are inside (or in the padding), a float; at
        least 1."""
        # The factor of each axis is a float, which leaves the loops over the others; the product of integers would be
        # a sum of products in canonical form.
        factors = [
            cast(dtype, self._count(n, place[position], data.shape[position], with_padding))
            for n, position in enumerate(self.positions)
        ]
        return functools.reduce(operator.mul, factors)

    def _count(self, n: int, window: Expr, extent: Expr, with_padding: bool) -> Expr:
        size, stride, dilation = self.size[n], self.strides[n], self.dilation[n]
        before, behind = self.padding[n], self.padding[n + self.rank]
        if not self.ceil_mode and (with_padding or not is_padded([before, behind])):
            return as_expr(size)
        margin = before if with_padding else 0
        end = extent + (behind if with_padding else 0)
        start = window * stride - before
        # Elements start + k * dilation with -margin <= element < end.
        first = maximum(0, (-margin - start + (dilation - 1)) // dilation)
        last = minimum(size - 1, (end - 1 - start) // dilation)
        return maximum(1, last - first + 1)

    def gather(self, op: Operator, array: np.ndarray[Any, Any], fill: Any) -> np.ndarray[Any, Any]:
        """Gather the elements of every window of an array, row by row in a last axis; those outside are ``fill``."""
        out = self.shape(op, array.shape)
        width = [(0, 0)] * array.ndim
        for n, position in enumerate(self.positions):
            before = _number(self.padding[n])
            reach = (_number(out[position]) - 1) * self.strides[n] + self.spans()[n]
            width[position] = before, max(0, reach - array.shape[position] - before)
        image = np.pad(array, width, constant_values=fill)
        kept = tuple([slice(0, _number(extent)) for extent in out])
        taken = []
        for offsets in itertools.product(*map(range, self.size)):
            where = [slice(None)] * array.ndim
            for n, position in enumerate(self.positions):
                begin = offsets[n] * self.dilation[n]
                where[position] = slice(begin, begin + _number(out[position]) * self.strides[n], self.strides[n])
            part = image[tuple(where)]
            taken.append(part[kept])
        return np.stack(taken, axis=-1)
