"""``InterleaveStores``: store vectors whose elements are interleaved in memory as one vector::

    for g in range(2) annotations {"interleave": True}:
        b[ramp(i * 32 + g, 2, 16)] = a[ramp(j + g * 64, 1, 16)]

    ->  b[ramp(i * 32, 1, 32)] = reinterpret(
            uint32x16(a[ramp(j, 1, 16)]) | uint32x16(a[ramp(j + 64, 1, 16)]) << 16, dtype=uint16x32)

Elements of 8 and 16 bits are packed into integers of 16 to 64 bits, the first one in the lowest bits, as all supported
targets are little-endian. A strided store would become one store for each element. Schedules request this by the
annotation ``interleave`` of the loop; one that can't be lowered stays a loop, and a remark says why.
"""

from __future__ import annotations

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.properties import FLAT, SIMPLE, VECTORS
from tilewright.passes.registry import register_pass
from tilewright.passes.tensor.intents import IntentLowering, states
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.expr import BinaryOp, Call, Cast, Expr, IntImm, Ramp, const
from tilewright.tensorir.functor import leaves, substitute, uses_var
from tilewright.tensorir.keys import INTERLEAVE
from tilewright.tensorir.stmt import BufferStore, For, PrimFunc, Stmt

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
        if kind.bits not in (8, 16) or kind.is_bool or count < 2 or count * kind.bits not in _WORDS:
            return f"{count} elements of {kind.element} do not make an integer of 16, 32 or 64 bits"
        if store.predicate is not None or store.buffer in leaves(store.value):
            return "the store is masked, or its value reads the buffer that it writes"
        first = self._first_place(store, loop, count)
        if first is None:
            return "the vectors of its iterations are not interleaved in memory"
        part = DataType(f"uint{kind.bits}").with_lanes(kind.lanes)
        word = DataType(f"uint{count * kind.bits}").with_lanes(kind.lanes)
        joined: Expr | None = None
        for number in range(count):
            value = substitute(store.value, {loop.var: self.simplify(loop.min + number)})
            bits: Expr = Cast(word, value if kind is part else Call("reinterpret", (value,), part))
            if number:
                bits = BinaryOp("shl", bits, const(number * kind.bits, word))
            joined = bits if joined is None else BinaryOp("bitor", joined, bits)
        assert joined is not None
        whole = kind.with_lanes(count * kind.lanes)
        place = Ramp(first, const(1, first.dtype), whole.lanes)
        return BufferStore(store.buffer, Call("reinterpret", (joined,), whole), (place,))

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
