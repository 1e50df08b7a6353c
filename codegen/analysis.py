"""Find what the statements of a function use: the buffers that they write, and the values that a part captures."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, Final

from tilewright.tensorir.expr import BinaryOp, Broadcast, Buffer, BufferLoad, Call, Expr, IntImm, Ramp, Var
from tilewright.tensorir.functor import CALLS, LOADS, walk_statements
from tilewright.tensorir.intrinsics import ADDRESSING
from tilewright.tensorir.keys import OUTLINE, PARALLEL_IF
from tilewright.tensorir.node import Node, notes_on
from tilewright.tensorir.profiling import PROFILE_INTRINSICS
from tilewright.tensorir.stmt import Allocate, BufferStore, Evaluate, For, LetStmt, SeqStmt, Stmt


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
class Captured:
    """The free variables and buffers of a part of a function, in order of first use, and the buffers that it writes."""

    variables: list[Var]
    buffers: list[Buffer]
    written: set[Buffer]


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
        captured: what the parts capture that become functions: bodies of parallel loops, and outlined loops.
        stored: the buffers that the body of each loop stores to.
        unrolled: the variables of loops that are unrolled, and of no others.
    """

    written: Set[Buffer]
    masked: Mapping[Buffer, int]
    called: frozenset[str]
    has_parallel_loop: bool
    has_profile: bool
    local: Mapping[Buffer, Sequence[BufferLoad | BufferStore]]
    addressed: Set[Buffer]
    captured: Mapping[Stmt, Captured]
    stored: Mapping[Stmt, frozenset[Buffer]]
    unrolled: Set[Var]


def uses(root: Node) -> Uses:
    """Return the uses of ``root`` and the nodes below it; found once and kept, as several stages of a build need
    them."""
    notes = notes_on(root)
    found: Uses | None = notes.get(uses)
    if found is None:
        found = notes[uses] = _Finder().find(root)
    return found


class _Part:
    """A function, or a part that becomes one, as far as it was walked over.

    Attributes:
        variables: the free variables, in order of first use.
        buffers: the buffers that are used and not allocated there, in order of first use.
        written: the buffers that may be written.
        seen: the expressions that were visited, and the variables and buffers that were used or defined.
    """

    def __init__(self) -> None:
        self.variables: dict[Var, None] = {}
        self.buffers: dict[Buffer, None] = {}
        self.written: set[Buffer] = set()
        self.seen: set[Node] = set()

    def add(self, other: _Part) -> None:
        """Add the findings in a part of this one, whose parts come next in order."""
        for var in other.variables:
            if var not in self.seen:
                self.seen.add(var)
                self.variables[var] = None
        for buffer in other.buffers:
            if buffer not in self.seen:
                self.seen.add(buffer)
                self.buffers[buffer] = None
        self.written |= other.written


#: What there may be to find in an expression beside variables.
_FOUND_BELOW: Final = CALLS | LOADS


class _Finder:
    """Finds the uses of a program in one walk; each part visits expressions that it shares once."""

    def __init__(self) -> None:
        self.masked: dict[Buffer, int] = {}
        self.called: set[str] = set()
        self.has_parallel_loop = False
        self.has_profile = False
        self.local: dict[Buffer, list[BufferLoad | BufferStore]] = {}
        self.addressed: set[Buffer] = set()
        self.captured: dict[Stmt, Captured] = {}
        self.stored: dict[Stmt, frozenset[Buffer]] = {}
        self._stores: list[Buffer] = []  # the buffers of the stores, in the order of the statements
        self._unrolled: set[Var] = set()
        self._others: set[Var] = set()
        self._part = _Part()

    def find(self, root: Node) -> Uses:
        """Return the uses of ``root``."""
        self._visit_parts((root,))
        return Uses(
            self._part.written,
            self.masked,
            frozenset(self.called),
            self.has_parallel_loop,
            self.has_profile,
            self.local,
            self.addressed,
            self.captured,
            self.stored,
            self._unrolled - self._others,
        )

    def _visit(self, node: Any) -> None:
        kind = type(node)
        if kind is BufferStore:
            self._store(node)
        elif kind is SeqStmt:
            for stmt in node.stmts:
                if type(stmt) is BufferStore:  # most are
                    self._store(stmt)
                else:
                    self._visit(stmt)
        elif kind is For:
            if node.annotations.get(OUTLINE):
                self._visit_captured(node)
            else:
                self._loop(node)
        elif kind is LetStmt:
            self._look_into(node.value)
            self._part.seen.add(node.var)
            self._others.add(node.var)
            self._visit(node.body)
        else:
            if kind is Allocate:
                self._part.seen.add(node.buffer)
                self.local.setdefault(node.buffer, [])
            self._visit_parts(node.parts())

    def _store(self, store: BufferStore) -> None:
        part, buffer = self._part, store.buffer
        if buffer not in part.seen:
            self._use(buffer)
        part.written.add(buffer)
        self._stores.append(buffer)
        if buffer in self.local:
            self.local[buffer].append(store)
        self._look_into(store.value)
        for index in store.indices:
            if index not in part.seen:
                self._look_into(index)
        if store.predicate is not None:
            self._mask(store)
            self._look_into(store.predicate)

    def _visit_parts(self, parts: tuple[Node, ...]) -> None:
        for part in parts:
            if isinstance(part, Expr):
                self._look_into(part)
            else:
                self._visit(part)

    def _loop(self, loop: For) -> None:
        self._look_into(loop.min)
        self._look_into(loop.extent)
        self._part.seen.add(loop.var)
        constant = type(loop.min) is IntImm and type(loop.extent) is IntImm
        (self._unrolled if loop.kind == "unrolled" and constant else self._others).add(loop.var)
        start = len(self._stores)
        if loop.kind == "parallel":
            self.has_parallel_loop = True
            self._visit_captured(loop.body)
        else:
            self._visit(loop.body)
        self.stored[loop.body] = frozenset(self._stores[start:])
        condition = loop.annotations.get(PARALLEL_IF)
        if isinstance(condition, Expr):
            self._look_into(condition)

    def _visit_captured(self, stmt: Stmt) -> None:
        """Visit a part of the program that becomes a function."""
        outer, self._part = self._part, _Part()
        if isinstance(stmt, For) and stmt.annotations.get(OUTLINE):
            self._loop(stmt)
        else:
            self._visit(stmt)
        found, self._part = self._part, outer
        self.captured[stmt] = Captured(list(found.variables), list(found.buffers), found.written)
        outer.add(found)

    def _look_into(self, expr: Expr) -> None:
        """Visit an expression and all nodes below it, in the order of the fields."""
        part, local = self._part, self.local
        seen = part.seen
        node: Any = expr
        stack: list[Any] = []
        while True:
            while node not in seen:
                seen.add(node)
                kind = type(node)
                if kind is BinaryOp:  # most nodes are those of indices, in which there is little to find
                    below = node._leaves
                    if below is not None and not node._kinds & _FOUND_BELOW and below <= seen:
                        break  # of variables that were used before
                    b = node.b
                    if type(b) is not IntImm and b not in seen:
                        stack.append(b)
                    node = node.a
                elif kind is BufferLoad:
                    buffer = node.buffer
                    if buffer not in seen:
                        self._use(buffer)
                    if buffer in local:
                        local[buffer].append(node)
                    if node.predicate is not None:
                        self._mask(node)
                        stack.append(node.predicate)
                    if len(node.indices) == 1:
                        node = node.indices[0]
                    else:
                        stack += node.indices[::-1]
                elif kind is Ramp and type(node.stride) is IntImm:
                    node = node.base
                elif kind is Broadcast:
                    node = node.value
                elif kind is Var:
                    part.variables[node] = None
                elif kind is not IntImm:
                    if kind is Call:
                        self._call(node)
                    stack += node.parts()[::-1]
            if not stack:
                return
            node = stack.pop()

    def _use(self, buffer: Buffer) -> None:
        """Note the first use of ``buffer`` in the part."""
        self._part.seen.add(buffer)
        self._part.buffers[buffer] = None
        for expr in (*buffer.shape, *buffer.strides):
            self._look_into(expr)

    def _mask(self, access: BufferLoad | BufferStore) -> None:
        lanes = max([index.dtype.lanes for index in access.indices], default=1)
        self.masked[access.buffer] = max(lanes, self.masked.get(access.buffer, 0))

    def _call(self, call: Call) -> None:
        if call.name.startswith("@"):
            self.called.add(call.name[1:])
        elif call.name in ADDRESSING and isinstance(call.args[0], BufferLoad):
            self.addressed.add(call.args[0].buffer)
            if call.name == "address_of":
                self._part.written.add(call.args[0].buffer)
        elif call.name in PROFILE_INTRINSICS:
            self.has_profile = True


def defined_variables(stmt: Stmt) -> frozenset[Var]:
    """Return the variables that loops and let statements in ``stmt`` define."""
    return frozenset(node.var for node in walk_statements(stmt) if isinstance(node, (For, LetStmt)))


def called_names(root: Node) -> frozenset[str]:
    """Return the names of the PrimFuncs that a program calls. They return nothing, so that each call is a statement."""
    notes = notes_on(root)
    known: Uses | None = notes.get(uses)
    if known is not None or not isinstance(root, Stmt):
        return uses(root).called
    found: frozenset[str] | None = notes.get(called_names)
    if found is None:  # all uses are not worth finding for a program that is not lowered
        calls = [stmt.value for stmt in walk_statements(root) if isinstance(stmt, Evaluate)]
        found = frozenset([call.name[1:] for call in calls if isinstance(call, Call) and call.name.startswith("@")])
        notes[called_names] = found
    return found


def has_parallel_loop(root: Node) -> bool:
    """Return whether a program contains a parallel loop."""
    return uses(root).has_parallel_loop
