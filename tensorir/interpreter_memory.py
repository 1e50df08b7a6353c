"""Represent the memory of the interpreter: arrays for buffers, and addresses that functions pass to each other."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.tensorir.errors import InputError, OutOfBoundsError
from tilewright.tensorir.expr import Buffer
from tilewright.tensorir.stmt import PrimFunc


@dataclasses.dataclass(frozen=True)
class Pointer:
    """The address of an element: ``offset`` bytes into ``memory``, a flat array of bytes."""

    memory: Any
    offset: int


def bytes_of(array: Any) -> Any:
    """Return the memory of a contiguous array, as bytes."""
    if not array.flags.c_contiguous:
        raise InputError("expected a contiguous array where its address is passed to a function")
    return array.reshape(-1).view(np.uint8)


def view(func: PrimFunc, buffer: Buffer, pointer: Pointer, shape: list[int], strides: list[int]) -> Any:
    """Return the memory at ``pointer`` as an array of the buffer's type and shape."""
    size = dense_size(shape, strides)
    stop = pointer.offset + size * buffer.dtype.bytes
    if pointer.offset < 0 or stop > len(pointer.memory):
        raise OutOfBoundsError(
            f"@{func.name}: {buffer.name} of shape {tuple(shape)} needs bytes {pointer.offset} to {stop} "
            f"of a buffer of {len(pointer.memory)}"
        )
    flat = pointer.memory[pointer.offset : stop].view(buffer.dtype.numpy)
    return shaped(flat, shape, strides)


def dense_size(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Return the number of elements that a buffer spans."""
    if min(shape, default=1) <= 0:
        return 0
    if strides:
        return sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)) + 1
    return int(np.prod(shape, dtype=np.int64)) if shape else 1


def shaped(flat: Any, shape: list[int], strides: list[int]) -> Any:
    """Return ``flat`` as an array of that shape with these ``strides`` in elements (empty: contiguous)."""
    shape = [max(extent, 0) for extent in shape]
    if not strides or not flat.size:
        return flat.reshape(shape)
    steps = [stride * flat.itemsize for stride in strides]
    return np.ndarray(shape, flat.dtype, flat, strides=steps)


def owner(array: Any) -> Any:
    """Return ``array`` itself if it is contiguous, else (padded rows) the contiguous array that it is a view of."""
    base = array
    while isinstance(base.base, np.ndarray) and not base.flags.c_contiguous:
        base = base.base
    return base
