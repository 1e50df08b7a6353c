"""Find the operands of a function that may not be in a cache: those whose next elements are worth a prefetch."""

from __future__ import annotations

from collections.abc import Mapping, Set

from tilewright.passes.operands import LEAST_OPERAND, known_bytes
from tilewright.tensorir.expr import Buffer, BufferLoad, Expr, IntImm
from tilewright.tensorir.functor import leaves
from tilewright.tensorir.keys import SMALL_BUFFERS
from tilewright.tensorir.node import Node, notes_on
from tilewright.tensorir.stmt import Allocate, BufferStore, For, LetStmt, PrimFunc, SeqStmt, Stmt


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
    small = func.attrs.get(SMALL_BUFFERS, ())
    read = {
        buffer: 0
        for number, buffer in enumerate(func.buffers)
        if number not in small and not 0 < known_bytes(buffer) < LEAST_OPERAND
    }
    if not read:
        return read
    summed: set[Buffer] = set()
    for nest in _nests(func.body):
        loaded: set[Buffer] = set()
        stored: set[Buffer] = set()
        for node in statements_and_loads(nest, read):
            if type(node) is BufferLoad:
                loaded.add(node.buffer)
                read[node.buffer] += 1
            elif type(node) is BufferStore:
                stored.add(node.buffer)
        summed |= loaded & stored
    return {buffer: count for buffer, count in read.items() if count and buffer not in summed}


def statements_and_loads(stmt: Stmt, buffers: Mapping[Buffer, int]) -> list[Node]:
    """Return ``stmt`` and all statements below it, and the loads from ``buffers``, parents first. Most expressions are
    without such a load, and not searched."""
    wanted = buffers.keys()
    found: list[Node] = []
    stack: list[Node] = [stmt]
    while stack:
        node = stack.pop()
        found.append(node)
        if type(node) is SeqStmt:
            stack.extend(node.stmts[::-1])
            continue
        if type(node) is For and type(node.min) is IntImm and type(node.extent) is IntImm:
            stack.append(node.body)
            continue
        inner: list[Node] = []
        for part in node.parts():  # expressions come before statements
            if isinstance(part, Stmt):
                inner.append(part)
            elif type(part) is not IntImm and not wanted.isdisjoint(leaves(part)):
                _add_loads(part, wanted, found)
        if inner:
            stack.extend(inner[::-1])
    return found


def _add_loads(expr: Expr, wanted: Set[Buffer], found: list[Node]) -> None:
    """Append to ``found`` the loads from the buffers ``wanted`` in an expression that has some, parents first."""
    stack: list[Node] = [expr]
    while stack:
        node = stack.pop()
        if type(node) is BufferLoad and node.buffer in wanted:
            found.append(node)
        parts: tuple[Node, ...] = node.parts()
        for part in parts[::-1]:
            if not wanted.isdisjoint(leaves(part)):
                stack.append(part)


def _nests(body: Stmt) -> list[Stmt]:
    """Return the statements of a function that run one after the other."""
    while isinstance(body, LetStmt | Allocate):
        body = body.body
    return [nest for stmt in body.stmts for nest in _nests(stmt)] if isinstance(body, SeqStmt) else [body]
