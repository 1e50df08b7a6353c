"""The primitive that changes the scope of a block's buffer: set_scope."""

from __future__ import annotations

import operator
from collections.abc import Mapping

from tilewright.tensorir.errors import ScheduleError
from tilewright.tensorir.expr import SCOPES, Buffer
from tilewright.tensorir.schedule.blocks import with_buffers
from tilewright.tensorir.schedule.handles import BlockRef
from tilewright.tensorir.schedule.nests import with_loop_body
from tilewright.tensorir.schedule.state import State
from tilewright.tensorir.stmt import Allocate, Block, For, SeqStmt, Stmt


def find_buffer(state: State, block: Block, which: int | str | Buffer, side: str) -> Buffer:
    """Find a buffer that a block reads or writes, by its place among them, its name, or itself.

    Raises:
        ScheduleError: the block has no such buffer on that side.
    """
    regions = block.reads if side == "reads" else block.writes
    found: dict[str, Buffer] = {}
    for region in regions:
        found.setdefault(region.buffer.name, region.buffer)
    buffers = list(dict.fromkeys(region.buffer for region in regions))
    if isinstance(which, int) and not isinstance(which, bool):
        if 0 <= which < len(buffers):
            return buffers[which]
    elif isinstance(which, str):
        if which in found:
            return found[which]
    else:
        for buffer in buffers:
            if buffer is which:
                return buffer
    wanted = which.name if isinstance(which, Buffer) else which
    names = ", ".join(f"{number}: {buffer.name}" for number, buffer in enumerate(buffers)) or "nothing"
    raise ScheduleError(f"block {block.name}: it {side} no buffer {wanted!r}; it {side} {names}")


def replace_buffers(stmt: Stmt, table: Mapping[Buffer, Buffer]) -> Stmt:
    """``stmt`` with buffers replaced by others of the same shape and type, in blocks and where they are allocated."""
    if isinstance(stmt, Block):
        return with_buffers(stmt, table)
    if isinstance(stmt, For):
        return with_loop_body(stmt, replace_buffers(stmt.body, table))
    if isinstance(stmt, SeqStmt):
        parts = tuple([replace_buffers(part, table) for part in stmt.stmts])
        return stmt if all(map(operator.is_, parts, stmt.stmts)) else SeqStmt(parts)
    if isinstance(stmt, Allocate):
        buffer, body = table.get(stmt.buffer, stmt.buffer), replace_buffers(stmt.body, table)
        return stmt if buffer is stmt.buffer and body is stmt.body else Allocate(buffer, body)
    return stmt


def set_scope(state: State, ref: BlockRef, which: int | str | Buffer, scope: str) -> State:
    """Implement :meth:`.Schedule.set_scope`."""
    block = state.block(ref)
    old = find_buffer(state, block, which, "writes")
    if scope not in SCOPES:
        state.fail(f"unknown scope {scope!r}; expected one of {', '.join(SCOPES)}")
    if old.scope == scope:
        return state
    if state.is_parameter(old):
        state.fail(f"the scope of {old.name} cannot change: it is a parameter of the function", block)
    new = Buffer(old.name, old.shape, old.dtype, scope, old.strides, old.alignment)
    return state.with_body(replace_buffers(state.body, {old: new}))
