"""Reuse the memory of large results after the caller has dropped them.

Fresh memory of many megabytes costs more than the computation that fills it: the operating system maps and zeroes every
page when it is first touched. So the memory of a large result returns to a pool when its array and all views of it are
gone, as in PyTorch's caching allocator.
"""

from __future__ import annotations

import bisect
import math
import weakref
from typing import Any

import numpy as np

from tilewright.tensorir import forking
from tilewright.tensorir.aligned import aligned_bytes

#: Smaller results come from NumPy's own allocator, which reuses such blocks itself.
SMALLEST = 1 << 20
#: Bytes of dropped results that a pool keeps for later calls.
_MOST_KEPT = 256 << 20


class ResultPool:
    """A pool of the memory of dropped results. A result takes the smallest block that is large enough, so that calls
    with changing sizes allocate nothing once the largest size has occurred."""

    def __init__(self) -> None:
        self._free: list[np.ndarray[Any, Any]] = []  # by size
        self._kept = 0
        self._lock = forking.RLock()  # a garbage collection inside of a call may drop a result and re-enter

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], size: int) -> np.ndarray[Any, Any]:
        """Return an array of ``size`` bytes with undefined contents, whose memory returns to the pool when it is
        dropped."""
        with self._lock:
            place = bisect.bisect_left(self._free, size, key=_size)
            block = self._free.pop(place) if place < len(self._free) else None
            if block is not None:
                self._kept -= block.size
        if block is None:
            block = aligned_bytes(size)
        # Views of an array refer to the owner of its memory. The memoryview in between makes them refer to this array
        # and not to the block, so that the array is freed only after all of its views.
        owner = np.frombuffer(block.data, dtype, math.prod(shape))
        weakref.finalize(owner, self._give_back, block).atexit = False
        return owner.reshape(shape)

    def _give_back(self, block: np.ndarray[Any, Any]) -> None:
        with self._lock:
            if self._kept + block.size <= _MOST_KEPT:
                bisect.insort(self._free, block, key=_size)
                self._kept += block.size


def _size(block: np.ndarray[Any, Any]) -> int:
    return block.size
