"""``UnmaskRegisters``: accumulators of which only some lanes count are whole vectors::

    allocate t: Buffer[(16,), float32, register]
    t[ramp(0, 1, 16) where m] = broadcast(0.0, 16)                    t[ramp(0, 1, 16)] = broadcast(0.0, 16)
    for k in range(n) {                                         ->    ...
      t[.. where m] = t[.. where m] + a[.. where m]                   t[..] = t[..] + a[..]
    }
    b[ramp(0, 1, 16) where m] = t[ramp(0, 1, 16) where m]             b[ramp(0, 1, 16) where m] = t[ramp(0, 1, 16)]

LLVM keeps a buffer in vector registers only if whole vectors are stored and loaded; each masked access goes through
memory, and a number for all lanes that is loaded if any counts is a branch. What the other lanes hold is not seen where

- all accesses to the buffer are of aligned whole vectors within it, at constant places, and those to one place have one
  predicate, which stays the same for as long as the buffer is there;
- each load is in a store with that same predicate, in which every lane depends on the same lane of its operands alone.

What is loaded for such a buffer is loaded whole, too, where all of it is known to be in its buffer (in the panels of a
packed operand, for instance, which are as wide as tiles).

It runs after ``UnrollLoop``, which makes places constant. Buffers of integers stay as they are: a division by what is
in a lane that doesn't count could fail.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.registry import register_pass
from tilewright.passes.tensor.scoped import ScopedMutator
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import Broadcast, Buffer, BufferLoad, Call, Expr, IntImm, Ramp, Var, compare
from tilewright.tensorir.functor import substitute, walk
from tilewright.tensorir.intrinsics import INTRINSICS
from tilewright.tensorir.stmt import Allocate, BufferStore, For, LetStmt, PrimFunc, Stmt
from tilewright.tensorir.structural import structural_equal

Access = (BufferLoad, BufferStore)


class _Masks:
    """Finds the register buffers of a function that can do without predicates."""

    def __init__(self, func: PrimFunc) -> None:
        self.lets: dict[Var, Expr] = {}
        #: What predicates are with their variables replaced.
        self.resolved: dict[Expr, Expr] = {}
        self.predicates: dict[tuple[Buffer, tuple[int, ...]], Expr | None] = {}
        self.lanes: dict[Buffer, int] = {}
        nodes = list(walk(func.body))
        masked = {node.buffer for node in nodes if isinstance(node, Access) and node.predicate is not None}
        #: The variables of the loops for which a buffer is there: they change while it is.
        self.changing = {
            node.buffer: {inner.var for inner in walk(node.body) if isinstance(inner, For)}
            for node in nodes
            if isinstance(node, Allocate) and node.buffer.scope == "register" and node.buffer.dtype.is_float
        }
        self.found = masked & set(self.changing)
        if self.found:
            for node in nodes:
                self._check(node)
            self._keep_loads_of_stores(nodes)

    def _check(self, node: object) -> None:
        """Take out the buffers that a statement accesses otherwise."""
        if isinstance(node, LetStmt):
            self.lets[node.var] = substitute(node.value, self.lets)
        elif isinstance(node, BufferStore):
            self._access(node)
            loads = [part for part in walk(node.value) if isinstance(part, BufferLoad) and part.buffer in self.found]
            for load in loads:
                self._access(load)
                if not self._same(load.predicate, node.predicate) or not _is_lanewise(node.value, load.dtype.lanes):
                    self.found.discard(load.buffer)

    def _keep_loads_of_stores(self, nodes: Sequence[object]) -> None:
        """Take out the buffers with loads outside of stored values: in lets, indices, conditions and addresses."""
        stored: dict[Buffer, int] = {}
        for node in nodes:
            if isinstance(node, BufferStore):
                for part in walk(node.value):
                    if isinstance(part, BufferLoad):
                        stored[part.buffer] = stored.get(part.buffer, 0) + 1
        loaded: dict[Buffer, int] = {}
        for node in nodes:
            if isinstance(node, BufferLoad):
                loaded[node.buffer] = loaded.get(node.buffer, 0) + 1
        self.found = {buffer for buffer in self.found if stored.get(buffer) == loaded.get(buffer)}

    def _access(self, access: BufferLoad | BufferStore) -> None:
        buffer = access.buffer
        if buffer not in self.found:
            return
        place = _place(access)
        lanes = access.indices[-1].dtype.lanes if access.indices else 1
        if place is None or self.lanes.setdefault(buffer, lanes) != lanes:
            self.found.discard(buffer)
            return
        predicate = self.predicates.setdefault((buffer, place), access.predicate)
        if not self._same(predicate, access.predicate) or not self._stays(access.predicate, buffer):
            self.found.discard(buffer)

    def _stays(self, predicate: Expr | None, buffer: Buffer) -> bool:
        """Whether a predicate is the same for as long as the buffer is there."""
        if predicate is None:
            return True
        return not any(
            isinstance(node, BufferLoad) or node in self.changing[buffer] for node in walk(self._resolve(predicate))
        )

    def _same(self, a: Expr | None, b: Expr | None) -> bool:
        if a is None or b is None:
            return a is b
        return a is b or structural_equal(self._resolve(a), self._resolve(b))

    def _resolve(self, predicate: Expr) -> Expr:
        found = self.resolved.get(predicate)
        if found is None:
            found = self.resolved[predicate] = substitute(predicate, self.lets)
        return found


def _place(access: BufferLoad | BufferStore) -> tuple[int, ...] | None:
    """Where a whole, aligned vector of a buffer begins; None for any other access."""
    *outer, last = access.indices
    shape = access.buffer.shape
    if not isinstance(last, Ramp) or access.buffer.strides:
        return None
    lanes, numbers = last.dtype.lanes, [*outer, last.base]
    if not (isinstance(last.stride, IntImm) and last.stride.value == 1):
        return None
    place = tuple([number.value for number in numbers if isinstance(number, IntImm)])
    extents = [extent.value for extent in shape if isinstance(extent, IntImm)]
    if len(place) != len(numbers) or len(extents) != len(shape):
        return None
    return place if place[-1] % lanes == 0 and place[-1] + lanes <= extents[-1] else None


def _is_lanewise(value: Expr, lanes: int) -> bool:
    """Whether nothing in ``value`` moves from one lane to another."""
    for node in walk(value):
        if isinstance(node, Expr) and node.dtype.lanes not in (1, lanes):
            return False
        if isinstance(node, Call):
            intrinsic = INTRINSICS.get(node.name)
            if intrinsic is None or intrinsic.operands == "vector" or node.dtype.lanes != lanes:
                return False
    return True


class _Unmasker(ScopedMutator):
    """Takes predicates off the accesses to some buffers, and off what is loaded for them within its buffer's bounds:
    it may be loaded, and lanes that do not count take it up."""

    def __init__(self, func: PrimFunc, buffers: set[Buffer]) -> None:
        super().__init__(func)
        self.buffers = buffers
        self._for_unmasked = False

    def mutate_BufferLoad(self, op: BufferLoad) -> Expr:
        new: BufferLoad = self.generic_mutate(op)
        if op.predicate is None:
            return new
        whole = op.buffer in self.buffers or (self._for_unmasked and self._is_within(new))
        return BufferLoad(new.buffer, new.indices) if whole else new

    def mutate_BufferStore(self, op: BufferStore) -> Stmt:
        self._for_unmasked = op.buffer in self.buffers
        new: BufferStore = self.generic_mutate(op)
        unmasked, self._for_unmasked = self._for_unmasked, False
        return BufferStore(new.buffer, new.value, new.indices) if unmasked else new

    def _is_within(self, load: BufferLoad) -> bool:
        return all(map(self._is_index, load.indices, load.buffer.shape))

    def _is_index(self, index: Expr, extent: Expr) -> bool:
        if isinstance(index, Broadcast):
            index = index.value
        ends = [index]
        if isinstance(index, Ramp):
            ends = [index.base, index.base + (index.lanes - 1) * index.stride]
        if any(end.dtype is not INT64 for end in ends):
            return False
        return all(self.analyzer.prove(compare("ge", end, 0)) for end in ends) and all(
            self.analyzer.prove(compare("lt", end, extent)) for end in ends
        )


def unmask_registers(func: PrimFunc) -> PrimFunc:
    """``func`` whose accumulators are stored and loaded as whole vectors."""
    buffers = _Masks(func).found
    return func.with_body(_Unmasker(func, buffers).mutate(func.body)) if buffers else func


@register_pass
@primfunc_pass(opt_level=1, name="UnmaskRegisters")
class UnmaskRegisters(PrimFuncPass):
    """See the module."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """``func`` whose accumulators are stored and loaded as whole vectors."""
        return unmask_registers(func)
