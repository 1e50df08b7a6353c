"""What an analyzer was told, and what it has derived from that."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from tilewright.tensorir.arith.cache import ScopedCache
from tilewright.tensorir.arith.interval import Interval
from tilewright.tensorir.arith.linear import Division, Linear
from tilewright.tensorir.arith.witness import Witness, witnesses
from tilewright.tensorir.expr import Expr
from tilewright.tensorir.functor import leaves


@dataclasses.dataclass
class Facts:
    """What is known about variables and terms; copied where a scope opens."""

    #: Inclusive symbolic ends of variables' ranges.
    ranges: dict[Expr, tuple[Linear | None, Linear | None]] = dataclasses.field(default_factory=dict)
    #: Constant ends, of variables or of other terms.
    intervals: dict[Expr, Interval] = dataclasses.field(default_factory=dict)
    #: Variables that have exactly one value.
    values: dict[Expr, Linear] = dataclasses.field(default_factory=dict)
    #: Forms that are known to be >= 0.
    nonnegative: tuple[Linear, ...] = ()
    #: Terms whose remainder is known: term -> (modulus, remainder).
    remainders: dict[Expr, tuple[int, int]] = dataclasses.field(default_factory=dict)
    #: Conditions (interned) that are known.
    truths: dict[Expr, bool] = dataclasses.field(default_factory=dict)
    #: Of values for the variables under which all of that holds: those that :meth:`witnesses` has found, what was said
    #: since then, and the facts that these ones were copied from.
    _witnesses: tuple[Witness, ...] | None = None
    _said: list[Callable[[Witness], Witness | None]] = dataclasses.field(default_factory=list)
    _outer: Facts | None = None

    def mention(self, var: Expr) -> bool:
        """Whether anything that is known of other terms depends on ``var``."""
        forms = [form for ends in self.ranges.values() for form in ends if form is not None]
        told = [*self.intervals, *self.remainders, *self.truths]
        terms = [term for form in (*forms, *self.values.values(), *self.nonnegative) for term in form.terms]
        return any(term is not var and var in leaves(term) for term in told) or any(var in leaves(t) for t in terms)

    def copy(self) -> Facts:
        """An independent copy."""
        return Facts(
            dict(self.ranges),
            dict(self.intervals),
            dict(self.values),
            self.nonnegative,
            dict(self.remainders),
            dict(self.truths),
            _outer=self,
        )

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
        for survivor in self._said:
            found = tuple([new for witness in found if (new := survivor(witness)) is not None])
        self._said.clear()
        self._witnesses = found
        return found


class Derived:
    """What was derived from the facts: forms of expressions, bounds of terms, quotients and remainders, proofs, and
    simplified expressions; ``outer``: what was derived where this scope opened."""

    def __init__(self, outer: Derived | None = None) -> None:
        self.linear: ScopedCache[Expr, Linear] = ScopedCache(outer.linear if outer else None)
        self.intervals: ScopedCache[Expr, Interval] = ScopedCache(outer.intervals if outer else None)
        self.divisions: ScopedCache[tuple[object, int], Division] = ScopedCache(outer.divisions if outer else None)
        self.proofs: ScopedCache[tuple[object, int], bool] = ScopedCache(outer.proofs if outer else None)
        self.simplified: ScopedCache[Expr, Expr] = ScopedCache(outer.simplified if outer else None)
