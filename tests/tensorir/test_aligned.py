"""Memory of arrays: where it begins, and that pieces of blocks are shared by none and used again."""

from __future__ import annotations

import gc
import itertools
import mmap
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.tensorir import aligned
from tilewright.tensorir.aligned import BlockPool, aligned_bytes
from tilewright.tensorir.target import CACHE_LINE

needs_blocks = pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="this system has no huge pages on request")
MIB = 1 << 20


@pytest.mark.parametrize("size", [1, 100, MIB, 40 * MIB])
def test_memory_has_its_size_and_begins_at_a_cache_line(size: int) -> None:
    for found in (aligned_bytes(size), BlockPool().empty(size)):
        assert found.shape == (size,) and found.dtype == np.uint8 and found.flags.writeable
        assert found.ctypes.data % CACHE_LINE == 0


@needs_blocks
@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(64 << 10, 9 * MIB), st.booleans()), max_size=40), st.randoms())
def test_pieces_of_blocks_never_overlap(steps: list[tuple[int, bool]], random: Any) -> None:
    pool, kept = BlockPool(), list[Any]()
    for size, drop in steps:
        if drop and kept:
            kept.pop(random.randrange(len(kept)))
        kept.append(pool.empty(size))
        places = sorted((piece.ctypes.data, piece.size) for piece in kept)
        assert all(start + length <= behind for (start, length), (behind, _) in itertools.pairwise(places))
    kept.clear()
    assert not pool._blocks


@needs_blocks
def test_the_memory_of_a_dropped_array_serves_the_next_of_its_size() -> None:
    pool = BlockPool()
    kept, dropped = pool.empty(MIB), pool.empty(MIB)
    before = dropped.ctypes.data
    del dropped
    assert pool.empty(MIB).ctypes.data == before
    assert len(pool._blocks) == 1 and kept.size == MIB


@needs_blocks
def test_a_view_keeps_its_piece() -> None:
    pool = BlockPool()
    view = pool.empty(MIB).view(np.float32).reshape(512, 512)[1:, ::2]
    view[...] = 3
    gc.collect()
    other = pool.empty(MIB)
    other[...] = 255
    assert (view == 3).all()
    del view
    assert pool.empty(MIB).ctypes.data < other.ctypes.data  # its piece is free now


@needs_blocks
def test_an_array_that_is_dropped_while_memory_is_taken_is_no_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = BlockPool()
    kept = [pool.empty(MIB), pool.empty(MIB)]
    take = aligned._Block.take

    def taking(block: Any, length: int) -> int | None:
        kept.clear()  # as the garbage collector may
        return take(block, length)

    monkeypatch.setattr(aligned._Block, "take", taking)
    found = pool.empty(MIB)
    monkeypatch.undo()
    del found
    assert pool.empty(2 * MIB).ctypes.data % (2 * MIB) == 0  # the block is whole again, or a new one


def test_a_lack_of_address_space_leaves_the_array_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise OSError("no address space")

    monkeypatch.setattr(aligned.mmap, "mmap", refused)
    assert BlockPool().empty(MIB).size == MIB
