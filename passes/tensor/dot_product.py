"""``DotProduct``: lower sums of neighbouring products of narrow numbers to dot product instructions::

    for g in range(4) annotations {"dot_product": 4}:
        c[ramp(i, 1, 16)] = c[ramp(i, 1, 16)] + int32x16(a[j + g]) * int32x16(b[ramp(k + g, 4, 16)])

    ->  c[ramp(i, 1, 16)] = dot(c[ramp(i, 1, 16)], <the four of a[ramp(j, 1, 4)], 16 times>, b[ramp(k, 1, 64)])

Integer results have the same bits. For floats (bfloat16) the order of the additions changes, and subnormal numbers may
be flushed to zero, so that they need opt_level 3. Schedules choose the instruction by the annotation ``dot_product``
with the number of products, and lay out the operands for it; a loop that fits no instruction stays a loop, and a remark
says why.
"""

from __future__ import annotations

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.properties import FLAT, FORMULAS, VECTORS
from tilewright.passes.registry import register_pass
from tilewright.passes.tensor.copies import FoldingCopier
from tilewright.passes.tensor.intents import IntentLowering, states
from tilewright.passes.tensor.loops_in import is_written_out
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.expr import BinaryOp, Broadcast, BufferLoad, Call, Cast, Expr, IntImm, Ramp, const
from tilewright.tensorir.functor import LOADS, substitute, uses_var, walk_statements, walk_to
from tilewright.tensorir.keys import DOT_PRODUCT
from tilewright.tensorir.stmt import BufferStore, For, PrimFunc, Stmt, sequence
from tilewright.tensorir.target import Target


class _DotProducts(IntentLowering):
    def __init__(self, func: PrimFunc, target: Target, reassociate: bool) -> None:
        super().__init__(func, DOT_PRODUCT)
        self.target, self.reassociate = target, reassociate
        self.copier = FoldingCopier(func)

    def mutate_For(self, loop: For) -> Stmt:
        if is_written_out(loop) and _decides_masks(loop):
            assert isinstance(loop.min, IntImm) and isinstance(loop.extent, IntImm)
            numbers = range(loop.min.value, loop.min.value + loop.extent.value)
            values = [const(number, loop.var.dtype) for number in numbers]
            copies = self.copier.copies(loop.body, loop.var, values)
            return self.mutate(sequence(*copies))  # type: ignore[no-any-return]
        return super().mutate_For(loop)

    def lower(self, loop: For) -> Stmt | str:
        """Return the store of the instruction's result that replaces a loop over its products, or a reason."""
        store, count = loop.body, loop.annotations[DOT_PRODUCT]
        if loop.kind != "serial" or not isinstance(loop.extent, IntImm) or loop.extent.value != count:
            return f"it is not a serial loop of {count} iterations"
        if not isinstance(store, BufferStore):
            return "its body is not a single store"
        factors = _added_product(store)
        if factors is None or any(uses_var(index, {loop.var}) for index in store.indices):
            return "it does not accumulate products into one element"
        total = store.value.dtype
        if any(mask is not None for mask in _masks(store)):
            return "its accesses are masked"
        if total.is_float and not self.reassociate:
            return "sums of floats are reassociated only at opt_level 3"
        loads = [load for load in [_narrow_load(factor, total) for factor in factors] if load is not None]
        if len(loads) < 2 or any(load.buffer is store.buffer for load in loads):
            return "its factors are not two loads converted to the type of the sum"
        kinds = [load.buffer.dtype for load in loads]
        if total.lanes == 1 or self.target.dot_products(kinds[0], kinds[1], total) != count:
            return f"{self.target.mcpu} has no instruction that adds {count} products of {kinds[0]} by {kinds[1]}"
        left, right = [self._groups(load, loop, count, total) for load in loads]
        if left is None or right is None:
            return "its iterations do not read contiguous elements"
        old = BufferLoad(store.buffer, store.indices)
        return BufferStore(store.buffer, Call("dot", (old, left, right), total), store.indices)

    def _groups(self, load: BufferLoad, loop: For, count: int, total: DataType) -> Expr | None:
        """Return the elements that all steps of the loop read, with those of one lane side by side."""
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
        """Return the index of the first step if each step reads the element after that of the previous step."""
        rest = self.simplify(index - loop.var)
        if uses_var(rest, {loop.var}):
            return None
        return self.simplify(substitute(rest + loop.var, {loop.var: loop.min}))


def _added_product(store: BufferStore) -> tuple[Expr, Expr] | None:
    """Match ``c[i] = c[i] + x * y`` and return the factors."""
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
    """Return whether the variable of the unrolled ``loop`` decides which lanes of annotated sums are active: in copies
    where all are, one instruction adds their products."""
    for stmt in walk_statements(loop.body):
        store = stmt.body if isinstance(stmt, For) and stmt.annotations.get(DOT_PRODUCT) else None
        masks = _masks(store) if isinstance(store, BufferStore) else []
        if any(mask is not None and uses_var(mask, {loop.var}) for mask in masks):
            return True
    return False


def _masks(store: BufferStore) -> list[Expr | None]:
    """Return the predicates of a store and of the loads in it; None for those without."""
    loads = [node for node in walk_to(store.value, LOADS) if isinstance(node, BufferLoad)]
    return [store.predicate, *(load.predicate for load in loads)]


def _narrow_load(factor: Expr, total: DataType) -> BufferLoad | None:
    """Match a load, of one number for all lanes or one for each, that is cast to the type of the sum."""
    if isinstance(factor, Broadcast):
        factor = factor.value
    if not isinstance(factor, Cast) or factor.dtype.element is not total.element:
        return None
    load = factor.value.value if isinstance(factor.value, Broadcast) else factor.value
    return load if isinstance(load, BufferLoad) else None


def dot_products(func: PrimFunc, target: Target | None = None, *, reassociate: bool = False) -> PrimFunc:
    """Return ``func`` with sums that are annotated ``dot_product`` as instructions of ``target``.

    Args:
        reassociate: whether sums of floats may be reordered.
    """
    return _lowered(func, target, reassociate, None)


def _lowered(func: PrimFunc, target: Target | None, reassociate: bool, ctx: PassContext | None) -> PrimFunc:
    if not states(func.body, DOT_PRODUCT):
        return func
    mutator = _DotProducts(func, target if target is not None else Target.current(), reassociate)
    body = mutator.mutate(func.body)
    if ctx is not None:
        mutator.tell(ctx, "replaced {} loops over products by dot-product instructions")
    return func.with_body(body)


@register_pass
@primfunc_pass(opt_level=2, name="DotProduct", requires={FLAT, VECTORS, FORMULAS})
class DotProduct(PrimFuncPass):
    """Lower sums that a schedule annotates to dot product instructions.

    Args:
        target: the machine; by default :meth:`Target.current`.
    """

    def __init__(self, target: Target | None = None) -> None:
        self.target = target

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """Return ``func`` with annotated sums as instructions of the target."""
        return _lowered(func, self.target, ctx.is_fast, ctx)
