"""Distinguish large operands of kernels from those that a cache still holds."""

from __future__ import annotations

import math

from tilewright.tensorir.expr import Buffer, IntImm

#: Operands of fewer bytes are still in a cache after the kernel that made them, and need no prefetch. Two kernels are
#: not merged if that would hide whether an operand is that small.
LEAST_OPERAND = 64 << 10


def known_bytes(buffer: Buffer) -> int:
    """Return the size of a buffer in bytes; 0 if it is unknown."""
    extents = [extent.value if isinstance(extent, IntImm) else 0 for extent in buffer.shape]
    return math.prod(extents) * buffer.dtype.bytes
