"""Read tensors of other libraries whose element type NumPy does not know, such as bfloat16, without a copy.

``numpy.from_dlpack`` refuses them. The types come from ml_dtypes; the structures are those of DLPack's ``dlpack.h``
(version 0, which every library still writes where no version is asked for).
"""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np

#: ``kDLCPU`` of ``DLDeviceType``.
_CPU = 1

#: Types by ``DLDataTypeCode`` and bits.
_TYPES = {
    (4, 16): ml_dtypes.bfloat16,
    (10, 8): ml_dtypes.float8_e4m3fn,
    (11, 8): ml_dtypes.float8_e4m3fnuz,
    (12, 8): ml_dtypes.float8_e5m2,
    (13, 8): ml_dtypes.float8_e5m2fnuz,
    (14, 8): ml_dtypes.float8_e8m0fnu,
}


class _Tensor(ctypes.Structure):
    """``DLTensor``, with which a ``DLManagedTensor`` begins."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Memory:
    """Memory of a capsule as NumPy's array interface: the array keeps this object, and so the capsule, whose own
    destructor gives the memory back. (A capsule that keeps its name has not been consumed.)"""

    def __init__(self, capsule: object, interface: dict[str, Any]) -> None:
        self.capsule = capsule
        self.__array_interface__ = interface


def from_dlpack(value: Any) -> np.ndarray[Any, Any]:
    """Return a tensor in the CPU's memory as an array that shares its elements.

    Raises:
        BufferError, RuntimeError, TypeError: NumPy cannot read it, and it is of none of the types above; the error is
            NumPy's.
    """
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError):
        found = _narrow(value)
        if found is None:
            raise
        return found


def _narrow(value: Any) -> np.ndarray[Any, Any] | None:
    """Return a tensor of a type that NumPy lacks; None if it is of another, on another device, or not to be had."""
    try:
        if value.__dlpack_device__()[0] != _CPU:
            return None
        capsule = value.__dlpack__()
        address = _address(capsule, b"dltensor")
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError):
        return None
    tensor = _Tensor.from_address(address)
    dtype = _TYPES.get((tensor.code, tensor.bits))
    if dtype is None or tensor.lanes != 1 or tensor.device_type != _CPU:
        return None
    shape = tuple(tensor.shape[: tensor.ndim])
    if 0 in shape:
        return np.empty(shape, dtype)
    size = tensor.bits // 8
    interface = {
        "version": 3,
        "shape": shape,
        "typestr": f"|u{size}" if size == 1 else f"=u{size}",
        "data": (tensor.data + tensor.byte_offset, False),
        "strides": tuple(size * step for step in tensor.strides[: tensor.ndim]) if tensor.strides else None,
    }
    bits: np.ndarray[Any, Any] = np.asarray(_Memory(capsule, interface))
    found: np.ndarray[Any, Any] = bits.view(dtype)
    return found


_address = ctypes.pythonapi.PyCapsule_GetPointer
_address.restype, _address.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
