"""Where each buffer of a function is read and written: the statements around every access, in order.

``covers`` decides whether a read only sees what a given write stored within one run of a surrounding statement, which
is what placing a buffer inside a loop needs.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.tensorir.arith.analyzer import Analyzer
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import Buffer, BufferLoad, Call, Expr, IntImm, UnaryOp, Var
from tilewright.tensorir.functor import Visitor, substitute, uses_var
from tilewright.tensorir.node import Node
from tilewright.tensorir.stmt import Allocate, BufferStore, For, IfThenElse, LetStmt, PrimFunc, Stmt


@dataclass(eq=False)
class Place:
    """A statement where it stands.

    Attributes:
        loop: the loop whose body this is, if it is one.
        condition: what holds here because of the ``if`` whose branch this is.
    """

    stmt: Stmt
    parent: Place | None
    loop: For | None = None
    condition: Expr | None = None

    def chain(self) -> list[Place]:
        """The places from the function's body to this one."""
        places: list[Place] = []
        place: Place | None = self
        while place is not None:
            places.append(place)
            place = place.parent
        return places[::-1]


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
    """Finds the usage of every buffer that a function allocates."""

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
        else:
            super().visit(node)

    def _resolved(self, expr: Expr) -> Expr:
        return substitute(expr, self.lets) if self.lets else expr

    def visit_For(self, loop: For) -> None:
        self.visit(loop.min)
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

    def visit_BufferStore(self, op: BufferStore) -> None:
        self.generic_visit(op)
        self._record(op.buffer, op.indices, op.predicate, is_write=True)

    def _record(self, buffer: Buffer, indices: Sequence[Expr], predicate: Expr | None, is_write: bool) -> None:
        usage = self.usages.get(buffer)
        if usage is None:
            return
        assert self.place is not None
        self.order += 1
        resolved = tuple(self._resolved(index) for index in indices)
        guard = self._resolved(predicate) if predicate is not None else None
        usage.accesses.append(Access(resolved, guard, self.place, self.order, is_write))


def common_place(accesses: Sequence[Access]) -> Place:
    """The innermost place around all accesses."""
    chains = [access.place.chain() for access in accesses]
    depth = 0
    while all(len(chain) > depth for chain in chains) and all(chain[depth] is chains[0][depth] for chain in chains):
        depth += 1
    return chains[0][depth - 1]


def inner_places(access: Access, place: Place) -> list[Place]:
    """The places from ``place`` (left out) to the access."""
    chain = access.place.chain()
    return chain[chain.index(place) + 1 :]


def bind_places(analyzer: Analyzer, places: Sequence[Place]) -> None:
    """Tell the analyzer what holds at the last of these places, given outermost first."""
    for place in places:
        if place.loop is not None:
            analyzer.bind(place.loop.var, place.loop.min, place.loop.extent)
            analyzer.assume(place.loop.extent > 0)
        if place.condition is not None:
            analyzer.assume(place.condition)


def covers(write: Access, read: Access, place: Place, analyzer: Analyzer) -> bool:
    """Whether in each run of ``place``'s statement, each element that ``read`` reads was stored there by ``write``.

    The instance of the write is found by solving its indices for its loop variables; the loops that no index mentions
    take their first iteration. It then has to be in its loops' ranges, to satisfy its conditions, and to come before
    the read. The analyzer knows what holds where the read is (:func:`at_read`); False means that no proof was found.
    """
    return _Instance(write, read, place, analyzer).exists()


@contextlib.contextmanager
def at_read(read: Access, analyzer: Analyzer) -> Iterator[None]:
    """A ``with`` block in which the analyzer, which knows the function's variables, also knows what holds where
    ``read`` reads."""
    with analyzer.scope():
        bind_places(analyzer, read.place.chain())
        if read.predicate is not None and read.predicate.dtype.lanes == 1:
            analyzer.assume(read.predicate)
        yield


class _Instance:
    """The run of a write that stores what one run of a read reads."""

    def __init__(self, write: Access, read: Access, place: Place, analyzer: Analyzer) -> None:
        self.write, self.read, self.analyzer = write, read, analyzer
        self.places = inner_places(write, place)
        self.loops = [p.loop for p in self.places if p.loop is not None]
        of_read = set(inner_places(read, place))
        self.shared = [p.loop for p in self.places if p.loop is not None and p in of_read]
        self.fresh: dict[Var, Var] = {loop.var: Var(loop.var.name, loop.var.dtype) for loop in self.loops}
        self.solved: dict[Var, Expr] = {}
        self.first: set[Var] = set()

    def exists(self) -> bool:
        """Whether it provably exists."""
        if self.write.predicate is not None and self.write.predicate.dtype.lanes != 1:
            return False
        if any(index.dtype is not INT64 for index in (*self.write.indices, *self.read.indices)):
            return False
        return self._solve() and self._in_range() and self._conditions_hold() and self._comes_before()

    def _in_write(self, expr: Expr) -> Expr:
        """``expr``, written in the variables of the write, in terms of those of the read."""
        renamed: Expr = substitute(expr, dict(self.fresh))
        return substitute(renamed, self.solved)

    def _solve(self) -> bool:
        left = list(zip(self.write.indices, self.read.indices, strict=True))
        while left:
            left.sort(key=lambda pair: len(self._unknowns(pair[0])))
            written, wanted = left.pop(0)
            if not self._solve_dimension(written, wanted):
                return False
        for loop in self.loops:
            var = self.fresh[loop.var]
            if var not in self.solved:
                self.solved[var] = self._in_write(loop.min)
                self.first.add(loop.var)
        return True

    def _unknowns(self, expr: Expr) -> list[For]:
        return [loop for loop in self.loops if self.fresh[loop.var] not in self.solved and uses_var(expr, {loop.var})]

    def _solve_dimension(self, written: Expr, wanted: Expr) -> bool:
        analyzer = self.analyzer
        unknowns = self._unknowns(written)
        form = analyzer.linear(self._in_write(written))
        rest = form
        factors: list[tuple[int, For]] = []
        for loop in unknowns:
            var = self.fresh[loop.var]
            factors.append((form.terms.get(var, 0), loop))
            rest = rest.without(var)
        fresh = {self.fresh[loop.var] for loop in unknowns}
        if any(uses_var(term, fresh) for term in rest.terms):
            return False
        offset = analyzer.simplify(wanted - analyzer.expr(rest))
        if not factors:
            return analyzer.prove(offset.equal(0))
        if len(factors) == 1 and factors[0][0] != 0:
            factor, loop = factors[0]
            value = offset if factor == 1 else analyzer.simplify(offset // factor)
            self.solved[self.fresh[loop.var]] = value
            return factor == 1 or analyzer.prove((value * factor).equal(offset))
        return self._solve_digits(sorted(factors, key=lambda item: item[0]), offset)

    def _solve_digits(self, factors: list[tuple[int, For]], offset: Expr) -> bool:
        """``offset = v1 + c2 v2 + c3 v3`` where each factor is the previous one times the extent of its loop."""
        for factor, loop in factors:
            offset = offset - self._in_write(loop.min) * factor
        expected = 1
        for number, (factor, loop) in enumerate(factors):
            if factor != expected:
                return False
            digit = offset // factor
            if number + 1 < len(factors):
                if not isinstance(loop.extent, IntImm):
                    return False
                expected = factor * loop.extent.value
                digit = digit % loop.extent
            self.solved[self.fresh[loop.var]] = self.analyzer.simplify(digit + self._in_write(loop.min))
        return True

    def _in_range(self) -> bool:
        for loop in self.loops:
            value, low = self.solved[self.fresh[loop.var]], self._in_write(loop.min)
            if not self.analyzer.prove(low <= value):
                return False
            if not self.analyzer.prove(value < low + self._in_write(loop.extent)):
                return False
        return True

    def _conditions_hold(self) -> bool:
        conditions = [place.condition for place in self.places if place.condition is not None]
        if self.write.predicate is not None:
            conditions.append(self.write.predicate)
        return all(self.analyzer.prove(self._in_write(condition)) for condition in conditions)

    def _comes_before(self) -> bool:
        for loop in self.shared:
            value = self.solved[self.fresh[loop.var]]
            if loop.var in self.first or self.analyzer.prove(value.equal(loop.var)):
                continue  # the same or an earlier iteration
            return self.analyzer.prove(value < loop.var)
        return self.write.order < self.read.order


def enclosing_loops(place: Place, limit: Place) -> Iterator[Place]:
    """The places of the loops (the statements themselves) around ``place``, innermost first, inside ``limit``."""
    current = place
    while current is not limit and current.parent is not None:
        if current.loop is not None:
            yield current.parent
        current = current.parent
