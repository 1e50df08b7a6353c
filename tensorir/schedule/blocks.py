"""Collect the accesses of blocks, make new blocks, and copy blocks with parts changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence, Set

from tilewright.tensorir.expr import Buffer, BufferLoad, Expr, Var, as_expr
from tilewright.tensorir.functor import LOADS, kinds, leaves, substitute
from tilewright.tensorir.node import Node, notes_on
from tilewright.tensorir.schedule.indices import structure
from tilewright.tensorir.sources import inherit
from tilewright.tensorir.stmt import Allocate, Block, BufferRegion, BufferStore, For, IterVar, LetStmt, Range, Stmt


@dataclasses.dataclass(frozen=True)
class Accesses:
    """The accesses of a block to buffers.

    Attributes:
        reads: the loads of each buffer, in init and body, but of those that are allocated inside.
        writes: the stores to each buffer, in init and body, but to those that are allocated inside.
        loads: the loads in the body.
        stores: the stores in the body.
        inner: the variables that are defined inside.
    """

    reads: Mapping[Buffer, tuple[BufferLoad, ...]]
    writes: Mapping[Buffer, tuple[BufferStore, ...]]
    loads: tuple[BufferLoad, ...]
    stores: tuple[BufferStore, ...]
    inner: frozenset[Var]


def accesses(block: Block) -> Accesses:
    """Return the accesses of ``block``, collected once for each block."""
    try:  # most blocks are asked many times
        found: Accesses = block._notes[accesses]
    except (AttributeError, KeyError):
        found = notes_on(block)[accesses] = _collected(block.init, block.body)
    return found


def _collected(init: Stmt | None, body: Stmt) -> Accesses:
    reads: dict[Buffer, list[BufferLoad]] = {}
    writes: dict[Buffer, list[BufferStore]] = {}
    inner: set[Var] = set()
    local: set[Buffer] = set()
    loads: list[BufferLoad] = []
    stores: list[BufferStore] = []
    for part in (init, body):
        loads, stores = [], []
        if part is None:
            continue
        stack: list[Node] = [part]
        while stack:
            node = stack.pop()
            if not isinstance(node, Stmt):
                if isinstance(node, BufferLoad):
                    loads.append(node)
                    reads.setdefault(node.buffer, []).append(node)
                for below in node.parts()[::-1]:
                    if below._kinds & LOADS:  # known since the whole expression was asked
                        stack.append(below)
                continue
            if isinstance(node, BufferStore):
                stores.append(node)
                writes.setdefault(node.buffer, []).append(node)
            elif isinstance(node, (For, LetStmt)):
                inner.add(node.var)
            elif isinstance(node, Allocate):
                local.add(node.buffer)
            for below in node.parts()[::-1]:
                if isinstance(below, Stmt) or kinds(below) & LOADS:
                    stack.append(below)
    return Accesses(
        {buffer: tuple(own) for buffer, own in reads.items() if buffer not in local},
        {buffer: tuple(own) for buffer, own in writes.items() if buffer not in local},
        tuple(loads),
        tuple(stores),
        frozenset(inner),
    )


def _of_body(found: Accesses) -> Accesses:
    """The accesses of a block's body alone."""
    reads: dict[Buffer, list[BufferLoad]] = {}
    writes: dict[Buffer, list[BufferStore]] = {}
    for load in found.loads:
        reads.setdefault(load.buffer, []).append(load)
    for store in found.stores:
        writes.setdefault(store.buffer, []).append(store)
    return Accesses(
        {buffer: tuple(own) for buffer, own in reads.items() if buffer in found.reads},
        {buffer: tuple(own) for buffer, own in writes.items() if buffer in found.writes},
        found.loads,
        found.stores,
        found.inner,
    )


_ZERO, _ONE = as_expr(0), as_expr(1)


def _regions_of(
    found: Accesses, iters: Sequence[IterVar], has_init: bool
) -> tuple[tuple[BufferRegion, ...], tuple[BufferRegion, ...]]:
    """The declared reads and writes of a block with accesses ``found``, in terms of its iteration variables.

    A buffer that a reduction with init reads and writes counts as written only. An index that uses variables defined
    inside the body stands for the whole dimension.
    """
    inner = found.inner.difference([item.var for item in iters])
    points: dict[Expr, Range] = {}
    reads: list[BufferRegion] = []
    for buffer, loads in found.reads.items():
        if buffer not in found.writes or not has_init:
            reads.extend(_distinct_regions(buffer, [load.indices for load in loads], inner, points))
    writes: list[BufferRegion] = []
    for buffer, stores in found.writes.items():
        writes.extend(_distinct_regions(buffer, [store.indices for store in stores], inner, points))
    return tuple(reads), tuple(writes)


def _region(buffer: Buffer, indices: Sequence[Expr], inner: Set[Var], points: dict[Expr, Range]) -> BufferRegion:
    """Return what an access reads or writes; regions share the ``points``, ranges of one index."""
    ranges = []
    for index, extent in zip(indices, buffer.shape, strict=True):
        found = points.get(index)
        if found is None:
            if kinds(index) & LOADS or (inner and not leaves(index).isdisjoint(inner)):
                found = Range(_ZERO, extent)
            else:
                found = points[index] = Range(index, _ONE)
        ranges.append(found)
    return BufferRegion(buffer, tuple(ranges))


def _distinct_regions(
    buffer: Buffer, places: list[tuple[Expr, ...]], inner: Set[Var], points: dict[Expr, Range]
) -> list[BufferRegion]:
    if len(places) == 1:
        return [_region(buffer, places[0], inner, points)]
    distinct: dict[tuple[object, ...], BufferRegion] = {}
    for indices in places:
        key = tuple([structure(index) for index in indices])
        if key not in distinct:
            distinct[key] = _region(buffer, indices, inner, points)
    return list(distinct.values())


def with_buffers(block: Block, table: Mapping[Buffer, Buffer]) -> Block:
    """The block with buffers replaced by others of the same shape and type; itself if it accesses none of them."""
    found = accesses(block)
    if table.keys().isdisjoint(found.reads) and table.keys().isdisjoint(found.writes):
        return block
    made = Block(
        block.name,
        block.iters,
        block.predicate,
        _with_buffers(block.reads, table),
        _with_buffers(block.writes, table),
        None if block.init is None else substitute(block.init, {}, table),
        substitute(block.body, {}, table),
        block.annotations,
        block.needed,
    )
    inherit(made, block)
    return made


def _with_buffers(regions: Sequence[BufferRegion], table: Mapping[Buffer, Buffer]) -> tuple[BufferRegion, ...]:
    return tuple(
        [
            region if region.buffer not in table else BufferRegion(table[region.buffer], region.ranges)
            for region in regions
        ]
    )


def with_value(item: IterVar, value: Expr) -> IterVar:
    """The iteration variable with another binding."""
    return IterVar(item.var, item.min, item.extent, item.kind, value)


def new_block(
    name: str,
    iters: Sequence[IterVar],
    predicate: Expr | None,
    init: Stmt | None,
    body: Stmt,
    annotations: Mapping[str, object] | None = None,
) -> Block:
    """Return a block with its reads and writes collected from its body."""
    found = _collected(init, body)
    reads, writes = _regions_of(found, iters, init is not None)
    made = Block(name, tuple(iters), predicate, reads, writes, init, body, dict(annotations or {}))
    notes_on(made)[accesses] = found
    return made


def fresh_iters(
    items: Sequence[IterVar], values: Mapping[Var, Expr] | None = None
) -> tuple[list[IterVar], dict[Var, Expr]]:
    """The iteration variables with new identities, and the map from the old ones to them.

    Args:
        values: of variables, which replace them in the bindings.
    """
    renamed: dict[Var, Expr] = {}
    made = []
    for item in items:
        var = Var(item.var.name, item.var.dtype)
        renamed[item.var] = var
        value = substitute(item.value, values) if values else item.value
        made.append(IterVar(var, item.min, item.extent, item.kind, value))
    return made, renamed


class _Keep:
    """Marks a part of a block that stays."""


_KEEP = _Keep()


def change_block(
    block: Block,
    *,
    name: str | None = None,
    iters: tuple[IterVar, ...] | None = None,
    predicate: Expr | _Keep | None = _KEEP,
    init: Stmt | _Keep | None = _KEEP,
    body: Stmt | None = None,
    annotations: Mapping[str, object] | None = None,
    needed: Expr | _Keep | None = _KEEP,
) -> Block:
    """Return the block with parts changed; its reads and writes are collected again if init or body changed."""
    new_iters = block.iters if iters is None else iters
    new_init = block.init if isinstance(init, _Keep) else init
    new_body = block.body if body is None else body
    changed = new_init is not block.init or new_body is not block.body
    if not changed and new_iters is not block.iters:
        changed = [item.var for item in new_iters] != [item.var for item in block.iters]
    reads, writes = block.reads, block.writes
    found: Accesses | None
    if changed:
        is_body = new_init is None and new_body is block.body
        found = _of_body(accesses(block)) if is_body else _collected(new_init, new_body)
        reads, writes = _regions_of(found, new_iters, new_init is not None)
    else:
        found = notes_on(block).get(accesses)
    made = Block(
        block.name if name is None else name,
        new_iters,
        block.predicate if isinstance(predicate, _Keep) else predicate,
        reads,
        writes,
        new_init,
        new_body,
        block.annotations if annotations is None else annotations,
        block.needed if isinstance(needed, _Keep) else needed,
    )
    if found is not None:
        notes_on(made)[accesses] = found
    inherit(made, block)
    return made
