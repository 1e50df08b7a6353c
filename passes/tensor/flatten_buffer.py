"""``FlattenBuffer``: make every buffer one-dimensional, and turn every index into an offset::

    B: Buffer[(n, 64), float32]                     B: Buffer[(n * 64,), float32]
    for i in range(n):                              for i in range(n):
        for j in range(64):                  ->         for j in range(64):
            B[i, j] = 0.0                                   B[i * 64 + j] = 0.0

The order is row-major unless the buffer has strides. A buffer with strides extends to its last element.
Unknown strides that are more than a multiple of one size are computed once (``name_strides``)::

    C: Buffer[(n, m + 2, k), float32]               C: Buffer[(n * m * k + n * k * 2,), float32]
    for i in range(n):                              let stride: int64 = k * 2 + m * k
        C[i, 1, 0] = 0.0                     ->     for i in range(n):
                                                        C[i * stride + k] = 0.0

Where one number was split into the indices of neighbouring dimensions, ``B[i // 64, i % 64]``, the offset is that
number (and the offset of row ``j`` is added for ``B[j + i // 64, i % 64]``). For vectors no later pass would find this,
and dividing them takes longer than the computation itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.properties import ALLOCATED, COMPACT, DIMENSIONS, FLAT, SIMPLE, VECTORS
from tilewright.passes.registry import register_pass
from tilewright.passes.tensor.lower_blocks import refuse_block
from tilewright.passes.tensor.name_strides import Stride, StrideNames
from tilewright.passes.tensor.scoped import ScopedMutator
from tilewright.passes.tensor.vector_arith import ramp, vector_binary
from tilewright.tensorir.arith.analyzer import Analyzer
from tilewright.tensorir.arith.lanes import LEVEL, base_and_stride
from tilewright.tensorir.arith.linear import ZERO, wrap64
from tilewright.tensorir.arith.quotients import QUOTIENTS, whole_number
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import BinaryOp, Broadcast, Buffer, BufferLoad, Expr, IntImm, Select, const
from tilewright.tensorir.functor import LOADS, kinds
from tilewright.tensorir.stmt import Block, BufferStore, PrimFunc, Stmt


def element_strides(buffer: Buffer) -> list[Expr]:
    """Return the distance, in elements, of two neighbours in each dimension."""
    if buffer.strides:
        return list(buffer.strides)
    strides: list[Expr] = []
    step: Expr = const(1, INT64)
    for extent in reversed(buffer.shape):
        strides.append(step)
        step = extent * step
    return strides[::-1]


def element_count(buffer: Buffer) -> Expr:
    """Return the number of elements that the buffer spans, including gaps between strided rows."""
    if not buffer.strides:
        number = _product(buffer.shape)
        if number is not None:
            return number
        count: Expr | None = None
        for extent in buffer.shape:
            count = extent if count is None else count * extent
        return const(1, INT64) if count is None else count
    last: Expr = const(0, INT64)
    for extent, stride in zip(buffer.shape, buffer.strides, strict=True):
        last = last + (extent - 1) * stride
    return last + 1


def _product(extents: tuple[Expr, ...]) -> IntImm | None:
    """Return the product of extents that are all numbers; None for others."""
    product = 1
    for extent in extents:
        if type(extent) is not IntImm or extent.dtype is not INT64:
            return None
        product *= extent.value
    return IntImm(wrap64(product))


class _Flattener(ScopedMutator):
    def __init__(self, func: PrimFunc) -> None:
        super().__init__(func)
        #: Knows only that sizes are not negative: sums of products need no more, and ``Simplify``, which follows, uses
        #: the facts that hold at each place.
        self.algebra = Analyzer(self._findings)
        for var in func.variables:
            if var.dtype.is_integer:
                self.algebra.bind_nonnegative(var)
        self.names = StrideNames(func.variables, self.algebra)
        self.flat: dict[Buffer, Buffer] = {}
        self.strides: dict[Buffer, list[Stride]] = {}
        #: The offsets of indices that are scalars or ramps, which are the same at all places.
        self.offsets: dict[tuple[Buffer, tuple[Expr, ...]], Expr] = {}

    def mutate(self, node: Any) -> Any:
        return node if isinstance(node, Expr) and not kinds(node) & LOADS else super().mutate(node)

    def mutate_buffer(self, buffer: Buffer) -> Buffer:
        found = self.flat.get(buffer)
        if found is None:
            if buffer.ndim == 1 and not buffer.strides:
                found = buffer
            else:
                count = (self._element_count(buffer),)
                found = Buffer(buffer.name, count, buffer.dtype, buffer.scope, (), buffer.alignment)
            self.flat[buffer] = found
        return found

    def _element_count(self, buffer: Buffer) -> Expr:
        """Return the number of elements, simplified. Most buffers have one extent at most that is no number, the
        outermost: its multiple is no product that has to be taken apart."""
        row = _product(buffer.shape[1:]) if buffer.shape and not buffer.strides else None
        if row is None or buffer.shape[0].dtype is not INT64:
            return self.algebra.simplify(element_count(buffer))
        return self.algebra.expr(self.algebra.linear(buffer.shape[0]).scale(row.value))

    def _offset(self, buffer: Buffer, indices: tuple[Expr, ...], masked: bool) -> tuple[Expr, ...]:
        if buffer.ndim == 1 and not buffer.strides:
            return indices
        found = self.offsets.get((buffer, indices))
        if found is not None:
            return (found,)
        parts = _bases_and_strides(indices)
        if parts is not None:
            lanes = max([index.dtype.lanes for index in indices], default=1)
            known = self.offsets[buffer, indices] = self._affine_offset(buffer, parts, lanes)
            return (known,)
        offset: Expr = const(0, INT64)
        for index, stride in self._joined(buffer, [_as_int64(index) for index in indices], masked):
            factor = self.algebra.expr(self.names.use(stride))
            offset = vector_binary("add", offset, vector_binary("mul", index, factor))
        return (self.simplify(offset),)

    def _joined(self, buffer: Buffer, indices: Sequence[Expr], masked: bool) -> list[tuple[Expr, Stride]]:
        """Return indices with strides; indices of neighbouring dimensions that are parts of one number are joined."""
        steps = list(zip(indices, self._strides(buffer), strict=True))
        if buffer.strides or not steps:
            return steps
        result = [steps[-1]]
        extent: Expr = buffer.shape[-1]  # the extent of the last index of the result
        for (index, stride), size in zip(steps[-2::-1], buffer.shape[-2::-1], strict=True):
            whole = self._whole(index, size, result[-1][0], extent, masked)
            if whole is None:
                result.append((index, stride))
                extent = size
            else:
                result[-1] = (whole, result[-1][1])
                extent = size * extent
        return result[::-1]

    def _whole(self, outer: Expr, size: Expr, inner: Expr, extent: Expr, masked: bool) -> Expr | None:
        """Return the number with quotient ``outer`` and remainder ``inner`` by ``extent``; None if there is none."""

        def scalar(divisor: Expr) -> Expr | None:
            """Return the number that all active lanes divide by."""
            if masked and isinstance(divisor, Select):  # keeps inactive lanes from dividing by zero
                divisor = divisor.true_value
            divisor = divisor.value if isinstance(divisor, Broadcast) else divisor
            return divisor if divisor.dtype.lanes == 1 else None

        found = whole_number(self.analyzer, outer, size, inner, extent, scalar, vector_binary)
        if found is None:
            return None
        number, remainder = found
        return vector_binary(remainder, number, size * extent) if remainder else number

    def _affine_offset(self, buffer: Buffer, parts: Sequence[tuple[Expr, Expr]], lanes: int) -> Expr:
        """Return the offset of indices that are scalars or ramps, as sums of products: no expression is built only to
        be taken apart again."""
        algebra = self.algebra
        first, step = ZERO, ZERO
        for (base, rise), stride in zip(parts, self._strides(buffer), strict=True):
            place = algebra.linear(base)
            if place.terms or place.const:
                factor = self.names.use(stride)
                first = first + algebra.multiply(place, factor) if factor.terms else first.combine(place, factor.const)
            if rise is not LEVEL:
                step = step + algebra.multiply(algebra.linear(rise), self.names.use(stride))
        offset = algebra.expr(algebra.merge_remainders(first))
        return offset if lanes == 1 else ramp(offset, algebra.expr(step), lanes)

    def _strides(self, buffer: Buffer) -> list[Stride]:
        found = self.strides.get(buffer)
        if found is None:
            found = self.strides[buffer] = self.names.of(buffer)
        return found

    def _indices(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Mutate indices, few of which read memory."""
        for index in indices:
            if type(index) is not IntImm and kinds(index) & LOADS:
                return self.mutate_all(indices)
        return indices

    def mutate_BufferLoad(self, op: BufferLoad) -> Expr:
        indices = self._indices(op.indices)
        predicate = self.mutate(op.predicate) if op.predicate is not None else None
        offset = self._offset(op.buffer, indices, masked=predicate is not None)
        return BufferLoad(self.mutate_buffer(op.buffer), offset, predicate)

    def mutate_Block(self, op: Block) -> Stmt:
        refuse_block(op)

    def mutate_BufferStore(self, op: BufferStore) -> Stmt:
        value, indices = self.mutate(op.value), self._indices(op.indices)
        predicate = self.mutate(op.predicate) if op.predicate is not None else None
        offset = self._offset(op.buffer, indices, masked=predicate is not None)
        return BufferStore(self.mutate_buffer(op.buffer), value, offset, predicate)


def _bases_and_strides(indices: tuple[Expr, ...]) -> list[tuple[Expr, Expr]] | None:
    """Return the bases and strides of indices that are scalars or ramps; None if there are others, or quotients, which
    may be those of numbers whose remainders are another index."""
    found: list[tuple[Expr, Expr]] = []
    for index in indices:
        if type(index) is BinaryOp and index.op in QUOTIENTS:
            return None
        if index.dtype is INT64:
            found.append((index, LEVEL))
            continue
        part = base_and_stride(index) if index.dtype.element is INT64 else None
        if part is None:
            return None
        found.append(part)
    return found


def _as_int64(index: Expr) -> Expr:
    return index if index.dtype.element is INT64 else index.astype(INT64)


def flatten_buffers(func: PrimFunc) -> PrimFunc:
    """Return ``func`` with one-dimensional buffers only."""
    flattener = _Flattener(func)
    params = tuple(flattener.mutate_buffer(p) if isinstance(p, Buffer) else p for p in func.params)
    body = flattener.names.around(flattener.mutate(func.body))
    if params == func.params:
        return func.with_body(body)
    return PrimFunc(func.name, params, body, func.attrs)


@register_pass
@primfunc_pass(
    opt_level=0,
    name="FlattenBuffer",
    requires={COMPACT, VECTORS, ALLOCATED},
    provides={FLAT},
    invalidates={DIMENSIONS, SIMPLE},
)
class FlattenBuffer(PrimFuncPass):
    """See the module."""

    essential = True

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """Return ``func`` with one-dimensional buffers only."""
        return flatten_buffers(func)
