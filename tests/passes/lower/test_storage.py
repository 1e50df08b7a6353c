"""Memory in an arena is given to values that live, in pieces and slots that fit, and used again after them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright import graphir as gi
from tilewright.passes.lower.storage import ALIGNMENT, ArenaAllocator
from tilewright.runtime.dims import compile_dims


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_freed_neighbours_become_one_piece(order: tuple[int, ...]) -> None:
    arena = ArenaAllocator()
    places = [arena.allocate(size) for size in (64, 128, 192)]
    arena.allocate(64)
    for position in order:
        arena.free(places[position])
    assert arena.allocate(64 + 128 + 192).offset == 0


def test_free_piece_that_fits_best_is_taken() -> None:
    arena = ArenaAllocator()
    pieces = []
    for size in (256, 128, 192):
        pieces.append(arena.allocate(size))
        arena.allocate(64)  # keeps the pieces apart
    for piece in pieces:
        arena.free(piece)
    assert arena.allocate(100).offset == pieces[1].offset


def test_rest_of_a_piece_stays_free() -> None:
    arena = ArenaAllocator()
    piece = arena.allocate(256)
    arena.allocate(64)
    arena.free(piece)
    assert [arena.allocate(64).offset for _ in range(4)] == [0, 64, 128, 192]


def test_free_piece_at_the_end_grows() -> None:
    arena = ArenaAllocator()
    arena.allocate(64)
    arena.free(arena.allocate(64))
    assert arena.allocate(256).offset == 64
    assert arena.static_bytes == 320


def test_slot_serves_one_value_at_a_time_of_its_size() -> None:
    n = gi.symbol("n")
    arena = ArenaAllocator()
    first, second = arena.allocate(n * 4), arena.allocate(n * 4)
    assert first.slot is not second.slot
    arena.free(first)
    again = arena.allocate(n * 2 + 2 * n)
    new = arena.allocate(n * 4)
    assert again.slot is first.slot
    assert new.slot not in (first.slot, second.slot)
    assert [slot.number for slot in arena.slots] == [0, 1, 2]


def test_slot_is_as_large_as_the_largest_of_its_values() -> None:
    n, m = gi.symbol("n"), gi.symbol("m")
    arena = ArenaAllocator()
    first = arena.allocate(n * 4)
    arena.free(first)
    other = arena.allocate(m * 6)
    assert other.slot is first.slot
    size = compile_dims([first.slot.size], [n, m])
    assert [size(10, 1), size(1, 10)] == [(40,), (60,)]


def test_value_takes_the_slot_that_fits_best() -> None:
    n = gi.symbol("n")
    arena = ArenaAllocator()
    places = [arena.allocate(n * count) for count in (100, 20, 40)]
    for place in places:
        arena.free(place)
    assert arena.allocate(n * 30).slot is places[2].slot
    assert arena.allocate(n * 30).slot is places[0].slot
    assert arena.allocate(n * 30).slot is places[1].slot  # none is large enough: the largest grows
    assert len(arena.slots) == 3


def test_slot_that_is_far_too_large_is_left_for_others() -> None:
    n = gi.symbol("n")
    arena = ArenaAllocator()
    large = arena.allocate(n * n)
    arena.free(large)
    assert arena.allocate(n * 4).slot is not large.slot
    assert arena.allocate(n * n).slot is large.slot


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 6), st.integers(0, 9)), max_size=30),
    st.integers(0, 9),
    st.integers(0, 9),
)
def test_live_values_of_symbolic_sizes_have_slots_that_hold_them(
    steps: list[tuple[int, int, int, int]], first: int, second: int
) -> None:
    n, m = gi.symbol("n"), gi.symbol("m")
    arena = ArenaAllocator()
    live: list[object] = []
    placed: list[tuple[object, object]] = []
    for a, b, c, drop in steps:
        size = n * m * (a + 1) + n * b + m * c
        place = arena.allocate(size)
        assert place.slot not in [other.slot for other in live]  # type: ignore[attr-defined]
        live.append(place)
        placed.append((place.slot, size))
        if drop < len(live):
            arena.free(live.pop(drop))  # type: ignore[arg-type]
    for slot, size in placed:
        held, needed = compile_dims([slot.size, size], [n, m])(first, second)  # type: ignore[attr-defined]
        assert held >= needed


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 9)), max_size=60))
def test_live_values_never_overlap(steps: list[tuple[int, int]]) -> None:
    """Each step takes some bytes, and gives back the value at a position if there is one."""
    arena = ArenaAllocator()
    live: list[tuple[int, int, object]] = []
    for size, drop in steps:
        place = arena.allocate(size)
        assert place.offset % ALIGNMENT == 0
        assert place.offset + size <= arena.static_bytes
        for offset, length, _ in live:
            assert place.offset >= offset + length or place.offset + max(size, 1) <= offset
        live.append((place.offset, max(size, 1), place))
        if drop < len(live):
            arena.free(live.pop(drop)[2])  # type: ignore[arg-type]
    for _, _, place in live:
        arena.free(place)  # type: ignore[arg-type]
    total = arena.static_bytes
    arena.allocate(total)
    assert arena.static_bytes == max(total, ALIGNMENT)  # all of it is free again, in one piece
