"""Derive facts from a comparison of indices that is known to hold: bounds of terms, values, remainders."""

from __future__ import annotations

from tilewright.tensorir.arith.index import IndexAlgebra
from tilewright.tensorir.arith.interval import INFINITY, Interval
from tilewright.tensorir.arith.linear import Linear
from tilewright.tensorir.expr import BinaryOp, Expr, IntImm, Var
from tilewright.tensorir.functor import uses_var


def assume_comparison(algebra: IndexAlgebra, op: str, form: Linear) -> None:
    """Add to the facts of ``algebra`` what follows from ``form op 0``, where ``form`` is an index."""
    if op in ("lt", "le"):
        _assume_nonnegative(algebra, ~form if op == "lt" else -form)
    elif op in ("gt", "ge"):
        _assume_nonnegative(algebra, form.shift(-1 if op == "gt" else 0))
    elif op == "eq":
        _assume_zero(algebra, form)
    elif algebra.interval(form).lower == 0:  # != 0 and >= 0
        _assume_nonnegative(algebra, form.shift(-1))
    elif algebra.interval(form).upper == 0:
        _assume_nonnegative(algebra, ~form)


def _assume_nonnegative(algebra: IndexAlgebra, form: Linear) -> None:
    if len(form.terms) > 1:
        algebra.facts.nonnegative += (form,)
    elif form.terms:  # otherwise constant bounds are enough
        ((term, coefficient),) = form.terms.items()
        if coefficient > 0:
            bounds = Interval(-(form.const // coefficient), INFINITY)
        else:
            bounds = Interval(-INFINITY, form.const // -coefficient)
        algebra.facts.narrow(term, bounds)
        if coefficient > 0 and form.const < 0:
            _assume_positive(algebra, term)


def _assume_positive(algebra: IndexAlgebra, term: Expr) -> None:
    """Note what follows from ``term >= 1``: no factor that is never negative is 0, as in the extent ``m * n`` of a
    loop that runs, and ``x // d >= 1`` says ``x >= d``."""
    factors = algebra.factors(term)
    if len(factors) > 1 and all(algebra.term_interval(factor).lower >= 0 for factor in factors):
        for factor in dict.fromkeys(factors):
            if algebra.term_interval(factor).lower < 1:
                _assume_nonnegative(algebra, Linear({factor: 1}, -1))
    elif isinstance(term, BinaryOp) and term.op == "floordiv" and isinstance(term.b, IntImm) and term.b.value > 0:
        whole = algebra.linear(term.a)
        if algebra.is_exact(whole):
            _assume_nonnegative(algebra, whole.shift(-term.b.value))


def _assume_zero(algebra: IndexAlgebra, form: Linear) -> None:
    _assume_nonnegative(algebra, form)
    _assume_nonnegative(algebra, -form)
    if len(form.terms) == 1:
        ((term, coefficient),) = form.terms.items()
        if isinstance(term, BinaryOp) and term.op == "floormod" and abs(coefficient) == 1:
            whole, divisor = algebra.linear(term.a).single(), algebra.linear(term.b)
            if whole is not None and divisor.is_const and divisor.const > 0:
                algebra.facts.set_remainder(whole, divisor.const, -form.const * coefficient)
    for term in reversed(algebra.order.sort(list(form.terms))):
        coefficient = form.terms[term]
        rest = form.without(term)
        if not isinstance(term, Var) or abs(coefficient) != 1:
            continue
        if not any(uses_var(other, {term}) for other in rest.terms):
            algebra.facts.set_value(term, rest.scale(-coefficient))
            return
