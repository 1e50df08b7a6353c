"""Provide the memory for intermediate values: one block for each concurrent call, kept for later calls."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np

from tilewright.runtime.address import data_address
from tilewright.tensorir.aligned import aligned_bytes
from tilewright.tensorir.target import CACHE_LINE


class ArenaPool:
    """A pool of free blocks. Each concurrent call takes one; blocks grow but never shrink."""

    def __init__(self) -> None:
        self._free: collections.deque[tuple[int, np.ndarray[Any, Any]]] = collections.deque()

    def take(self, size: int) -> tuple[int, np.ndarray[Any, Any]]:
        """Take a block of at least ``size`` bytes; return its address and the array that owns it."""
        try:
            block = self._free.pop()
        except IndexError:
            block = (0, _NOTHING)
        if block[1].size < size or block[0] == 0:
            memory = aligned_bytes(max(size, CACHE_LINE))
            block = (data_address(memory), memory)
        return block

    def give_back(self, block: tuple[int, np.ndarray[Any, Any]]) -> None:
        """Give back a block that :meth:`take` returned."""
        self._free.append(block)


_NOTHING = np.empty(0, np.uint8)
