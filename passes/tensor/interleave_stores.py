"""``InterleaveStores``: writes vectors whose elements take turns in memory as one vector::

    for g in range(2):
        b[ramp(i * 32 + g, 2, 16)] = a[ramp(j + g * 64, 1, 16)]

    ->  b[ramp(i * 32, 1, 32)] = reinterpret(
            uint32x16(a[ramp(j, 1, 16)]) | uint32x16(a[ramp(j + 64, 1, 16)]) << 16, dtype=uint16x32)

Elements of 8 and 16 bits are put together in integers of 16 to 64 bits, the first one in the lowest bits, where the
machines that we have code for look for it. A store with steps would be one for each element.
"""

from __future__ import annotations

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.registry import register_pass
from tilewright.passes.tensor.scoped import ScopedMutator
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.expr import BinaryOp, Call, Cast, Expr, IntImm, Ramp, const
from tilewright.tensorir.functor import leaves, substitute, uses_var, walk_statements
from tilewright.tensorir.stmt import BufferStore, For, PrimFunc, Stmt

#: Widths of the integers that elements are put together in.
_WORDS = (16, 32, 64)


class _Interleaver(ScopedMutator):
    def mutate_For(self, loop: For) -> Stmt:
        made = self._interleave(loop)
        return made if made is not None else super().mutate_For(loop)

    def _interleave(self, loop: For) -> Stmt | None:
        if not _fills_words(loop):
            return None
        store, extent = loop.body, loop.extent
        assert isinstance(extent, IntImm) and isinstance(store, BufferStore)
        count, kind = extent.value, store.value.dtype
        first = self._first_place(store, loop, count)
        if first is None or store.predicate is not None or store.buffer in leaves(store.value):
            return None
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
        """Where the first vector begins, if the vectors of the steps fill the places from there on."""
        if len(store.indices) != 1 or not isinstance(store.indices[0], Ramp):
            return None
        (ramp,) = store.indices
        assert isinstance(ramp, Ramp)
        if not isinstance(ramp.stride, IntImm) or ramp.stride.value != count:
            return None
        rest = self.simplify(ramp.base - loop.var)
        return None if uses_var(rest, {loop.var}) else self.simplify(rest + loop.min)


def _fills_words(stmt: Stmt) -> bool:
    """Whether ``stmt`` is a loop around one store whose elements, of all steps, fill a word."""
    if not isinstance(stmt, For) or stmt.kind != "serial" or not isinstance(stmt.body, BufferStore):
        return False
    kind = stmt.body.value.dtype
    if kind.bits not in (8, 16) or kind.is_bool or not isinstance(stmt.extent, IntImm):
        return False
    return stmt.extent.value >= 2 and stmt.extent.value * kind.bits in _WORDS


def interleave_stores(func: PrimFunc) -> PrimFunc:
    """``func`` with vectors that take turns in memory written as one."""
    if not any(map(_fills_words, walk_statements(func.body))):
        return func
    return func.with_body(_Interleaver(func).mutate(func.body))


@register_pass
@primfunc_pass(opt_level=2, name="InterleaveStores")
class InterleaveStores(PrimFuncPass):
    """See the module."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """``func`` with vectors that take turns in memory written as one."""
        return interleave_stores(func)
