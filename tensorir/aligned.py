"""Memory that begins at a cache line, which is also the widest vector: a vector that crosses two lines takes two loads.
NumPy's own begins at a multiple of 16 bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.tensorir.target import CACHE_LINE


def aligned_bytes(size: int) -> np.ndarray[Any, Any]:
    """``size`` bytes of fresh memory, aligned to :data:`~tilewright.tensorir.target.CACHE_LINE`."""
    raw = np.empty(size + CACHE_LINE, np.uint8)
    start = -raw.ctypes.data % CACHE_LINE
    return raw[start : start + size]
