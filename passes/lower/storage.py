"""Allocate the values of a model in an arena; values whose live ranges do not overlap may share memory.

Values of constant size are packed by best fit, and freed blocks are merged with their neighbours. Values whose size
depends on symbolic dimensions get slots after them. Which of two formulas is larger depends on the dimensions: a slot
is as large as the largest of its values, and a value takes the free slot that fits best for typical dimensions.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools

from tilewright.graphir.dims import Dim, DimTable, estimate
from tilewright.tensorir.expr import Expr, maximum
from tilewright.tensorir.target import CACHE_LINE

#: A value reuses a slot whose size is within this factor of its own.
_FAR = 4

#: Alignment of every value in the arena, in bytes: that of a cache line and of the widest vector.
ALIGNMENT = CACHE_LINE


@dataclasses.dataclass(eq=False)
class Slot:
    """Space in the arena for one value at a time, large enough for the largest of them.

    Attributes:
        sizes: distinct sizes of the values in bytes, formulas of the model's symbolic dimensions.
        number: position among the slots.
        typical: the largest of the sizes for typical dimensions.
    """

    sizes: list[Expr]
    number: int
    typical: int

    @property
    def size(self) -> Expr:
        """Return the size in bytes, a formula of the model's symbolic dimensions."""
        return functools.reduce(maximum, self.sizes)


@dataclasses.dataclass(eq=False)
class Place:
    """The place of a value: a constant ``offset``, or a ``slot`` whose offset is known at run time."""

    offset: int = 0
    size: int = 0
    slot: Slot | None = None


class ArenaAllocator:
    """Allocate and free space in the arena, in the order in which live ranges begin and end."""

    def __init__(self) -> None:
        self.static_bytes = 0
        self.slots: list[Slot] = []
        self._free: list[tuple[int, int]] = []  # (offset, size), ascending, never adjacent
        #: Free slots, sorted by their size for typical dimensions.
        self._free_slots: list[Slot] = []
        self._sizes = DimTable()

    def allocate(self, size: Dim) -> Place:
        """Allocate ``size`` bytes."""
        if isinstance(size, int):
            return self._allocate_static(max(ALIGNMENT, -(-size // ALIGNMENT) * ALIGNMENT))
        canonical = self._sizes.canonical(size)  # equal sizes are one object
        typical = estimate(canonical)
        slot = self._free_slot(canonical, typical)
        if slot is None:
            slot = Slot([canonical], len(self.slots), typical)
            self.slots.append(slot)
        elif canonical not in slot.sizes:
            slot.sizes.append(canonical)
            slot.typical = max(slot.typical, typical)
        return Place(slot=slot)

    def _free_slot(self, size: Expr, typical: int) -> Slot | None:
        """Take the free slot for a value: one that has held a value of its size, else the smallest that is large
        enough, else the largest, which grows; None if the sizes of all differ by more than the factor ``_FAR``."""
        free = self._free_slots
        near = (number for number, slot in enumerate(free) if slot.typical <= _FAR * typical)
        found = next((number for number in near if size in free[number].sizes), None)
        if found is None and free:
            place = bisect.bisect_left(free, typical, key=_held)
            found = place if place < len(free) and free[place].typical <= _FAR * typical else place - 1
            if found < 0 or _FAR * free[found].typical < typical:
                found = None
        return None if found is None else free.pop(found)

    def free(self, place: Place) -> None:
        """Free a place that :meth:`allocate` returned."""
        if place.slot is not None:
            bisect.insort(self._free_slots, place.slot, key=_held)
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
        if self._free and sum(self._free[-1]) == self.static_bytes:  # extend the free block at the end of the arena
            offset = self._free.pop()[0]
        self.static_bytes = offset + size
        return Place(offset, size)


def _held(slot: Slot) -> int:
    return slot.typical
