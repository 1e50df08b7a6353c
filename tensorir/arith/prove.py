"""Proofs that an index is never negative, by symbolic bounds.

To prove ``m * n - 1 - i * n - j >= 0`` with ``0 <= i < m`` and ``0 <= j < n``, terms are replaced, one after the
other, by bounds that make the form no larger (``j`` by ``n - 1``, then ``i`` by ``m - 1``), until constant bounds
decide. The search is depth first and bounded, so that it may miss a proof, but never gives a wrong one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

from tilewright.tensorir.arith.bounds import PROVE_BUDGET, SIMPLIFY_BUDGET
from tilewright.tensorir.arith.index import IndexAlgebra
from tilewright.tensorir.arith.linear import ZERO, Linear
from tilewright.tensorir.expr import BinaryOp, Expr, IntImm, Select, Var

_COEFFICIENT_LIMIT = 1 << 40
#: The numbers of forms are those of int64; what a search computes with stays so far from their ends that none wraps.
_NUMBER_LIMIT = 1 << 62

#: ``(rest, scale, bound, factor)`` for the form ``scale * rest + factor * bound``. If it is greater than ``-scale``,
#: the form that it was made of is greater than -1, and so, as an integer, not negative.
Step = tuple[Linear, int, Linear, int]


def _sum_of(step: Step) -> Linear | None:
    """The form that is not negative if a step's is greater than ``-scale``; None if a number of it might wrap."""
    rest, scale, bound, factor = step
    if scale * _largest_number(rest) + abs(factor) * _largest_number(bound) + scale > _NUMBER_LIMIT:
        return None
    return rest.scale(scale).combine(bound, factor).shift(scale - 1)


def _largest_number(form: Linear) -> int:
    found = abs(form.const)
    for coefficient in form.terms.values():
        found = max(found, abs(coefficient))
    return found


class _Search:
    """The state of one proof: the forms met, and how many more may be looked at."""

    def __init__(self, budget: int) -> None:
        self.left = budget
        self.failed: set[object] = set()


class ProvingAlgebra(IndexAlgebra):
    """Index algebra that decides questions of sign by symbolic bounds."""

    def is_nonnegative(self, form: Linear, budget: int = SIMPLIFY_BUDGET) -> bool:
        """Return whether ``form >= 0`` always holds; False if no proof was found within the budget."""
        if not form.terms:
            return form.const >= 0
        bounds = self.interval(form)
        if bounds.lower >= 0:
            return True
        return bounds.upper >= 0 and self.may_prove(form) and self.is_exact(form) and self.proves(form, budget)

    def proves(self, form: Linear, budget: int) -> bool:
        """Return whether symbolic bounds prove that ``form``, an index whose constant bounds do not decide, is never
        negative."""
        key = (form.key, budget)
        here = self.here
        found = here.proofs.get(key)
        if found is None:
            home = here.home_of(form)
            if home is here:
                here.proofs[key] = False  # ends a recursion of the search into the same question
                search = _Search(budget)
                found = not self._is_refuted(form) and self._search(form, search)
                other = PROVE_BUDGET if budget == SIMPLIFY_BUDGET else SIMPLIFY_BUDGET
                if budget - search.left < other:  # a search within that budget takes the same steps
                    here.proofs.setdefault((key[0], other), found)
            else:
                found = self.ask_in(home, functools.partial(self.proves, budget=budget), form)
            here.proofs[key] = found
        return found

    def _is_refuted(self, form: Linear) -> bool:
        """Return whether ``form`` is negative for values of the variables that agree with all that is known."""
        for witness in self.facts.witnesses():
            total = form.const
            for term, coefficient in form.terms.items():
                value = witness.value(term)
                if value is None:
                    break
                total += value * coefficient
            else:
                if total < 0:
                    return True
        return False

    def may_prove(self, form: Linear) -> bool:
        """Return whether any symbolic bound is known for a term of the form, with which a search could begin."""
        for fact in self.facts.nonnegative:
            if not fact.terms.keys().isdisjoint(form.terms):
                return True
        ranges = self.facts.ranges
        for term in form.terms:
            if isinstance(term, Var):
                low, high = ranges.get(term, (None, None))
                if (low is not None and low.terms) or (high is not None and high.terms):
                    return True
            else:
                for factor in self.factors(term):
                    if factor in ranges or isinstance(factor, (BinaryOp, Select)):
                        return True
        return False

    def _search(self, form: Linear, search: _Search) -> bool:
        bounds = self.interval(form)
        if bounds.lower >= 0:
            return True
        if bounds.upper < 0 or search.left <= 0:
            return False
        key = form.key
        if key in search.failed:
            return False
        if any(abs(c) > _COEFFICIENT_LIMIT for c in form.terms.values()):
            return False
        search.left -= 1
        search.failed.add(key)  # also stops cycles
        for steps in self._lower_bounds(form):
            for step in steps:  # with one frame of the stack for each form
                part = _sum_of(step)
                if part is None or not self._search(part, search):
                    break
            else:
                return True
        return False

    def _lower_bounds(self, form: Linear) -> Iterator[list[Step]]:
        """Ways to prove ``form >= 0``: each a list of steps that must all hold."""
        for term, coefficient in self._latest_first(form):
            factors = self.factors(term)
            for factor in factors:
                cofactors = list(factors)
                cofactors.remove(factor)
                if isinstance(factor, Var):
                    yield from self._by_range(form, term, coefficient, factor, tuple(cofactors))
                elif isinstance(factor, BinaryOp) and not cofactors:
                    yield from self._by_operation(form, factor, coefficient)
                elif isinstance(factor, BinaryOp) and factor.op == "floordiv":
                    yield from self._by_symbolic_quotient(form, term, coefficient, factor, tuple(cofactors))
                elif isinstance(factor, Select) and not cofactors:
                    values = (factor.true_value, factor.false_value)
                    rest = form.without(term)
                    yield [(rest, 1, self.linear(value), coefficient) for value in values]
        yield from self._by_facts(form)

    def _latest_first(self, form: Linear) -> list[tuple[Expr, int]]:
        """The terms of a form, those with variables of inner ranges before others."""
        terms = list(form.terms.items())
        if len(terms) > 1:
            places = {var: place for place, var in enumerate(self.facts.ranges)}
            terms.sort(key=lambda item: -max([places.get(factor, -1) for factor in self.factors(item[0])]))
        return terms

    def _by_range(
        self, form: Linear, term: Expr, coefficient: int, var: Var, cofactors: tuple[Expr, ...]
    ) -> Iterator[list[Step]]:
        known = self.facts.ranges.get(var)
        if known is None:
            return
        if any(self.term_interval(cofactor).lower < 0 for cofactor in cofactors):
            return
        bound = known[0] if coefficient > 0 else known[1]
        if bound is None or (bound.is_const and not cofactors):
            return
        yield [(form.without(term), 1, self.multiply(self.product(cofactors), bound), coefficient)]

    def _by_operation(self, form: Linear, term: BinaryOp, coefficient: int) -> Iterator[list[Step]]:
        rest = form.without(term)
        if term.op in ("min", "max"):
            cases: list[Step] = [(rest, 1, self.linear(side), coefficient) for side in (term.a, term.b)]
            if (term.op == "min") == (coefficient > 0):
                yield cases  # its value may be either operand
            else:
                yield from ([case] for case in cases)
        elif term.op == "floordiv" and isinstance(term.b, IntImm) and term.b.value > 0:
            divisor, whole = term.b.value, self.linear(term.a)
            if not self.is_exact(whole):
                return
            if coefficient > 0:
                if self.is_nonnegative(whole):
                    yield [(rest, 1, ZERO, 0)]
                yield from self._by_other_quotients(form, term, coefficient)
            scale = divisor // math.gcd(coefficient, divisor)  # x - d + 1 <= d * (x // d) <= x
            bound = whole.shift(1 - divisor) if coefficient > 0 else whole
            yield [(rest, scale, bound, coefficient * scale // divisor)]
        elif term.op == "floordiv" and coefficient < 0:
            yield from self._by_largest_quotient(rest, term, coefficient)
        elif term.op == "floormod":
            whole = self.linear(term.a)
            if isinstance(term.b, IntImm) and term.b.value > 0 and self.is_exact(whole):
                quotient = self.floordiv(whole, self.linear(term.b))
                if any(t in form.terms for t in quotient.terms):
                    yield [(rest, 1, whole.combine(quotient, -term.b.value), coefficient)]
                if coefficient < 0 and self.interval(whole).lower >= 0:
                    yield [(rest, 1, whole, coefficient)]
            elif coefficient < 0 and self.interval(self.linear(term.b)).lower > 0:
                yield [(rest, 1, self.linear(term.b).shift(-1), coefficient)]

    def _by_largest_quotient(self, rest: Linear, term: BinaryOp, coefficient: int) -> Iterator[list[Step]]:
        """``x // n <= y // n`` for ``x <= y`` and ``n > 0``; ``y`` is ``x`` at the end of a variable's range."""
        divisor, whole = self.linear(term.b), self.linear(term.a)
        if self.interval(divisor).lower <= 0 or not self.are_exact(whole, divisor):
            return
        for largest in self.largest_quotients(whole, divisor):
            yield [(rest, 1, largest, coefficient)]

    def largest_quotients(self, whole: Linear, divisor: Linear) -> Iterator[Linear]:
        """Upper bounds of ``whole // divisor``, for a positive divisor, by the ends of variables' ranges."""
        for part, factor in whole.terms.items():
            known = self.facts.ranges.get(part)
            end = None if known is None else known[1] if factor > 0 else known[0]
            if end is not None and self.is_exact(end):
                yield self.floordiv(whole.without(part).combine(end, factor), divisor)

    def _by_other_quotients(self, form: Linear, term: BinaryOp, coefficient: int) -> Iterator[list[Step]]:
        """``x // d - y // d >= (x - y) // d``."""
        divisor = self.linear(term.b)
        for other, opposite in form.terms.items():
            if opposite < 0 and isinstance(other, BinaryOp) and other.op == "floordiv" and other.b is term.b:
                difference = self.linear(term.a) - self.linear(other.a)
                if self.is_exact(difference):
                    bound = Linear({other: 1}, 0) + self.floordiv(difference, divisor)
                    amount = min(coefficient, -opposite)
                    yield [(form.combine(Linear({term: 1}, 0), -amount), 1, bound, amount)]

    def _by_symbolic_quotient(
        self, form: Linear, term: Expr, coefficient: int, quotient: BinaryOp, cofactors: tuple[Expr, ...]
    ) -> Iterator[list[Step]]:
        """``x - n + 1 <= n * (x // n) <= x`` for ``n > 0``."""
        divisor, whole = self.linear(quotient.b), self.linear(quotient.a)
        if not divisor.equals(self.product(cofactors)) or self.interval(divisor).lower <= 0 or not self.is_exact(whole):
            return
        bound = whole - divisor.shift(-1) if coefficient > 0 else whole
        yield [(form.without(term), 1, bound, coefficient)]

    def _by_facts(self, form: Linear) -> Iterator[list[Step]]:
        for fact in self.facts.nonnegative:
            for term, part in fact.terms.items():
                coefficient = form.terms.get(term, 0)
                if coefficient * part > 0:  # |part| * form - |coefficient| * fact has no such term
                    yield [(form, abs(part), fact, -abs(coefficient))]
