"""``JoinDims``: join dimensions of a buffer that are indexed by the quotient and remainder of one number.

Before::

    primfunc @flatten(x: Buffer[(n, h, w), float32], y: Buffer[(n * h * w,), float32], ...) {
      for i: y[i] = x[i // w // h, i // w % h, i % w]

After::

    primfunc @flatten(x: Buffer[(n * h * w,), float32], y: Buffer[(n * h * w,), float32], ...) {
      for i: y[i] = x[i]

Such indices arise where a fused group reshapes its input, and where an operator enumerates in one dimension the rows
and columns of another tensor (Winograd's products). Joined, accesses are visibly contiguous to schedules, and no
element's index needs a division. All accesses to the buffer must have this form; the memory layout stays the same, and
callers pass addresses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.properties import BLOCKS, UNSCHEDULED
from tilewright.passes.registry import register_pass
from tilewright.passes.schedule.facts import Access, accesses_of, blocks_of, is_manual, schedule_of
from tilewright.tensorir.arith import Analyzer
from tilewright.tensorir.arith.quotients import QUOTIENTS, whole_number
from tilewright.tensorir.expr import BinaryOp, Buffer, BufferLoad, Expr, binary
from tilewright.tensorir.functor import DIVISIONS, Mutator, accesses_buffers, kinds
from tilewright.tensorir.schedule.blocks import change_block
from tilewright.tensorir.stmt import Block, BufferStore, PrimFunc, Stmt


@register_pass
@primfunc_pass(opt_level=2, name="JoinDims", requires={BLOCKS, UNSCHEDULED})
class JoinDims(PrimFuncPass):
    """Join neighbouring dimensions that are indexed by the quotient and remainder of one number."""

    family = "schedule"

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """Return ``func`` with dimensions joined."""
        blocks = blocks_of(func)
        if not any(map(_divides, blocks)):  # no index is a quotient
            return func
        if is_manual(func) or schedule_of(func, ctx) is None:
            return func
        found: dict[Buffer, list[Access]] = {}
        for block in blocks:
            for access in accesses_of(block):
                found.setdefault(access.buffer, []).append(access)
        analyzer = Analyzer()
        buffers: dict[Buffer, Buffer] = {}
        indices: dict[Access, tuple[Expr, ...]] = {}
        for buffer in func.buffers:
            accesses = found.get(buffer, [])
            joined = _join(buffer, accesses, analyzer)
            if joined is not None:
                shape, places = joined
                buffers[buffer] = Buffer(buffer.name, shape, buffer.dtype, buffer.scope, (), buffer.alignment)
                indices.update(zip(accesses, places, strict=True))
        if not buffers:
            return func
        names = ", ".join(buffer.name for buffer in buffers)
        ctx.remark(f"dimensions of {names} joined, as quotients and remainders of one number index them", "applied")
        params = tuple(buffers.get(param, param) if isinstance(param, Buffer) else param for param in func.params)
        return PrimFunc(func.name, params, _Joiner(buffers, indices).mutate(func.body), func.attrs)


def _divides(block: Block) -> bool:
    return bool((kinds(block.body) | (0 if block.init is None else kinds(block.init))) & DIVISIONS)


def _join(
    buffer: Buffer, accesses: Sequence[Access], analyzer: Analyzer
) -> tuple[tuple[Expr, ...], list[tuple[Expr, ...]]] | None:
    """Return the shape of a buffer and the indices of its accesses with dimensions joined; None where none can be."""
    if buffer.strides or not accesses or not any(map(_is_part, accesses[0].indices[1:])):
        return None
    if any(accesses_buffers(index) for access in accesses for index in access.indices):
        return None
    shape = list(buffer.shape)
    places = [list(access.indices) for access in accesses]
    for axis in reversed(range(buffer.ndim - 1)):
        size, extent = shape[axis : axis + 2]
        numbers = [whole_number(analyzer, place[axis], size, place[axis + 1], extent) for place in places]
        if any(number is None for number in numbers):
            continue
        both = binary("mul", size, extent)
        shape[axis : axis + 2] = [both]
        for place, found in zip(places, numbers, strict=True):
            assert found is not None
            number, rest = found
            place[axis : axis + 2] = [binary(rest, number, both) if rest else number]
    if len(shape) == buffer.ndim:
        return None
    return tuple(shape), [tuple(place) for place in places]


def _is_part(index: Expr) -> bool:
    return isinstance(index, BinaryOp) and index.op in QUOTIENTS


class _Joiner(Mutator):
    def __init__(self, buffers: Mapping[Buffer, Buffer], indices: Mapping[Access, tuple[Expr, ...]]) -> None:
        self.buffers, self.indices = buffers, indices

    def mutate_Block(self, block: Block) -> Stmt:
        init = None if block.init is None else self.mutate(block.init)
        return change_block(block, init=init, body=self.mutate(block.body))

    def mutate_BufferLoad(self, op: BufferLoad) -> Expr:
        if op not in self.indices:
            return self.generic_mutate(op)  # type: ignore[no-any-return]
        predicate = None if op.predicate is None else self.mutate(op.predicate)
        return BufferLoad(self.buffers[op.buffer], self.indices[op], predicate)

    def mutate_BufferStore(self, op: BufferStore) -> Stmt:
        if op not in self.indices:
            return self.generic_mutate(op)  # type: ignore[no-any-return]
        predicate = None if op.predicate is None else self.mutate(op.predicate)
        return BufferStore(self.buffers[op.buffer], self.mutate(op.value), self.indices[op], predicate)
