"""Facts that an analyzer was given, and results derived from them, by scope."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from typing import TypeVar

from tilewright.tensorir.arith.interval import Interval
from tilewright.tensorir.arith.linear import Division, Linear
from tilewright.tensorir.arith.term_order import TermOrder
from tilewright.tensorir.arith.witness import NUM_WITNESSES, Witness, witness
from tilewright.tensorir.expr import Expr, Var
from tilewright.tensorir.functor import leaves
from tilewright.tensorir.node import Node

V = TypeVar("V")


class Facts:
    """Known properties of variables and terms. Facts begin as those of the enclosing scope and share its tables: adding
    to a table replaces it by a copy, since most scopes add to one or two.

    Args:
        outer: the facts to begin with; they stay as they are.
    """

    __slots__ = (
        "_outer",
        "_said",
        "_witnesses",
        "intervals",
        "nonnegative",
        "ranges",
        "remainders",
        "truths",
        "values",
    )

    def __init__(self, outer: Facts | None = None) -> None:
        #: Inclusive symbolic ends of variables' ranges.
        self.ranges: dict[Expr, tuple[Linear | None, Linear | None]] = {} if outer is None else outer.ranges
        #: Constant ends, of variables or of other terms.
        self.intervals: dict[Expr, Interval] = {} if outer is None else outer.intervals
        #: Variables that have exactly one value.
        self.values: dict[Expr, Linear] = {} if outer is None else outer.values
        #: Forms that are known to be >= 0.
        self.nonnegative: tuple[Linear, ...] = () if outer is None else outer.nonnegative
        #: Terms whose remainder is known: term -> (modulus, remainder).
        self.remainders: dict[Expr, tuple[int, int]] = {} if outer is None else outer.remainders
        #: Conditions that are known.
        self.truths: dict[Expr, bool] = {} if outer is None else outer.truths
        # Witnesses are values of the variables under which all facts hold. Kept are those found so far, each with the
        # number of facts that it agrees with (None: it does not), the facts, and those that these ones began as.
        self._witnesses: dict[int, tuple[Witness | None, int]] | None = None
        self._said: tuple[Callable[[Witness], Witness | None], ...] = ()
        self._outer = outer

    def set_range(self, var: Expr, ends: tuple[Linear | None, Linear | None] | None) -> None:
        """Replace all that is known of the values of ``var`` by the range ``ends`` (None: nothing), and order it after
        all other ranges."""
        self.ranges = _without(self.ranges, var)
        if ends is not None:
            self.ranges[var] = ends
        if var in self.intervals:
            self.intervals = _without(self.intervals, var)
        if var in self.values:
            self.values = _without(self.values, var)

    def narrow(self, term: Expr, bounds: Interval) -> None:
        """Add that ``term`` is within ``bounds``."""
        known = self.intervals.get(term)
        self.intervals = self.intervals.copy()
        self.intervals[term] = bounds if known is None else known.intersect(bounds)

    def set_value(self, var: Expr, value: Linear) -> None:
        """Add that ``var`` has one value."""
        self.values = self.values.copy()
        self.values[var] = value

    def set_remainder(self, term: Expr, modulus: int, remainder: int) -> None:
        """Add that ``term`` has a remainder."""
        self.remainders = self.remainders.copy()
        self.remainders[term] = modulus, remainder

    def set_truths(self, true: Expr, false: Sequence[Expr]) -> None:
        """Add that one condition holds, and that others do not."""
        self.truths = self.truths.copy()
        self.truths[true] = True
        for condition in false:
            self.truths[condition] = False

    def say(self, survivor: Callable[[Witness], Witness | None]) -> None:
        """Record a new fact as ``survivor``, which turns a witness into one that agrees with the fact (None: there is
        none). It is applied when witnesses are next asked for."""
        self._said += (survivor,)

    def witnesses(self) -> Iterator[Witness]:
        """Yield values of the variables under which all known facts hold. Each is computed when it is asked for: most
        scopes are left before anyone asks, and the first witness refutes nearly half of what can be refuted."""
        for number in range(NUM_WITNESSES):
            found = self._witness(number)
            if found is not None:
                yield found

    def _witness(self, number: int) -> Witness | None:
        if self._witnesses is None:
            self._witnesses = {}
        said = new = self._said
        known = self._witnesses.get(number)
        if known is None:
            found = witness(number) if self._outer is None else self._outer._witness(number)
        else:
            found, agreed = known
            if agreed == len(said):
                return found
            new = said[agreed:]
        for survivor in new:
            if found is None:
                break
            found = survivor(found)
        self._witnesses[number] = found, len(said)
        return found


def _without(table: dict[Expr, V], key: Expr) -> dict[Expr, V]:
    found = table.copy()
    found.pop(key, None)
    return found


class Scope:
    """The facts that hold at one place, and results derived from them: forms of expressions, bounds of terms, quotients
    and remainders, proofs, and simplified expressions.

    A scope does not change: a new fact opens another scope inside. Most facts concern few variables; results about
    other variables are kept in an outer scope: see :meth:`home`.

    Args:
        outer: the scope around; None: nothing is known yet.
        told: the variables that the new fact is about.
        defined: the variable that is defined here, if one is.
    """

    __slots__ = (
        "_affects",
        "_homes",
        "_told",
        "depth",
        "divisions",
        "facts",
        "fast",
        "innermost",
        "intervals",
        "linear",
        "outers",
        "proofs",
        "simplified",
    )

    def __init__(
        self, outer: Scope | None = None, told: frozenset[Node] = frozenset(), defined: Var | None = None
    ) -> None:
        self.facts: Facts = Facts() if outer is None else Facts(outer.facts)
        #: The scopes around, the outermost first.
        self.outers: tuple[Scope, ...] = () if outer is None else (*outer.outers, outer)
        self.depth = len(self.outers)
        #: The last variable that was defined here or around.
        self.innermost: Var | None = defined
        if defined is None and outer is not None:
            self.innermost = outer.innermost
        self._told = told
        #: The depth of the innermost scope that concerns a variable, and the variables whose facts depend on it.
        self._homes: dict[Node, int] = {}
        self._affects: dict[Node, frozenset[Node]] = {}
        if outer is not None:
            self._affects = outer._affects
            self._homes = outer._homes.copy()
            for var in outer.affected(told):
                self._homes[var] = self.depth
        self.linear: dict[Expr, Linear] = {}
        self.intervals: dict[Expr, Interval] = {}
        self.divisions: dict[tuple[object, int], Division] = {}
        self.proofs: dict[tuple[object, int], bool] = {}
        self.simplified: dict[Expr, Expr] = {}
        #: The same by the rules for floats that round differently.
        self.fast: dict[Expr, Expr] = {}

    def clear(self) -> None:
        """Drop what was derived."""
        self.linear.clear()
        self.intervals.clear()
        self.divisions.clear()
        self.proofs.clear()
        self.simplified.clear()
        self.fast.clear()

    def affected(self, told: frozenset[Node]) -> Set[Node]:
        """Return the variables about which new facts may follow from a new fact about ``told``."""
        affects = self._affects
        if affects.keys().isdisjoint(told):
            return told
        waiting = [var for var in told if var in affects]
        found = set(told)
        while waiting:
            new = affects[waiting.pop()] - found
            found |= new
            waiting += [var for var in new if var in affects]
        return found

    def connect(self, told: frozenset[Node], others: frozenset[Node]) -> None:
        """Record that facts about ``others`` depend on the facts about each of ``told``."""
        if told:
            self._affects = self._affects.copy()
            for var in told:
                self._affects[var] = self._affects.get(var, others) | others

    def knows(self, var: Expr) -> bool:
        """Return whether this scope has a fact about ``var``, or has derived anything from it alone."""
        return var in self._homes or var in self.linear or var in self.simplified or var in self.fast

    def extend(self, var: Expr) -> None:
        """Record a fact about ``var`` in the outermost scope."""
        self._homes[var] = self.depth
        self.innermost = var if isinstance(var, Var) else None

    def concerns(self, var: Node) -> bool:
        """Return whether this scope or an enclosing one has a fact about ``var``."""
        return var in self._homes

    def is_mentioned(self, var: Node) -> bool:
        """Return whether a fact about another term depends on ``var``."""
        return var in self._affects

    def home(self, expr: Node) -> Scope:
        """Return the outermost scope that has the same facts about the variables of ``expr`` as this one."""
        innermost = self.depth
        if not innermost:
            return self
        below = expr._leaves
        if below is None:
            below = leaves(expr)
        if not self._told.isdisjoint(below):  # as in most loops
            return self
        homes = self._homes
        depth = 0
        for var in below:
            found = homes.get(var, 0)
            if found > depth:
                if found == innermost:
                    return self
                depth = found
        return self.outers[depth]

    def home_of(self, form: Linear) -> Scope:
        """The same for a form."""
        depth = 0
        homes = self._homes
        for term in form.terms:
            for var in leaves(term):
                found = homes.get(var, 0)
                if found > depth:
                    depth = found
        return self if depth == self.depth else self.outers[depth]


class Findings:
    """Results that the analyzers of one function share: the order of terms, and the scopes entered so far, by enclosing
    scope and new fact.

    Args:
        order: of terms, in which variables may have places.
        shared: whether several analyzers share the findings. A single one may add its facts to the outermost scope.
    """

    def __init__(self, order: TermOrder | None = None, shared: bool = False) -> None:
        self.order = TermOrder() if order is None else order
        self.shared = shared
        self.root = Scope()
        self.inner: dict[tuple[object, ...], Scope] = {}
        self.factors: dict[Expr, tuple[Expr, ...]] = {}
        self.data: set[Expr] = set()
        self.numbers: dict[Expr, Linear] = {}

    def add(self, key: tuple[object, ...], outer: Scope, var: Var) -> Scope:
        """A scope inside ``outer``, found by ``key`` from now on, in which ``var`` is defined."""
        defined = None if outer.concerns(var) else var
        inner = self.inner[key] = Scope(outer, frozenset((var,)), defined)
        if defined is not None:
            self.order.place(var, outer.innermost)
        return inner
