"""Terms of linear forms: expressions as terms, products of terms, and the expression that a form stands for."""

from __future__ import annotations

from tilewright.tensorir.arith.bounds import BoundedTerms
from tilewright.tensorir.arith.interval import Interval
from tilewright.tensorir.arith.linear import Linear, constant
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import BinaryOp, Expr, IntImm, Select, Var, const

#: Products of sums are multiplied out up to this many terms.
MAX_PRODUCT_TERMS = 16

#: A derived value within these bounds cannot have come from an overflow.
SMALL = Interval(-(1 << 62), 1 << 62)


class TermAlgebra(BoundedTerms):
    """Makes terms and products of them, and expressions of forms."""

    def term(self, expr: Expr) -> Linear:
        """The form of an expression taken as a term (or of a constant)."""
        if isinstance(expr, IntImm):
            return constant(expr.value)
        if not isinstance(expr, Var) and expr not in self._data and self._is_data(expr):
            self._data.add(expr)
        bounds = self.term_interval(expr)
        return constant(int(bounds.lower)) if bounds.is_point else Linear({expr: 1}, 0)

    def _is_data(self, expr: Expr) -> bool:
        is_index = False
        if isinstance(expr, BinaryOp) and expr.op in ("floordiv", "floormod", "min", "max"):
            is_index = self.are_exact(self.linear(expr.a), self.linear(expr.b))
        elif isinstance(expr, Select):
            is_index = self.are_exact(self.linear(expr.true_value), self.linear(expr.false_value))
        if is_index:
            return False
        bounds = self.term_interval(expr)
        return not (bounds.lower >= SMALL.lower and bounds.upper <= SMALL.upper)

    def product(self, factors: tuple[Expr, ...]) -> Linear:
        """The form of a product of terms."""
        if not factors:
            return constant(1)
        ordered = factors if len(factors) == 1 else tuple(self.order.sort(factors))
        result = ordered[0]
        for factor in ordered[1:]:
            result = BinaryOp("mul", result, factor)
        if len(ordered) > 1:
            self._factors[result] = ordered
        form = self.here.linear[result] = Linear({result: 1}, 0)
        return form

    def multiply(self, a: Linear, b: Linear) -> Linear:
        """``a * b``, multiplied out."""
        if not a.terms:
            return b.scale(a.const)
        if not b.terms:
            return a.scale(b.const)
        if len(a.terms) * len(b.terms) > MAX_PRODUCT_TERMS:
            x, y = (self.expr(side) for side in (a, b))
            return self.product((x, y))
        result = a.scale(b.const) + b.scale(a.const).shift(-a.const * b.const)
        for x, cx in a.terms.items():
            for y, cy in b.terms.items():
                result = result.combine(self.product(self.factors(x) + self.factors(y)), cx * cy)
        return result

    def expr(self, form: Linear) -> Expr:
        """The expression of a form: positive terms before negative ones, large coefficients first."""
        terms = form.terms
        if not terms:
            return const(form.const, INT64)
        result = form.written
        if result is None or self._sums.get(result) is not form:
            if form.const == 0 and len(terms) == 1:
                ((term, coefficient),) = terms.items()
                result = self._scaled(term, coefficient)
            else:
                result = self._sum(form)
            if result not in terms:
                form.written = result
                self._sums[result] = form
        self.here.linear[result] = form
        return result

    def _sum(self, form: Linear) -> Expr:
        items = self.order.sort_terms(form.terms)
        result: Expr | None = None
        constant_done = False
        for term, coefficient in items:
            if coefficient < 0 and not constant_done and result is None and form.const > 0:
                result, constant_done = const(form.const, INT64), True  # 7 - i rather than i * -1 + 7
            if result is None:
                result = self._scaled(term, coefficient)
            elif coefficient < 0:
                result = BinaryOp("sub", result, self._scaled(term, -coefficient))
            else:
                result = BinaryOp("add", result, self._scaled(term, coefficient))
        assert result is not None
        if form.const and not constant_done:
            op = "add" if form.const > 0 or form.const == -(1 << 63) else "sub"
            amount = form.const if op == "add" else -form.const
            result = BinaryOp(op, result, const(amount, INT64))
        return result

    def _scaled(self, term: Expr, coefficient: int) -> Expr:
        if coefficient == 1:
            return term
        if coefficient == 1 << 63:
            coefficient = -coefficient
        return BinaryOp("mul", term, const(coefficient, INT64))
