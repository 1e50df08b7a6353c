"""Constant bounds and remainders of terms, and of the linear forms over them.

Index arithmetic is assumed not to overflow, so that the bounds of a sum are the sums of bounds. That is only assumed of
values built from variables: a value loaded from memory (or got from a call, a cast, a bit operation) is *data*, which
may be any int64, and is only rewritten by rules that are exact under wrapping too (sums and products form a ring).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from tilewright.tensorir.arith import interval as iv
from tilewright.tensorir.arith.facts import Findings, Scope
from tilewright.tensorir.arith.interval import EVERYTHING, Interval, type_interval
from tilewright.tensorir.arith.lane_numbers import LANES
from tilewright.tensorir.arith.linear import Linear
from tilewright.tensorir.arith.transfer import transfer, wrapped
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import BinaryOp, Call, Cast, Expr, Select, Var

A = TypeVar("A")
R = TypeVar("R")

#: Number of forms that a proof looks at while expressions are simplified, and when a caller asks for one.
SIMPLIFY_BUDGET = 12
PROVE_BUDGET = 150

_ANY = type_interval(INT64)


class BoundedTerms:
    """Derives bounds and remainders of terms from the current :class:`Facts`, and keeps each result in the outermost
    scope in which it holds."""

    def __init__(self, findings: Findings | None = None) -> None:
        self.findings = found = Findings() if findings is None else findings
        self.order = found.order
        self._sums = found.order.sums
        self._factors = found.factors
        self._data = found.data
        #: Number of open blocks, each of which enters an earlier scope again at its end.
        self.open_scopes = 0
        self.enter(found.root)

    def enter(self, scope: Scope) -> None:
        """Make ``scope`` the current one."""
        self.here = scope
        self.facts = scope.facts

    def open_scope(self) -> Scope:
        """Begin a block whose facts are forgotten at its end; return the scope for :meth:`close_scope`."""
        self.open_scopes += 1
        return self.here

    def close_scope(self, outer: Scope) -> None:
        """Forget what was bound or assumed since ``outer`` was the current scope."""
        self.open_scopes -= 1
        self.enter(outer)

    def ask_in(self, scope: Scope, question: Callable[[A], R], about: A) -> R:
        """Return the answer to ``question`` in ``scope``, which encloses the current one."""
        here, facts = self.here, self.facts
        self.here, self.facts = scope, scope.facts
        try:
            return question(about)
        finally:
            self.here, self.facts = here, facts

    def linear(self, expr: Expr) -> Linear:
        """The canonical form of an int64 scalar. :class:`IndexAlgebra`, which knows the operations, overrides this."""
        raise NotImplementedError

    def factors(self, term: Expr) -> tuple[Expr, ...]:
        """The factors of a term: several for a product of terms."""
        return self._factors.get(term, (term,))

    def is_exact(self, form: Linear) -> bool:
        """Return whether the form is an index, which does not overflow, rather than data."""
        data = self._data
        return not data or all(
            term not in data and not any(f in data for f in self._factors.get(term, ())) for term in form.terms
        )

    def are_exact(self, a: Linear, b: Linear) -> bool:
        """Return whether both forms are indices; where no data occurs, as in most functions, all are."""
        return not self._data or (self.is_exact(a) and self.is_exact(b))

    # -- bounds -------------------------------------------------------------------------------------------------------

    def interval(self, form: Linear) -> Interval:
        """Constant bounds of an index."""
        lower: iv.Bound = form.const
        upper: iv.Bound = form.const
        known = self.here.intervals
        for term, coefficient in form.terms.items():
            bounds = known.get(term)
            if bounds is None:
                bounds = self.term_interval(term)
            if coefficient == 1:
                lower += bounds.lower
                upper += bounds.upper
            elif coefficient < 0:
                lower += bounds.upper * coefficient
                upper += bounds.lower * coefficient
            else:
                lower += bounds.lower * coefficient
                upper += bounds.upper * coefficient
        return Interval(lower, upper)

    def term_interval(self, term: Expr) -> Interval:
        """Constant bounds of one term."""
        here = self.here
        found = here.intervals.get(term)
        if found is None:
            home = here.home(term)
            if home is here:
                found = self._find_interval(term)
            else:
                found = home.intervals.get(term)
                if found is None:
                    found = home.intervals[term] = self.ask_in(home, self._find_interval, term)
            here.intervals[term] = found
        return found

    def _find_interval(self, term: Expr) -> Interval:
        found = self._by_operands(term)
        known = self.facts.intervals.get(term)
        if known is None:
            return found
        return known if found is EVERYTHING else found.intersect(known)

    def _by_operands(self, term: Expr) -> Interval:
        factors = self._factors.get(term)
        if factors is not None:
            if len(factors) % 2 == 0 and len(set(factors)) == 1:
                high = max(abs(end) for end in self.term_interval(factors[0]))
                return Interval(0, high ** len(factors) if high != math.inf else high)
            result = Interval(1, 1)
            for factor in factors:
                result = iv.multiply(result, self._operand_interval(factor))
            return result
        if isinstance(term, (BinaryOp, Select)) and term.dtype is INT64:
            return _unless_any(transfer(term, self._operand_interval))
        if isinstance(term, (Cast, Call)):
            return self.integer_interval(term)
        lanes = LANES.get(term)
        return EVERYTHING if lanes is None else Interval(0, lanes - 1)

    def _operand_interval(self, expr: Expr) -> Interval:
        form = self.linear(expr)
        if form.single() is expr:
            return self.term_interval(expr)
        return self.interval(form) if self.is_exact(form) else EVERYTHING

    def integer_interval(self, expr: Expr) -> Interval:
        """Constant bounds of a scalar of any integer type, which wraps: where an operation might leave the range of its
        type, nothing but that range is known."""
        if expr.dtype is INT64 and not isinstance(expr, (Cast, Call)):
            return self._operand_interval(expr)
        if isinstance(expr, Var):
            whole = type_interval(expr.dtype)
            known = self.facts.intervals.get(expr)
            return whole if known is None else known.intersect(whole)
        found = wrapped(transfer(expr, self.integer_interval), expr.dtype)
        return _unless_any(found) if expr.dtype is INT64 else found

    def is_nonnegative(self, form: Linear, budget: int = SIMPLIFY_BUDGET) -> bool:
        """Return whether ``form >= 0`` is proved; the prover overrides this test by constant bounds."""
        return self.interval(form).lower >= 0

    # -- remainders ---------------------------------------------------------------------------------------------------

    def modular(self, form: Linear) -> tuple[int, int]:
        """``(m, r)`` such that the form is ``r`` plus a multiple of ``m``, ``0 <= r < m``; ``m = 0`` for a constant."""
        modulus, remainder = 0, form.const
        for term, coefficient in form.terms.items():
            m, r = self._term_modular(term)
            modulus = math.gcd(modulus, m * coefficient)
            remainder += r * coefficient
        return modulus, remainder % modulus if modulus else remainder

    def _term_modular(self, term: Expr) -> tuple[int, int]:
        known = self.facts.remainders.get(term)
        if known is not None:
            return known
        factors = self._factors.get(term)
        if factors is not None:
            m, r = 0, 1
            for factor in factors:
                fm, fr = self._term_modular(factor)
                m, r = math.gcd(m * fm, m * fr, r * fm), r * fr
            return m, r % m if m else r
        if isinstance(term, (BinaryOp, Select)) and term.dtype is INT64:
            if isinstance(term, Select):
                (m1, r1), (m2, r2) = (self.modular(self.linear(v)) for v in (term.true_value, term.false_value))
            elif term.op in ("min", "max", "floormod"):
                (m1, r1), (m2, r2) = (self.modular(self.linear(v)) for v in (term.a, term.b))
                if term.op == "floormod":  # x - k * y
                    m = math.gcd(m1, m2, r2)
                    return (m, r1 % m) if m else (1, 0)
            else:
                return 1, 0
            m = math.gcd(m1, m2, r1 - r2)
            return (m, r1 % m) if m else (1, 0)
        return 1, 0


def _unless_any(found: Interval) -> Interval:
    """Return ``found`` with infinite ends if it is no narrower than the type int64."""
    return EVERYTHING if found == _ANY else found
