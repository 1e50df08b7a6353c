"""Primitives composed of others: tile, and peel, which divides a loop's range into two nests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.tensorir.expr import Buffer, Var, as_expr, binary
from tilewright.tensorir.functor import substitute
from tilewright.tensorir.schedule.blocks import accesses, fresh_iters, new_block
from tilewright.tensorir.schedule.dependence import is_private, loop_role
from tilewright.tensorir.schedule.handles import BlockRef, LoopRef
from tilewright.tensorir.schedule.loops import reorder, split
from tilewright.tensorir.schedule.nests import blocks_in, loops_in, substitute_loops
from tilewright.tensorir.schedule.scope import replace_buffers
from tilewright.tensorir.schedule.state import State
from tilewright.tensorir.stmt import Block, For, SeqStmt, Stmt, sequence


def tile(state: State, what: BlockRef | Sequence[LoopRef], factors: Sequence[Any]) -> tuple[State, list[LoopRef]]:
    """Implement :meth:`.Schedule.tile`."""
    if isinstance(what, BlockRef):
        block = state.block(what)
        spatial = [loop for loop in loops_in(state.block_path(what)) if loop_role(loop, block) == "spatial"]
        if len(spatial) < len(factors) or not factors:
            state.fail(f"tile: {len(factors)} factors for the {len(spatial)} spatial loops of {block.name}", block)
        refs = [LoopRef(loop.var) for loop in spatial[-len(factors) :]]
    else:
        refs = list(what)
        if len(refs) != len(factors) or not refs:
            state.fail(f"tile: {len(factors)} factors for {len(refs)} loops")
    outer, inner = [], []
    for ref, factor in zip(refs, factors, strict=True):
        state, made = split(state, ref, [None, factor])
        outer.append(made[0])
        inner.append(made[1])
    return reorder(state, [*outer, *inner]), [*outer, *inner]


def peel(state: State, ref: LoopRef, multiple: Any) -> tuple[State, list[LoopRef]]:
    """Implement :meth:`.Schedule.peel`."""
    loop = state.loop(ref)
    path = state.loop_path(ref)
    if not state.analyzer(loops_in(path[:-1])).prove(as_expr(multiple) > 0):
        state.fail(f"cannot peel loop {ref.name}: {multiple} is not known to be positive", loop)
    for block in blocks_in(loop.body):
        if block.init is not None and loop_role(loop, block) in ("reduction", "both"):
            state.fail(f"cannot peel loop {ref.name}: decompose the reduction of block {block.name} first", loop)
    analyzer = state.analyzer(loops_in(path[:-1]))
    main = analyzer.simplify(binary("mul", binary("floordiv", loop.extent, multiple), multiple))
    rest = analyzer.simplify(binary("sub", loop.extent, main))
    first = Var(f"{loop.var.name}_main", loop.var.dtype)
    second = Var(f"{loop.var.name}_rest", loop.var.dtype)
    head = substitute_loops(loop.body, {loop.var: first})
    offset = binary("add", loop.min, binary("add", main, second))
    private = {buffer for block in blocks_in(loop.body) for buffer in accesses(block).writes}
    own = {
        buffer: Buffer(state.unique_buffer_name(f"{buffer.name}_tail"), buffer.shape, buffer.dtype, buffer.scope)
        for buffer in sorted(private, key=lambda buffer: buffer.name)
        if is_private(state, loop, buffer)
    }
    tail = replace_buffers(_renamed(state, loop.body, {loop.var: offset}), own)
    nests = (
        For(first, loop.min, main, loop.kind, head, loop.annotations),
        For(second, loop.min, rest, loop.kind, tail, loop.annotations),
    )
    state = state.replace({loop: sequence(*nests)})
    for buffer in own.values():
        state = state.allocate(buffer)
    return state, [LoopRef(first), LoopRef(second)]


def _renamed(state: State, stmt: Stmt, values: dict[Var, Any]) -> Stmt:
    """A copy of ``stmt`` with loop variables replaced, new variables, and blocks named ``<name>_tail``."""
    if isinstance(stmt, For):
        var = Var(stmt.var.name, stmt.var.dtype)
        inner = {**values, stmt.var: var}
        begin, extent = substitute(stmt.min, values), substitute(stmt.extent, values)
        return For(var, begin, extent, stmt.kind, _renamed(state, stmt.body, inner), stmt.annotations)
    if isinstance(stmt, SeqStmt):
        return SeqStmt(tuple(_renamed(state, part, values) for part in stmt.stmts))
    assert isinstance(stmt, Block)
    bound = substitute_loops(stmt, values)
    assert isinstance(bound, Block)
    iters, renamed = fresh_iters(bound.iters)
    init = None if bound.init is None else substitute(bound.init, renamed)
    name = state.unique_block_name(f"{stmt.name}_tail")
    return new_block(name, iters, bound.predicate, init, substitute(bound.body, renamed), bound.annotations)
