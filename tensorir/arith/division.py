"""Quotients and remainders of linear forms: ``(i * 16 + j) // 16`` is ``i`` where ``0 <= j < 16``."""

from __future__ import annotations

import math

from tilewright.tensorir.arith.bounds import PROVE_BUDGET
from tilewright.tensorir.arith.linear import ZERO, Division, Linear, constant
from tilewright.tensorir.arith.terms import SMALL, TermAlgebra
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import BinaryOp, Expr, IntImm
from tilewright.tensorir.folding import fold_binary


class DividingAlgebra(TermAlgebra):
    """Divides forms, and merges quotients and remainders of one form."""

    def floordiv(self, a: Linear, b: Linear) -> Linear:
        """``a // b``."""
        if not b.is_const:
            return self._divide_by_symbol(a, b)[0]
        if b.const == 0 or not self.is_exact(a):
            return self._division_term("floordiv", a, b)
        if b.const < 0:
            a, b = -a, -b
        return self._quotient(self.divide(a, b.const))

    def floormod(self, a: Linear, b: Linear) -> Linear:
        """``a % b``."""
        if not b.is_const:
            return self._divide_by_symbol(a, b)[1]
        if b.const == 0 or not self.is_exact(a):
            return self._division_term("floormod", a, b)
        if b.const < 0:
            return -self._remainder(self.divide(-a, -b.const))
        return self._remainder(self.divide(a, b.const))

    def divide(self, a: Linear, divisor: int) -> Division:
        """Quotient and remainder of an index by a positive constant."""
        key = (a.key, divisor)
        here = self.here
        found = here.divisions.get(key)
        if found is None:
            found = here.divisions[key] = self._split(a, divisor)
        return found

    def _split(self, a: Linear, divisor: int) -> Division:
        """Split off the terms of ``a`` that ``divisor`` divides, and the low part that never carries."""
        whole_const, rest_const = a.const // divisor, a.const % divisor
        whole: dict[Expr, int] = {}
        rest: dict[Expr, int] = {}
        for term, coefficient in a.terms.items():
            multiple = abs(coefficient) // divisor * (1 if coefficient > 0 else -1)
            if multiple:
                whole[term] = multiple
            if coefficient - multiple * divisor:
                rest[term] = coefficient - multiple * divisor
        quotient, remaining = Linear(whole, whole_const), Linear(rest, rest_const)
        bounds = self.interval(remaining)
        if bounds.is_finite and bounds.lower // divisor == bounds.upper // divisor:
            carry = int(bounds.lower) // divisor
            return Division(quotient.shift(carry), None, 1, 1, remaining.shift(-carry * divisor))
        for unit in sorted({math.gcd(c, divisor) for c in rest.values()} - {1}, reverse=True):
            high_const, low_const = rest_const // unit, rest_const % unit
            low = Linear({t: c for t, c in rest.items() if c % unit}, low_const)
            bounds = self.interval(low)
            if bounds.is_finite and bounds.lower // unit == bounds.upper // unit:
                carry = int(bounds.lower) // unit
                high = Linear({t: c // unit for t, c in rest.items() if c % unit == 0}, high_const + carry)
                low = low.shift(-carry * unit)
                inner = self._split(high, divisor // unit)
                return Division(
                    quotient + inner.whole, inner.rest, inner.small, inner.unit * unit, inner.low.scale(unit) + low
                )
        return Division(quotient, remaining, divisor, 1, ZERO)

    def _quotient(self, division: Division) -> Linear:
        if division.rest is None:
            return division.whole
        rest, small = division.rest, division.small
        nested = _nested_quotient(rest)
        if nested is not None:  # (x // c + y) // d  ->  (x + y * c) // (c * d)
            quotient, inner = nested
            deeper = self._sum_of_multiple(rest.without(quotient), inner, self.linear(quotient.a))
            if deeper is not None:
                return division.whole + self._quotient(self.divide(deeper, inner * small))
        return division.whole + self._division_term("floordiv", rest, constant(small))

    def _remainder(self, division: Division) -> Linear:
        if division.rest is None:
            return division.low
        rest = division.rest
        for term, coefficient in division.rest.terms.items():  # (x % m) % d  ->  x % d  where d divides m
            if not isinstance(term, BinaryOp) or term.op != "floormod" or not isinstance(term.b, IntImm):
                continue
            if coefficient * term.b.value % division.small == 0:
                rest = rest.without(term).combine(self.linear(term.a), coefficient)
        if rest is not division.rest:
            return self._remainder(self.divide(rest, division.small)).scale(division.unit) + division.low
        modulus, known = self.modular(rest)
        if modulus % division.small == 0:
            return division.low.shift(division.unit * (known % division.small))
        return self._division_term("floormod", rest, constant(division.small)).scale(division.unit) + division.low

    def _division_term(self, op: str, a: Linear, b: Linear) -> Linear:
        if a.is_const and b.is_const:
            folded = fold_binary(op, a.const, b.const, INT64)
            if folded is not None:
                return constant(int(folded))
        return self.term(BinaryOp(op, self.expr(a), self.expr(b)))

    # -- division by symbols ------------------------------------------------------------------------------------------

    def _divide_by_symbol(self, a: Linear, b: Linear) -> tuple[Linear, Linear]:
        """Quotient and remainder by a divisor that is not constant: ``(i * n + j) // n`` is ``i`` if ``0 <= j < n``."""
        if len(b.terms) == 1 and b.const == 0 and self.are_exact(a, b):
            ((symbol, scale),) = b.terms.items()
            quotient, rest = ZERO, Linear({}, a.const)
            for term, coefficient in a.terms.items():
                cofactors = _remove_factors(self.factors(term), self.factors(symbol))
                if cofactors is None or coefficient % scale:
                    rest = rest + Linear({term: coefficient}, 0)
                else:
                    quotient = quotient + self.product(cofactors).scale(coefficient // scale)
            # A division by zero must stay in the program, so that it fails as before. An index that divides by a value
            # unknown before the call costs more at run time than the search for a proof that the divisor is not zero.
            if self.is_nonnegative(b.shift(-1), PROVE_BUDGET):
                if self.is_nonnegative(rest, PROVE_BUDGET) and self.is_nonnegative((b - rest).shift(-1), PROVE_BUDGET):
                    return quotient, rest
                if self.interval(rest).upper < 0 and self.is_nonnegative(b + rest, PROVE_BUDGET):
                    return quotient.shift(-1), b + rest
                if quotient.terms or quotient.const:
                    return (
                        quotient + self._division_term("floordiv", rest, b),
                        self._division_term("floormod", rest, b),
                    )
        return self._division_term("floordiv", a, b), self._division_term("floormod", a, b)

    def truncated(self, op: str, a: Linear, b: Linear) -> Linear:
        """``truncdiv`` or ``truncmod`` of two forms, which round toward zero."""
        if a.is_const and b.is_const and b.const:
            return constant(int(fold_binary(op, a.const, b.const, INT64) or 0))
        if self.are_exact(a, b) and self.is_nonnegative(a) and self.is_nonnegative(b):
            return self.floordiv(a, b) if op == "truncdiv" else self.floormod(a, b)
        return self.term(BinaryOp(op, self.expr(a), self.expr(b)))

    # -- quotients and remainders that meet ---------------------------------------------------------------------------

    def merge_remainders(self, form: Linear) -> Linear:
        """``(x // c) * c + x % c`` is ``x``, and ``((y + x // c) % d) * c + x % c`` is ``(y * c + x) % (c * d)``."""
        if len(form.terms) < 2:
            return form
        mods: list[BinaryOp] = []
        for term in form.terms:
            if type(term) is BinaryOp and term.op == "floormod" and isinstance(term.b, IntImm):
                mods.append(term)
        if not mods or not self.is_exact(form):
            return form
        for mod in mods:
            assert isinstance(mod.b, IntImm)
            divisor, scale = mod.b.value, form.terms[mod]
            whole = self.linear(mod.a)
            quotient = self.floordiv(whole, constant(divisor))
            if len(quotient.terms) == 1 and self._holds_multiple(form, quotient, scale * divisor):
                merged = form.combine(quotient, -scale * divisor).without(mod).combine(whole, scale)
                return self.merge_remainders(merged)
            for other in mods:
                assert isinstance(other.b, IntImm)
                if form.terms[other] != scale * divisor:
                    continue
                high = self.linear(other.a)
                holds = self._holds_multiple(high, quotient, 1)
                sum_ = self._sum_of_multiple(high - quotient, divisor, whole) if holds else None
                if sum_ is not None:
                    both = self.floormod(sum_, constant(divisor * other.b.value))
                    return self.merge_remainders(form.without(mod).without(other).combine(both, scale))
        return form

    def _sum_of_multiple(self, form: Linear, factor: int, added: Linear) -> Linear | None:
        """Return ``form * factor + added``; None if that may overflow: ``added`` may be any number if it is data."""
        if not form.terms and form.const == 0:
            return added
        bounds, largest = self.interval(form), SMALL.upper // factor
        fits = -largest <= bounds.lower and bounds.upper <= largest and self.is_exact(added)
        return form.scale(factor) + added if fits else None

    @staticmethod
    def _holds_multiple(form: Linear, part: Linear, factor: int) -> bool:
        return all(form.terms.get(term) == coefficient * factor for term, coefficient in part.terms.items())


def _nested_quotient(form: Linear) -> tuple[BinaryOp, int] | None:
    """The one term of a form that is a quotient by a positive constant, and that constant."""
    found: tuple[BinaryOp, int] | None = None
    for term, coefficient in form.terms.items():
        if isinstance(term, BinaryOp) and term.op == "floordiv" and isinstance(term.b, IntImm) and term.b.value > 0:
            if coefficient != 1 or found is not None:
                return None
            found = term, term.b.value
    return found


def _remove_factors(factors: tuple[Expr, ...], removed: tuple[Expr, ...]) -> tuple[Expr, ...] | None:
    """``factors`` without each of ``removed``; None if one is missing."""
    left = list(factors)
    for factor in removed:
        if factor not in left:
            return None
        left.remove(factor)
    return tuple(left)
