"""Where the values of a model live: an arena shared by values whose lives do not overlap.

Values of known size are packed by best fit over their lives, freed space merging with its neighbours. Values whose
size depends on symbolic dimensions get slots behind them; a free slot is used again by a value that provably fits.
"""

from __future__ import annotations

import bisect
import dataclasses

from tilewright.graphir.dims import Dim, DimTable

#: Alignment of every value in the arena, in bytes: a cache line, and the widest vector.
ALIGNMENT = 64


@dataclasses.dataclass(eq=False)
class Slot:
    """Space in the arena for one value at a time; the size is symbolic.

    Attributes:
        size: bytes, over the model's symbolic dimensions.
        number: position among the slots.
    """

    size: Dim
    number: int


@dataclasses.dataclass(eq=False)
class Place:
    """Where a value is: at a constant ``offset``, or in a ``slot`` whose offset is known when the model runs."""

    offset: int = 0
    size: int = 0
    slot: Slot | None = None


class ArenaAllocator:
    """Gives out and takes back space in the arena, in the order in which values come to life and die."""

    def __init__(self) -> None:
        self.static_bytes = 0
        self.slots: list[Slot] = []
        self._free: list[tuple[int, int]] = []  # (offset, size), ascending, never adjacent
        #: By their size; equal sizes are one object.
        self._free_slots: dict[Dim, list[Slot]] = {}
        self._sizes = DimTable()

    def allocate(self, size: Dim) -> Place:
        """Space for ``size`` bytes."""
        if isinstance(size, int):
            return self._allocate_static(max(ALIGNMENT, -(-size // ALIGNMENT) * ALIGNMENT))
        canonical = self._sizes.canonical(size)
        free = self._free_slots.get(canonical)
        if free:
            return Place(slot=free.pop(0))
        slot = Slot(canonical, len(self.slots))
        self.slots.append(slot)
        return Place(slot=slot)

    def free(self, place: Place) -> None:
        """Take back what :meth:`allocate` gave."""
        if place.slot is not None:
            self._free_slots.setdefault(place.slot.size, []).append(place.slot)
            return
        begin, end = place.offset, place.offset + place.size
        position = bisect.bisect_left(self._free, (begin, 0))
        if position < len(self._free) and self._free[position][0] == end:
            end += self._free.pop(position)[1]
        if position > 0 and sum(self._free[position - 1]) == begin:
            position -= 1
            begin = self._free.pop(position)[0]
        self._free.insert(position, (begin, end - begin))

    def _allocate_static(self, size: int) -> Place:
        best = -1
        for position, (_, free) in enumerate(self._free):
            if free >= size and (best < 0 or free < self._free[best][1]):
                best = position
        if best >= 0:
            offset, free = self._free.pop(best)
            if free > size:
                self._free.insert(best, (offset + size, free - size))
            return Place(offset, size)
        offset = self.static_bytes
        if self._free and sum(self._free[-1]) == self.static_bytes:  # the last free piece can grow
            offset = self._free.pop()[0]
        self.static_bytes = offset + size
        return Place(offset, size)
