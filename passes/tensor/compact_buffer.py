"""``CompactBuffer``: allocate each intermediate buffer where it is used, no larger than the part used there::

    allocate T: Buffer[(m, n)]                      for i in range(m):
    for i in range(m):                                  allocate T: Buffer[(1, 64)]
        for j in range(n // 64):                 ->     for j in range(n // 64):
            for jj in range(64):                            allocate T: Buffer[(1, 64), stack]
                T[i, j * 64 + jj] = ...                     for jj in range(64):
            ... reads T[i, j * 64 : j * 64 + 64]                T[0, jj] = ...

(The intermediate step is left out.) The new place is the innermost statement around all accesses that reads no value
stored by an earlier execution of itself: an accumulator stays outside of the loop that adds to it. A dimension shrinks
to the range of indices used there if that range has constant size, or is a smaller expression over symbolic dimensions.

Scopes ``register`` and ``stack`` stay; the rows of a register buffer are padded to whole vectors. An ``arena`` or
``global`` buffer of a constant size of at most ``max_stack_bytes`` that is placed inside a loop moves to the stack.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.config import register_config_option
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.properties import ALLOCATED, COMPACT, DIMENSIONS, STATEMENTS, VECTOR_LOOPS
from tilewright.passes.registry import register_pass
from tilewright.passes.tensor.accesses import (
    Access,
    AccessCollector,
    Place,
    Usage,
    bind_places,
    common_place,
    enclosing_loops,
    inner_places,
)
from tilewright.passes.tensor.coverage import Knowledge, analyzer_of, covers
from tilewright.passes.tensor.findings import findings
from tilewright.passes.tensor.lower_blocks import refuse_block
from tilewright.tensorir.arith.analyzer import Analyzer
from tilewright.tensorir.arith.region import region_of
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import BinaryOp, Buffer, BufferLoad, Expr, IntImm, Var, const
from tilewright.tensorir.functor import Mutator, free_vars, leaves, uses_var, walk_statements
from tilewright.tensorir.stmt import Allocate, Block, BufferStore, For, PrimFunc
from tilewright.tensorir.target import Target


@register_config_option("tensorir.CompactBuffer")
@dataclass(frozen=True)
class CompactBufferConfig:
    """Options of ``CompactBuffer``."""

    max_stack_bytes: int = dataclasses.field(
        default=16 << 10, metadata={"doc": "intermediate buffers in loops of at most this size go on the stack"}
    )


@dataclass(frozen=True)
class _Plan:
    """The new form of a buffer, the place of its allocation, and the index of its first element."""

    buffer: Buffer
    place: Place
    origin: tuple[Expr, ...]


def _runs_once(place: Place, limit: Place) -> bool:
    """Return whether ``place`` is executed at most once in each execution of ``limit``: no loop lies between them."""
    while place is not limit:
        if place.loop is not None or place.parent is None:
            return False
        place = place.parent
    return True


#: The indices of an access, and the loops around it, outermost first.
_Reached = tuple[tuple[Expr, ...], list[For]]


def _reached(usage: Usage, place: Place) -> list[_Reached]:
    """Return the indices of the accesses to a buffer with the loops between ``place`` and them, equal ones once."""
    found: dict[tuple[Place, tuple[Expr, ...]], _Reached] = {}
    for access in usage.accesses:
        known = access.place, access.indices
        if known not in found:
            loops = [inner.loop for inner in inner_places(access, place) if inner.loop is not None]
            found[known] = access.indices, loops
    return list(found.values())


def _spans(index: Expr, loops: list[For], extent: Expr) -> bool:
    """Return whether an index is the variable of one of ``loops``, which runs from zero to ``extent``."""
    for loop in loops:
        if loop.var is index:
            return loop.extent is extent and isinstance(loop.min, IntImm) and loop.min.value == 0
    return False


class _Planner:
    def __init__(self, func: PrimFunc, max_stack_bytes: int) -> None:
        self.max_stack_bytes = max_stack_bytes
        self.sizes = set(func.variables)
        self.analyzer = analyzer_of(func)
        self.known = Knowledge(func)

    def plan(self, usage: Usage) -> _Plan | None:
        """Plan a buffer; None leaves it unchanged."""
        if usage.is_opaque or usage.buffer.strides or not usage.accesses:
            return None
        for access in usage.accesses:
            for index in access.indices:
                if index.dtype is not INT64:
                    return None
        place = self._place(usage)
        if place is None:
            return None
        with self.analyzer.scope():
            bind_places(self.analyzer, place.chain())
            reached = _reached(usage, place)
            dimensions = [self._dimension(extent, reached, d) for d, extent in enumerate(usage.buffer.shape)]
        shape = tuple(extent for _, extent in dimensions)
        origin = tuple(low for low, _ in dimensions)
        old = usage.buffer
        scope = self._scope(old, shape, place)
        if scope == "register" and shape:
            shape = (*shape[:-1], self._whole_vectors(shape[-1], old))
        return _Plan(Buffer(old.name, shape, old.dtype, scope, (), old.alignment), place, origin)

    def _place(self, usage: Usage) -> Place | None:
        """Return the innermost place in which every read sees a value written earlier in the same execution of it."""
        limit = usage.allocation
        innermost = common_place(usage.accesses)
        for place in (innermost, *enclosing_loops(innermost, limit)):
            if place is limit or limit not in place.chain():
                return None
            if _runs_once(place, limit) or self._is_self_contained(usage, place):
                return place
        return None

    def _is_self_contained(self, usage: Usage, place: Place) -> bool:
        writes = [access for access in usage.accesses if access.is_write]
        return all(self._is_covered(read, writes, place) for read in self._distinct_reads(usage))

    def _is_covered(self, read: Access, writes: list[Access], place: Place) -> bool:
        with self.known.at(read):
            return any(covers(write, read, place, self.known) for write in writes)

    def _distinct_reads(self, usage: Usage) -> list[Access]:
        """Return the reads that differ in place, element or condition; of equal ones the first, the strictest."""
        found: dict[Hashable, Access] = {}
        for access in usage.accesses:
            if not access.is_write:
                indices, predicate = access.indices, access.predicate
                found.setdefault((access.place, indices, predicate), access)
        return list(found.values())

    def _dimension(self, old: Expr, reached: list[_Reached], number: int) -> tuple[Expr, Expr]:
        """Return least index and extent of a dimension of extent ``old``: zero and ``old`` if it does not shrink."""
        whole: tuple[Expr, Expr] = (const(0, INT64), old)
        if isinstance(old, IntImm) and old.value == 1:
            return whole
        for indices, loops in reached:
            if _spans(indices[number], loops, old):
                return whole
        boxes: dict[tuple[Expr, Expr], None] = {}
        seen: set[tuple[Expr, ...]] = set()
        for indices, loops in reached:
            index = indices[number]
            below = leaves(index)
            moving = [loop for loop in loops if loop.var in below]
            if not all(isinstance(loop.min, IntImm) and isinstance(loop.extent, IntImm) for loop in moving):
                moving = loops  # others may move the ends
            known = (index, *[part for loop in moving for part in (loop.var, loop.min, loop.extent)])
            if known in seen:
                continue
            seen.add(known)
            found = self._box(index, moving)
            if found is None:
                return whole
            boxes[found] = None
        hull = next(iter(boxes)) if len(boxes) == 1 else self._hull(list(boxes))
        if hull is None:
            return whole
        low, size = hull
        upper = size.value if isinstance(size, IntImm) else self.analyzer.bounds(size).upper
        if upper < 1 << 31:
            size = const(max(int(upper), 1), INT64)
            return whole if isinstance(old, IntImm) and old.value <= int(upper) else (low, size)
        smaller = self._at_most(size, old) and not self.analyzer.prove(size.equal(old))
        return (low, size) if smaller and set(free_vars(size)) <= self.sizes else whole

    def _at_most(self, a: Expr, b: Expr) -> bool:
        return a is b or self.analyzer.prove(a <= b)

    def _hull(self, boxes: list[tuple[Expr, Expr]]) -> tuple[Expr, Expr] | None:
        """Return least value and extent of several ranges; None if none is known to be the first or to end last."""
        low = next((a for a, _ in boxes if all(self._at_most(a, b) for b, _ in boxes)), None)
        if low is None:
            return None
        sizes = [extent if a is low else self.analyzer.simplify(a + extent - low) for a, extent in boxes]
        size = next((a for a in sizes if all(self._at_most(b, a) for b in sizes)), None)
        return None if size is None else (low, size)

    def _box(self, index: Expr, loops: list[For]) -> tuple[Expr, Expr] | None:
        """Return least value and extent of an index over loops; None if it is unbounded."""
        if not uses_var(index, {loop.var for loop in loops}):
            return self.analyzer.canonical(index), const(1, INT64)
        return region_of([index], {loop.var: (loop.min, loop.extent) for loop in loops}, self.analyzer)[0]

    def _whole_vectors(self, extent: Expr, buffer: Buffer) -> Expr:
        """Round the extent up to whole vectors (of a power of two lanes where one vector is enough): the last, partial
        vector of a row must not reach into the next row, or the rows cannot become registers."""
        lanes = Target.current().lanes(buffer.dtype)
        if not isinstance(extent, IntImm):
            return extent
        if extent.value <= lanes:
            return const(1 << (extent.value - 1).bit_length(), INT64) if extent.value > 0 else extent
        return const(-(-extent.value // lanes) * lanes, INT64)

    def _scope(self, buffer: Buffer, shape: tuple[Expr, ...], place: Place) -> str:
        if buffer.scope not in ("arena", "global") or not any(p.loop is not None for p in place.chain()):
            return buffer.scope
        size = buffer.dtype.bytes
        for extent in shape:
            if not isinstance(extent, IntImm):
                return buffer.scope
            size *= extent.value
        return "stack" if size <= self.max_stack_bytes else buffer.scope


class _Rewriter(Mutator):
    """Apply plans. Expressions that read no buffer with a plan are not visited."""

    def __init__(self, func: PrimFunc, plans: dict[Buffer, _Plan]) -> None:
        self.plans = plans
        self.analyzer = Analyzer(findings(func))
        self.rebased: dict[tuple[Expr, Expr], Expr] = {}
        self.starts: dict[int, list[Buffer]] = {}
        for plan in plans.values():
            self.starts.setdefault(id(plan.place.stmt), []).append(plan.buffer)

    def mutate(self, node: Any) -> Any:
        if isinstance(node, Expr):
            return node if self.plans.keys().isdisjoint(leaves(node)) else super().mutate(node)
        new = super().mutate(node)
        starts = self.starts.get(id(node))
        if starts is not None:
            for buffer in reversed(starts):
                new = Allocate(buffer, new)
        return new

    def mutate_For(self, op: For) -> object:
        if type(op.min) is IntImm and type(op.extent) is IntImm:
            return op.with_body(self.mutate(op.body))
        return self.generic_mutate(op)

    def mutate_Allocate(self, op: Allocate) -> object:
        if op.buffer in self.plans:
            return self.mutate(op.body)
        return self.generic_mutate(op)

    def _rebased(self, plan: _Plan, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        made: list[Expr] = []
        for index, low in zip(indices, plan.origin, strict=True):
            new = index if type(index) is Var else self.mutate(index)
            made.append(new if type(low) is IntImm and low.value == 0 else self._less(new, low))
        return tuple(made)

    def _less(self, index: Expr, low: Expr) -> Expr:
        if index is low:
            return const(0, INT64)
        if type(index) is BinaryOp and index.op == "add" and index.a is low:
            rest = index.b
            if type(rest) is Var and rest not in leaves(low):  # as most are: a loop from the first element on
                return rest
        key = index, low
        found = self.rebased.get(key)
        if found is None:
            found = self.rebased[key] = self.analyzer.simplify(index - low)
        return found

    def mutate_Block(self, op: Block) -> object:
        refuse_block(op)

    def mutate_BufferLoad(self, op: BufferLoad) -> object:
        plan = self.plans.get(op.buffer)
        if plan is None:
            return self.generic_mutate(op)
        predicate = self.mutate(op.predicate) if op.predicate is not None else None
        return BufferLoad(plan.buffer, self._rebased(plan, op.indices), predicate)

    def mutate_BufferStore(self, op: BufferStore) -> object:
        plan = self.plans.get(op.buffer)
        if plan is None:
            return self.generic_mutate(op)
        predicate = self.mutate(op.predicate) if op.predicate is not None else None
        indices = self._rebased(plan, op.indices)
        return BufferStore(plan.buffer, self.mutate(op.value), indices, predicate)


def compact_buffers(func: PrimFunc, max_stack_bytes: int = 16 << 10) -> PrimFunc:
    """Return ``func`` (without blocks) with intermediate buffers allocated where used, as small as possible."""
    if not any(isinstance(stmt, Allocate) for stmt in walk_statements(func.body)):
        return func
    planner = _Planner(func, max_stack_bytes)
    plans: dict[Buffer, _Plan] = {}
    for buffer, usage in AccessCollector(func).usages.items():
        plan = planner.plan(usage)
        if plan is not None:
            plans[buffer] = plan
    return func.with_body(_Rewriter(func, plans).mutate(func.body)) if plans else func


@register_pass
@primfunc_pass(
    opt_level=0, name="CompactBuffer", requires={STATEMENTS, ALLOCATED, DIMENSIONS, VECTOR_LOOPS}, provides={COMPACT}
)
class CompactBuffer(PrimFuncPass):
    """See the module."""

    essential = True

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """Return ``func`` with intermediate buffers allocated where used, as small as possible."""
        config: CompactBufferConfig = ctx.get_config("tensorir.CompactBuffer")
        return compact_buffers(func, config.max_stack_bytes)
