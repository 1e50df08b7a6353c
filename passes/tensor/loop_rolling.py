"""Roll up the unrolled loops of bodies that run rarely: loops become serial, and registers that they index memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tilewright.tensorir.expr import Buffer, Var
from tilewright.tensorir.functor import Mutator, loads_and_stores, uses_var, walk_statements
from tilewright.tensorir.keys import CHOOSES
from tilewright.tensorir.stmt import Allocate, For, Stmt


def rolled_up(body: Stmt) -> Stmt:
    """Return ``body`` without unrolled loops, except those whose variable selects a formula or indexes register buffers
    from outside of ``body``."""
    own = {stmt.buffer for stmt in walk_statements(body) if isinstance(stmt, Allocate)}
    registers = [access for access in loads_and_stores(body) if access.buffer.scope == "register"]
    outer = [index for access in registers if access.buffer not in own for index in access.indices]
    rolled = {
        loop.var
        for loop in walk_statements(body)
        if isinstance(loop, For) and loop.kind == "unrolled" and not loop.annotations.get(CHOOSES)
        if not any(uses_var(index, {loop.var}) for index in outer)
    }
    indexed = {access.buffer for access in registers if any(uses_var(index, rolled) for index in access.indices)}
    memory = {old: dataclasses.replace(old, scope="stack") for old in indexed}
    result: Stmt = _RolledUp(rolled, memory).mutate(body)
    return result


class _RolledUp(Mutator):
    """Make the loops of some variables serial, and replace some buffers by others."""

    def __init__(self, rolled: set[Var], buffers: Mapping[Buffer, Buffer]) -> None:
        self.rolled, self.buffers = rolled, buffers

    def mutate_For(self, loop: For) -> Stmt:
        kind = "serial" if loop.var in self.rolled else loop.kind
        return For(loop.var, loop.min, loop.extent, kind, self.mutate(loop.body), loop.annotations)

    def mutate_buffer(self, buffer: Buffer) -> Buffer:
        return self.buffers.get(buffer, buffer)
