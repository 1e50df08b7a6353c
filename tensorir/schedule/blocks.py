"""Blocks: what one reads and writes, new ones, and copies with parts changed."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterable, Mapping, Sequence

from tilewright.tensorir.expr import Buffer, BufferLoad, Expr, Var, as_expr
from tilewright.tensorir.functor import walk
from tilewright.tensorir.schedule.indices import structure
from tilewright.tensorir.stmt import Block, BufferRegion, BufferStore, For, IterVar, LetStmt, Range, Stmt


@dataclasses.dataclass(frozen=True)
class Accesses:
    """The indices at which a block reads and writes each buffer (in init and body)."""

    reads: Mapping[Buffer, tuple[BufferLoad, ...]]
    writes: Mapping[Buffer, tuple[BufferStore, ...]]


_accesses: weakref.WeakKeyDictionary[Block, Accesses] = weakref.WeakKeyDictionary()


def accesses(block: Block) -> Accesses:
    """What ``block`` reads and writes, collected once for each block."""
    found = _accesses.get(block)
    if found is None:
        reads: dict[Buffer, list[BufferLoad]] = {}
        writes: dict[Buffer, list[BufferStore]] = {}
        for part in (block.init, block.body):
            for node in walk(part) if part is not None else ():
                if isinstance(node, BufferLoad):
                    reads.setdefault(node.buffer, []).append(node)
                elif isinstance(node, BufferStore):
                    writes.setdefault(node.buffer, []).append(node)
        found = _accesses[block] = Accesses(
            {buffer: tuple(loads) for buffer, loads in reads.items()},
            {buffer: tuple(stores) for buffer, stores in writes.items()},
        )
    return found


def _regions_of(block: Block) -> tuple[tuple[BufferRegion, ...], tuple[BufferRegion, ...]]:
    """The declared reads and writes of a block: its accesses in terms of its iteration variables.

    A buffer that a reduction with init reads and writes only counts as written. An index that uses variables which
    are defined inside the body stands for the whole dimension.
    """
    found = accesses(block)
    known = {item.var for item in block.iters}
    inner = {
        node.var
        for part in (block.init, block.body)
        if part is not None
        for node in walk(part)
        if isinstance(node, (For, LetStmt))
    }

    def region(buffer: Buffer, indices: Sequence[Expr]) -> BufferRegion:
        ranges = []
        for index, extent in zip(indices, buffer.shape, strict=True):
            varies = any(
                isinstance(node, BufferLoad) or (isinstance(node, Var) and node in inner and node not in known)
                for node in walk(index)
            )
            ranges.append(Range(as_expr(0), extent) if varies else Range(index, as_expr(1)))
        return BufferRegion(buffer, tuple(ranges))

    def regions(buffer: Buffer, places: Iterable[Sequence[Expr]]) -> list[BufferRegion]:
        distinct: dict[tuple[object, ...], BufferRegion] = {}
        for indices in places:
            distinct.setdefault(tuple(structure(index) for index in indices), region(buffer, indices))
        return list(distinct.values())

    reads: list[BufferRegion] = []
    for buffer, loads in found.reads.items():
        if buffer not in found.writes or block.init is None:
            reads.extend(regions(buffer, (load.indices for load in loads)))
    writes: list[BufferRegion] = []
    for buffer, stores in found.writes.items():
        writes.extend(regions(buffer, (store.indices for store in stores)))
    return tuple(reads), tuple(writes)


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
    """A block with its reads and writes found from its body."""
    bare = Block(name, tuple(iters), predicate, (), (), init, body, dict(annotations or {}))
    reads, writes = _regions_of(bare)
    return Block(name, bare.iters, predicate, reads, writes, init, body, bare.annotations)


def fresh_iters(items: Sequence[IterVar]) -> tuple[list[IterVar], dict[Var, Expr]]:
    """The iteration variables with new identities, and the map from the old ones to them."""
    renamed: dict[Var, Expr] = {}
    made = []
    for item in items:
        var = Var(item.var.name, item.var.dtype)
        renamed[item.var] = var
        made.append(IterVar(var, item.min, item.extent, item.kind, item.value))
    return made, renamed


class _Keep:
    """Says that a part of a block stays."""


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
) -> Block:
    """The block with parts changed; its reads and writes are found again if what it computes changed."""
    new_iters = block.iters if iters is None else iters
    new_init = block.init if isinstance(init, _Keep) else init
    new_body = block.body if body is None else body
    changed = new_init is not block.init or new_body is not block.body
    changed = changed or any(a.var is not b.var for a, b in zip(new_iters, block.iters, strict=False))
    reads, writes = block.reads, block.writes
    made = Block(
        block.name if name is None else name,
        new_iters,
        block.predicate if isinstance(predicate, _Keep) else predicate,
        reads,
        writes,
        new_init,
        new_body,
        block.annotations if annotations is None else annotations,
    )
    if not changed:
        if block in _accesses:
            _accesses[made] = _accesses[block]
        return made
    reads, writes = _regions_of(made)
    return Block(made.name, made.iters, made.predicate, reads, writes, made.init, made.body, made.annotations)
