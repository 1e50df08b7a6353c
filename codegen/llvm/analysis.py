"""What a function's statements use: buffers that they write, and what a part of them captures from around it."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.tensorir.expr import Buffer, BufferLoad, Call, Expr, Var
from tilewright.tensorir.functor import Visitor
from tilewright.tensorir.node import Node
from tilewright.tensorir.stmt import Allocate, BufferStore, For, LetStmt, PrimFunc, Stmt


class _Written(Visitor):
    """Buffers that a statement writes, or whose address it gives away."""

    def __init__(self) -> None:
        self.buffers: set[Buffer] = set()

    def visit_BufferStore(self, store: BufferStore) -> None:
        self.buffers.add(store.buffer)
        self.generic_visit(store)

    def visit_Call(self, call: Call) -> None:
        if call.name == "address_of" and isinstance(call.args[0], BufferLoad):
            self.buffers.add(call.args[0].buffer)
        self.generic_visit(call)


def written_buffers(stmt: Stmt) -> set[Buffer]:
    """Buffers that ``stmt`` may write."""
    visitor = _Written()
    visitor.visit(stmt)
    return visitor.buffers


def pointer_attributes(root: PrimFunc, buffer: Buffer, written: set[Buffer]) -> str:
    """What LLVM may assume of the address of ``buffer`` as a parameter of ``root``."""
    facts = ["ptr", "nonnull"]
    if not root.attrs.get("may_alias"):
        facts.append("noalias")
    if buffer not in written:
        facts.append("readonly")
    alignment = max(buffer.alignment, buffer.dtype.bytes)
    facts.append(f"align {alignment}")
    return " ".join(facts)


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
