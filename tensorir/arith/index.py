"""Algebra of index expressions: int64 scalars as linear forms over terms.

Shapes, loop variables and addresses are int64. As in other tensor compilers, index arithmetic is assumed not to
overflow (:mod:`.bounds` says for which values), so that ``(i * 16 + j) // 16`` is ``i`` for ``0 <= j < 16``.
"""

from __future__ import annotations

from tilewright.tensorir.arith.division import DividingAlgebra
from tilewright.tensorir.arith.facts import Findings
from tilewright.tensorir.arith.linear import ZERO, Linear, constant
from tilewright.tensorir.expr import BinaryOp, Expr, IntImm, UnaryOp, Var
from tilewright.tensorir.folding import INTEGER_DIVISIONS

_INDEX_OPS = ("add", "sub", "mul", *INTEGER_DIVISIONS, "min", "max")


class IndexAlgebra(DividingAlgebra):
    """Converts expressions to linear forms, operation by operation."""

    def __init__(self, findings: Findings | None = None) -> None:
        super().__init__(findings)
        #: The forms of constants.
        self._numbers = self.findings.numbers

    def linear(self, expr: Expr) -> Linear:
        """The canonical form of an int64 scalar."""
        if type(expr) is IntImm:  # its form depends on no facts
            found = self._numbers.get(expr)
            if found is None:
                found = self._numbers[expr] = constant(expr.value)
            return found
        here = self.here
        found = here.linear.get(expr)
        if found is None:
            if type(expr) is Var:
                found = self._variable(expr)
            else:
                home = here.home(expr)
                if home is here:
                    found = self._convert(expr)
                else:
                    found = home.linear.get(expr)
                    if found is None:
                        found = home.linear[expr] = self.ask_in(home, self._convert, expr)
            here.linear[expr] = found
        return found

    def _convert(self, expr: Expr) -> Linear:
        made = self._sums.get(expr)
        if made is not None and self._is_sum_of_terms(made):
            return made
        if type(expr) is BinaryOp:
            return self._binary(expr)
        if type(expr) is UnaryOp and expr.op == "neg":
            return -self.linear(expr.a)
        return self._operand_form(expr)

    def _is_sum_of_terms(self, form: Linear) -> bool:
        """Return whether a sum that was made of ``form`` at another place has that form here, too: no more is known of
        its terms, and no remainder meets its quotient (so that none does in a part of the sum)."""
        remainders = False
        for term in form.terms:
            if type(term) is Var:
                if not self.varies(term):
                    return False
            elif self.linear(term).single() is not term:
                return False
            elif type(term) is BinaryOp and term.op == "floormod":
                remainders = True
        return not remainders or self.merge_remainders(form) is form

    def _operand_form(self, expr: Expr) -> Linear:
        result = self.operand(expr)
        if isinstance(result, (Var, UnaryOp)) or (isinstance(result, BinaryOp) and result.op in _INDEX_OPS):
            return self.linear(result) if result is not expr else self.term(result)
        return self.term(result)

    def operand(self, expr: Expr) -> Expr:
        """Return ``expr``, an operation that this class does not know, with its operands simplified.
        :class:`RewritingAlgebra`, which rewrites expressions of all kinds, overrides this."""
        raise NotImplementedError

    def varies(self, var: Var) -> bool:
        """Return whether nothing says that ``var`` has one value, by which it would be replaced."""
        facts = self.facts
        if var in facts.values:
            return False
        bounds = facts.intervals.get(var)
        return bounds is None or not bounds.is_point

    def _variable(self, var: Var) -> Linear:
        value = self.facts.values.get(var)
        if value is not None:
            return value
        bounds = self.facts.intervals.get(var)
        if bounds is not None and bounds.is_point:
            return constant(int(bounds.lower))
        return Linear({var: 1}, 0)

    def _binary(self, expr: BinaryOp) -> Linear:
        op = expr.op
        if op == "sub" and expr.a is expr.b:  # the distance from an element to itself
            return ZERO
        a = self.linear(expr.a)
        if type(expr.b) is IntImm:
            if op == "mul":
                return a.scale(expr.b.value)
            if op == "add" or op == "sub":
                return self.merge_remainders(a.shift(expr.b.value if op == "add" else -expr.b.value))
        b = self.linear(expr.b)
        if op == "add":
            return self.merge_remainders(a + b)
        if op == "sub":
            return self.merge_remainders(a - b)
        if op == "mul":
            return self.multiply(a, b)
        if op == "floordiv":
            return self.floordiv(a, b)
        if op == "floormod":
            return self.floormod(a, b)
        if op in ("min", "max"):
            return self.extremum(op, a, b)
        if op in ("truncdiv", "truncmod"):
            return self.truncated(op, a, b)
        return self._operand_form(expr)

    # -- minimum and maximum ------------------------------------------------------------------------------------------

    def extremum(self, op: str, a: Linear, b: Linear) -> Linear:
        """``min(a, b)`` or ``max(a, b)``."""
        if a.equals(b):
            return a
        if a.is_const and b.is_const:
            return constant(min(a.const, b.const) if op == "min" else max(a.const, b.const))
        if not self.are_exact(a, b):
            return self._extremum_term(op, [a, b])
        common = {t: c for t, c in a.terms.items() if b.terms.get(t) == c}
        shift = a.const if a.const == b.const else 0
        shared = Linear(common, shift)
        kept = self._without_dominated(op, self._operands(op, a - shared) + self._operands(op, b - shared))
        return (kept[0] if len(kept) == 1 else self._extremum_term(op, kept)) + shared

    def _operands(self, op: str, form: Linear) -> list[Linear]:
        term = form.single()
        if isinstance(term, BinaryOp) and term.op == op:
            return self._operands(op, self.linear(term.a)) + self._operands(op, self.linear(term.b))
        return [form]

    def _without_dominated(self, op: str, operands: list[Linear]) -> list[Linear]:
        """The operands that may be the least (greatest) somewhere."""
        kept: list[Linear] = []
        for candidate in operands:
            better = [(candidate - other) if op == "min" else (other - candidate) for other in kept]
            if any(self.is_nonnegative(form) for form in better):
                continue
            worse = [self.is_nonnegative(-form) for form in better]
            kept = [other for other, drop in zip(kept, worse, strict=True) if not drop]
            kept.append(candidate)
        return kept

    def _extremum_term(self, op: str, operands: list[Linear]) -> Linear:
        exprs = self.order.sort([self.expr(form) for form in operands])
        result = exprs[0]
        for other in exprs[1:]:
            result = BinaryOp(op, result, other)
        return self.term(result)
