"""Translate PyTorch's element types and tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from tilewright.graphir.dims import Dim
from tilewright.graphir.expr import Expr
from tilewright.graphir.types import TensorType
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.errors import UnsupportedOperatorError

Array = np.ndarray[Any, Any]

_NAMES = (
    *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float16", "bfloat16", "float32", "float64"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
)
_DTYPES: dict[torch.dtype, DataType] = {getattr(torch, name): DataType(name) for name in _NAMES if hasattr(torch, name)}
_TORCH_DTYPES = {found: dtype for dtype, found in _DTYPES.items()}


def element_type(dtype: torch.dtype) -> DataType:
    """Return the IR's name of an element type.

    Raises:
        UnsupportedOperatorError: it has none, as quantized numbers and, as elements, complex ones.
    """
    found = _DTYPES.get(dtype)
    if found is None:
        raise UnsupportedOperatorError(f"element type {dtype} is not supported")
    return found


#: Complex types, and those of their parts: a complex number is two of them, as the last axis of a tensor.
_PARTS = {
    torch.complex32: DataType("float16"),
    torch.complex64: DataType("float32"),
    torch.complex128: DataType("float64"),
}


def stored_type(value: torch.Tensor, shape: Iterable[Dim]) -> TensorType:
    """Return the type of a tensor of this shape in the IR, where complex numbers have an axis of two parts.

    Raises:
        UnsupportedOperatorError: its element type has no name in the IR.
    """
    return TensorType([*shape, 2] if value.dtype in _PARTS else shape, part_type(value.dtype))


def part_type(dtype: torch.dtype) -> DataType:
    """Return the IR's name of an element type, for complex numbers that of their parts.

    Raises:
        UnsupportedOperatorError: it has none.
    """
    part = _PARTS.get(dtype)
    return element_type(dtype) if part is None else part


def torch_type(dtype: DataType) -> torch.dtype:
    """Return PyTorch's name of an element type."""
    found: torch.dtype = _TORCH_DTYPES[dtype]
    return found


def as_array(tensor: torch.Tensor) -> Array:
    """Return a tensor's elements as an array that shares its memory.

    Raises:
        UnsupportedOperatorError: the tensor is sparse or quantized, of an unsupported element type, or not in the
            memory of the processor.
    """
    dtype = stored_type(tensor, ()).dtype
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise UnsupportedOperatorError(f"a tensor of layout {tensor.layout} is not supported")
    if tensor.device.type != "cpu":
        raise UnsupportedOperatorError(f"a tensor on {tensor.device} is not supported; move it to the CPU first")
    plain = tensor.detach().resolve_conj().resolve_neg()
    if plain.is_complex():
        plain = torch.view_as_real(plain)
    if tensor.dtype is torch.bfloat16 or dtype.kind == "storage":
        bits = torch.int16 if tensor.dtype is torch.bfloat16 else torch.uint8
        found: Array = plain.view(bits).numpy().view(dtype.numpy)
        return found
    array: Array = plain.numpy()
    return array


#: Kinds of element types, each of which holds what those before it hold.
_CATEGORIES = ("bool", "uint", "int", "float")


def _category(dtype: DataType) -> int:
    return 1 if dtype.is_integer else _CATEGORIES.index(dtype.kind)


def promoted(operands: Iterable[Any]) -> DataType:
    """Return the element type in which an operator computes, by PyTorch's rules: a tensor without dimensions and a
    number only count if they are of a higher kind (bool, integer, float) than tensors with dimensions.

    Args:
        operands: tensors as expressions, and numbers.
    """
    levels: list[DataType | None] = [None, None, None]
    for operand in operands:
        if isinstance(operand, Expr) and isinstance(operand.type, TensorType):
            level, dtype = (0 if operand.type.shape else 1), operand.type.dtype
        elif isinstance(operand, bool):
            level, dtype = 2, DataType("bool")
        elif isinstance(operand, float):
            level, dtype = 2, element_type(torch.get_default_dtype())
        elif operand is None:
            continue
        else:
            level, dtype = 2, DataType("int64")
        known = levels[level]
        levels[level] = dtype if known is None else _joined(known, dtype)
    result: DataType | None = None
    for dtype_of_level in levels:
        if dtype_of_level is None:
            continue
        if result is None or _category(dtype_of_level) > _category(result):
            result = dtype_of_level
    assert result is not None
    return result


def _joined(a: DataType, b: DataType) -> DataType:
    return a if a is b else element_type(torch.promote_types(torch_type(a), torch_type(b)))


def as_tensor(array: Array) -> torch.Tensor:
    """Return an array as a tensor that shares its memory."""
    name = array.dtype.name
    if not array.size:  # the strides of an array without elements may be any
        return torch.empty(array.shape, dtype=torch_type(DataType(name)))
    if name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    if name.startswith("float8"):
        return torch.from_numpy(array.view(np.uint8)).view(getattr(torch, name))
    return torch.from_numpy(array)
