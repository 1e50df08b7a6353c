"""Define the types of graph expressions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from tilewright.graphir.dims import Dim, as_dim, format_shape, shape_equal
from tilewright.tensorir.dtype import STORAGE_DTYPES, TENSOR_DTYPES, DataType, as_dtype
from tilewright.tensorir.errors import ArgumentTypeError, ShapeError

#: Offsets in a tensor are counted in bytes by signed integers of 64 bits.
_MOST_BYTES = (1 << 63) - 1

_ELEMENT_TYPES = frozenset(map(as_dtype, (*TENSOR_DTYPES, *STORAGE_DTYPES)))


class Type:
    """Base of all types. Types are values: equal types are ``==``."""

    __slots__ = ()


class TensorType(Type):
    """A tensor type: a shape and an element type.

    Args:
        shape: dimensions: integers, names of symbolic dimensions, or integer expressions over them.
        dtype: element type.

    Raises:
        TypeError: a dimension or the element type is none.
        ShapeError: a dimension is negative, or the elements have more bytes than memory has addresses.

    Equality is provable equality of the shapes for all values of the symbolic dimensions.
    """

    __slots__ = ("dtype", "shape")

    shape: tuple[Dim, ...]
    dtype: DataType

    def __init__(self, shape: Iterable[Any] = (), dtype: Any = "float32") -> None:
        if type(shape) is not tuple and (isinstance(shape, str) or not isinstance(shape, Iterable)):
            raise ArgumentTypeError(f"a shape is a sequence of dimensions, found {shape!r}")
        dims: tuple[Any, ...] = tuple(shape)
        size = 1
        for dim in dims:
            if type(dim) is int and dim >= 0:
                size *= dim or 1
            else:
                dims = tuple([as_dim(dim) for dim in dims])
                size = math.prod([dim or 1 for dim in dims if type(dim) is int])
                break
        self.shape = dims
        self.dtype = dtype = dtype if type(dtype) is DataType else as_dtype(dtype)
        if dtype not in _ELEMENT_TYPES:
            raise ArgumentTypeError(f"a tensor's element type is one of {', '.join(TENSOR_DTYPES)}, not {dtype!s}")
        if size * dtype.bytes > _MOST_BYTES:
            raise ShapeError(f"a tensor of shape {format_shape(self.shape)} has more bytes than memory has addresses")

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, TensorType) and self.dtype is other.dtype and shape_equal(self.shape, other.shape)

    def __hash__(self) -> int:
        return hash((len(self.shape), self.dtype))

    def __str__(self) -> str:
        return f"Tensor[{format_shape(self.shape)}, {self.dtype!s}]"

    def __repr__(self) -> str:
        return str(self)


class TupleType(Type):
    """A tuple type: the types of the fields."""

    __slots__ = ("fields",)

    fields: tuple[Type, ...]

    def __init__(self, fields: Iterable[Type]) -> None:
        self.fields = tuple(fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TupleType) and self.fields == other.fields

    def __hash__(self) -> int:
        return hash(self.fields)

    def __str__(self) -> str:
        inner = ", ".join(str(field) for field in self.fields)
        return f"({inner},)" if len(self.fields) == 1 else f"({inner})"

    def __repr__(self) -> str:
        return str(self)


class FuncType(Type):
    """A function type: the types of the parameters and of the result."""

    __slots__ = ("params", "result")

    params: tuple[Type, ...]
    result: Type

    def __init__(self, params: Iterable[Type], result: Type) -> None:
        self.params = tuple(params)
        self.result = result

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FuncType) and self.params == other.params and self.result == other.result

    def __hash__(self) -> int:
        return hash((self.params, self.result))

    def __str__(self) -> str:
        return f"fn({', '.join(str(param) for param in self.params)}) -> {self.result}"

    def __repr__(self) -> str:
        return str(self)
