"""Memory for arrays that kernels read: it begins at a cache line, and what stays for long lies in huge pages.

A cache line is also the widest vector: a vector that crosses two lines takes two loads. NumPy's own memory begins at a
multiple of 16 bytes.
"""

from __future__ import annotations

import collections
import mmap
import weakref
from typing import Any, Final

import numpy as np

from tilewright.tensorir import forking
from tilewright.tensorir.target import CACHE_LINE

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

#: The size of a block, and that of a huge page, of which it consists.
_BLOCK: Final = 32 << 20
_HUGE_PAGE: Final = 2 << 20
#: Smaller pieces come from NumPy's allocator, which uses memory again without asking the operating system.
_SMALLEST: Final = 64 << 10


def aligned_bytes(size: int) -> Bytes:
    """``size`` bytes of fresh memory, aligned to :data:`~tilewright.tensorir.target.CACHE_LINE`."""
    raw = np.empty(size + CACHE_LINE, np.uint8)
    start = -raw.ctypes.data % CACHE_LINE
    return raw[start : start + size]


class BlockPool:
    """Memory for arrays of 64 KiB to 32 MiB that stay for long, such as packed weights, as pieces of blocks with huge
    pages. An array of its own memory gets huge pages from NumPy if it has 4 MiB or more, and pays for a fault at every
    4 KiB otherwise: 40,000 for BERT-base, a sixth of its build. A piece is free again when its array, and all views of
    it, are gone; the first hole that is large enough serves the next. A block without arrays is given back."""

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._lock = forking.Lock()
        #: Pieces of dropped arrays: a garbage collection inside of :meth:`empty` may drop one.
        self._dropped: collections.deque[tuple[_Block, int, int]] = collections.deque()

    def empty(self, size: int) -> Bytes:
        """Return ``size`` bytes with undefined contents, aligned as those of :func:`aligned_bytes`."""
        if not _SMALLEST <= size <= _BLOCK or not hasattr(mmap, "MADV_HUGEPAGE"):
            return aligned_bytes(size)
        length = size + -size % CACHE_LINE
        with self._lock:
            self._close_holes()
            for block in self._blocks:
                start = block.take(length)
                if start is not None:
                    break
            else:
                try:
                    block = _Block()
                except OSError:  # this much address space is not there; the array alone may still fit
                    return aligned_bytes(size)
                self._blocks.append(block)
                start = block.take(length)
                assert start is not None
        # Views of an array refer to the owner of its memory: by the memoryview in between that is this array.
        piece: Bytes = np.frombuffer(block.memory[start : start + size].data, np.uint8)
        weakref.finalize(piece, self._drop, block, start, length).atexit = False
        return piece

    def _drop(self, block: _Block, start: int, length: int) -> None:
        self._dropped.append((block, start, length))
        while self._dropped and self._lock.acquire(blocking=False):  # whoever holds it closes the hole, or the next
            try:
                self._close_holes()
            finally:
                self._lock.release()

    def _close_holes(self) -> None:
        while self._dropped:
            block, start, length = self._dropped.popleft()
            block.give_back(start, length)
            if block.is_unused:
                self._blocks.remove(block)


class _Block:
    """A block of memory with the holes in it, as start and length in order of their starts."""

    def __init__(self) -> None:
        mapped = mmap.mmap(-1, _BLOCK + _HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        mapped.madvise(mmap.MADV_HUGEPAGE)
        raw = np.frombuffer(mapped, np.uint8)
        start = -raw.ctypes.data % _HUGE_PAGE
        self.memory: Bytes = raw[start : start + _BLOCK]
        self.holes = [(0, _BLOCK)]

    @property
    def is_unused(self) -> bool:
        return self.holes == [(0, _BLOCK)]

    def take(self, length: int) -> int | None:
        """Return the start of the first hole of at least ``length`` bytes, which are taken; None if there is none."""
        for number, (start, size) in enumerate(self.holes):
            if size >= length:
                left = [(start + length, size - length)] if size > length else []
                self.holes = [*self.holes[:number], *left, *self.holes[number + 1 :]]
                return start
        return None

    def give_back(self, start: int, length: int) -> None:
        """Make a hole of a piece, together with those beside it."""
        before = [hole for hole in self.holes if hole[0] < start]
        behind = [hole for hole in self.holes if hole[0] > start]
        end = start + length
        if before and sum(before[-1]) == start:
            start = before.pop()[0]
        if behind and behind[0][0] == end:
            end = sum(behind.pop(0))
        self.holes = [*before, (start, end - start), *behind]


#: The memory of constants that are computed when a model is built.
CONSTANT_MEMORY: Final = BlockPool()
