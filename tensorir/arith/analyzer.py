"""The analyzer: simplifies expressions and proves conditions from what is known about variables.

``(i * 16 + j) // 16`` becomes ``i`` once ``j`` is bound to ``[0, 16)``; ``i * 16 + j < n * 16`` becomes ``i < n``. Here
is what callers tell and ask; the answers come from the floors below, which the package lists.
"""

from __future__ import annotations

from tilewright.tensorir.arith.bounds import PROVE_BUDGET
from tilewright.tensorir.arith.folds import is_true
from tilewright.tensorir.arith.interval import EVERYTHING, INFINITY, NONNEGATIVE, Bound, Interval
from tilewright.tensorir.arith.linear import ZERO
from tilewright.tensorir.arith.rewrite import RewritingAlgebra
from tilewright.tensorir.dtype import BOOL, INT64
from tilewright.tensorir.expr import BinaryOp, Compare, Expr, ExprLike, Var, as_expr, compare


class Analyzer(RewritingAlgebra):
    """Simplifies and proves under the facts that it was given.

    Facts are the ranges of variables (:meth:`bind`, :meth:`bind_nonnegative`) and conditions (:meth:`assume`,
    :meth:`assuming`). Symbolic dimensions are not known to be >= 0 until the caller says so with
    :meth:`bind_nonnegative`. A range is taken at its word: ``bind(i, 0, n)`` says ``0 <= i <= n - 1``.

    Args:
        fast: also apply the float rules that round differently or assume finite values (optimization level 3).
    """

    # -- facts --------------------------------------------------------------------------------------------------------

    def bind(self, var: Var, minimum: ExprLike, extent: ExprLike | None = None) -> None:
        """Say that ``var`` takes the values ``minimum .. minimum + extent - 1`` (no upper end without an extent).
        Replaces what was known about the variable's range."""
        facts = self.facts
        low = as_expr(minimum, var.dtype)
        count = None if extent is None else as_expr(extent, var.dtype)
        lower_form = upper_form = ZERO
        if var.dtype is INT64:
            lower_form = self.linear(low)
            self.expr(lower_form)  # met before what is in the variable's scope
            if count is not None:
                upper_form = self.merge_remainders(lower_form + self.linear(count)).shift(-1)
                self.expr(upper_form)
            lower: Bound = self.interval(lower_form).lower
            upper: Bound = INFINITY if count is None else self.interval(upper_form).upper
        else:
            low = self.simplify(low)
            lower = self.integer_interval(low).lower
            upper = INFINITY if count is None else self.integer_interval(self.simplify(low + count - 1)).upper
        is_known = self.met.knows(var)
        for table in (facts.ranges, facts.intervals, facts.values):
            table.pop(var, None)
        mentioned = is_known and facts.mention(var)
        facts.say(lambda witness: witness.bound(var, low, count, kept=mentioned))
        if var.dtype is INT64:
            facts.ranges[var] = (lower_form, None if count is None else upper_form)
            if count is not None and lower_form.const == upper_form.const and lower_form.key == upper_form.key:
                facts.values[var] = lower_form
        if lower <= upper:  # else the range is empty and nothing is evaluated in it
            facts.intervals[var] = Interval(lower, upper)
        if is_known:
            self.forget()

    def bind_nonnegative(self, var: Var) -> None:
        """Say that ``var >= 0``, as every dimension of a tensor is."""
        self.facts.intervals[var] = self.facts.intervals.get(var, EVERYTHING).intersect(NONNEGATIVE)
        self.facts.say(lambda witness: witness if (witness.value(var) or 0) >= 0 else None)
        if self.met.knows(var):
            self.forget()

    # -- questions ----------------------------------------------------------------------------------------------------

    def simplify(self, expr: ExprLike) -> Expr:
        """An equal expression in canonical form; ``expr`` itself if it has that form already."""
        return self.canonical(as_expr(expr))

    def bounds(self, expr: ExprLike) -> Interval:
        """Constant bounds of an integer scalar, both included; infinite where nothing is known."""
        expr = as_expr(expr)
        if expr.dtype is not INT64:
            return self.integer_interval(self.canonical(expr))
        form = self.linear(expr)
        return self.interval(form) if self.is_exact(form) else EVERYTHING

    def modular_set(self, expr: ExprLike) -> tuple[int, int]:
        """``(coefficient, base)`` such that the int64 ``expr`` is ``base`` plus a multiple of ``coefficient``, with
        ``0 <= base < coefficient``; a coefficient of 0 says that it is the constant ``base``."""
        return self.modular(self.linear(as_expr(expr)))

    def divisible_by(self, expr: ExprLike, divisor: int) -> bool:
        """Whether the int64 ``expr`` is always a multiple of ``divisor``."""
        coefficient, base = self.modular_set(expr)
        return coefficient % divisor == 0 and base % divisor == 0

    def division_extent(self, value: BinaryOp) -> Expr | None:
        """An extent such that ``0 <= value < extent``, for a quotient or remainder by a positive int64; None if none is
        known: ``i % n < n``, and ``i // n < m`` where ``i`` is bound to ``[0, m * n)``."""
        divisor, whole = self.linear(value.b), self.linear(value.a)
        if value.op not in ("floordiv", "floormod") or not (self.is_exact(divisor) and self.is_exact(whole)):
            return None
        if self.interval(divisor).lower <= 0:
            return None
        if value.op == "floormod":
            return self.expr(divisor)
        if self.interval(whole).lower < 0:
            return None
        largest = next(self.largest_quotients(whole, divisor), None)
        return None if largest is None else self.expr(largest.shift(1))

    def prove(self, condition: ExprLike) -> bool:
        """Whether ``condition`` always holds. False means that no proof was found."""
        condition = as_expr(condition, BOOL)
        if isinstance(condition, BinaryOp) and condition.op == "and":
            return self.prove(condition.a) and self.prove(condition.b)
        if isinstance(condition, Compare) and condition.a.dtype is INT64:
            a, b = self.linear(condition.a), self.linear(condition.b)
            if self.decide(condition.op, a, b, PROVE_BUDGET):
                return True
        result = self.canonical(condition)
        if isinstance(result, BinaryOp) and result.op == "or":
            return self.prove(result.a) or self.prove(result.b)
        return is_true(result)

    def prove_equal(self, a: ExprLike, b: ExprLike) -> bool:
        """Whether two values of one type are always equal."""
        a, b = as_expr(a), as_expr(b)
        if a.dtype is not b.dtype:
            return False
        if self.canonical(a) is self.canonical(b):
            return True
        return not a.dtype.is_float and self.prove(Compare("eq", a, b))

    def prove_less(self, a: ExprLike, b: ExprLike) -> bool:
        """Whether ``a < b`` always holds."""
        return self.prove(compare("lt", a, b))
