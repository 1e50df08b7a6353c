"""Convert ONNX tensors to NumPy arrays, without copies where the file has the bytes of the array."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from onnx import TensorProto

from tilewright.graphir.types import TensorType
from tilewright.tensorir.errors import InputError, ShapeError

Array = np.ndarray[Any, Any]

#: NumPy types by ONNX's numbers, for the supported element types.
DTYPES: dict[int, np.dtype[Any]] = {
    TensorProto.FLOAT: np.dtype(np.float32),
    TensorProto.DOUBLE: np.dtype(np.float64),
    TensorProto.FLOAT16: np.dtype(np.float16),
    TensorProto.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
    TensorProto.INT8: np.dtype(np.int8),
    TensorProto.INT16: np.dtype(np.int16),
    TensorProto.INT32: np.dtype(np.int32),
    TensorProto.INT64: np.dtype(np.int64),
    TensorProto.UINT8: np.dtype(np.uint8),
    TensorProto.UINT16: np.dtype(np.uint16),
    TensorProto.UINT32: np.dtype(np.uint32),
    TensorProto.UINT64: np.dtype(np.uint64),
    TensorProto.BOOL: np.dtype(np.bool_),
    TensorProto.FLOAT8E4M3FN: np.dtype(ml_dtypes.float8_e4m3fn),
    TensorProto.FLOAT8E4M3FNUZ: np.dtype(ml_dtypes.float8_e4m3fnuz),
    TensorProto.FLOAT8E5M2: np.dtype(ml_dtypes.float8_e5m2),
    TensorProto.FLOAT8E5M2FNUZ: np.dtype(ml_dtypes.float8_e5m2fnuz),
    TensorProto.FLOAT8E8M0: np.dtype(ml_dtypes.float8_e8m0fnu),
    TensorProto.FLOAT4E2M1: np.dtype(ml_dtypes.float4_e2m1fn),
    TensorProto.INT4: np.dtype(ml_dtypes.int4),
    TensorProto.UINT4: np.dtype(ml_dtypes.uint4),
    TensorProto.INT2: np.dtype(ml_dtypes.int2),
    TensorProto.UINT2: np.dtype(ml_dtypes.uint2),
}

#: The width in bits of elements that take less than a byte in a file.
_PACKED: dict[int, int] = {
    TensorProto.FLOAT4E2M1: 4,
    TensorProto.INT4: 4,
    TensorProto.UINT4: 4,
    TensorProto.INT2: 2,
    TensorProto.UINT2: 2,
}


def numpy_dtype(data_type: int, where: str) -> np.dtype[Any]:
    """Return the NumPy type of an ONNX element type.

    Raises:
        InputError: the type is not supported (strings, complex numbers).
    """
    found = DTYPES.get(data_type)
    if found is None:
        known = data_type in TensorProto.DataType.values()
        name = TensorProto.DataType.Name(data_type) if known else str(data_type)
        raise InputError(f"{where}: element type {name} is not supported")
    return found


def to_array(tensor: TensorProto, folder: Path | None, content: Array | None = None) -> Array:
    """Return the elements of ``tensor``; external data are mapped into memory, not read.

    Args:
        folder: the folder of the model's file; external data must lie in it.
        content: its ``raw_data`` as bytes, where that was taken out of the proto.

    Raises:
        InputError: the data does not fit the shape, or lies outside of ``folder``.
    """
    where = f"tensor {tensor.name!r}"
    dtype, shape = numpy_dtype(tensor.data_type, where), tuple(tensor.dims)
    try:
        TensorType(shape, dtype)
    except ShapeError as error:
        raise InputError(f"{where}: {error}") from None
    if tensor.data_location == TensorProto.EXTERNAL:
        return _external(tensor, dtype, shape, folder, where)
    if content is None and tensor.HasField("raw_data"):
        content = np.frombuffer(tensor.raw_data, np.uint8)  # each access to raw_data copies it
    if tensor.data_type in _PACKED:
        data = _bytes(tensor) if content is None else content
        return _unpacked(data, _PACKED[tensor.data_type], dtype, shape, where)
    if content is not None:
        little = dtype if sys.byteorder == "little" else dtype.newbyteorder("<")
        expected = math.prod(shape) * dtype.itemsize
        if len(content) != expected:
            raise InputError(f"{where}: expected {expected} bytes for shape {shape}, found {len(content)}")
        return content.view(little).reshape(shape)
    data = _typed_data(tensor, dtype)
    if data.size != math.prod(shape):
        raise InputError(f"{where}: expected {math.prod(shape)} elements for shape {shape}, found {data.size}")
    return data.reshape(shape)


def _typed_data(tensor: TensorProto, dtype: np.dtype[Any]) -> Array:
    if tensor.data_type == TensorProto.FLOAT:
        return np.array(tensor.float_data, dtype)
    if tensor.data_type == TensorProto.DOUBLE:
        return np.array(tensor.double_data, dtype)
    if tensor.data_type == TensorProto.INT64:
        return np.array(tensor.int64_data, dtype)
    if tensor.data_type in (TensorProto.UINT32, TensorProto.UINT64):
        return np.array(tensor.uint64_data, np.uint64).astype(dtype)
    if dtype.itemsize == 1 and dtype.kind not in "biu":  # their bits
        return _bytes(tensor).view(dtype)
    values = np.array(tensor.int32_data, np.int32)
    if tensor.data_type in (TensorProto.FLOAT16, TensorProto.BFLOAT16):  # their bits
        return values.astype(np.uint16).view(dtype)
    return values.astype(dtype)


def _bytes(tensor: TensorProto) -> Array:
    return np.array(tensor.int32_data, np.int32).astype(np.uint8)


def _unpacked(data: Array, bits: int, dtype: np.dtype[Any], shape: tuple[int, ...], where: str) -> Array:
    """Unpack elements of ``bits`` bits, the first of a byte in its lowest bits, into a byte each."""
    count, each = math.prod(shape), 8 // bits
    if data.size != -(-count // each):
        raise InputError(f"{where}: expected {-(-count // each)} bytes for shape {shape}, found {data.size}")
    parts = (data[:, None] >> (bits * np.arange(each, dtype=np.uint8))) & ((1 << bits) - 1)
    return parts.reshape(-1)[:count].astype(np.uint8).view(dtype).reshape(shape)


def _external(
    tensor: TensorProto, dtype: np.dtype[Any], shape: tuple[int, ...], folder: Path | None, where: str
) -> Array:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise InputError(f"{where}: its data is in file {location!r}; load the model from a path, so that it is found")
    root = folder.resolve()
    try:
        path = (root / location).resolve()
        is_file = path.is_file()
    except (OSError, RuntimeError, ValueError) as error:  # a cyclic link, a name that is too long or contains a zero
        raise InputError(f"{where}: its data is in {location[:80]!r}, which is not a path: {error}") from None
    if not location or not path.is_relative_to(root):
        raise InputError(f"{where}: its data is in {location!r}, which is outside of the model's folder")
    if not is_file:
        raise InputError(f"{where}: there is no file {location!r} beside the model")
    try:
        offset = int(entries.get("offset", "0"))
        length = int(entries.get("length", math.prod(shape) * dtype.itemsize))
    except ValueError as error:
        raise InputError(f"{where}: offset and length of external data: {error}") from None
    expected = math.prod(shape) * dtype.itemsize
    if length != expected or offset < 0 or offset + length > path.stat().st_size:
        raise InputError(
            f"{where}: expected {expected} bytes for shape {shape}; {location!r} has {path.stat().st_size} bytes, of "
            f"which {length} from {offset} on are meant"
        )
    if expected == 0:
        return np.empty(shape, dtype)
    try:
        return np.memmap(path, dtype, "r", offset, shape)
    except OSError as error:
        raise InputError(f"{where}: {location!r} cannot be read: {error}") from None


def onnx_type(dtype: np.dtype[Any]) -> int:
    """Return ONNX's number for a supported NumPy type."""
    return next(number for number, known in DTYPES.items() if known == dtype)
