"""Find the operands of a function that may not be in a cache: those whose next elements are worth a prefetch."""

from __future__ import annotations

from tilewright.passes.operands import LEAST_OPERAND, known_bytes
from tilewright.tensorir.expr import Buffer, BufferLoad
from tilewright.tensorir.functor import loads_and_stores
from tilewright.tensorir.keys import SMALL_BUFFERS
from tilewright.tensorir.node import notes_on
from tilewright.tensorir.stmt import Allocate, LetStmt, PrimFunc, SeqStmt, Stmt


def large_operands(func: PrimFunc) -> dict[Buffer, int]:
    """Return the parameters that no nest reads and writes, as a sum does its result, and that are not known to be
    small, with the number of loads from each: what an earlier nest of the function writes, such as an image with its
    border, is read like an argument."""
    notes = notes_on(func)
    found: dict[Buffer, int] | None = notes.get(large_operands)
    if found is None:
        found = notes[large_operands] = _large_operands(func)
    return found


def _large_operands(func: PrimFunc) -> dict[Buffer, int]:
    read: dict[Buffer, int] = {}
    summed: set[Buffer] = set()
    for nest in _nests(func.body):
        loaded: set[Buffer] = set()
        stored: set[Buffer] = set()
        for access in loads_and_stores(nest):
            if isinstance(access, BufferLoad):
                loaded.add(access.buffer)
                read[access.buffer] = read.get(access.buffer, 0) + 1
            else:
                stored.add(access.buffer)
        summed |= loaded & stored
    small = func.attrs.get(SMALL_BUFFERS, ())
    return {
        buffer: read[buffer]
        for number, buffer in enumerate(func.buffers)
        if buffer in read
        and buffer not in summed
        and number not in small
        and not 0 < known_bytes(buffer) < LEAST_OPERAND
    }


def _nests(body: Stmt) -> list[Stmt]:
    """Return the statements of a function that run one after the other."""
    while isinstance(body, LetStmt | Allocate):
        body = body.body
    return [nest for stmt in body.stmts for nest in _nests(stmt)] if isinstance(body, SeqStmt) else [body]
