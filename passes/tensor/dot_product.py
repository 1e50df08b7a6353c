"""``DotProduct``: adds neighbouring products of narrow numbers to a vector by the one instruction that does so::

    for g in range(4):
        c[ramp(i, 1, 16)] = c[ramp(i, 1, 16)] + int32x16(a[j + g]) * int32x16(b[ramp(k + g, 4, 16)])

    ->  c[ramp(i, 1, 16)] = dot(c[ramp(i, 1, 16)], <the four of a[ramp(j, 1, 4)], 16 times>, b[ramp(k, 1, 64)])

Integers give the same bits. Of floats (bfloat16) the order of the additions changes, and denormal numbers may count as
zero, so that they wait for opt_level 3. Schedules make such loops for targets that have the instruction; a loop that
fits no instruction of the target stays.
"""

from __future__ import annotations

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.registry import register_pass
from tilewright.passes.tensor.copies import FoldingCopier
from tilewright.passes.tensor.panels import is_written_out
from tilewright.passes.tensor.scoped import ScopedMutator
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.expr import BinaryOp, Broadcast, BufferLoad, Call, Cast, Expr, IntImm, Ramp, const
from tilewright.tensorir.functor import substitute, uses_var, walk_statements
from tilewright.tensorir.stmt import BufferStore, For, PrimFunc, Stmt, sequence
from tilewright.tensorir.target import Target


class _DotProducts(ScopedMutator):
    def __init__(self, func: PrimFunc, target: Target, reassociate: bool) -> None:
        super().__init__(func)
        self.target, self.reassociate = target, reassociate
        self.copier = FoldingCopier(func)

    def mutate_For(self, loop: For) -> Stmt:
        if is_written_out(loop) and _decides_masks(loop):
            assert isinstance(loop.min, IntImm) and isinstance(loop.extent, IntImm)
            numbers = range(loop.min.value, loop.min.value + loop.extent.value)
            values = [const(number, loop.var.dtype) for number in numbers]
            copies = self.copier.copies(loop.body, loop.var, values)
            return self.mutate(sequence(*copies))  # type: ignore[no-any-return]
        made = self._dot(loop)
        return made if made is not None else super().mutate_For(loop)

    def _dot(self, loop: For) -> Stmt | None:
        store, extent = loop.body, loop.extent
        if loop.kind != "serial" or not isinstance(extent, IntImm) or not isinstance(store, BufferStore):
            return None
        factors = None if store.predicate is not None else _added_product(store)
        total = store.value.dtype
        if factors is None or total.lanes == 1 or (total.is_float and not self.reassociate):
            return None
        if any(uses_var(index, {loop.var}) for index in store.indices):
            return None
        narrow = [_narrow_load(factor, total) for factor in factors]
        kinds = [load.buffer.dtype for load in narrow if load is not None]
        if len(kinds) < 2 or self.target.dot_products(kinds[0], kinds[1], total) != extent.value:
            return None
        groups = [
            self._groups(load, loop, extent.value, total)
            for load in narrow
            if load is not None and load.predicate is None and load.buffer is not store.buffer
        ]
        if len(groups) < 2 or groups[0] is None or groups[1] is None:
            return None
        old = BufferLoad(store.buffer, store.indices)
        return BufferStore(store.buffer, Call("dot", (old, groups[0], groups[1]), total), store.indices)

    def _groups(self, load: BufferLoad, loop: For, count: int, total: DataType) -> Expr | None:
        """What all steps of the loop read, those of one lane side by side."""
        if len(load.indices) != 1:
            return None
        (index,) = load.indices
        lanes = total.lanes * count
        dtype = load.buffer.dtype
        if isinstance(index, Ramp):
            if not isinstance(index.stride, IntImm) or index.stride.value != count or index.lanes != total.lanes:
                return None
            first = self._first(index.base, loop)
            return None if first is None else BufferLoad(load.buffer, (Ramp(first, const(1, first.dtype), lanes),))
        first = self._first(index, loop) if index.dtype.lanes == 1 else None
        if first is None:
            return None
        group = BufferLoad(load.buffer, (Ramp(first, const(1, first.dtype), count),))
        bits = Call("reinterpret", (group,), DataType(f"int{dtype.bits * count}"))
        return Call("reinterpret", (Broadcast(bits, total.lanes),), dtype.with_lanes(lanes))

    def _first(self, index: Expr, loop: For) -> Expr | None:
        """The index of the first step, where each step reads the element behind that of the one before."""
        rest = self.simplify(index - loop.var)
        if uses_var(rest, {loop.var}):
            return None
        return self.simplify(substitute(rest + loop.var, {loop.var: loop.min}))


def _added_product(store: BufferStore) -> tuple[Expr, Expr] | None:
    """The factors of ``c[i] = c[i] + x * y``."""
    value = store.value
    if not isinstance(value, BinaryOp) or value.op != "add":
        return None
    for old, product in ((value.a, value.b), (value.b, value.a)):
        if not isinstance(old, BufferLoad) or old.buffer is not store.buffer:
            continue
        if (old.predicate is None) != (store.predicate is None):
            continue
        if not isinstance(product, BinaryOp) or product.op != "mul":
            continue
        if old.indices == store.indices:
            return product.a, product.b
    return None


def _decides_masks(loop: For) -> bool:
    """Whether the number of a copy that ``loop`` becomes decides which lanes of narrow products count: where all do,
    they are added by one instruction."""
    for stmt in walk_statements(loop.body):
        predicate = stmt.predicate if isinstance(stmt, BufferStore) else None
        if predicate is not None and uses_var(predicate, {loop.var}) and _adds_narrow_product(stmt):
            return True
    return False


def _adds_narrow_product(stmt: Stmt) -> bool:
    """Whether ``stmt`` adds a product of narrow numbers to what is there."""
    if not isinstance(stmt, BufferStore):
        return False
    factors, total = _added_product(stmt), stmt.value.dtype
    return factors is not None and None not in [_narrow_load(factor, total) for factor in factors]


def _narrow_load(factor: Expr, total: DataType) -> BufferLoad | None:
    """The load of a factor that is one number for all lanes, or one for each, converted to the type of the sum."""
    if isinstance(factor, Broadcast):
        factor = factor.value
    if not isinstance(factor, Cast) or factor.dtype.element is not total.element:
        return None
    load = factor.value.value if isinstance(factor.value, Broadcast) else factor.value
    return load if isinstance(load, BufferLoad) else None


def dot_products(func: PrimFunc, target: Target | None = None, *, reassociate: bool = False) -> PrimFunc:
    """``func`` with sums of neighbouring products as instructions of ``target``.

    Args:
        reassociate: whether sums of floats may be added up in another order.
    """
    if not any(map(_adds_narrow_product, walk_statements(func.body))):
        return func
    mutator = _DotProducts(func, target if target is not None else Target.current(), reassociate)
    return func.with_body(mutator.mutate(func.body))


@register_pass
@primfunc_pass(opt_level=2, name="DotProduct")
class DotProduct(PrimFuncPass):
    """See the module. ``target``: default :meth:`Target.current`."""

    def __init__(self, target: Target | None = None) -> None:
        self.target = target

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """``func`` with sums of neighbouring products as instructions of the target."""
        return dot_products(func, self.target, reassociate=ctx.is_fast)
