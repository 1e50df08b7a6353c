"""Data types of scalars and vectors.

A :class:`DataType` is a string such as ``"float32"`` or ``"float32x16"`` that also knows its parts, so that users
write plain strings everywhere and the compiler asks questions of them.
"""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np

from tilewright.tensorir.errors import ArgumentValueError

_SCALARS: dict[str, tuple[str, int]] = {
    "bool": ("bool", 8),
    "int8": ("int", 8),
    "int16": ("int", 16),
    "int32": ("int", 32),
    "int64": ("int", 64),
    "uint8": ("uint", 8),
    "uint16": ("uint", 16),
    "uint32": ("uint", 32),
    "uint64": ("uint", 64),
    "float16": ("float", 16),
    "bfloat16": ("float", 16),
    "float32": ("float", 32),
    "float64": ("float", 64),
    "handle": ("handle", 64),  # the address of a buffer element, only as an argument of a call
    "void": ("void", 0),  # what a call without a result returns
}

#: The data types that have arithmetic, in the order of the documentation.
TENSOR_DTYPES = tuple(name for name in _SCALARS if name not in ("handle", "void"))

#: Types that tensors are only stored in, one element in a byte: ``reinterpret`` converts from and to their bits.
STORAGE_DTYPES = (
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float4_e2m1fn",
    "int4",
    "uint4",
    "int2",
    "uint2",
)
_SCALARS |= dict.fromkeys(STORAGE_DTYPES, ("storage", 8))
_NAMES = re.compile(rf"({'|'.join(_SCALARS)})(?:x([0-9]{{1,9}}))?")

#: The most lanes of a vector. LLVM generates code for a few times as many, and ends the process beyond that.
MOST_LANES = 1 << 13


class DataType(str):
    """The type of a scalar, or of a vector of ``lanes`` scalars (``"float32x16"``).

    Instances are interned: one object per spelling. Equality and hash are those of the string.

    Raises:
        ValueError: the text names no data type.
    """

    __slots__ = (
        "_with_lanes",
        "bits",
        "element",
        "is_bool",
        "is_float",
        "is_half",
        "is_int",
        "is_integer",
        "is_uint",
        "kind",
        "lanes",
        "numpy",
    )

    _interned: dict[str, DataType] = {}  # noqa: RUF012 - one table for the process

    kind: str
    bits: int
    lanes: int
    is_float: bool
    is_half: bool
    is_int: bool
    is_uint: bool
    is_integer: bool
    is_bool: bool
    element: DataType
    numpy: np.dtype[Any]
    _with_lanes: dict[int, DataType]

    def __new__(cls, text: str) -> DataType:
        found = cls._interned.get(text)
        if found is not None:
            return found
        match = _NAMES.fullmatch(text)
        if match is None:
            raise ArgumentValueError(f"unknown data type {text!r}; expected one of {', '.join(TENSOR_DTYPES)}")
        name, lanes = match.group(1), int(match.group(2) or 1)
        if lanes == 1 and text != name:
            return cls(name)
        if not 1 <= lanes <= MOST_LANES:
            raise ArgumentValueError(f"data type {text!r}: expected 1 to {MOST_LANES} lanes, found {lanes}")
        self = super().__new__(cls, text)
        self.kind, self.bits = _SCALARS[name]
        self.lanes = lanes
        self.is_float = self.kind == "float"
        self.is_half = self.is_float and self.bits == 16
        self.is_int = self.kind == "int"
        self.is_uint = self.kind == "uint"
        self.is_integer = self.kind in ("int", "uint")
        self.is_bool = self.kind == "bool"
        self.element = self if lanes == 1 else cls(name)
        self._with_lanes = {lanes: self}
        if name == "bfloat16" or self.kind == "storage":
            self.numpy = np.dtype(getattr(ml_dtypes, name))
        elif name in ("handle", "void"):
            self.numpy = np.dtype(np.int64)
        else:
            self.numpy = np.dtype(name)
        return cls._interned.setdefault(text, self)

    @property
    def bytes(self) -> int:
        """Size in memory of one element, in bytes."""
        return self.bits // 8

    def with_lanes(self, lanes: int) -> DataType:
        """The same element type with ``lanes`` lanes."""
        found = self._with_lanes.get(lanes)
        if found is None:
            found = self.element if lanes == 1 else DataType(f"{self.element!s}x{lanes}")
            self._with_lanes[lanes] = found
        return found

    def __reduce__(self) -> tuple[type[DataType], tuple[str]]:
        return (DataType, (str(self),))


#: The data types of NumPy's: it makes the text of a name anew each time.
_BY_NUMPY: dict[np.dtype[Any], DataType] = {}


def as_dtype(value: Any) -> DataType:
    """``value`` as a :class:`DataType`: a name, a NumPy or ml_dtypes type, or a Python scalar type.

    Raises:
        ValueError: it names no type that a tensor can have.
    """
    if isinstance(value, DataType):
        return value
    if isinstance(value, str):
        return DataType(value)
    try:
        dtype = np.dtype(value)
        found = _BY_NUMPY.get(dtype)
        if found is not None:
            return found
        name = dtype.name
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentValueError(f"{value!r:.60} is no data type; expected {', '.join(TENSOR_DTYPES)}") from error
    return _BY_NUMPY.setdefault(dtype, DataType(name))


BOOL = DataType("bool")
INT32 = DataType("int32")
INT64 = DataType("int64")
FLOAT32 = DataType("float32")
FLOAT64 = DataType("float64")
HANDLE = DataType("handle")
VOID = DataType("void")
