"""Accesses to buffers: scalars, contiguous vectors, gathers and scatters, with and without masks."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from tilewright.codegen.llvm.known import Linear
from tilewright.codegen.llvm.text import constant, constant_vector, integer_type, memory_type
from tilewright.passes.lower.overwrites import OVERWRITES
from tilewright.tensorir.arith.folds import is_true
from tilewright.tensorir.dtype import INT64, DataType
from tilewright.tensorir.expr import (
    BinaryOp,
    Broadcast,
    Buffer,
    BufferLoad,
    Cast,
    Expr,
    IntImm,
    Ramp,
    binary,
    cast,
)
from tilewright.tensorir.node import Node
from tilewright.tensorir.stmt import BufferStore, PrimFunc

if TYPE_CHECKING:
    from tilewright.codegen.llvm.expressions import ExpressionEmitter

STACK_ALIGNMENT = 64


class Slot(NamedTuple):
    """Where a buffer lies.

    Attributes:
        pointer: the operand that is its address.
        local: a stack slot of this function, large enough that a masked access may touch all of its lanes.
        strides: of its dimensions, in elements.
        dense: whether it has one dimension whose elements are neighbours: an index is an offset.
    """

    pointer: str
    local: bool
    strides: tuple[Expr, ...]
    dense: bool

    @classmethod
    def of(cls, buffer: Buffer, pointer: str, local: bool) -> Slot:
        """``buffer`` at ``pointer``."""
        strides = row_major_strides(buffer)
        dense = len(strides) == 1 and isinstance(strides[0], IntImm) and strides[0].value == 1
        return cls(pointer, local, strides, dense)


def row_major_strides(buffer: Buffer) -> tuple[Expr, ...]:
    """The strides of ``buffer`` in elements: its own, or those of a dense array with the last dimension innermost."""
    if buffer.strides:
        return buffer.strides
    strides: list[Expr] = [IntImm(1)] * len(buffer.shape)
    for axis in range(len(buffer.shape) - 2, -1, -1):
        strides[axis] = binary("mul", strides[axis + 1], cast(INT64, buffer.shape[axis + 1]))
    return tuple(strides)


class Memory:
    """Writes the loads and stores of one function."""

    def __init__(self, emitter: ExpressionEmitter) -> None:
        self.emitter = emitter
        #: What memory holds, as far as this basic block has read or written it, by the pointer of its buffer.
        self._held: dict[str, _Held] = {}
        self._block = ""
        root = emitter.root
        #: Whether two parameters may be the same memory.
        self._shared = bool(root.attrs.get("may_alias") or root.attrs.get(OVERWRITES))
        #: In unrolled loops, by access and known variables: the offset, as a sum that all copies share (that of the
        #: first lane), and the step from lane to lane.
        self._sums: dict[tuple[Node, int], tuple[Expr, Linear | None, int]] = {}

    def load(self, access: BufferLoad) -> str:
        """The value of a load; a bool comes as bits."""
        b = self.emitter.builder
        place = self._place(access)
        kind, dtype = memory_type(access.dtype), access.dtype
        mask = self._mask(access)
        if mask is not None and not place.local:
            loaded = self._masked_load(place, dtype, mask)
        elif place.vector:
            loaded = self._gather(place, dtype, mask or constant(1, DataType("bool").with_lanes(dtype.lanes)))
        elif place.uniform:
            scalar = self._load(access, place, memory_type(dtype.element))
            loaded = b.splat(scalar, DataType("uint8").with_lanes(dtype.lanes) if dtype.is_bool else dtype)
        else:
            loaded = self._load(access, place, kind)
            if mask is not None:
                loaded = b.pure(f"select {self._mask_type(dtype)} {mask}, {kind} {loaded}, {kind} {_zero(dtype)}")
        if dtype.is_bool:
            return b.pure(f"icmp ne {kind} {loaded}, {_zero(dtype)}")
        return loaded

    def store(self, access: BufferStore) -> None:
        """Write a store."""
        b = self.emitter.builder
        dtype = access.value.dtype
        value = self.emitter.expr(access.value)
        place = self._place(access)
        kind = memory_type(dtype)
        if dtype.is_bool:
            value = b.pure(f"zext {integer_type(1, dtype.lanes)} {value} to {kind}")
        mask = self._mask(access)
        if mask is not None and place.local:
            old = self._load(access, place, kind)
            value = b.pure(f"select {self._mask_type(dtype)} {mask}, {kind} {value}, {kind} {old}")
        elif mask is not None or place.vector:
            mask = mask or constant(1, DataType("bool").with_lanes(dtype.lanes))
            self._written(access, place).forget()
            self._masked_store(place, dtype, value, mask)
            return
        held = self._written(access, place)
        if access.buffer.scope == "register":  # what lies on the stack does so to leave registers to others
            held.put(place, kind, value)
        b.emit(f"store {kind} {value}, ptr {place.pointer}, align {place.alignment}")

    def forget(self) -> None:
        """Anything may have been written."""
        self._held.clear()

    def _load(self, access: BufferLoad | BufferStore, place: _Place, kind: str) -> str:
        """A plain load; none where the block holds the value already: the factors of a tile of sums would be loaded for
        each sum, a fifth of the text."""
        b, held = self.emitter.builder, self._held_of(access)
        found = held.find(place, kind)
        if found is None:
            found = b.value(f"load {kind}, ptr {place.pointer}, align {place.alignment}", access.buffer.name)
            held.put(place, kind, found)
        return found

    def _held_of(self, access: BufferLoad | BufferStore) -> _Held:
        """What is known of the buffer of ``access`` here."""
        block = self.emitter.builder.block
        if self._block != block:
            self._block = block
            self._held.clear()
        pointer = self.emitter.slots[access.buffer].pointer
        held = self._held.get(pointer)
        if held is None:
            held = self._held[pointer] = _Held()
        return held

    def _written(self, access: BufferStore, place: _Place) -> _Held:
        """Forget what a store may have changed; what is known of its buffer then."""
        if self._shared and not place.local:
            self._held.clear()
        held = self._held_of(access)
        held.forget(place)
        return held

    def address(self, access: BufferLoad) -> str:
        """The address of the (first) element of ``access``."""
        if access.dtype.lanes != 1:
            self.emitter.error(access, "the address of a vector access is not one address")
        return self._place(access).pointer

    # Addresses.

    def _offset(self, access: BufferLoad | BufferStore, slot: Slot) -> Expr:
        if slot.dense:
            return cast(INT64, access.indices[0])
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

    def _address(self, access: BufferLoad | BufferStore, slot: Slot) -> _Address:
        """Where ``access`` reads or writes, with the values that unrolled loops give their variables now."""
        known = self.emitter.known
        if not known.values:
            return _split(self._offset(access, slot))
        key = (access, known.names)
        sums = self._sums.get(key)
        if sums is None:
            offset = self._offset(access, slot)
            lanes = (offset, 1) if offset.dtype.lanes == 1 else split_lanes(offset)
            sums = (offset, None if lanes is None else known.linear(lanes[0]), 0 if lanes is None else lanes[1])
            self._sums[key] = sums
        offset, linear, step = sums
        if linear is None:
            return _split(known.fold(offset))
        return _Address(linear.variable, linear.at(known.values), step, offset)

    def _place(self, access: BufferLoad | BufferStore) -> _Place:
        e = self.emitter
        slot = e.slot(access.buffer, access)
        dtype = access.buffer.dtype
        plain = access.predicate is None
        address = self._address(access, slot)
        lanes, step = address.offset.dtype.lanes, address.step
        # Lanes that a mask switches off may lie outside of the buffer, and so may the address of the first.
        element = memory_type(dtype)
        get = f"getelementptr inbounds {element}, ptr " if plain else f"getelementptr {element}, ptr "
        if step is None:
            steps = e.expr(address.offset)
            pointers = e.builder.pure(f"getelementptr {element}, ptr {slot.pointer}, <{lanes} x i64> {steps}")
            return _Place(pointers, dtype.bytes, vector=True)
        pointer, alignment = slot.pointer, dtype.bytes
        # The address of the variable part, which neighbours share, and then the constant.
        if address.variable is not None:
            pointer = e.builder.pure(f"{get}{pointer}, i64 {e.offset(address.variable)}")
        elif slot.local:
            fixed_bytes = abs(address.fixed) * dtype.bytes
            alignment = math.gcd(STACK_ALIGNMENT, fixed_bytes) if fixed_bytes else STACK_ALIGNMENT
        if address.fixed:
            pointer = e.builder.pure(f"{get}{pointer}, i64 {address.fixed}")
        first = address.fixed if address.variable is None else None
        if lanes == 1 or step == 1:
            return _Place(pointer, alignment, local=slot.local, first=first, lanes=lanes)
        if step == 0 and plain and isinstance(access, BufferLoad):
            return _Place(pointer, alignment, uniform=True, local=slot.local, first=first)
        steps = constant_vector([str(step * lane) for lane in range(lanes)], "i64")
        pointers = e.builder.pure(f"getelementptr {element}, ptr {pointer}, <{lanes} x i64> {steps}")
        return _Place(pointers, dtype.bytes, vector=True)

    # Masks.

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

    def _as_vector(self, dtype: DataType, x: str, element: str) -> str:
        """A scalar as a vector of one lane, which is what LLVM's masked operations take."""
        if dtype.lanes != 1:
            return x
        return self.emitter.builder.pure(f"insertelement <1 x {element}> poison, {element} {x}, i64 0")

    def _masked_load(self, place: _Place, dtype: DataType, mask: str) -> str:
        if place.vector:
            return self._gather(place, dtype, mask)
        b, lanes, element = self.emitter.builder, dtype.lanes, memory_type(dtype.element)
        kind = f"<{lanes} x {element}>"
        name = f"llvm.masked.load.v{lanes}{_memory_suffix(dtype)}.p0"
        operand = b.module.declare(name, kind, ["ptr", "i32", f"<{lanes} x i1>", kind])
        mask = self._as_vector(dtype, mask, "i1")
        loaded = b.value(
            f"call {kind} {operand}(ptr {place.pointer}, i32 {place.alignment}, <{lanes} x i1> {mask}, "
            f"{kind} zeroinitializer)"
        )
        return b.pure(f"extractelement {kind} {loaded}, i64 0") if lanes == 1 else loaded

    def _gather(self, place: _Place, dtype: DataType, mask: str) -> str:
        b, lanes, kind = self.emitter.builder, dtype.lanes, memory_type(dtype)
        name = f"llvm.masked.gather.v{lanes}{_memory_suffix(dtype)}.v{lanes}p0"
        operand = b.module.declare(name, kind, [f"<{lanes} x ptr>", "i32", f"<{lanes} x i1>", kind])
        return b.value(
            f"call {kind} {operand}(<{lanes} x ptr> {place.pointer}, i32 {place.alignment}, "
            f"<{lanes} x i1> {mask}, {kind} zeroinitializer)"
        )

    def _masked_store(self, place: _Place, dtype: DataType, value: str, mask: str) -> None:
        b, lanes, element = self.emitter.builder, dtype.lanes, memory_type(dtype.element)
        kind = f"<{lanes} x {element}>"
        what, pointers = ("scatter", f"<{lanes} x ptr>") if place.vector else ("store", "ptr")
        name = f"llvm.masked.{what}.v{lanes}{_memory_suffix(dtype)}.{f'v{lanes}p0' if place.vector else 'p0'}"
        operand = b.module.declare(name, "void", [kind, pointers, "i32", f"<{lanes} x i1>"])
        value, mask = self._as_vector(dtype, value, element), self._as_vector(dtype, mask, "i1")
        b.emit(
            f"call void {operand}({kind} {value}, {pointers} {place.pointer}, i32 {place.alignment}, "
            f"<{lanes} x i1> {mask})"
        )


class _Place(NamedTuple):
    """An address; ``vector``: one for each lane; ``uniform``: one that all lanes read. ``first``: the number of its
    first element in the buffer, if that is constant; ``lanes``: how many it has."""

    pointer: str
    alignment: int
    vector: bool = False
    uniform: bool = False
    local: bool = False
    first: int | None = None
    lanes: int = 1


class _Held:
    """The operands that hold what stands in a buffer."""

    def __init__(self) -> None:
        #: By first element, where that is constant: vectors of one width that do not overlap.
        self._fixed: dict[int, tuple[str, str]] = {}
        self._width = 0
        #: By pointer and type.
        self._others: dict[tuple[str, str], str] = {}

    def find(self, place: _Place, kind: str) -> str | None:
        """The operand that holds the value of that type; None if it is not known."""
        if place.first is not None:
            found = self._fixed.get(place.first)
            if found is not None and found[0] == kind:
                return found[1]
        return self._others.get((place.pointer, kind))

    def put(self, place: _Place, kind: str, value: str) -> None:
        """It is ``value``."""
        if place.first is not None and not self._fixed:
            self._width = place.lanes
        if self._is_regular(place):
            assert place.first is not None
            self._fixed[place.first] = kind, value
        else:
            self._others[place.pointer, kind] = value

    def forget(self, place: _Place | None = None) -> None:
        """It may have changed there; None: anywhere."""
        self._others.clear()
        if place is not None and self._is_regular(place):
            assert place.first is not None
            self._fixed.pop(place.first, None)
        else:
            self._fixed.clear()

    def _is_regular(self, place: _Place) -> bool:
        return place.first is not None and place.lanes == self._width and place.first % place.lanes == 0


class _Address(NamedTuple):
    """What an access adds to the address of its buffer, in elements.

    Attributes:
        variable: its variable part in the first lane; None if there is none.
        fixed: its constant part.
        step: from lane to lane; None if it is not constant: then ``offset`` is all that there is.
        offset: the offset as a whole, with all lanes.
    """

    variable: Expr | None
    fixed: int
    step: int | None
    offset: Expr


def _split(offset: Expr) -> _Address:
    if offset.dtype.lanes == 1:
        return _Address(*split_constant(offset), 1, offset)
    lanes = split_lanes(offset)
    return _Address(None, 0, None, offset) if lanes is None else _Address(*split_constant(lanes[0]), lanes[1], offset)


def _memory_suffix(dtype: DataType) -> str:
    if dtype.is_float and dtype.element != "bfloat16":
        return f"f{dtype.bits}"
    return f"i{dtype.bits}"


def _zero(dtype: DataType) -> str:
    if dtype.lanes != 1:
        return "zeroinitializer"
    return "0" if dtype.is_bool or not dtype.is_float else constant(0.0, dtype)


def split_constant(offset: Expr) -> tuple[Expr | None, int]:
    """``offset`` as a variable part (None if there is none) plus a constant."""
    kind = type(offset)
    if kind is IntImm:
        assert isinstance(offset, IntImm)
        return None, offset.value
    if kind is not BinaryOp:
        return offset, 0
    assert isinstance(offset, BinaryOp)
    if offset.op in ("add", "sub"):
        a, fixed_a = split_constant(offset.a)
        b, fixed_b = split_constant(offset.b)
        fixed = fixed_a + fixed_b if offset.op == "add" else fixed_a - fixed_b
        if a is offset.a and b is offset.b:
            return offset, 0
        if b is None:
            return a, fixed
        if a is None and offset.op == "add":
            return b, fixed
        return binary(offset.op, a if a is not None else IntImm(0), b), fixed
    return offset, 0


def split_lanes(index: Expr) -> tuple[Expr, int] | None:
    """A vector index as its value in lane 0 and the constant step from lane to lane; None if it has no such form."""
    if isinstance(index, Ramp):
        return (index.base, index.stride.value) if isinstance(index.stride, IntImm) else None
    if isinstance(index, Broadcast):
        return index.value, 0
    if isinstance(index, Cast) and index.value.dtype.is_int:
        inner = split_lanes(index.value)
        return None if inner is None else (cast(index.dtype.element, inner[0]), inner[1])
    if not isinstance(index, BinaryOp) or index.op not in ("add", "sub", "mul"):
        return None
    a, b = split_lanes(index.a), split_lanes(index.b)
    if a is None or b is None:
        return None
    if index.op != "mul":
        return binary(index.op, a[0], b[0]), a[1] + b[1] if index.op == "add" else a[1] - b[1]
    if b[1] == 0 and isinstance(b[0], IntImm):
        return binary("mul", a[0], b[0]), a[1] * b[0].value
    if a[1] == 0 and isinstance(a[0], IntImm):
        return binary("mul", a[0], b[0]), b[1] * a[0].value
    if a[1] == 0 and b[1] == 0:
        return binary("mul", a[0], b[0]), 0
    return None


def pointer_attributes(root: PrimFunc, buffer: Buffer, written: Collection[Buffer]) -> str:
    """What LLVM may assume of the address of ``buffer`` as a parameter of ``root``."""
    facts = ["ptr", "nonnull"]
    if not root.attrs.get("may_alias") and not _is_overwritten(root, buffer):
        facts.append("noalias")
    if buffer not in written:
        facts.append("readonly")
    alignment = max(buffer.alignment, buffer.dtype.bytes)
    facts.append(f"align {alignment}")
    return " ".join(facts)


def _is_overwritten(root: PrimFunc, buffer: Buffer) -> bool:
    """Whether ``buffer`` may have the memory of another parameter: it is the result, or what the result overwrites."""
    numbers = root.attrs.get(OVERWRITES, ())
    buffers = root.buffers
    shared = [buffers[number] for number in (*numbers, root.attrs["num_inputs"])] if numbers else []
    return buffer in shared
