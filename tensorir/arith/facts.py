"""What an analyzer was told, and what it has derived from that."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.tensorir.arith.interval import Interval
from tilewright.tensorir.arith.linear import Division, Linear
from tilewright.tensorir.arith.witness import Witness, witnesses
from tilewright.tensorir.expr import Expr
from tilewright.tensorir.functor import leaves


class Facts:
    """What is known about variables and terms; copied where a scope opens.

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
        self.ranges: dict[Expr, tuple[Linear | None, Linear | None]] = {} if outer is None else outer.ranges.copy()
        #: Constant ends, of variables or of other terms.
        self.intervals: dict[Expr, Interval] = {} if outer is None else outer.intervals.copy()
        #: Variables that have exactly one value.
        self.values: dict[Expr, Linear] = {} if outer is None else outer.values.copy()
        #: Forms that are known to be >= 0.
        self.nonnegative: tuple[Linear, ...] = () if outer is None else outer.nonnegative
        #: Terms whose remainder is known: term -> (modulus, remainder).
        self.remainders: dict[Expr, tuple[int, int]] = {} if outer is None else outer.remainders.copy()
        #: Conditions that are known.
        self.truths: dict[Expr, bool] = {} if outer is None else outer.truths.copy()
        # Of values for the variables under which all of that holds: those that `witnesses` has found, what was said
        # since then, and the facts that these ones were copied from.
        self._witnesses: tuple[Witness, ...] | None = None
        self._said: list[Callable[[Witness], Witness | None]] = []
        self._outer = outer

    def mention(self, var: Expr) -> bool:
        """Whether anything that is known of other terms depends on ``var``."""
        forms = [form for ends in self.ranges.values() for form in ends if form is not None]
        told = [*self.intervals, *self.remainders, *self.truths]
        terms = [term for form in (*forms, *self.values.values(), *self.nonnegative) for term in form.terms]
        return any(term is not var and var in leaves(term) for term in told) or any(var in leaves(t) for t in terms)

    def say(self, survivor: Callable[[Witness], Witness | None]) -> None:
        """Let ``survivor`` make of each witness, before it is asked next, one that agrees with what is known now (None:
        it does not)."""
        self._said.append(survivor)

    def witnesses(self) -> tuple[Witness, ...]:
        """Values of the variables under which all holds that is known. They are found when somebody asks: most scopes
        are left before."""
        found = self._witnesses
        if found is None:
            found = witnesses() if self._outer is None else self._outer.witnesses()
        if self._said:
            for survivor in self._said:
                found = tuple([new for witness in found if (new := survivor(witness)) is not None])
            self._said.clear()
        self._witnesses = found
        return found


class Derived:
    """What was derived from the facts inside one scope: forms of expressions, bounds of terms, quotients and
    remainders, proofs, and simplified expressions.

    A scope only adds facts. What was derived before stays true; whoever adds a fact that says more of what was asked
    starts anew, with tables that have none around them.

    Args:
        outer: what was derived where this scope opened.
    """

    __slots__ = ("divisions", "intervals", "linear", "outers", "proofs", "simplified")

    def __init__(self, outer: Derived | None = None) -> None:
        self.linear: dict[Expr, Linear] = {}
        self.intervals: dict[Expr, Interval] = {}
        self.divisions: dict[tuple[object, int], Division] = {}
        self.proofs: dict[tuple[object, int], bool] = {}
        self.simplified: dict[Expr, Expr] = {}
        #: That of the scopes around which hold anything, the nearest first. Who asks looks into the scope's own tables,
        #: then into these ones; there are too many questions for a call each.
        self.outers: tuple[Derived, ...] = ()
        if outer is not None:
            holds_any = outer.linear or outer.intervals or outer.simplified
            self.outers = (outer, *outer.outers) if holds_any else outer.outers
