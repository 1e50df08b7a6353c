"""Accesses to buffers: scalars, contiguous vectors, gathers and scatters, with and without masks."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from tilewright.codegen.llvm.addresses import Address, Slot, Split, split
from tilewright.codegen.llvm.known import Linear
from tilewright.codegen.llvm.masked import gather, masked_load, masked_store, scatter, store_lane, zero
from tilewright.codegen.llvm.registers import WHOLE, Tile, first_element, slot_of
from tilewright.codegen.llvm.strided import is_shuffled, load_strided
from tilewright.codegen.llvm.text import constant, constant_vector, integer_type, memory_type
from tilewright.tensorir.arith.folds import is_true
from tilewright.tensorir.arith.lanes import even_lanes, only_lane, split_lanes
from tilewright.tensorir.dtype import INT64, DataType
from tilewright.tensorir.expr import (
    Broadcast,
    Buffer,
    BufferLoad,
    Expr,
    IntImm,
    binary,
    cast,
)
from tilewright.tensorir.keys import MAY_ALIAS, NUM_INPUTS, OVERWRITES
from tilewright.tensorir.node import Node
from tilewright.tensorir.occurrences import LOADS, kinds
from tilewright.tensorir.stmt import BufferStore, PrimFunc

if TYPE_CHECKING:
    from tilewright.codegen.llvm.expressions import ExpressionEmitter

STACK_ALIGNMENT = 64


class Memory:
    """Writes the loads and stores of one function."""

    def __init__(self, emitter: ExpressionEmitter) -> None:
        self.emitter = emitter
        #: Known contents of memory that this basic block has read or written, by the pointer of the buffer.
        self._held: dict[str, _Held] = {}
        self._block = ""
        root = emitter.root
        #: Whether two parameters may be the same memory.
        self._shared = bool(root.attrs.get(MAY_ALIAS) or root.attrs.get(OVERWRITES))
        #: In unrolled loops, by access and known variables: the offset, as a sum that all copies share (that of the
        #: first lane), and the step from lane to lane.
        self._sums: dict[tuple[Node, int], tuple[Expr, Linear | None, int]] = {}
        #: The variable and the constant parts of sums in offsets.
        self._splits: dict[Expr, Split] = {}

    def load(self, access: BufferLoad) -> str:
        """Return the value of a load; a bool as bits."""
        e = self.emitter
        tile = e.registers.tiles.get(access.buffer)
        if tile is not None:
            return self._read(access, tile)
        if access.predicate is not None or e.known.values:
            return self._loaded(access)
        loads = self._held_of(e.slot(access.buffer, access)).loads
        loaded = loads.get(access)
        return self._loaded(access, loads) if loaded is None else loaded

    def _loaded(self, access: BufferLoad, loads: dict[Node, str] | None = None) -> str:
        """Return the value of a load from memory; ``loads``, given for one without a predicate, receives it if the
        access reads the same element in all of the basic block."""
        b, dtype, mask = self.emitter.builder, access.dtype, None
        if access.predicate is None:
            place = self._place(access)
        else:
            place, mask = self._readable(access, access.predicate)
        if place.vector:
            mask = mask or constant(1, DataType("bool").with_lanes(dtype.lanes))
            loaded = gather(b, place.pointer, place.alignment, dtype, mask)
        elif place.step:
            loaded = load_strided(b, place.pointer, place.alignment, dtype, place.step, mask)
        elif mask is not None and not place.padded:
            loaded = masked_load(b, place.pointer, place.alignment, dtype, mask)
        elif place.uniform:
            scalar = self._load(access, place, memory_type(dtype.element))
            loaded = b.splat(scalar, DataType("uint8").with_lanes(dtype.lanes) if dtype.is_bool else dtype)
        else:
            loaded = self._load(access, place, memory_type(dtype))
            if mask is not None:
                loaded = self._chosen(mask, dtype, loaded, zero(dtype))
        if dtype.is_bool:
            loaded = b.pure(f"icmp ne {memory_type(dtype)} {loaded}, {zero(dtype)}")
        if loads is not None and not (place.vector or place.step):
            for index in access.indices:
                if kinds(index) & LOADS:  # a store to what the index reads moves the access
                    break
            else:
                loads[access] = loaded
        return loaded

    def load_or(self, access: BufferLoad, otherwise: float) -> str | None:
        """Return the value of a load where its predicate holds, and ``otherwise`` elsewhere; None if that takes more
        than choosing an address."""
        if access.predicate is None or access.buffer in self.emitter.registers.tiles:
            return None
        place, _ = self._readable(access, access.predicate, otherwise)
        if not place.guarded:
            return None
        loaded = self._load(access, place, memory_type(access.dtype.with_lanes(place.lanes)))
        return loaded if place.lanes == access.dtype.lanes else self.emitter.builder.splat(loaded, access.dtype)

    def _readable(
        self, access: BufferLoad, predicate: Expr, otherwise: float | None = None
    ) -> tuple[_Place, str | None]:
        """Return where to load from under a predicate, and the mask of what to load. Where conditions that are the same
        in all lanes do not hold, the place is a constant, with ``otherwise`` in each lane (None: zero): choosing an
        address takes an instruction, where a masked load takes three or, without AVX, a branch for each lane."""
        predicate = self.emitter.folded(predicate)
        if is_true(predicate):
            return self._place(access), None
        same, others = split_lanes(predicate)
        place = self._place(access, guarded=others is None)
        if same is None or place.vector or place.step or place.local or (otherwise is not None and others is not None):
            return place, self._mask(access)
        b, read = self.emitter.builder, access.dtype.with_lanes(place.lanes)
        value = zero(read) if otherwise is None else constant(otherwise, read)
        address = b.module.constant_data(memory_type(read), value, read.bytes * read.lanes)
        chosen = b.pure(f"select i1 {self.emitter.expr(same)}, ptr {place.pointer}, ptr {address}")
        place = place._replace(pointer=chosen, first=None, guarded=True)
        return place, None if others is None else self.emitter.expr(others)

    def store(self, access: BufferStore) -> None:
        """Write a store."""
        e = self.emitter
        dtype, value = access.value.dtype, e.expr(access.value)
        if dtype.is_bool:
            value = e.builder.pure(f"zext {integer_type(1, dtype.lanes)} {value} to {memory_type(dtype)}")
        tile = e.registers.tiles.get(access.buffer)
        if tile is not None:
            self._write(access, tile, value)
            return
        b, kind = e.builder, memory_type(dtype)
        place = self._place(access)
        mask = self._mask(access)
        if mask is not None and place.padded:
            value = self._chosen(mask, dtype, value, self._load(access, place, kind))
        elif mask is not None or place.vector:
            mask = mask or constant(1, DataType("bool").with_lanes(dtype.lanes))
            self._written(access, place).forget()
            predicate, lane = access.predicate, None
            if predicate is not None and predicate.dtype.lanes == dtype.lanes > 1 and not place.vector:
                lane = only_lane(e.folded(predicate))
            if lane is not None:
                store_lane(b, place.pointer, place.alignment, dtype, value, lane)
            elif place.vector:
                scatter(b, place.pointer, place.alignment, dtype, value, mask)
            else:
                masked_store(b, place.pointer, place.alignment, dtype, value, mask)
            return
        held = self._written(access, place)
        if access.buffer.scope == "register":  # a buffer in stack scope is kept in memory to save registers
            held.put(place, kind, value)
        b.emit(f"store {kind} {value}, ptr {place.pointer}, align {place.alignment}")

    # Buffers that are values.

    def _changing_place(self, access: BufferLoad | BufferStore, tile: Tile) -> tuple[int, int]:
        """The slot that ``access`` touches, and the element in it, with variables of unrolled loops, which have other
        values in each copy."""
        first, known = first_element(access), self.emitter.known
        assert first is not None
        linear = known.linear(cast(INT64, first[0]))
        assert linear is not None and linear.variable is None
        return slot_of(linear.at(known.values), first[1], tile.width)

    def _read(self, access: BufferLoad, tile: Tile) -> str:
        """Return the value of a load from a buffer that is held in values, not in memory."""
        dtype, lanes = access.dtype, tile.width
        slot, element = self.emitter.registers.places.get(access) or self._changing_place(access, tile)
        value = tile.read(slot)
        if element != WHOLE:
            value, lanes = self.emitter.builder.pure(f"extractelement {tile.kind} {value}, i64 {element}"), 1
        if dtype.lanes != lanes:
            value = self.emitter.builder.splat(
                value, DataType("uint8").with_lanes(dtype.lanes) if dtype.is_bool else dtype
            )
        if access.predicate is not None:
            mask = self._mask(access)
            if mask is not None:
                value = self._chosen(mask, dtype, value, zero(dtype))
        if dtype.is_bool:
            return self.emitter.builder.pure(f"icmp ne {memory_type(dtype)} {value}, {zero(dtype)}")
        return value

    def _write(self, access: BufferStore, tile: Tile, value: str) -> None:
        """Store ``value``, in memory's type, to a buffer that is held in values, not in memory."""
        b, dtype = self.emitter.builder, access.value.dtype
        slot, element = self.emitter.registers.places.get(access) or self._changing_place(access, tile)
        if access.predicate is not None:
            mask = self._mask(access)
            if mask is not None:
                old = tile.read(slot)
                if element != WHOLE:
                    old = b.pure(f"extractelement {tile.kind} {old}, i64 {element}")
                value = self._chosen(mask, dtype, value, old)
        if element != WHOLE:
            value = b.pure(f"insertelement {tile.kind} {tile.read(slot)}, {memory_type(dtype)} {value}, i64 {element}")
        tile.values[slot] = value

    def _chosen(self, mask: str, dtype: DataType, value: str, otherwise: str) -> str:
        """Return ``value`` in the lanes of ``mask`` and ``otherwise`` in the others; both in memory's type."""
        kind = memory_type(dtype)
        return self.emitter.builder.pure(f"select {self._mask_type(dtype)} {mask}, {kind} {value}, {kind} {otherwise}")

    # Memory.

    def forget(self) -> None:
        """Drop all known contents: any memory may have been written."""
        self._held.clear()

    def _load(self, access: BufferLoad | BufferStore, place: _Place, kind: str) -> str:
        """Return the value of a plain load, reusing a value that the basic block holds already: otherwise the factors
        of a tile of sums would be loaded for each sum, a fifth of the text."""
        e = self.emitter
        held = self._held_of(e.slots[access.buffer])
        found = held.find(place, kind)
        if found is None:
            found = e.builder.value(f"load {kind}, ptr {place.pointer}, align {place.alignment}", access.buffer.name)
            held.put(place, kind, found)
        return found

    def _held_of(self, slot: Slot) -> _Held:
        """Return the known contents of the buffer at ``slot`` here."""
        block = self.emitter.builder.block
        if self._block != block:
            self._block = block
            self._held.clear()
        held = self._held.get(slot.pointer)
        if held is None:
            held = self._held[slot.pointer] = _Held()
        return held

    def _written(self, access: BufferStore, place: _Place) -> _Held:
        """Drop known contents that a store may have changed, and return those left of its buffer."""
        if self._shared and not place.local:
            self._held.clear()
        held = self._held_of(self.emitter.slots[access.buffer])
        held.forget(place)
        return held

    def address(self, access: BufferLoad) -> str:
        """The address of the (first) element of ``access``."""
        if access.dtype.lanes != 1:
            self.emitter.error(access, "a vector access at non-contiguous indices has no single address")
        return self._place(access).pointer

    # Addresses.

    def _offset(self, access: BufferLoad | BufferStore, slot: Slot) -> Expr:
        if slot.dense:
            index = access.indices[0]
            return index if index.dtype.element is INT64 else cast(INT64, index)
        if not access.indices:
            return IntImm(0)
        lanes = max(index.dtype.lanes for index in access.indices)
        offset: Expr | None = None
        for index, stride in zip(access.indices, slot.strides, strict=True):
            term = binary("mul", cast(INT64, index), cast(INT64, stride))
            if term.dtype.lanes != lanes:
                term = Broadcast(term, lanes)
            offset = term if offset is None else binary("add", offset, term)
        assert offset is not None
        return offset

    def _address(self, access: BufferLoad | BufferStore, slot: Slot) -> Address:
        """Return the address of ``access``, with the current values of the variables of unrolled loops."""
        known = self.emitter.known
        if not known.values:
            return split(self._offset(access, slot), self._splits)
        key = (access, known.names)
        sums = self._sums.get(key)
        if sums is None:
            offset = self._offset(access, slot)
            lanes = (offset, 1) if offset.dtype.lanes == 1 else even_lanes(offset)
            sums = (offset, None if lanes is None else known.linear(lanes[0]), 0 if lanes is None else lanes[1])
            self._sums[key] = sums
        offset, linear, step = sums
        if linear is None:
            return split(known.fold(offset), self._splits)
        return Address(linear.variable, linear.at(known.values), step, offset)

    def _place(self, access: BufferLoad | BufferStore, guarded: bool = False) -> _Place:
        """Return where ``access`` is; ``guarded``: another address is read where its predicate does not hold."""
        e = self.emitter
        b, slot, dtype = e.builder, e.slot(access.buffer, access), access.buffer.dtype
        plain = access.predicate is None
        variable, fixed, step, offset = self._address(access, slot)
        # Lanes that a mask disables may lie outside of the buffer, and so may the address of the first lane.
        element, lanes = memory_type(dtype), offset.dtype.lanes
        get = "getelementptr inbounds" if plain else "getelementptr"
        if step is None:
            steps = e.expr(offset)
            pointers = b.pure(f"getelementptr {element}, ptr {slot.pointer}, <{lanes} x i64> {steps}")
            return _Place(pointers, dtype.bytes, vector=True)
        pointer, alignment, first = slot.pointer, dtype.bytes, None
        # The address of the variable part, which neighbours share, and then the constant.
        if variable is not None:
            base = (pointer, variable, plain)
            found = b.known.get(base)
            if found is None:
                found = b.pure(f"{get} {element}, ptr {pointer}, i64 {e.offset(variable)}")
                if e.is_kept(variable):
                    b.known[base] = found
            pointer = found
        else:
            first = fixed
            if slot.local:
                fixed_bytes = abs(fixed) * alignment
                alignment = math.gcd(STACK_ALIGNMENT, fixed_bytes) if fixed_bytes else STACK_ALIGNMENT
        if fixed:
            pointer = b.pure(f"{get} {element}, ptr {pointer}, i64 {fixed}")
        if lanes == 1 or step == 1:
            padded = slot.local and (plain or self._begins_inside(variable, fixed, slot))
            return _Place(pointer, alignment, local=slot.local, padded=padded, first=first, lanes=lanes)
        if step == 0 and (plain or guarded) and isinstance(access, BufferLoad):
            return _Place(pointer, alignment, uniform=True, local=slot.local, first=first)
        if isinstance(access, BufferLoad) and is_shuffled(step, lanes) and (plain or self._is_masked(dtype)):
            return _Place(pointer, alignment, step=step)
        steps = constant_vector([str(step * lane) for lane in range(lanes)], "i64")
        pointers = b.pure(f"getelementptr {element}, ptr {pointer}, <{lanes} x i64> {steps}")
        return _Place(pointers, dtype.bytes, vector=True)

    def _begins_inside(self, variable: Expr | None, fixed: int, slot: Slot) -> bool:
        """Return whether the first element of an access to a stack buffer is one of the buffer's, so that its padding
        holds the others. A mask may disable the first lane because it is not, as where parts are joined."""
        if variable is None:
            return 0 <= fixed < slot.size
        found = self.emitter.bounds.of(variable)
        return found.lower + fixed >= 0 and found.upper + fixed < slot.size

    # Masks.

    def _is_masked(self, dtype: DataType) -> bool:
        """Return whether an instruction loads those of these elements that a mask allows; otherwise LLVM loads them one
        by one, as it gathers them."""
        least = self.emitter.target.masked_bits
        return least is not None and dtype.element.bytes * 8 >= least

    def _mask(self, access: BufferLoad | BufferStore) -> str | None:
        """The predicate as one bit for each lane; None where every lane is active."""
        predicate = access.predicate
        if predicate is None:
            return None
        predicate = self.emitter.folded(predicate)
        if is_true(predicate):
            return None
        mask = self.emitter.expr(predicate)
        lanes = (access.dtype if isinstance(access, BufferLoad) else access.value.dtype).lanes
        if predicate.dtype.lanes != lanes:
            mask = self.emitter.builder.splat(mask, predicate.dtype.with_lanes(lanes))
        return mask

    @staticmethod
    def _mask_type(dtype: DataType) -> str:
        return integer_type(1, dtype.lanes)


class _Place(NamedTuple):
    """An address. ``vector``: one for each lane; ``uniform``: one that all lanes read; ``local``: in a stack buffer;
    ``padded``: there, and lanes that a mask disables may be touched, too; ``first``: the number of its first element in
    the buffer, if that is constant; ``lanes``: the number of its elements; ``step``: the distance of lanes that are
    shuffled together, 0 for others; ``guarded``: where conditions do not hold it is a constant's."""

    pointer: str
    alignment: int
    vector: bool = False
    uniform: bool = False
    local: bool = False
    padded: bool = False
    first: int | None = None
    lanes: int = 1
    step: int = 0
    guarded: bool = False


class _Held:
    """The operands that hold the known contents of a buffer."""

    def __init__(self) -> None:
        #: By first element, where that is constant: vectors of one width that do not overlap.
        self._fixed: dict[int, tuple[str, str]] = {}
        self._width = 0
        #: By pointer and type.
        self._others: dict[tuple[str, str], str] = {}
        #: By load: each factor of a tile of sums is loaded in many of these.
        self.loads: dict[Node, str] = {}

    def find(self, place: _Place, kind: str) -> str | None:
        """The operand that holds the value of that type; None if it is not known."""
        if place.first is not None:
            found = self._fixed.get(place.first)
            if found is not None and found[0] == kind:
                return found[1]
        return self._others.get((place.pointer, kind))

    def put(self, place: _Place, kind: str, value: str) -> None:
        """Record that the place contains ``value``."""
        if place.first is not None and not self._fixed:
            self._width = place.lanes
        if self._is_regular(place):
            assert place.first is not None
            self._fixed[place.first] = kind, value
        else:
            self._others[place.pointer, kind] = value

    def forget(self, place: _Place | None = None) -> None:
        """Drop the contents of elements that a store to ``place`` may have changed (None: of all)."""
        self._others.clear()
        self.loads.clear()
        if place is not None and self._is_regular(place):
            assert place.first is not None
            self._fixed.pop(place.first, None)
        else:
            self._fixed.clear()

    def _is_regular(self, place: _Place) -> bool:
        return place.first is not None and place.lanes == self._width and place.first % place.lanes == 0


def pointer_attributes(root: PrimFunc, buffer: Buffer, written: Collection[Buffer]) -> str:
    """Return LLVM's attributes of ``buffer`` as a parameter of ``root``: what LLVM may assume of its address."""
    facts = ["ptr", "nonnull"]
    if not root.attrs.get(MAY_ALIAS) and not _is_overwritten(root, buffer):
        facts.append("noalias")
    if buffer not in written:
        facts.append("readonly")
    alignment = max(buffer.alignment, buffer.dtype.bytes)
    facts.append(f"align {alignment}")
    return " ".join(facts)


def _is_overwritten(root: PrimFunc, buffer: Buffer) -> bool:
    """Return whether ``buffer`` may have the memory of another parameter: it is the result, or what the result
    overwrites."""
    numbers = root.attrs.get(OVERWRITES, ())
    if not numbers:
        return False
    buffers = root.buffers
    return any(buffer is buffers[number] for number in (*numbers, root.attrs[NUM_INPUTS]))
