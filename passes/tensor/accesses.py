"""Collect the accesses of each buffer of a function, in order, with the statements around them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.tensorir.arith.analyzer import Analyzer
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import Buffer, BufferLoad, Call, Expr, IntImm, UnaryOp, Var
from tilewright.tensorir.functor import Visitor, leaves, substitute
from tilewright.tensorir.node import Node
from tilewright.tensorir.stmt import Allocate, BufferStore, For, IfThenElse, LetStmt, PrimFunc, SeqStmt, Stmt


@dataclass(eq=False)
class Place:
    """A statement with its position in the function.

    Attributes:
        loop: the loop whose body this is, if any.
        condition: the condition that holds here, if this is a branch of an ``if``.
    """

    stmt: Stmt
    parent: Place | None
    loop: For | None = None
    condition: Expr | None = None
    _chain: tuple[Place, ...] = ()

    def chain(self) -> tuple[Place, ...]:
        """Return the places from the function's body to this one."""
        if not self._chain:
            self._chain = (self,) if self.parent is None else (*self.parent.chain(), self)
        return self._chain


@dataclass(eq=False)
class Access:
    """One load or store. ``order`` rises in the order of execution within one statement."""

    indices: tuple[Expr, ...]
    predicate: Expr | None
    place: Place
    order: int
    is_write: bool


@dataclass(eq=False)
class Usage:
    """An allocated buffer: its allocation and all accesses. ``is_opaque``: its address escapes into a call."""

    buffer: Buffer
    allocation: Place
    accesses: list[Access] = dataclasses.field(default_factory=list)
    is_opaque: bool = False


class AccessCollector(Visitor):
    """Collect the usage of every buffer that a function allocates."""

    def __init__(self, func: PrimFunc) -> None:
        self.usages: dict[Buffer, Usage] = {}
        self.place: Place | None = None
        self.order = 0
        self.lets: dict[Var, Expr] = {}
        self._enter(func.body)

    def _enter(self, stmt: Stmt, loop: For | None = None, condition: Expr | None = None) -> None:
        outer = self.place
        self.place = Place(stmt, outer, loop, condition)
        super().visit(stmt)
        self.place = outer

    def visit(self, node: Node) -> None:
        if isinstance(node, Stmt):
            self._enter(node)
        elif not self.usages.keys().isdisjoint(leaves(node)):  # most expressions access none of the buffers
            super().visit(node)

    def _resolved(self, expr: Expr) -> Expr:
        return substitute(expr, self.lets) if self.lets else expr

    def visit_For(self, loop: For) -> None:
        if type(loop.min) is not IntImm:
            self.visit(loop.min)
        if type(loop.extent) is not IntImm:
            self.visit(loop.extent)
        if self.lets:
            known = For(loop.var, self._resolved(loop.min), self._resolved(loop.extent), loop.kind, loop.body)
            self._enter(loop.body, loop=known)
        else:
            self._enter(loop.body, loop=loop)

    def visit_IfThenElse(self, op: IfThenElse) -> None:
        self.visit(op.condition)
        condition = self._resolved(op.condition)
        self._enter(op.then_body, condition=condition)
        if op.else_body is not None:
            self._enter(op.else_body, condition=UnaryOp("not", condition))

    def visit_LetStmt(self, op: LetStmt) -> None:
        self.visit(op.value)
        if op.value.dtype is INT64:
            self.lets[op.var] = self._resolved(op.value)
        self.visit(op.body)
        self.lets.pop(op.var, None)

    def visit_Allocate(self, op: Allocate) -> None:
        assert self.place is not None
        self.usages[op.buffer] = Usage(op.buffer, self.place)
        self.visit(op.body)

    def visit_Call(self, op: Call) -> None:
        if op.name == "address_of" and isinstance(op.args[0], BufferLoad):
            usage = self.usages.get(op.args[0].buffer)
            if usage is not None:
                usage.is_opaque = True
        self.generic_visit(op)

    def visit_BufferLoad(self, op: BufferLoad) -> None:
        self.generic_visit(op)
        self._record(op.buffer, op.indices, op.predicate, is_write=False)

    def visit_SeqStmt(self, op: SeqStmt) -> None:
        for stmt in op.stmts:
            self._enter(stmt)

    def visit_BufferStore(self, op: BufferStore) -> None:
        self.generic_visit(op)
        self._record(op.buffer, op.indices, op.predicate, is_write=True)

    def _record(self, buffer: Buffer, indices: Sequence[Expr], predicate: Expr | None, is_write: bool) -> None:
        usage = self.usages.get(buffer)
        if usage is None:
            return
        assert self.place is not None
        self.order += 1
        resolved = tuple([self._resolved(index) for index in indices]) if self.lets else tuple(indices)
        guard = self._resolved(predicate) if predicate is not None else None
        usage.accesses.append(Access(resolved, guard, self.place, self.order, is_write))


def reads_target(load: Expr, store: BufferStore) -> bool:
    """Return whether ``load`` is the old value of what ``store`` writes, in all lanes that it writes."""
    return (
        isinstance(load, BufferLoad)
        and load.buffer is store.buffer
        and load.predicate in (None, store.predicate)
        and load.indices == store.indices
    )


def common_place(accesses: Sequence[Access]) -> Place:
    """Return the innermost place around all accesses."""
    common = accesses[0].place.chain()
    depth = len(common)
    for access in accesses:
        chain = access.place.chain()
        depth = min(depth, len(chain))
        while chain[depth - 1] is not common[depth - 1]:  # the places around a common one are common
            depth -= 1
    return common[depth - 1]


def inner_places(access: Access, place: Place) -> tuple[Place, ...]:
    """Return the places from ``place`` (exclusive) to the access."""
    chain = access.place.chain()
    return chain[chain.index(place) + 1 :]


def bind_places(analyzer: Analyzer, places: Sequence[Place]) -> None:
    """Bind in the analyzer the facts that hold at the last of these places, which are given outermost first."""
    for place in places:
        if place.loop is not None:
            analyzer.bind(place.loop.var, place.loop.min, place.loop.extent)
            if not (isinstance(place.loop.extent, IntImm) and place.loop.extent.value > 0):
                analyzer.assume(place.loop.extent > 0)
        if place.condition is not None:
            analyzer.assume(place.condition)


def enclosing_loops(place: Place, limit: Place) -> Iterator[Place]:
    """Yield the places of the loop statements around ``place``, innermost first, inside ``limit``."""
    current = place
    while current is not limit and current.parent is not None:
        if current.loop is not None:
            yield current.parent
        current = current.parent
