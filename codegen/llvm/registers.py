"""Keep small buffers in LLVM values instead of memory: accumulator tiles, and other values that a loop reuses.

A buffer whose every access has a place that is known during emission needs no memory: a store defines the value of a
slot (a vector, or a scalar, of the buffer), and a load uses it. At the head of a loop, and where branches join, a phi
merges values. A loop gets one for a slot when it reads a value stored in front of the loop or in an earlier iteration,
so that slots which each iteration overwrites get none. (M. Braun et al.: "Simple and efficient construction of static
single assignment form", 2013.) LLVM would promote stack memory in the same way, but it would have to parse and to
rewrite three instructions for each multiplication and addition.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tilewright.codegen.analysis import Uses, uses
from tilewright.codegen.llvm.known import KnownIntegers
from tilewright.codegen.llvm.text import memory_type
from tilewright.tensorir.arith.lanes import even_lanes
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import Buffer, BufferLoad, Expr, IntImm, cast
from tilewright.tensorir.node import Node, notes_on
from tilewright.tensorir.stmt import BufferStore, Stmt

if TYPE_CHECKING:
    from tilewright.codegen.llvm.text import Builder

#: Stands for an element number: the access is to the whole slot.
WHOLE = -1
#: The value of a slot without a store.
_UNDEFINED = "undef"


@dataclasses.dataclass(frozen=True)
class Plan:
    """The buffers of a function that need no memory.

    Attributes:
        widths: the number of elements in a slot, for each of them.
        places: the slot and the element in it (:data:`WHOLE`: all of them), for accesses with constant indices.
        divisible: other buffers that LLVM can split and promote to registers.
        stored: the buffers that the body of each loop stores to.
    """

    widths: Mapping[Buffer, int]
    places: Mapping[Node, tuple[int, int]]
    divisible: frozenset[Buffer]
    stored: Mapping[Stmt, frozenset[Buffer]]


def plan_registers(root: Stmt) -> Plan:
    """Return the plan for the function with the body ``root``, and for those that its loops become."""
    notes = notes_on(root)
    found: Plan | None = notes.get(plan_registers)
    if found is None:
        found = notes[plan_registers] = _plan(uses(root))
    return found


def _plan(found: Uses) -> Plan:
    """Return the plan for a function's body with these uses."""
    escaping: set[Buffer] = set()  # that other functions capture from this one
    for part in found.captured.values():
        escaping.update(part.buffers)
    known = KnownIntegers(dict.fromkeys(found.unrolled, 0))
    widths: dict[Buffer, int] = {}
    places: dict[Node, tuple[int, int]] = {}
    divisible: set[Buffer] = set()
    for buffer, accesses in found.local.items():
        if buffer in escaping or buffer in found.addressed or not _is_plain(buffer):
            continue
        elements: dict[Expr, tuple[int, int]] = {}
        width = _width(accesses, known, elements)
        if width is None:
            continue
        if not width:
            divisible.add(buffer)
            continue
        widths[buffer] = width
        slots = {index: slot_of(first, lanes, width) for index, (first, lanes) in elements.items()}
        for access in accesses:
            slot = slots.get(access.indices[0])
            if slot is not None:
                places[access] = slot
    return Plan(widths, places, frozenset(divisible), found.stored)


def _is_plain(buffer: Buffer) -> bool:
    """Return whether an index into ``buffer`` is the number of a scalar."""
    dense = not buffer.strides or (isinstance(buffer.strides[0], IntImm) and buffer.strides[0].value == 1)
    return len(buffer.shape) == 1 and dense and buffer.dtype.lanes == 1


def _width(
    accesses: Sequence[BufferLoad | BufferStore], known: KnownIntegers, elements: dict[Expr, tuple[int, int]]
) -> int | None:
    """Return the number of elements of the slots into which these accesses divide a buffer; 0 if they straddle slots;
    None if their places are not known. ``elements`` receives the first element and the number of elements of accesses
    with constant indices, by index."""
    #: The common divisor of the first elements of all accesses, by number of lanes.
    divisors: dict[int, int] = {}
    #: Indices that mean the same elements in every access.
    same: set[Expr] = set()
    for access in accesses:
        index = access.indices[0]
        if index in same:
            continue
        found = first_element(access)
        if found is None:
            return None
        base, lanes = found
        if lanes == index.dtype.lanes:
            same.add(index)
        divisor = divisors.get(lanes, 0)
        if isinstance(base, IntImm):
            divisors[lanes] = math.gcd(divisor, base.value)
            elements[index] = base.value, lanes
            continue
        linear = known.linear(cast(INT64, base))
        if linear is None or linear.variable is not None:
            return None
        divisors[lanes] = math.gcd(divisor, linear.fixed, *linear.terms.values())
    width = max(divisors, default=1)
    for lanes, divisor in divisors.items():
        if lanes not in (1, width) or divisor % lanes:
            return 0
    return width


def first_element(access: BufferLoad | BufferStore) -> tuple[Expr, int] | None:
    """Return the index of the first element that ``access`` touches, and the number of contiguous elements; None if
    they are not contiguous."""
    index = access.indices[0]
    lanes = index.dtype.lanes
    if lanes == 1:
        return index, 1
    found = even_lanes(index)
    if found is None:
        return None
    base, step = found
    if step == 0 and access.predicate is None and isinstance(access, BufferLoad):
        return base, 1
    return (base, lanes) if step == 1 else None


def slot_of(first: int, lanes: int, width: int) -> tuple[int, int]:
    """Return slot and element of an access to ``lanes`` elements from ``first`` on, in slots of ``width``."""
    return first // width, WHOLE if lanes == width else first % width


class Tile:
    """The values of a buffer's slots in a loop or a branch, as far as they were stored or read there.

    Attributes:
        kind: the LLVM type of a slot.
        width: the number of its elements.
        values: the operand that each slot holds, by its number.
        outer: the tile in front of the loop or the branch; None where the buffer is allocated.
        builder: the builder of the loop; None for a branch.
        phis: the slots that are live into the loop, and their names at its head.
    """

    def __init__(self, kind: str, width: int, outer: Tile | None, builder: Builder | None) -> None:
        self.kind = kind
        self.width = width
        self.values: dict[int, str] = {}
        self.outer = outer
        self.builder = builder
        self.phis: list[tuple[int, str]] = []

    def read(self, slot: int) -> str:
        """Return the operand that a slot holds."""
        found = self.values.get(slot)
        if found is not None:
            return found
        if self.outer is None:
            return _UNDEFINED
        if self.builder is None:
            return self.outer.read(slot)
        found = self.values[slot] = f"%{self.builder.fresh()}"
        self.phis.append((slot, found))
        return found


class Registers:
    """The buffers of one function that are values, at the current place of emission."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        #: Their tiles at this place.
        self.tiles: dict[Buffer, Tile] = {}
        #: The places of their accesses, from the plan.
        self.places: Mapping[Node, tuple[int, int]] = {}

    def allocate(self, buffer: Buffer, plan: Plan) -> None:
        """Begin the live range of ``buffer``."""
        width = plan.widths[buffer]
        self.places = plan.places
        self.tiles[buffer] = Tile(memory_type(buffer.dtype.with_lanes(width)), width, None, None)

    def release(self, buffer: Buffer) -> None:
        """End the live range of ``buffer``."""
        del self.tiles[buffer]

    def enter_branch(self) -> None:
        """Enter a branch."""
        for buffer, tile in self.tiles.items():
            self.tiles[buffer] = Tile(tile.kind, tile.width, tile, None)

    def leave_branch(self) -> dict[Buffer, dict[int, str]]:
        """Leave the branch; return the values that it stored."""
        stored: dict[Buffer, dict[int, str]] = {}
        for buffer, tile in self.tiles.items():
            assert tile.outer is not None
            self.tiles[buffer] = tile.outer
            if tile.values:
                stored[buffer] = tile.values
        return stored

    def join(self, branches: Sequence[tuple[str, dict[Buffer, dict[int, str]]]]) -> None:
        """Merge the values at a join of branches, given each branch's last block and its stores."""
        for buffer, tile in self.tiles.items():
            slots: set[int] = set()
            for _, stored in branches:
                slots.update(stored.get(buffer, ()))
            for slot in sorted(slots, reverse=True):
                incoming: list[tuple[str, str]] = []
                for block, stored in branches:
                    value = stored[buffer].get(slot) if buffer in stored else None
                    incoming.append((tile.read(slot) if value is None else value, block))
                tile.values[slot] = self._choose(tile.kind, incoming)

    def _choose(self, kind: str, incoming: Sequence[tuple[str, str]]) -> str:
        """Return the value that arrives from the predecessor block, as a phi unless all are equal."""
        first = incoming[0][0]
        if all(value == first for value, _ in incoming):
            return first
        return self.builder.value(f"phi {kind} {', '.join([f'[ {value}, %{block} ]' for value, block in incoming])}")

    def enter_loop(self, stored: frozenset[Buffer]) -> list[Buffer]:
        """Enter the body of a loop that stores to these buffers; return those of them that are values."""
        changing = [buffer for buffer in self.tiles if buffer in stored]
        for buffer in changing:
            tile = self.tiles[buffer]
            self.tiles[buffer] = Tile(tile.kind, tile.width, tile, self.builder)
        return changing

    def leave_loop(self, changing: Sequence[Buffer], before: str, latch: str) -> tuple[list[str], list[str]]:
        """Leave the body in the block ``latch``; ``before`` is the preheader. Return the lines for the loop's head and
        those to insert in front of the loop."""
        head: list[str] = []
        ahead: list[str] = []
        for buffer in changing:
            tile = self.tiles[buffer]
            outer = tile.outer
            assert outer is not None
            self.tiles[buffer] = outer
            for slot, name in sorted(tile.phis, reverse=True):
                start, again = outer.read(slot), tile.values[slot]
                if again == name:  # the loop stores to other slots
                    ahead.append(f"  {name} = bitcast {tile.kind} {start} to {tile.kind}")
                    del tile.values[slot]
                else:
                    head.append(f"  {name} = phi {tile.kind} [ {start}, %{before} ], [ {again}, %{latch} ]")
            outer.values.update(tile.values)
        return head, ahead
