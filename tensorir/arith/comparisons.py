"""Comparisons of linear forms and of intervals: decided, or in canonical form."""

from __future__ import annotations

from tilewright.tensorir.arith.interval import INFINITY, Bound, Interval
from tilewright.tensorir.arith.linear import Linear, constant, wrap64
from tilewright.tensorir.arith.prove import ProvingAlgebra
from tilewright.tensorir.conditions import OPPOSITES
from tilewright.tensorir.expr import Compare, Expr, IntImm, Var
from tilewright.tensorir.folding import fold_compare


class ComparingAlgebra(ProvingAlgebra):
    """Index algebra that decides comparisons, and finds the form in which equal ones are the same node."""

    def decide(self, op: str, a: Linear, b: Linear, budget: int) -> bool | None:
        """Return whether ``a op b`` is always true or always false."""
        if not a.terms and not b.terms:  # constants, whose difference may not fit into an int64
            return fold_compare(op, a.const, b.const)
        if a.equals(b):
            return op in ("eq", "le", "ge")
        if not self.are_exact(a, b):
            return None
        form = a - b if b.terms else a.shift(-b.const)
        if op in ("eq", "ne"):
            equal = self._decide_zero(form, budget)
            return equal if op == "eq" or equal is None else not equal
        if op in ("le", "gt"):
            form = form.shift(-1)
        # The comparison says that the form is negative, or that it is not.
        negative = op in ("lt", "le")
        bounds = self.interval(form)
        if bounds.upper < 0 or bounds.lower >= 0:
            return bounds.upper < 0 if negative else bounds.lower >= 0
        if not self.may_prove(form):
            return None
        true, false = (~form, form) if negative else (form, ~form)
        if self.proves(true, budget):
            return True
        return False if self.proves(false, budget) else None

    def _decide_zero(self, form: Linear, budget: int) -> bool | None:
        if form.is_const:
            return form.const == 0
        coefficient, base = self.modular(form)
        if coefficient and base % coefficient:
            return False
        if self.is_nonnegative(form.shift(-1), budget) or self.is_nonnegative(~form, budget):
            return False
        return True if self.is_nonnegative(form, budget) and self.is_nonnegative(-form, budget) else None

    def canonical_comparison(self, op: str, form: Linear) -> Expr:
        """Return the comparison ``form op 0`` without common factors and without low parts that cannot change it."""
        if op in ("eq", "ne"):
            divisor = form.gcd()
            form = Linear({t: c // divisor for t, c in form.terms.items()}, form.const // divisor)
            leading = min(form.terms, key=self.order.key)
            if form.terms[leading] < 0:
                form = -form
        else:
            if op in ("gt", "ge"):
                form = -form
            form = self._without_low_part(form.shift(-1) if op in ("le", "ge") else form)
            op = "lt"
        positive: dict[Expr, int] = {}
        negative: dict[Expr, int] = {}
        for term, coefficient in form.terms.items():
            if coefficient > 0:
                positive[term] = coefficient
            else:
                negative[term] = -coefficient
        offset = form.const
        if op == "lt" and not positive:  # offset < negative
            return self._comparison_node("ge", Linear(negative, 0), constant(offset + 1))
        if op == "lt" and negative and offset == -1:
            return self._comparison_node("le", Linear(positive, 0), Linear(negative, 0))
        if negative and offset > 0:
            return self._comparison_node(op, Linear(positive, offset), Linear(negative, 0))
        return self._comparison_node(op, Linear(positive, 0), Linear(negative, wrap64(-offset)))

    def interval_under(self, conditions: list[Expr], var: Expr) -> Interval | None:
        """Return the constant bounds of a variable where conditions hold, if nothing but these bounds can decide a
        comparison of it with a number there: the conditions are such comparisons, and it has no symbolic bounds."""
        if type(var) is not Var:
            return None
        found = self.term_interval(var)
        for condition in conditions:
            if type(condition) is not Compare or condition.a is not var or type(condition.b) is not IntImm:
                return None
            if condition.op == "lt":
                found = found.intersect(Interval(-INFINITY, condition.b.value - 1))
            elif condition.op == "ge":
                found = found.intersect(Interval(condition.b.value, INFINITY))
            else:
                return None
        return None if self.may_prove(Linear({var: 1}, 0)) else found

    def opposite_of(self, known: Compare, form: Linear) -> Expr:
        """Return the canonical form of the opposite of ``known``, a canonical comparison, which says ``form op 0``."""
        op = OPPOSITES[known.op]
        if known.op in ("eq", "ne") or (known.op in ("lt", "ge") and type(known.b) is IntImm):
            return Compare(op, known.a, known.b)  # all terms stay on the side on which they are
        return self.canonical_comparison(op, form)

    def _comparison_node(self, op: str, a: Linear, b: Linear) -> Expr:
        return Compare(op, self.expr(a), self.expr(b))

    def _without_low_part(self, form: Linear) -> Linear:
        """A form of the same sign as ``form``: ``16 * i + j`` with ``0 <= j < 16`` is negative where ``i`` is."""
        if len(form.terms) == 1:
            (coefficient,) = form.terms.values()
            if coefficient == 1 or coefficient == -1:
                return form
        units = {abs(c) for c in form.terms.values()}
        units.add(form.gcd())
        for unit in sorted(units, reverse=True) if len(units) > 1 else units:
            if unit == 1:
                break
            high_const, low_const = form.const // unit, form.const % unit
            low = Linear({t: c for t, c in form.terms.items() if c % unit}, low_const)
            bounds = self.interval(low)
            if bounds.is_finite and bounds.lower // unit == bounds.upper // unit:
                carry = int(bounds.lower) // unit
                return Linear({t: c // unit for t, c in form.terms.items() if c % unit == 0}, high_const + carry)
        return form


def decide_by_intervals(op: str, a: Interval, b: Interval) -> bool | None:
    """Return whether ``x op y`` is the same for all values of the two intervals."""

    def less(x: Bound, y: Bound, or_equal: bool) -> bool:
        return x <= y if or_equal else x < y

    if op in ("gt", "ge"):
        a, b, op = b, a, "lt" if op == "gt" else "le"
    if op in ("eq", "ne"):
        if a.upper < b.lower or b.upper < a.lower:
            return op == "ne"
        return (op == "eq") if a.is_point and a == b else None
    if less(a.upper, b.lower, op == "le"):
        return True
    return False if less(b.upper, a.lower, op == "lt") else None
