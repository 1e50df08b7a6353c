"""Tell large operands of kernels from those that a cache still holds."""

from __future__ import annotations

import math

from tilewright.tensorir.expr import Buffer, IntImm

#: Operands of fewer bytes are left in a cache by the kernel that made them: nobody has to fetch them ahead, and no two
#: kernels may become one that hides whether they are.
LEAST_OPERAND = 64 << 10


def known_bytes(buffer: Buffer) -> int:
    """The size of a buffer in bytes; 0 if it is not known."""
    extents = [extent.value if isinstance(extent, IntImm) else 0 for extent in buffer.shape]
    return math.prod(extents) * buffer.dtype.bytes
