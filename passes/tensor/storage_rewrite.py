"""``StorageRewrite``: assign memory to intermediate buffers.

It runs after ``FlattenBuffer``. Buffers in the arena (or of global scope) become workspaces: parameters after the
outputs, which the caller provides. In a parallel loop each iteration gets a part of its own, a whole number of cache
lines long::

    primfunc @f(A: ..., n: int64) {                 primfunc @f(A: ..., T: Buffer[(n * 64,), float32], n: int64) {
      for i in parallel(n) {                          for i in parallel(n) {
        allocate T: Buffer[(60,), arena]      ->        T[i * 64 + j] = ...
        T[j] = ...

Buffers of one element type and scope that are never live at the same time share memory: those on the stack, and those
in the arena, where sizes that are not constant have to be equal. Stack buffers that are too large for the stack, or
whose size is not constant, become workspaces as well. Register buffers stay.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.config import register_config_option
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.properties import ALLOCATED, COMPACT, PARALLEL, SIMPLE, WORKSPACES
from tilewright.passes.registry import register_pass
from tilewright.passes.tensor.findings import findings
from tilewright.passes.tensor.flatten_buffer import element_count
from tilewright.passes.tensor.vector_arith import vector_binary
from tilewright.tensorir.arith.analyzer import Analyzer
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.errors import VerifyError
from tilewright.tensorir.expr import Buffer, BufferLoad, Expr, IntImm, Var, const
from tilewright.tensorir.functor import LOADS, Mutator, free_vars, kinds, leaves, substitute, walk_statements
from tilewright.tensorir.keys import NUM_WORKSPACES
from tilewright.tensorir.stmt import Allocate, BufferStore, For, PrimFunc, SeqStmt, Stmt, sequence
from tilewright.tensorir.target import CACHE_LINE


@register_config_option("tensorir.StorageRewrite")
@dataclass(frozen=True)
class StorageRewriteConfig:
    """Options of ``StorageRewrite``."""

    max_stack_buffer: int = dataclasses.field(
        default=64 << 10, metadata={"doc": "stack buffers of more bytes than this become workspaces"}
    )


@dataclass(frozen=True)
class _Workspace:
    """A parameter that replaces an allocation; ``offset`` is the start of the part of this iteration.

    A buffer of several dimensions (not flattened) gets leading ones for the parallel loops, at indices ``prefix``.
    """

    buffer: Buffer
    offset: Expr
    prefix: tuple[Expr, ...] = ()

    def place(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Return the indices in the parameter of the allocation's element at ``indices``."""
        if len(indices) == 1 and not self.prefix:
            return (vector_binary("add", self.offset, indices[0]),)
        return (*self.prefix, *indices)


def constant_bytes(buffer: Buffer) -> int | None:
    """Return the size of a buffer in bytes, or None if it is not constant."""
    count = element_count(buffer)
    return count.value * buffer.dtype.bytes if isinstance(count, IntImm) else None


def _fits_the_stack(buffer: Buffer, config: StorageRewriteConfig) -> bool:
    """Return whether the allocation of a buffer stays."""
    if buffer.scope in ("arena", "global"):
        return False
    size = constant_bytes(buffer)
    return size is not None and size <= config.max_stack_buffer


class _WorkspacePlanner(Mutator):
    """Remove the allocations that become workspaces."""

    def __init__(self, func: PrimFunc, config: StorageRewriteConfig, ctx: PassContext) -> None:
        self.func, self.config, self.ctx = func, config, ctx
        self.known = set(func.variables)
        self.analyzer = Analyzer(findings(func))
        self.parallel: list[For] = []
        self.planned: dict[Buffer, _Workspace] = {}

    def mutate_For(self, loop: For) -> Stmt:
        if loop.kind != "parallel":
            return self.generic_mutate(loop)  # type: ignore[no-any-return]
        self.parallel.append(loop)
        result: Stmt = self.generic_mutate(loop)
        self.parallel.pop()
        return result

    def mutate_Allocate(self, op: Allocate) -> Stmt:
        if not self._needs_workspace(op.buffer):
            return self.generic_mutate(op)  # type: ignore[no-any-return]
        made = self._unflattened(op.buffer) if op.buffer.ndim != 1 else self._flat(op.buffer)
        for extent in made.buffer.shape:
            unknown = [var.name for var in free_vars(extent) if var not in self.known]
            if unknown:
                raise VerifyError(
                    f"workspace {op.buffer.name}: its size {extent!s} depends on {', '.join(unknown)}, "
                    "which are not symbolic dimensions: the caller, which allocates it, cannot compute the size"
                )
        self.planned[op.buffer] = made
        return self.mutate(op.body)  # type: ignore[no-any-return]

    def _unflattened(self, buffer: Buffer) -> _Workspace:
        extents = [loop.extent.astype(INT64) for loop in self.parallel]
        prefix = tuple((loop.var - loop.min).astype(INT64) for loop in self.parallel)
        made = Buffer(buffer.name, (*extents, *buffer.shape), buffer.dtype, "global", (), CACHE_LINE)
        return _Workspace(made, const(0, INT64), prefix)

    def _flat(self, buffer: Buffer) -> _Workspace:
        size = element_count(buffer)
        line = max(1, CACHE_LINE // buffer.dtype.bytes)
        offset: Expr = const(0, INT64)
        total = size
        if self.parallel:
            total = (total + (line - 1)) // line * line
        for loop in reversed(self.parallel):
            offset = offset + (loop.var - loop.min).astype(INT64) * total
            total = total * loop.extent.astype(INT64)
        total, offset = self.analyzer.simplify(total), self.analyzer.simplify(offset)
        return _Workspace(Buffer(buffer.name, (total,), buffer.dtype, "global", (), CACHE_LINE), offset)

    def _needs_workspace(self, buffer: Buffer) -> bool:
        if _fits_the_stack(buffer, self.config):
            return False
        if buffer.scope in ("arena", "global"):
            return True
        size = constant_bytes(buffer)
        found = "its size is not constant" if size is None else f"its {size} bytes are more than max_stack_buffer"
        self.ctx.remark(f"{buffer.name} became a workspace, not a stack buffer: {found}", "missed")
        return True


class _Placer(Mutator):
    """Redirect accesses from removed allocations to workspaces."""

    def __init__(self, planned: dict[Buffer, _Workspace]) -> None:
        self.planned = planned

    def mutate(self, node: Any) -> Any:
        if isinstance(node, Expr) and not (kinds(node) & LOADS and not self.planned.keys().isdisjoint(leaves(node))):
            return node
        return super().mutate(node)

    def mutate_BufferLoad(self, op: BufferLoad) -> Expr:
        place = self.planned.get(op.buffer)
        if place is None:
            return self.generic_mutate(op)  # type: ignore[no-any-return]
        predicate = self.mutate(op.predicate) if op.predicate is not None else None
        return BufferLoad(place.buffer, place.place(self.mutate_all(op.indices)), predicate)

    def mutate_BufferStore(self, op: BufferStore) -> Stmt:
        place = self.planned.get(op.buffer)
        if place is None:
            return self.generic_mutate(op)  # type: ignore[no-any-return]
        predicate = self.mutate(op.predicate) if op.predicate is not None else None
        return BufferStore(place.buffer, self.mutate(op.value), place.place(self.mutate_all(op.indices)), predicate)


@dataclass
class _Slot:
    """Memory that several buffers use one after the other."""

    buffer: Buffer
    last: int


class _Sharer(Mutator):
    """Assign one buffer to all buffers around, or directly in, one sequence whose live ranges do not overlap. The
    caller has to redirect accesses by ``replaced``."""

    def __init__(self) -> None:
        self.replaced: dict[Buffer, Buffer] = {}

    def mutate_Allocate(self, op: Allocate) -> Stmt:
        chain, body = _peel(op)
        if not chain:
            return self.generic_mutate(op)  # type: ignore[no-any-return]
        if not isinstance(body, SeqStmt):
            new = self.mutate(body)
            for buffer in reversed(chain):
                new = Allocate(buffer, new)
            return new  # type: ignore[no-any-return]
        return self._share(chain, body)

    def mutate_SeqStmt(self, op: SeqStmt) -> Stmt:
        return self._share([], op)

    def _share(self, chain: list[Buffer], body: SeqStmt) -> Stmt:
        intervals: list[tuple[int, int, Buffer]] = []
        inlined, flat = _inlined(body)
        buffers = (*chain, *inlined)
        alone = len(buffers) == 1 and not any(isinstance(stmt, Allocate) for stmt in flat)
        for buffer in buffers:
            used: list[int] = []
            for number, stmt in enumerate(flat):
                if _uses(stmt, buffer):
                    used.append(number)
                    if alone:  # no other buffer could use its memory later
                        break
            if used:
                intervals.append((used[0], used[-1], buffer))
        stmts: list[Stmt] = []
        for number, stmt in enumerate(flat):
            inner, rest = _peel(stmt) if isinstance(stmt, Allocate) else ([], stmt)
            intervals.extend((number, number, buffer) for buffer in inner)
            stmts.append(rest)
        slots: list[_Slot] = []
        for first, last, buffer in sorted(intervals, key=lambda item: (item[0], -_size(item[2]))):
            fitting = [slot for slot in slots if slot.last < first and _may_share(slot.buffer, buffer)]
            if not fitting:
                slots.append(_Slot(buffer, last))
                continue
            slot = min(fitting, key=lambda s: abs(_size(s.buffer) - _size(buffer)))
            if _size(buffer) > _size(slot.buffer) or buffer.alignment > slot.buffer.alignment:
                self._enlarge(slot, buffer)
            self.replaced[buffer] = slot.buffer
            slot.last = last
        result = sequence(*(self.mutate(stmt) for stmt in stmts))
        for slot in reversed(slots):
            result = Allocate(slot.buffer, result)
        return result

    def _enlarge(self, slot: _Slot, buffer: Buffer) -> None:
        old = slot.buffer
        shape = max((old.shape, buffer.shape), key=lambda s: s[0].value if isinstance(s[0], IntImm) else 0)
        slot.buffer = Buffer(old.name, shape, old.dtype, old.scope, (), max(old.alignment, buffer.alignment))
        self.replaced[old] = slot.buffer
        for other, target in list(self.replaced.items()):
            if target is old:
                self.replaced[other] = slot.buffer


def _peel(stmt: Stmt) -> tuple[list[Buffer], Stmt]:
    """Split ``stmt`` into the buffers allocated around it that may share memory, and the inner statement."""
    chain: list[Buffer] = []
    while isinstance(stmt, Allocate) and _is_shareable(stmt.buffer):
        chain.append(stmt.buffer)
        stmt = stmt.body
    return chain, stmt


def _is_shareable(buffer: Buffer) -> bool:
    """Return whether a buffer may share memory: on the stack with a constant size, or in the arena."""
    if buffer.ndim != 1:
        return False
    return buffer.scope == "arena" or (buffer.scope == "stack" and _size(buffer) > 0)


def _inlined(body: SeqStmt) -> tuple[list[Buffer], list[Stmt]]:
    """Return the statements of ``body`` with those of the sequences that it allocates buffers for in their place, and
    these buffers: each is live from its first use to its last, not to the end of the scope that it is allocated in."""
    buffers: list[Buffer] = []
    stmts: list[Stmt] = []
    pending = list(reversed(body.stmts))
    while pending:
        stmt = pending.pop()
        inner, rest = _peel(stmt)
        if inner and isinstance(rest, SeqStmt):
            buffers.extend(inner)
            pending.extend(reversed(rest.stmts))
        else:
            stmts.append(stmt)
    return buffers, stmts


def _may_share(one: Buffer, other: Buffer) -> bool:
    """Return whether the same memory can hold both: sizes are constant, and the memory grows as needed, or they are
    equal."""
    if one.dtype is not other.dtype or one.scope != other.scope:
        return False
    return bool(_size(one) and _size(other)) or one.shape == other.shape


def _size(buffer: Buffer) -> int:
    """The size in bytes if it is constant, else 0."""
    return constant_bytes(buffer) or 0


def _uses(stmt: Stmt, buffer: Buffer) -> bool:
    return buffer in leaves(stmt)


def rewrite_storage(func: PrimFunc, ctx: PassContext | None = None) -> PrimFunc:
    """``func``, whose buffers are one-dimensional, with workspaces as parameters and shared memory."""
    buffers = [stmt.buffer for stmt in walk_statements(func.body) if isinstance(stmt, Allocate)]
    ctx = ctx if ctx is not None else PassContext.current()
    config: StorageRewriteConfig = ctx.get_config("tensorir.StorageRewrite")
    body = func.body
    if any(_is_shareable(buffer) for buffer in buffers):
        sharer = _Sharer()
        body = sharer.mutate(body)
        if sharer.replaced:
            body = substitute(body, {}, sharer.replaced)
    if all(_fits_the_stack(buffer, config) for buffer in buffers):  # and so does what they share
        return func.with_body(body)
    planner = _WorkspacePlanner(func, config, ctx)
    body = planner.mutate(body)
    if not planner.planned:
        return func.with_body(body)
    body = _Placer(planner.planned).mutate(body)
    workspaces = tuple(place.buffer for place in planner.planned.values())
    params: tuple[Buffer | Var, ...] = (*func.buffers, *workspaces, *func.variables)
    count = int(func.attrs.get(NUM_WORKSPACES, 0)) + len(workspaces)
    return PrimFunc(func.name, params, body, {**func.attrs, NUM_WORKSPACES: count})


@register_pass
@primfunc_pass(
    opt_level=0,
    name="StorageRewrite",
    requires={COMPACT, PARALLEL},
    provides={WORKSPACES},
    invalidates={ALLOCATED, SIMPLE},
)
class StorageRewrite(PrimFuncPass):
    """See the module."""

    essential = True

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """Return ``func`` with workspaces as parameters and shared memory."""
        return rewrite_storage(func, ctx)
