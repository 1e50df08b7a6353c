"""``FlattenBuffer``: makes every buffer one-dimensional, and every access an offset into it::

    B: Buffer[(n, 64), float32]                     B: Buffer[(n * 64,), float32]
    for i in range(n):                              for i in range(n):
        for j in range(64):                  ->         for j in range(64):
            B[i, j] = 0.0                                   B[i * 64 + j] = 0.0

The order is row-major unless the buffer has strides. A buffer with strides becomes as long as its last element needs.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.registry import register_pass
from tilewright.passes.tensor.scoped import ScopedMutator
from tilewright.passes.tensor.vector_arith import vector_binary
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import Buffer, BufferLoad, Expr, const
from tilewright.tensorir.stmt import BufferStore, PrimFunc, Stmt


def element_strides(buffer: Buffer) -> list[Expr]:
    """How many elements apart two neighbours in each dimension are."""
    if buffer.strides:
        return list(buffer.strides)
    strides: list[Expr] = []
    step: Expr = const(1, INT64)
    for extent in reversed(buffer.shape):
        strides.append(step)
        step = extent * step
    return strides[::-1]


def element_count(buffer: Buffer) -> Expr:
    """How many elements the buffer spans, including gaps between strided rows."""
    if not buffer.strides:
        count: Expr = const(1, INT64)
        for extent in buffer.shape:
            count = count * extent
        return count
    last: Expr = const(0, INT64)
    for extent, stride in zip(buffer.shape, buffer.strides, strict=True):
        last = last + (extent - 1) * stride
    return last + 1


class _Flattener(ScopedMutator):
    def __init__(self, func: PrimFunc) -> None:
        super().__init__(func)
        self.flat: dict[Buffer, Buffer] = {}

    def mutate_buffer(self, buffer: Buffer) -> Buffer:
        found = self.flat.get(buffer)
        if found is None:
            if buffer.ndim == 1 and not buffer.strides:
                found = buffer
            else:
                count = self.analyzer.simplify(element_count(buffer))
                found = Buffer(buffer.name, (count,), buffer.dtype, buffer.scope, (), buffer.alignment)
            self.flat[buffer] = found
        return found

    def _offset(self, buffer: Buffer, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        if buffer.ndim == 1 and not buffer.strides:
            return tuple(indices)
        offset: Expr = const(0, INT64)
        for index, stride in zip(indices, element_strides(buffer), strict=True):
            offset = vector_binary("add", offset, vector_binary("mul", _as_int64(index), stride))
        return (self.simplify(offset),)

    def mutate_BufferLoad(self, op: BufferLoad) -> Expr:
        indices = self.mutate_all(op.indices)
        predicate = self.mutate(op.predicate) if op.predicate is not None else None
        return BufferLoad(self.mutate_buffer(op.buffer), self._offset(op.buffer, indices), predicate)

    def mutate_BufferStore(self, op: BufferStore) -> Stmt:
        value, indices = self.mutate(op.value), self.mutate_all(op.indices)
        predicate = self.mutate(op.predicate) if op.predicate is not None else None
        return BufferStore(self.mutate_buffer(op.buffer), value, self._offset(op.buffer, indices), predicate)


def _as_int64(index: Expr) -> Expr:
    return index if index.dtype.element is INT64 else index.astype(INT64)


def flatten_buffers(func: PrimFunc) -> PrimFunc:
    """``func`` with one-dimensional buffers only."""
    flattener = _Flattener(func)
    params = tuple(flattener.mutate_buffer(p) if isinstance(p, Buffer) else p for p in func.params)
    body = flattener.mutate(func.body)
    if params == func.params:
        return func.with_body(body)
    return PrimFunc(func.name, params, body, func.attrs)


@register_pass
@primfunc_pass(opt_level=0, name="FlattenBuffer")
class FlattenBuffer(PrimFuncPass):
    """See the module."""

    runs_on_skipped = True

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """``func`` with one-dimensional buffers only."""
        return flatten_buffers(func)
