"""Bounds of integer expressions: they decide which divisions need no correction and which sums cannot wrap."""

from __future__ import annotations

import functools

from tilewright.tensorir.arith.interval import EVERYTHING, NONNEGATIVE, OPERATIONS, Interval, type_interval
from tilewright.tensorir.expr import BinaryOp, Broadcast, Cast, Expr, IntImm, Ramp, Select, Var

#: All values of a type.
_limits = functools.cache(type_interval)


class Bounds:
    """Intervals of expressions from those of the variables in scope."""

    def __init__(self) -> None:
        self.variables: dict[Var, Interval] = {}
        #: Of expressions whose variables are all bound, each once.
        self._known: dict[Expr, Interval] = {}

    def copy(self) -> Bounds:
        """The same facts, for a function that captures these variables."""
        made = Bounds()
        made.variables = dict(self.variables)
        return made

    def bind_size(self, var: Var) -> None:
        """``var`` is a dimension: not negative."""
        self.variables[var] = NONNEGATIVE

    def bind_loop(self, var: Var, minimum: Expr, extent: Expr) -> None:
        """``var`` runs over a loop's range."""
        low, count = self.of(minimum), self.of(extent)
        self.variables[var] = Interval(low.lower, low.upper + max(0, count.upper - 1))

    def bind_value(self, var: Var, value: Expr) -> None:
        """``var`` has the value of an expression."""
        if var.dtype.is_integer:
            found = self._of(value)  # a size, which has no end but does not wrap, stays one under a name
            self.variables[var] = found if found.lower >= 0 else self.of(value)

    def of(self, expr: Expr) -> Interval:
        """An interval that holds every value (of every lane) of an integer expression."""
        found = self._of(expr)
        if found is EVERYTHING or not (expr.dtype.is_integer or expr.dtype.is_bool):
            return EVERYTHING
        return found.intersect(_limits(expr.dtype))

    def exact(self, expr: BinaryOp) -> bool:
        """Whether ``expr`` is known not to wrap around. Sums and products of sizes do not wrap in 64 bits: what they
        count has to fit into memory."""
        return expr.op in ("add", "sub", "mul") and expr.dtype.is_int and self._of(expr) is not EVERYTHING

    @staticmethod
    def _fits(interval: Interval, expr: Expr) -> bool:
        lower, upper = interval
        limits = _limits(expr.dtype)
        if limits.lower <= lower and upper <= limits.upper:
            return True
        if interval.is_finite or lower < 0 or expr.dtype.bits != 64:
            return False
        if isinstance(expr, BinaryOp) and expr.op == "mul":
            factors = [abs(factor.value) for factor in (expr.a, expr.b) if isinstance(factor, IntImm)]
            return not any(factor >= 1 << 31 for factor in factors)  # no size but a hash or a random number
        return True

    def _of(self, expr: Expr) -> Interval:
        found = self._known.get(expr)
        if found is None:
            found = self._known[expr] = self._compute(expr)
        return found

    def _compute(self, expr: Expr) -> Interval:
        kind = type(expr)
        if kind is BinaryOp:
            assert isinstance(expr, BinaryOp)
            return self._binary(expr)
        if kind is Var:
            assert isinstance(expr, Var)
            return self.variables.get(expr, EVERYTHING)
        if kind is IntImm:
            assert isinstance(expr, IntImm)
            return Interval(expr.value, expr.value)
        if isinstance(expr, Ramp):
            steps = OPERATIONS["mul"](self._of(expr.stride), Interval(0, expr.lanes - 1))
            made = OPERATIONS["add"](self._of(expr.base), steps)
            return made if self._fits(made, expr) else EVERYTHING
        if isinstance(expr, Broadcast):
            return self._of(expr.value)
        if isinstance(expr, Select):
            return self._of(expr.true_value).union(self._of(expr.false_value))
        if isinstance(expr, Cast) and (expr.value.dtype.is_integer or expr.value.dtype.is_bool):
            inner = self._of(expr.value).intersect(_limits(expr.value.dtype))
            return inner if self._fits(inner, expr) else EVERYTHING
        return EVERYTHING

    def _binary(self, expr: BinaryOp) -> Interval:
        operation = OPERATIONS.get(expr.op)
        if operation is None or not expr.dtype.is_integer:
            return EVERYTHING
        a, b = self._of(expr.a), self._of(expr.b)
        made = operation(a, b)
        if expr.op in ("floordiv", "floormod", "truncdiv", "truncmod") and b.contains(0):
            made = made.union(Interval(0, 0))  # what a division by zero gives
        return made if self._fits(made, expr) else EVERYTHING
