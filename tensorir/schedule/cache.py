"""Primitives that insert a copy between a block and a buffer: cache_read and cache_write."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.tensorir.expr import SCOPES, Buffer, BufferLoad, Var, as_expr
from tilewright.tensorir.schedule.blocks import accesses, new_block
from tilewright.tensorir.schedule.compute_at import place_for_consumers, place_for_producers
from tilewright.tensorir.schedule.handles import BlockRef, LoopRef
from tilewright.tensorir.schedule.loops import check_kinds
from tilewright.tensorir.schedule.placement import full_nest, holds, insert, scope_parts
from tilewright.tensorir.schedule.scope import find_buffer, replace_buffers
from tilewright.tensorir.schedule.state import State
from tilewright.tensorir.sources import inherit
from tilewright.tensorir.stmt import Block, BufferStore, For, IterVar, Stmt


def _cache_buffer(state: State, buffer: Buffer, scope: str) -> Buffer:
    if scope not in SCOPES or scope == "global":
        state.fail(f"a cache must be in scope {', '.join(s for s in SCOPES if s != 'global')}; found {scope!r}")
    return Buffer(state.unique_buffer_name(f"{buffer.name}_{scope}"), buffer.shape, buffer.dtype, scope)


def _copy_block(state: State, source: Buffer, target: Buffer, name: str, cause: Block) -> Block:
    """The block that copies ``source`` to ``target``, of the same shape, for the sake of the block ``cause``."""
    zero = as_expr(0)
    iters = [IterVar(Var(f"vax{n}"), zero, extent, "spatial", zero) for n, extent in enumerate(source.shape)]
    place = tuple(item.var for item in iters)
    body = BufferStore(target, BufferLoad(source, place), place)
    made = new_block(state.unique_block_name(name), iters, None, None, body)
    inherit(made, cause)
    return made


def _outermost_scope(state: State, ref: BlockRef, is_clear: Callable[[Stmt], bool]) -> tuple[For | None, int]:
    """Return the outermost place for a statement beside the block: the loop whose body it is in (None: the function),
    and the number of the statement there that holds the block. ``is_clear`` tells whether that statement is free of
    those that must stay on the other side of the new one."""
    block = state.block(ref)
    scope: For | None = None
    while True:
        parts = scope_parts(state, scope)
        number = next(n for n, part in enumerate(parts) if holds(part, block))
        part = parts[number]
        if is_clear(part) or part is block:
            return scope, number
        while not isinstance(part, For):
            part = part.body  # type: ignore[attr-defined]
        scope = part


def cache_read(state: State, ref: BlockRef, which: int | str | Buffer, scope: str) -> tuple[State, BlockRef]:
    """Implement :meth:`.Schedule.cache_read`."""
    block = state.block(ref)
    buffer = find_buffer(state, block, which, "reads")
    if buffer in accesses(block).writes:
        state.fail(f"cannot cache {buffer.name}: block {block.name} also writes it", block)
    cached = _cache_buffer(state, buffer, scope)
    writers = state.writers(buffer)
    copy = _copy_block(state, buffer, cached, cached.name, block)
    late = [writer for writer in writers if state.position(writer) > state.position(block)]
    if late:
        state.fail(f"cannot cache {buffer.name}: block {late[0].name} writes it after block {block.name}", late[0])
    changed = state.replace({block: replace_buffers(block, {buffer: cached})}).allocate(cached)
    place, number = _outermost_scope(changed, ref, lambda part: not any(holds(part, writer) for writer in writers))
    if place is None:
        return insert(changed, None, full_nest(copy), number), BlockRef(copy.name)
    consumer = changed.block(ref)
    made = place_for_consumers(changed, copy, LoopRef(place.var), [consumer], f"cache {buffer.name}")
    check_kinds(made, made.block_path(BlockRef(copy.name)))
    return made, BlockRef(copy.name)


def cache_write(state: State, ref: BlockRef, which: int | str | Buffer, scope: str) -> tuple[State, BlockRef]:
    """Implement :meth:`.Schedule.cache_write`."""
    block = state.block(ref)
    buffer = find_buffer(state, block, which, "writes")
    others = [writer for writer in state.writers(buffer) if writer is not block]
    if others:
        state.fail(f"cannot cache {buffer.name}: block {others[0].name} also writes it", others[0])
    if buffer in accesses(block).reads and block.init is None:
        state.fail(f"cannot cache {buffer.name}: block {block.name} accumulates onto its earlier contents", block)
    cached = _cache_buffer(state, buffer, scope)
    copy = _copy_block(state, cached, buffer, cached.name, block)
    readers = state.readers(buffer)
    changed = state.replace({block: replace_buffers(block, {buffer: cached})}).allocate(cached)
    place, number = _outermost_scope(changed, ref, lambda part: not any(holds(part, reader) for reader in readers))
    if place is None:
        return insert(changed, None, full_nest(copy), number + 1), BlockRef(copy.name)
    made = place_for_producers(changed, copy, LoopRef(place.var), number + 1, f"cache {buffer.name}")
    check_kinds(made, made.block_path(BlockRef(copy.name)))
    return made, BlockRef(copy.name)
