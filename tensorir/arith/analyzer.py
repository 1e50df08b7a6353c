"""The analyzer: simplifies expressions and proves conditions from what is known about variables.

``(i * 16 + j) // 16`` becomes ``i`` once ``j`` is bound to ``[0, 16)``; ``i * 16 + j < n * 16`` becomes ``i < n``. This
module is the interface to callers; the answers come from the layers below, which the package lists.
"""

from __future__ import annotations

from tilewright.tensorir.arith.bounds import PROVE_BUDGET
from tilewright.tensorir.arith.facts import Scope
from tilewright.tensorir.arith.folds import is_true
from tilewright.tensorir.arith.interval import EVERYTHING, INFINITY, NONNEGATIVE, Bound, Interval
from tilewright.tensorir.arith.linear import ZERO
from tilewright.tensorir.arith.rewrite import RewritingAlgebra
from tilewright.tensorir.dtype import BOOL, INT64
from tilewright.tensorir.expr import BinaryOp, Compare, Expr, ExprLike, IntImm, Var, as_expr, compare, const
from tilewright.tensorir.functor import leaves


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
        low = minimum if isinstance(minimum, Expr) else as_expr(minimum, var.dtype)
        count = extent if extent is None or isinstance(extent, Expr) else as_expr(extent, var.dtype)
        said = self.here, var, low, count
        inner = self.findings.inner.get(said)
        if inner is None:
            if type(low) is IntImm and type(count) is IntImm and var.dtype is INT64:
                inner = self._bound_by_numbers(var, low, count)
            else:
                inner = self._bound(var, low, count)
            if inner is not self.here:
                self.findings.inner[said] = inner
        self.enter(inner)

    def _bound_by_numbers(self, var: Var, low: IntImm, count: IntImm) -> Scope:
        """Return the scope of :meth:`_bound` for a range of indices between numbers, as most are."""
        last = const(low.value + count.value - 1, INT64)
        key = self.here, var, "to", low, last
        found = self.findings.inner.get(key)
        if found is None:
            mentioned = self.here.is_mentioned(var)
            found = self._concerning(var, key)
            facts = found.facts
            facts.say(lambda witness: witness.bound(var, low, count, kept=mentioned))
            lower, upper = self.linear(low), self.linear(last)
            facts.set_range(var, (lower, upper))
            if low is last:
                facts.set_value(var, lower)
            if lower.const <= upper.const:  # else the range is empty and nothing is evaluated in it
                facts.narrow(var, Interval(lower.const, upper.const))
        return found

    def _bound(self, var: Var, low: Expr, count: Expr | None) -> Scope:
        """Return a scope in which ``var`` has that range; equal ranges, however written, give the same scope."""
        lower_form = upper_form = ZERO
        last: Expr | None = None
        if var.dtype is INT64:
            lower_form = self.linear(low)
            first = self.expr(lower_form)
            if count is not None:
                upper_form = self.merge_remainders(lower_form + self.linear(count)).shift(-1)
                last = self.expr(upper_form)
        else:
            first = low = self.canonical(low)
            if count is not None:
                last = self.canonical(low + count - 1)
        key = self.here, var, "to", first, last
        found = self.findings.inner.get(key)
        if found is not None:
            return found
        if var.dtype is INT64:
            lower: Bound = self.interval(lower_form).lower
            upper: Bound = INFINITY if count is None else self.interval(upper_form).upper
        else:
            lower = self.integer_interval(first).lower
            upper = INFINITY if last is None else self.integer_interval(last).upper
        mentioned = self.here.is_mentioned(var)
        inner = self._concerning(var, key)
        if type(first) is not IntImm or type(last) is not IntImm:
            inner.connect(leaves(first) if last is None else leaves(first) | leaves(last), frozenset((var,)))
        facts = inner.facts
        facts.say(lambda witness: witness.bound(var, low, count, kept=mentioned))
        if var.dtype is INT64:
            facts.set_range(var, (lower_form, None if count is None else upper_form))
            if count is not None and lower_form.equals(upper_form):
                facts.set_value(var, lower_form)
        else:
            facts.set_range(var, None)
        if lower <= upper:  # see above
            facts.narrow(var, Interval(lower, upper))
        return inner

    def bind_nonnegative(self, var: Var) -> None:
        """Say that ``var >= 0``, as every dimension of a tensor is."""
        key = self.here, var
        inner = self.findings.inner.get(key)
        if inner is None:
            inner = self._concerning(var, key)
            inner.facts.narrow(var, NONNEGATIVE)
            inner.facts.say(lambda witness: witness if (witness.value(var) or 0) >= 0 else None)
        self.enter(inner)

    def _concerning(self, var: Var, key: tuple[object, ...]) -> Scope:
        """Return the scope that takes a new fact about ``var``: one inside of the current scope, found by ``key`` from
        now on; or the outermost scope, if no other analyzer shares it and no block returns to it."""
        here, findings = self.here, self.findings
        if findings.shared or self.open_scopes or here.depth:
            return findings.add(key, here, var)
        if here.knows(var):
            here.clear()
        findings.order.place(var, here.innermost)
        here.extend(var)
        return here

    # -- questions ----------------------------------------------------------------------------------------------------

    def simplify(self, expr: ExprLike) -> Expr:
        """An equal expression in canonical form; ``expr`` itself if it has that form already."""
        return self.canonical(expr if isinstance(expr, Expr) else as_expr(expr))

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
        """Return whether the int64 ``expr`` is always a multiple of ``divisor``."""
        coefficient, base = self.modular_set(expr)
        return coefficient % divisor == 0 and base % divisor == 0

    def division_extent(self, value: BinaryOp) -> Expr | None:
        """An extent such that ``0 <= value < extent``, for a quotient or remainder by a positive int64; None if none is
        known: ``i % n < n``, and ``i // n < m`` where ``i`` is bound to ``[0, m * n)``."""
        divisor, whole = self.linear(value.b), self.linear(value.a)
        if value.op not in ("floordiv", "floormod") or not self.are_exact(divisor, whole):
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
        """Return whether ``condition`` always holds. False means that no proof was found."""
        condition = as_expr(condition, BOOL)
        if type(condition) is IntImm:
            return bool(condition.value)
        if isinstance(condition, BinaryOp) and condition.op == "and":
            return self.prove(condition.a) and self.prove(condition.b)
        if isinstance(condition, Compare) and condition.a.dtype is INT64:
            a, b = self.linear(condition.a), self.linear(condition.b)
            decided = self.decide(condition.op, a, b, PROVE_BUDGET)
            if decided is not None:
                return decided
            if self.are_exact(a, b):  # nor do fewer steps decide
                truths = self.facts.truths
                return bool(truths) and truths.get(self.canonical_comparison(condition.op, a - b), False)
        result = self.canonical(condition)
        if isinstance(result, BinaryOp) and result.op == "or":
            return self.prove(result.a) or self.prove(result.b)
        return is_true(result)

    def prove_equal(self, a: ExprLike, b: ExprLike) -> bool:
        """Return whether two values of one type are always equal."""
        a, b = as_expr(a), as_expr(b)
        if a.dtype is not b.dtype:
            return False
        if self.canonical(a) is self.canonical(b):
            return True
        return not a.dtype.is_float and self.prove(Compare("eq", a, b))

    def prove_less(self, a: ExprLike, b: ExprLike) -> bool:
        """Return whether ``a < b`` always holds."""
        return self.prove(compare("lt", a, b))
