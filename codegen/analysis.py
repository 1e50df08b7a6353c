"""What a function's statements use: buffers that they write, and what a part of them captures from around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tilewright.tensorir.expr import Buffer, BufferLoad, Call, Expr, Var
from tilewright.tensorir.functor import Visitor
from tilewright.tensorir.node import Node
from tilewright.tensorir.profiling import PROFILE_INTRINSICS
from tilewright.tensorir.stmt import Allocate, BufferStore, For, LetStmt, Stmt


def unique_nodes(root: Node) -> Iterator[Node]:
    """All nodes below and including ``root``, each once: expressions are graphs with very many paths to an operand."""
    seen: set[Node] = {root}
    stack = [root]
    while stack:
        current = stack.pop()
        yield current
        for node in current.parts():
            if node not in seen:
                seen.add(node)
                stack.append(node)


def representatives(roots: Sequence[Expr]) -> dict[Expr, Expr]:
    """For each expression below ``roots`` the first one that computes the same: passes copy what several operands
    share. Only for expressions between whose evaluations no memory is written."""
    known: dict[tuple[Any, ...], Expr] = {}
    found: dict[Expr, Expr] = {}

    def visit(node: Expr) -> Expr:
        if node in found:
            return found[node]
        key: list[Any] = [type(node)]
        for name, role in node.node_fields:
            value = getattr(node, name)
            if role == "children":
                value = tuple([visit(below) for below in value])
            elif role == "child" and value is not None:
                value = visit(value)
            elif isinstance(value, float):
                value = value.hex()  # zeros have signs
            key.append(value)
        found[node] = known.setdefault(tuple(key), node) if not isinstance(node, Var) else node
        return found[node]

    for root in roots:
        visit(root)
    return found


def written_buffers(stmt: Stmt) -> set[Buffer]:
    """Buffers that ``stmt`` may write: those it stores to, and those whose address it gives away."""
    found: set[Buffer] = set()
    for node in unique_nodes(stmt):
        if isinstance(node, BufferStore):
            found.add(node.buffer)
        elif isinstance(node, Call) and node.name == "address_of" and isinstance(node.args[0], BufferLoad):
            found.add(node.args[0].buffer)
    return found


def called_names(stmt: Stmt) -> set[str]:
    """The PrimFuncs that ``stmt`` calls."""
    calls = (node for node in unique_nodes(stmt) if isinstance(node, Call))
    return {call.name[1:] for call in calls if call.name.startswith("@")}


def has_parallel_loop(stmt: Stmt) -> bool:
    """Whether a parallel loop stands in ``stmt``."""
    return any(isinstance(node, For) and node.kind == "parallel" for node in unique_nodes(stmt))


def has_profile(stmt: Stmt) -> bool:
    """Whether ``stmt`` reads the clock around kernels."""
    return any(isinstance(node, Call) and node.name in PROFILE_INTRINSICS for node in unique_nodes(stmt))


def captured(stmts: Sequence[Node]) -> tuple[list[Var], list[Buffer]]:
    """Variables and buffers that statements and expressions use but do not define, in order of first use."""
    visitor = _Captured()
    for stmt in stmts:
        visitor.visit(stmt)
    return list(visitor.free), list(visitor.buffers)


class _Captured(Visitor):
    def __init__(self) -> None:
        self.free: dict[Var, None] = {}
        self.buffers: dict[Buffer, None] = {}
        self.bound: set[Node] = set()
        self._seen: set[Node] = set()

    def visit(self, node: Node) -> None:
        if node not in self._seen:
            self._seen.add(node)
            super().visit(node)

    def visit_Var(self, var: Var) -> None:
        if var not in self.bound:
            self.free[var] = None

    def visit_For(self, loop: For) -> None:
        self.visit(loop.min)
        self.visit(loop.extent)
        self.bound.add(loop.var)
        self.visit(loop.body)
        condition = loop.annotations.get("parallel_if")
        if isinstance(condition, Expr):
            self.visit(condition)

    def visit_LetStmt(self, let: LetStmt) -> None:
        self.visit(let.value)
        self.bound.add(let.var)
        self.visit(let.body)

    def visit_Allocate(self, stmt: Allocate) -> None:
        self.bound.add(stmt.buffer)
        self.visit(stmt.body)

    def visit_buffer(self, buffer: Buffer) -> None:
        if buffer not in self.bound and buffer not in self.buffers:
            self.buffers[buffer] = None
            for extent in (*buffer.shape, *buffer.strides):
                self.visit(extent)
