"""Present a node of a program to converters: the type of its result, and conversions of its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tilewright.graphir.dims import Dim, dim_equal
from tilewright.graphir.expr import Expr, const
from tilewright.graphir.frontend.checked_sizes import with_elements
from tilewright.graphir.frontend.runtime_sizes import RuntimeSizes, as_number
from tilewright.graphir.frontend.torch.sizes import Sizes
from tilewright.graphir.frontend.torch.tensors import promoted, stored_type
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import cast, reshape
from tilewright.graphir.types import TensorType
from tilewright.tensorir.dtype import INT64, DataType
from tilewright.tensorir.errors import UnsupportedOperatorError
from tilewright.tensorir.expr import Expr as Scalar


class Node:
    """A node to convert.

    Attributes:
        label: the overload's name, the node's, and the line of the program, for errors.
        value: what PyTorch knows of the result: a tensor without elements, or a sequence of them.
        arguments: for each argument that is a node's result what PyTorch knows of it, as of the result; else None.
    """

    def __init__(
        self,
        label: str,
        value: Any,
        sizes: Sizes,
        runtime_sizes: RuntimeSizes,
        arguments: Sequence[Any] = (),
    ) -> None:
        self.label = label
        self.value = value
        self.arguments = arguments
        self._sizes = sizes
        self._runtime_sizes = runtime_sizes

    def dims(self, sizes: Sequence[Any]) -> list[Dim]:
        """Return sizes or strides of PyTorch's as dimensions."""
        return [self._sizes.dim(size) for size in sizes]

    # The result.

    def result(self, number: int | None = None) -> TensorType:
        """Return the type of the result, or of result ``number`` of several."""
        value = self.value if number is None else self.value[number]
        if isinstance(value, (list, tuple)):
            value = value[0]
        return stored_type(value, self.dims(value.shape))

    @property
    def complex_arguments(self) -> list[bool]:
        """For each argument whether it is a tensor of complex numbers."""
        return [*map(is_complex, self.arguments)]

    @property
    def is_complex(self) -> bool:
        """Whether the result is a tensor of complex numbers."""
        return isinstance(self.value, torch.Tensor) and self.value.is_complex()

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The shape of the result."""
        return tuple(self.result().shape)

    @property
    def dtype(self) -> DataType:
        """The element type of the result."""
        return self.result().dtype

    # Arguments.

    def tensor(self, value: Any, dtype: DataType | None = None) -> Expr:
        """Return an argument, which may be a number or a size, as a tensor of ``dtype``: by default that of the
        result."""
        wanted = self.dtype if dtype is None else dtype
        if isinstance(value, Expr):
            return cast_to(value, wanted)
        if isinstance(value, Scalar):
            return cast_to(as_number(value), wanted)
        if isinstance(value, float) and not wanted.is_float:
            value = int(value)
        return const(bool(value) if wanted.is_bool else value, wanted)

    def promoted(self, *operands: Any) -> list[Expr]:
        """Return operands as tensors of the element type to which PyTorch promotes them."""
        dtype = promoted(operands)
        return [self.tensor(operand, dtype) for operand in operands]

    def axis(self, axis: int, rank: int) -> int:
        """Return an axis counted from the front; a tensor without dimensions has one axis, as PyTorch sees it."""
        return axis % max(rank, 1)

    def axes(self, axes: Sequence[int] | int | None, rank: int) -> tuple[int, ...]:
        """Return axes counted from the front, all for None and for none."""
        given = [axes] if isinstance(axes, int) else list(axes or range(rank))
        return tuple(sorted({self.axis(axis, rank) for axis in given})) if rank else ()

    def size(self, number: Dim | Expr) -> Dim:
        """Return a size as a dimension: a scalar of the graph becomes a symbolic dimension that is bound when the
        model runs."""
        return self._runtime_sizes.dim(number)[0] if isinstance(number, Expr) else number

    def number(self, value: Any, what: str) -> Any:
        """Return an argument that must be a number known when the program is imported.

        Raises:
            UnsupportedOperatorError: it depends on data or on sizes.
        """
        if isinstance(value, (Expr, Scalar)):
            raise self.unsupported(f"{what} that is not known when the program is imported")
        return value

    # Errors.

    def unsupported(self, what: str) -> UnsupportedOperatorError:
        """Return an error about something unsupported in the overload."""
        return UnsupportedOperatorError(f"{self.label}: {what} is not supported")


def is_complex(value: Any) -> bool:
    """Return whether a value, or one of several, is a tensor of complex numbers."""
    if isinstance(value, (list, tuple)):
        return any(map(is_complex, value))
    return isinstance(value, torch.Tensor) and value.is_complex()


def cast_to(x: Expr, dtype: DataType) -> Expr:
    """Return ``x`` with another element type; itself if it has that."""
    assert isinstance(x.type, TensorType)
    if x.type.dtype is dtype:
        return x
    if dtype.is_bool:
        return get_operator("not_equal")(x, get_operator("zeros_like")(x))
    return cast(x, dtype=dtype)


def shape_of(x: Expr) -> tuple[Dim, ...]:
    """Return the shape of a tensor."""
    assert isinstance(x.type, TensorType)
    return tuple(x.type.shape)


def dtype_of(x: Expr) -> DataType:
    """Return the element type of a tensor."""
    assert isinstance(x.type, TensorType)
    return x.type.dtype


def with_shape(x: Expr, wanted: Sequence[Dim]) -> Expr:
    """Return ``x`` with a shape of as many dimensions; where it cannot be proved that it has that, a call checks it."""
    if all(dim_equal(found, dim) for found, dim in zip(shape_of(x), wanted, strict=True)):
        return x
    return get_operator("match_shape")(x, shape=tuple(wanted))


def axis_places(extent: Dim, behind: int = 0) -> Expr:
    """Return the places along an axis, 0, 1, ..., ``extent`` - 1, with so many axes of size 1 behind. PyTorch knows
    that no formula of a size is negative; where it cannot be proved a call checks it."""
    numbers = with_shape(get_operator("arange")(start=0, stop=extent, step=1, dtype=INT64), (extent,))
    return reshape(numbers, newshape=(extent, *(1,) * behind)) if behind else numbers


def reshaped(x: Expr, newshape: Sequence[Dim]) -> Expr:
    """Reshape ``x``; where it cannot be proved that the shape has as many elements, a call checks it."""
    old = shape_of(x)
    if len(old) == len(newshape) and all(map(dim_equal, old, newshape)):
        return x
    return reshape(with_elements(x, newshape), newshape=tuple(newshape))
