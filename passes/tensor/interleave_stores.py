"""``InterleaveStores``: store vectors whose elements are interleaved in memory as one vector::

    for g in range(2) annotations {"interleave": True}:
        b[ramp(i * 32 + g, 2, 16)] = a[ramp(j + g * 64, 1, 16)]

    ->  b[ramp(i * 32, 1, 32)] = reinterpret(
            uint32x16(a[ramp(j, 1, 16)]) | uint32x16(a[ramp(j + 64, 1, 16)]) << 16, dtype=uint16x32)

Elements of 8 and 16 bits are packed into integers of 16 to 64 bits, the first one in the lowest bits, as all supported
targets are little-endian. Other vectors are interleaved in registers, an even number by those at even and at odd places
first::

    ->  let a_0: float32x16 = a[ramp(j, 1, 16)]
        let a_1: float32x16 = a[ramp(j + 64, 1, 16)]
        b[ramp(i * 32, 1, 16)] = interleave_low(a_0, a_1)
        b[ramp(i * 32 + 16, 1, 16)] = interleave_high(a_0, a_1)

A strided store would become one store for each element. Schedules request this by the annotation ``interleave`` of the
loop; one that can't be lowered stays a loop, and a remark says why.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.properties import FLAT, SIMPLE, VECTORS
from tilewright.passes.registry import register_pass
from tilewright.passes.tensor.intents import IntentLowering, states
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.expr import BinaryOp, Buffer, Call, Cast, Expr, IntImm, Ramp, Var, const
from tilewright.tensorir.functor import leaves, substitute, uses_var
from tilewright.tensorir.intrinsics import can_interleave
from tilewright.tensorir.keys import INTERLEAVE
from tilewright.tensorir.stmt import BufferStore, For, LetStmt, PrimFunc, Stmt, sequence

#: Widths of the integers that elements are packed into.
_WORDS = (16, 32, 64)


class _Interleaver(IntentLowering):
    def __init__(self, func: PrimFunc) -> None:
        super().__init__(func, INTERLEAVE)

    def lower(self, loop: For) -> Stmt | str:
        """Return one store of whole vectors that replaces a loop over interleaved stores, or a reason."""
        store, extent = loop.body, loop.extent
        if loop.kind != "serial" or not isinstance(extent, IntImm) or not isinstance(store, BufferStore):
            return "it is not a serial loop with constant extent around a single store"
        count, kind = extent.value, store.value.dtype
        if not can_interleave(count) or kind.is_bool or kind.lanes % 2:
            return f"vectors of {kind!s} are not interleaved {count} at a time"
        if store.predicate is not None or store.buffer in leaves(store.value):
            return "the store is masked, or its value reads the buffer that it writes"
        first = self._first_place(store, loop, count)
        if first is None:
            return "the vectors of its iterations are not interleaved in memory"
        values = [
            self.simplify(substitute(store.value, {loop.var: self.simplify(loop.min + number)}))
            for number in range(count)
        ]
        if kind.bits in (8, 16) and count * kind.bits in _WORDS:
            return self._packed(store.buffer, first, values)
        return self._shuffled(store.buffer, first, values)

    def _packed(self, buffer: Buffer, first: Expr, values: Sequence[Expr]) -> Stmt:
        """Return the store of vectors whose neighbouring elements become the bits of one integer."""
        kind, count = values[0].dtype, len(values)
        part = DataType(f"uint{kind.bits}").with_lanes(kind.lanes)
        word = DataType(f"uint{count * kind.bits}").with_lanes(kind.lanes)
        joined: Expr | None = None
        for number, value in enumerate(values):
            bits: Expr = Cast(word, _as_type(value, part))
            if number:
                bits = BinaryOp("shl", bits, const(number * kind.bits, word))
            joined = bits if joined is None else BinaryOp("bitor", joined, bits)
        assert joined is not None
        whole = kind.with_lanes(count * kind.lanes)
        place = Ramp(first, const(1, first.dtype), whole.lanes)
        return BufferStore(buffer, Call("reinterpret", (joined,), whole), (place,))

    def _shuffled(self, buffer: Buffer, first: Expr, values: Sequence[Expr]) -> Stmt:
        """Return the stores of vectors that are interleaved in registers."""
        stored = values[0].dtype
        # Few processors have instructions for halves; as integers they are moved like others.
        kind = DataType(f"uint{stored.bits}").with_lanes(stored.lanes) if stored.bits == 16 else stored
        made: list[tuple[Var, Expr]] = []

        def name(value: Expr) -> Expr:
            made.append((Var(f"{buffer.name}_{len(made)}", value.dtype), value))
            return made[-1][0]

        def interleaved(vectors: list[Expr]) -> list[Expr]:
            count = len(vectors)
            if count == 1:
                return vectors
            if count % 2:
                parts = [const(part, "int64") for part in range(count)]
                return [name(Call(f"interleave_{count}", (*vectors, part), kind)) for part in parts]
            pairs = zip(interleaved(vectors[::2]), interleaved(vectors[1::2]), strict=True)
            return [name(Call(f"interleave_{half}", pair, kind)) for pair in pairs for half in ("low", "high")]

        vectors = interleaved([name(_as_type(value, kind)) for value in values])
        places = [self.simplify(first + number * kind.lanes) for number in range(len(vectors))]
        ramps = [Ramp(place, const(1, place.dtype), kind.lanes) for place in places]
        body = sequence(
            *(
                BufferStore(buffer, _as_type(vector, stored), (ramp,))
                for vector, ramp in zip(vectors, ramps, strict=True)
            )
        )
        for var, value in reversed(made):
            body = LetStmt(var, value, body)
        return body

    def _first_place(self, store: BufferStore, loop: For, count: int) -> Expr | None:
        """Return the place of the first vector if the interleaved vectors fill the places from there on."""
        if len(store.indices) != 1 or not isinstance(store.indices[0], Ramp):
            return None
        (ramp,) = store.indices
        assert isinstance(ramp, Ramp)
        if not isinstance(ramp.stride, IntImm) or ramp.stride.value != count:
            return None
        rest = self.simplify(ramp.base - loop.var)
        return None if uses_var(rest, {loop.var}) else self.simplify(rest + loop.min)


def _as_type(value: Expr, dtype: DataType) -> Expr:
    """Return the same bits as a type of the same width."""
    return value if value.dtype is dtype else Call("reinterpret", (value,), dtype)


def interleave_stores(func: PrimFunc, ctx: PassContext | None = None) -> PrimFunc:
    """Return ``func`` with the vectors of loops annotated ``interleave`` stored as one. Remarks go to ``ctx``."""
    if not states(func.body, INTERLEAVE):
        return func
    mutator = _Interleaver(func)
    body = mutator.mutate(func.body)
    if ctx is not None:
        mutator.tell(ctx, "replaced {} loops over interleaved stores by a contiguous store")
    return func.with_body(body)


@register_pass
@primfunc_pass(opt_level=2, name="InterleaveStores", requires={FLAT, VECTORS, SIMPLE})
class InterleaveStores(PrimFuncPass):
    """Store interleaved vectors as one, where a schedule requests it."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """Return ``func`` with the vectors of annotated loops stored as one."""
        return interleave_stores(func, ctx)
