"""Find what the statements of a function use: the buffers that they write, and the values that a part captures."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from tilewright.tensorir.expr import BinaryOp, Buffer, BufferLoad, Call, Expr, IntImm, Var
from tilewright.tensorir.functor import walk_statements
from tilewright.tensorir.intrinsics import ADDRESSING
from tilewright.tensorir.keys import PARALLEL_IF
from tilewright.tensorir.node import Node, notes_on
from tilewright.tensorir.profiling import PROFILE_INTRINSICS
from tilewright.tensorir.stmt import Allocate, BufferStore, Evaluate, For, LetStmt, Stmt


def unique_nodes(root: Node) -> Iterator[Node]:
    """Yield ``root`` and all nodes below it, each once: expressions are graphs in which very many paths may lead to one
    operand."""
    seen: set[Node] = {root}
    stack = [root]
    while stack:
        current = stack.pop()
        yield current
        for node in current.parts():
            if node not in seen:
                seen.add(node)
                stack.append(node)


@dataclasses.dataclass(frozen=True)
class Uses:
    """The uses that the nodes of a program contain, found in one walk.

    Attributes:
        written: buffers that may be written: those with stores, and those whose address is taken.
        masked: the lanes of the widest masked access, for each buffer with masked accesses.
        called: the names of the called PrimFuncs.
        has_parallel_loop: whether there is a parallel loop.
        has_profile: whether the clock is read around kernels.
        local: the accesses of each allocated buffer.
        addressed: buffers whose addresses are taken, be it only for a prefetch.
    """

    written: frozenset[Buffer]
    masked: Mapping[Buffer, int]
    called: frozenset[str]
    has_parallel_loop: bool
    has_profile: bool
    local: Mapping[Buffer, Sequence[BufferLoad | BufferStore]]
    addressed: frozenset[Buffer]


def uses(root: Node) -> Uses:
    """Return the uses of ``root`` and the nodes below it; found once and kept, as several stages of a build need
    them."""
    notes = notes_on(root)
    found: Uses | None = notes.get(uses)
    if found is None:
        found = notes[uses] = _find_uses(root)
    return found


def _find_uses(root: Node) -> Uses:
    written: set[Buffer] = set()
    masked: dict[Buffer, int] = {}
    called: set[str] = set()
    local: dict[Buffer, list[BufferLoad | BufferStore]] = {}
    addressed: set[Buffer] = set()
    parallel = profile = False
    seen: set[Node] = {root}
    stack: list[Any] = [root]
    while stack:  # most nodes are those of indices, in which there is little to find
        node = stack.pop()
        kind = type(node)
        for part in node.parts():
            if part not in seen:
                seen.add(part)
                found = type(part)
                if found is not IntImm and found is not Var:
                    stack.append(part)
        if kind is BinaryOp:
            continue
        if kind is BufferLoad or kind is BufferStore:
            if kind is BufferStore:
                written.add(node.buffer)
            if node.predicate is not None:
                lanes = max((index.dtype.lanes for index in node.indices), default=1)
                masked[node.buffer] = max(lanes, masked.get(node.buffer, 0))
            accesses = local.get(node.buffer)
            if accesses is not None:
                accesses.append(node)
        elif kind is For:
            parallel = parallel or node.kind == "parallel"
        elif kind is Allocate:  # comes before its body
            local.setdefault(node.buffer, [])
        elif kind is Call:
            if node.name.startswith("@"):
                called.add(node.name[1:])
            elif node.name in ADDRESSING and isinstance(node.args[0], BufferLoad):
                addressed.add(node.args[0].buffer)
                if node.name == "address_of":
                    written.add(node.args[0].buffer)
            elif node.name in PROFILE_INTRINSICS:
                profile = True
    return Uses(frozenset(written), masked, frozenset(called), parallel, profile, local, frozenset(addressed))


def defined_variables(stmt: Stmt) -> frozenset[Var]:
    """Return the variables that loops and let statements in ``stmt`` define."""
    return frozenset(node.var for node in walk_statements(stmt) if isinstance(node, (For, LetStmt)))


def called_names(root: Node) -> frozenset[str]:
    """Return the names of the PrimFuncs that a program calls. They return nothing, so that each call is a statement."""
    if not isinstance(root, Stmt):
        return uses(root).called
    calls = [stmt.value for stmt in walk_statements(root) if isinstance(stmt, Evaluate)]
    return frozenset([call.name[1:] for call in calls if isinstance(call, Call) and call.name.startswith("@")])


def has_parallel_loop(root: Node) -> bool:
    """Return whether a program contains a parallel loop."""
    return uses(root).has_parallel_loop


@dataclasses.dataclass(frozen=True)
class Captured:
    """The free variables and buffers of some statements, in order of first use, and the buffers that these write."""

    variables: list[Var]
    buffers: list[Buffer]
    written: set[Buffer]


def captured(stmts: Sequence[Node]) -> Captured:
    """Return the captures of ``stmts``; those of a single statement are found once and kept."""
    notes = notes_on(stmts[0]) if len(stmts) == 1 else {}
    found: Captured | None = notes.get(captured)
    if found is None:
        finder = _Capturing()
        for stmt in stmts:
            finder.visit(stmt)
        found = notes[captured] = Captured(list(finder.free), list(finder.buffers), finder.written)
    return found


class _Capturing:
    """Walk over statements once; shared nodes are visited once."""

    def __init__(self) -> None:
        self.free: dict[Var, None] = {}
        self.buffers: dict[Buffer, None] = {}
        self.written: set[Buffer] = set()
        self.bound: set[Node] = set()
        self._seen: set[Node] = set()

    def visit(self, node: Node) -> None:
        seen = self._seen
        if node in seen:
            return
        seen.add(node)
        kind = type(node)
        if kind is Var:
            if node not in self.bound:
                self.free[cast(Var, node)] = None
            return
        if kind is BufferStore or kind is BufferLoad:
            assert isinstance(node, (BufferLoad, BufferStore))
            if node.buffer not in self.bound and node.buffer not in self.buffers:
                self._capture(node.buffer)
            if kind is BufferStore:
                self.written.add(node.buffer)
        elif kind is For:
            assert isinstance(node, For)
            self.visit(node.min)
            self.visit(node.extent)
            self.bound.add(node.var)
            self.visit(node.body)
            condition = node.annotations.get(PARALLEL_IF)
            if isinstance(condition, Expr):
                self.visit(condition)
            return
        elif kind is LetStmt:
            assert isinstance(node, LetStmt)
            self.visit(node.value)
            self.bound.add(node.var)
            self.visit(node.body)
            return
        elif kind is Allocate:
            assert isinstance(node, Allocate)
            self.bound.add(node.buffer)
        elif kind is Call:
            assert isinstance(node, Call)
            if node.name == "address_of" and isinstance(node.args[0], BufferLoad):
                self.written.add(node.args[0].buffer)
        for part in node.parts():
            if part not in seen and type(part) is not IntImm:
                self.visit(part)

    def _capture(self, buffer: Buffer) -> None:
        self.buffers[buffer] = None
        for extent in (*buffer.shape, *buffer.strides):
            self.visit(extent)
