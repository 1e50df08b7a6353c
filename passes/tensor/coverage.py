"""Prove that a write covers a read: that within one execution of a surrounding statement, the read sees only values
stored by that write. A buffer may be placed inside a loop only if this holds."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator

from tilewright.passes.tensor.accesses import Access, Place, bind_places, inner_places
from tilewright.passes.tensor.findings import findings
from tilewright.tensorir.arith.analyzer import Analyzer
from tilewright.tensorir.arith.folds import is_true
from tilewright.tensorir.arith.iter_map import affine, iter_sum
from tilewright.tensorir.arith.iter_solver import IterSolver, Span
from tilewright.tensorir.conditions import conjuncts
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import BinaryOp, Expr, IntImm, Var
from tilewright.tensorir.functor import LOADS, kinds, leaves, substitute
from tilewright.tensorir.stmt import For, PrimFunc


def analyzer_of(func: PrimFunc) -> Analyzer:
    """Return an analyzer that knows that sizes are not negative."""
    analyzer = Analyzer(findings(func))
    for var in func.variables:
        if var.dtype.is_integer:
            analyzer.bind_nonnegative(var)
    return analyzer


class Knowledge:
    """The facts that hold at the reads of a function. A query is first decided by verbatim comparison with the
    conditions around a read, then by the ranges of the loops around it, which are kept from one read to the next, and
    by comparison in canonical form. That decides most queries; an analyzer that knows all these facts together is built
    only for a query that needs it.

    Args:
        func: the function.
    """

    def __init__(self, func: PrimFunc) -> None:
        self._func = func
        self._ranges = analyzer_of(func)
        self._loops: dict[Var, For] = {}
        self._is_ranged = False
        self._whole: Analyzer | None = None
        self._scope = contextlib.ExitStack()
        self._read: Access | None = None
        self._is_learned = False
        #: The conditions around the present read, and their canonical form in :attr:`ranges`; computed when first
        #: needed.
        self._told: set[Expr] | None = None
        self._conditions: set[Expr] | None = None

    @contextlib.contextmanager
    def at(self, read: Access) -> Iterator[None]:
        """Open a ``with`` block in which queries are about the place of ``read``."""
        self._read, self._is_ranged, self._is_learned = read, False, False
        self._told = self._conditions = None
        with self._scope:
            yield
        self._read = None

    @property
    def ranges(self) -> Analyzer:
        """Return the analyzer that knows the ranges of the loops around the present read, and of loops elsewhere, which
        have other variables."""
        if self._read is not None and not self._is_ranged:
            self._is_ranged = True
            again = False
            for place in self._read.place.chain():
                loop = place.loop
                if loop is not None and (again or self._loops.get(loop.var) is not loop):
                    again = again or loop.var in self._loops  # inner ranges may derive from the former one
                    self._loops[loop.var] = loop
                    self._ranges.bind(loop.var, loop.min, loop.extent)
        return self._ranges

    @property
    def whole(self) -> Analyzer:
        """Return the analyzer that knows all facts that hold at the present read."""
        whole = self._whole
        if whole is None:
            whole = self._whole = analyzer_of(self._func)
        if self._read is not None and not self._is_learned:
            self._is_learned = True
            self._scope.enter_context(whole.scope())
            bind_places(whole, self._read.place.chain())
            for condition in _own_condition(self._read):
                whole.assume(condition)
        return whole

    def prove(self, condition: Expr) -> bool:
        """Return whether ``condition`` always holds at the present read."""
        return all(self._holds(part) for part in conjuncts(condition))

    def _holds(self, part: Expr) -> bool:
        if part in self._raw():
            return True
        form = self.ranges.canonical(part)
        return is_true(form) or form in self._known() or self.ranges.prove(part) or self.whole.prove(part)

    def _raw(self) -> set[Expr]:
        if self._told is None:
            told = [] if self._read is None else _conditions_at(self._read)
            self._told = {part for condition in told for part in conjuncts(condition)}
        return self._told

    def _known(self) -> set[Expr]:
        if self._conditions is None:
            self._conditions = {self.ranges.canonical(part) for part in self._raw()}
        return self._conditions


def _own_condition(read: Access) -> list[Expr]:
    return [read.predicate] if read.predicate is not None and read.predicate.dtype.lanes == 1 else []


def _conditions_at(read: Access) -> list[Expr]:
    around = [place.condition for place in read.place.chain() if place.condition is not None]
    return around + _own_condition(read)


def covers(write: Access, read: Access, place: Place, known: Knowledge) -> bool:
    """Return whether in each execution of ``place``'s statement, ``write`` stores each element before ``read`` reads
    it.

    The instance of the write is found by solving its indices for its loop variables; loops that no index uses take
    their first iteration. The instance must then lie in its loops' ranges, satisfy its conditions, and precede the
    read. ``known`` must be at the read; False means that no proof was found.
    """
    if write.predicate is not None and write.predicate.dtype.lanes != 1:
        return False
    for index in (*write.indices, *read.indices):
        if index.dtype is not INT64:
            return False
    return _Instance(write, read, place, known).exists() or _Instance(write, read, place, known, True).exists()


def _has_constant_splits(index: Expr, variables: Collection[Var]) -> bool:
    """Return whether variables are divided by constants alone: solutions from other quotients can hardly ever be proved
    to be in range, but the search takes long."""
    found = iter_sum(index, variables)
    return found is not None and all(
        isinstance(split.lower, IntImm) and (split.extent is None or isinstance(split.extent, IntImm))
        for split in found.splits
    )


class _Instance:
    """The instance of a write that stores the element that one instance of a read reads.

    Args:
        by_all: whether to prove by all facts together.
    """

    def __init__(self, write: Access, read: Access, place: Place, known: Knowledge, by_all: bool = False) -> None:
        self.write, self.read, self.known, self.by_all = write, read, known, by_all
        self.places = inner_places(write, place)
        self.loops = [p.loop for p in self.places if p.loop is not None]
        of_read = inner_places(read, place)
        self.shared = [p.loop for p in self.places if p.loop is not None and p in of_read]
        #: The values of the write's loop variables: unknowns until they are solved for. The variables themselves denote
        #: the iteration of the read in loops around both.
        self.values: dict[Var, Expr] = {loop.var: Var(loop.var.name, loop.var.dtype) for loop in self.loops}
        #: The loops whose variables no index uses.
        self.first: set[Var] = set()

    @property
    def analyzer(self) -> Analyzer:
        """Return what the instance is found by."""
        return self.known.whole if self.by_all else self.known.ranges

    def prove(self, condition: Expr) -> bool:
        """Return whether ``condition`` always holds at the read."""
        return self.known.whole.prove(condition) if self.by_all else self.known.prove(condition)

    def exists(self) -> bool:
        """Return whether the instance provably exists."""
        found = self._is_renamed() or (self._solve() and self._in_range())
        return found and self._conditions_hold() and self._comes_before()

    def _is_renamed(self) -> bool:
        """Find the instance where the indices of write and read are the same but for the names of loops with equal
        ranges, as most are, or numbers within the range of a loop. Return whether it was found."""
        names: dict[Var, Var | IntImm] = {}
        for own, other in zip(self.write.indices, self.read.indices, strict=True):
            if not self._renames(own, other, names):
                return False
        around = {p.loop.var: p.loop for p in self.read.place.chain() if p.loop is not None}
        values: dict[Var, Expr] = {}
        for loop in self.loops:
            if not (
                self.values.keys().isdisjoint(leaves(loop.min)) and self.values.keys().isdisjoint(leaves(loop.extent))
            ):
                return False
            name = names.get(loop.var)
            if isinstance(name, IntImm):
                if not isinstance(loop.min, IntImm) or not isinstance(loop.extent, IntImm):
                    return False
                if not 0 <= name.value - loop.min.value < loop.extent.value:
                    return False
                values[loop.var] = name
            elif name is not None:
                other_loop = around.get(name)
                if other_loop is None or other_loop.min is not loop.min or other_loop.extent is not loop.extent:
                    return False
                values[loop.var] = name
            elif isinstance(loop.extent, IntImm) and loop.extent.value > 0:
                values[loop.var] = loop.min
            else:
                return False
        self.first.update(values.keys() - names.keys())
        self.values = values
        return True

    def _renames(self, own: Expr, other: Expr, names: dict[Var, Var | IntImm]) -> bool:
        """Return whether ``own`` becomes ``other`` when loop variables of the write take ``names`` or numbers, to which
        those that are not known yet are added."""
        used = [leaf for leaf in leaves(own) if leaf in self.values]
        if own is other or not used:
            if kinds(own) & LOADS or not all(names.setdefault(var, var) is var for var in used):
                return False
            return own is other or self.analyzer.canonical(own) is self.analyzer.canonical(other)
        if isinstance(own, Var):
            return own in self.values and isinstance(other, (Var, IntImm)) and names.setdefault(own, other) is other
        if not isinstance(own, BinaryOp) or not isinstance(other, BinaryOp) or own.op != other.op:
            return False
        return self._renames(own.a, other.a, names) and self._renames(own.b, other.b, names)

    def _in_write(self, expr: Expr) -> Expr:
        """Rewrite ``expr``, given in the variables of the write, in terms of those of the read."""
        return substitute(expr, self.values)

    def _solve(self) -> bool:
        """Find the iterations in which the write's indices equal those of the read. Return whether the indices are
        equal wherever all these iterations are in range."""
        ranges: dict[Var, Span] = {}
        for loop in self.loops:
            unknown = self.values[loop.var]
            assert isinstance(unknown, Var)
            ranges[unknown] = self._in_write(loop.min), self._in_write(loop.extent)
        written: list[Expr] = []
        wanted: list[Expr] = []
        for own, other in zip(self.write.indices, self.read.indices, strict=True):
            index = self._in_write(own)
            if index is not other:
                if affine(index, ranges) is None:
                    index = self.analyzer.simplify(index)
                    if not _has_constant_splits(index, ranges):
                        return False
                written.append(index)
                wanted.append(other)
        solver = IterSolver(ranges, self.analyzer)
        solver.solve(written, wanted)
        solved: dict[Var, Expr] = {}
        for loop, unknown in zip(self.loops, ranges, strict=True):
            value = solver.values.get(unknown)
            if value is None:
                value = self._in_write(loop.min)
                self.first.add(loop.var)
            # The ranges of inner loops, and solutions derived from them, may depend on outer ones.
            self.values[loop.var] = solved[unknown] = self.analyzer.simplify(substitute(value, solved))
        return all(self.prove(substitute(written[k], solved).equal(wanted[k])) for k in sorted(solver.unchecked))

    def _in_range(self) -> bool:
        for loop in self.loops:
            value, low = self.values[loop.var], self._in_write(loop.min)
            if not self.prove(low <= value):
                return False
            if not self.prove(value < low + self._in_write(loop.extent)):
                return False
        return True

    def _conditions_hold(self) -> bool:
        conditions = [place.condition for place in self.places if place.condition is not None]
        if self.write.predicate is not None:
            conditions.append(self.write.predicate)
        return all(self.prove(self._in_write(condition)) for condition in conditions)

    def _comes_before(self) -> bool:
        for loop in self.shared:
            value = self.values[loop.var]
            if loop.var in self.first or value is loop.var or self.prove(value.equal(loop.var)):
                continue  # the same or an earlier iteration
            return self.prove(value < loop.var)
        return self.write.order < self.read.order
