"""Symbolic bounds of index expressions over ranges of variables: the box that a loop touches, and the range of a loop
variable in which a condition holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.tensorir.arith.analyzer import Analyzer
from tilewright.tensorir.arith.linear import Linear, constant
from tilewright.tensorir.conditions import OPPOSITES
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import BinaryOp, Compare, Expr, ExprLike, IntImm, Select, UnaryOp, Var, as_expr
from tilewright.tensorir.functor import leaves, uses_var

#: Least value and extent of each variable; bounds may mention variables that come earlier.
Ranges = Mapping[Var, tuple[ExprLike, ExprLike]]


class _NoBoundError(Exception):
    """An expression depends on a variable in a way that has no symbolic bound."""


class _Extremes:
    """Finds bounds of forms over ranges by eliminating one variable after the other, the last one first."""

    def __init__(self, ranges: Ranges, analyzer: Analyzer) -> None:
        self.analyzer = analyzer
        self.ranges = {
            var: (analyzer.linear(as_expr(low, INT64)), analyzer.linear(as_expr(extent, INT64)))
            for var, (low, extent) in ranges.items()
        }

    def bound(self, form: Linear, upper: bool) -> Linear:
        """The greatest (least) value of ``form`` over all ranges, or a bound of it."""
        for var in reversed(self.ranges):
            form = self._eliminate(form, var, upper)
        return form

    def _eliminate(self, form: Linear, var: Var, upper: bool) -> Linear:
        result = constant(form.const)
        for term, coefficient in form.terms.items():
            part = Linear({term: 1}, 0)
            if uses_var(term, {var}):
                part = self._term_bound(term, var, upper == (coefficient > 0))
            result = result.combine(part, coefficient)
        return self.analyzer.merge_remainders(result)

    def _term_bound(self, term: Expr, var: Var, upper: bool) -> Linear:
        analyzer = self.analyzer
        if term is var:
            low, extent = self.ranges[var]
            return low + extent.shift(-1) if upper else low
        factors = list(analyzer.factors(term))
        if len(factors) > 1:
            varying = [factor for factor in factors if uses_var(factor, {var})]
            if len(varying) != 1:
                raise _NoBoundError
            factors.remove(varying[0])
            others = analyzer.product(tuple(factors))
            if analyzer.is_nonnegative(others):
                return analyzer.multiply(others, self._term_bound(varying[0], var, upper))
            if analyzer.is_nonnegative(-others):
                return analyzer.multiply(others, self._term_bound(varying[0], var, not upper))
            raise _NoBoundError
        if isinstance(term, BinaryOp):
            return self._operation_bound(term, var, upper)
        if isinstance(term, Select) and not uses_var(term.condition, {var}):
            sides = [self._eliminate(analyzer.linear(v), var, upper) for v in (term.true_value, term.false_value)]
            return analyzer.extremum("max" if upper else "min", sides[0], sides[1])
        raise _NoBoundError

    def _operation_bound(self, term: BinaryOp, var: Var, upper: bool) -> Linear:
        analyzer = self.analyzer
        a, b = analyzer.linear(term.a), analyzer.linear(term.b)
        if term.op in ("min", "max"):
            return analyzer.extremum(term.op, self._eliminate(a, var, upper), self._eliminate(b, var, upper))
        if uses_var(term.b, {var}) or not analyzer.is_nonnegative(b.shift(-1)):
            raise _NoBoundError
        if term.op == "floordiv":
            return analyzer.floordiv(self._eliminate(a, var, upper), b)
        if term.op == "floormod":
            low, high = self._eliminate(a, var, False), self._eliminate(a, var, True)
            first, last = analyzer.floordiv(low, b), analyzer.floordiv(high, b)
            if first.equals(last):  # the whole range has one quotient
                return analyzer.floormod(high if upper else low, b)
            return b.shift(-1) if upper else constant(0)
        raise _NoBoundError


def _bind(ranges: Ranges, analyzer: Analyzer) -> None:
    for var, (low, extent) in ranges.items():
        analyzer.bind(var, low, extent)


def _relevant(exprs: Sequence[Expr], ranges: Ranges) -> Ranges:
    """Those of ``ranges`` that the values of ``exprs`` depend on, directly or through the ends of others."""
    needed: set[object] = set().union(*map(leaves, exprs))
    found: dict[Var, tuple[ExprLike, ExprLike]] = {}
    for var in reversed(list(ranges)):
        if var in needed:
            found[var] = ranges[var]
            for end in ranges[var]:
                needed |= leaves(as_expr(end, INT64))
    return dict(reversed(found.items()))


def _extremes(exprs: Sequence[Expr], ranges: Ranges, owner: Analyzer, sides: Sequence[bool]) -> list[list[Expr | None]]:
    """For each side (True: the upper one), the bounds of ``exprs``."""
    ranges = _relevant(exprs, ranges)
    with owner.scope():
        _bind(ranges, owner)
        extremes = _Extremes(ranges, owner)
        return [[_bound_or_none(extremes, expr, upper) for expr in exprs] for upper in sides]


def _bound_or_none(extremes: _Extremes, expr: Expr, upper: bool) -> Expr | None:
    owner = extremes.analyzer
    try:
        return owner.expr(extremes.bound(owner.linear(expr), upper))
    except _NoBoundError:
        return None


def region_of(
    indices: Sequence[ExprLike], ranges: Ranges, analyzer: Analyzer | None = None
) -> list[tuple[Expr, Expr] | None]:
    """The box that the index expressions cover while the variables range: (least index, extent) for each dimension.

    The box is exact for indices in which each variable occurs in one affine term; otherwise it may be larger. None
    stands for a dimension without a bound (an index loaded from memory). The ranges must not be empty.

    Args:
        indices: int64 expressions.
        ranges: the variables that range, outer loops first; other variables are fixed.
        analyzer: what is known about the fixed variables.
    """
    owner = analyzer if analyzer is not None else Analyzer()
    exprs = [as_expr(index, INT64) for index in indices]
    found: list[tuple[Expr, Expr] | None] = [_affine_box(expr, ranges, owner) for expr in exprs]
    others = [expr for expr, box in zip(exprs, found, strict=True) if box is None]
    if not others:
        return found
    lows, highs = _extremes(others, ranges, owner, (False, True))
    boxes = [
        None if low is None or high is None else (low, _extent(low, high, owner))
        for low, high in zip(lows, highs, strict=True)
    ]
    return [box or boxes.pop(0) for box in found]


def _affine_box(expr: Expr, ranges: Ranges, owner: Analyzer) -> tuple[Expr, Expr] | None:
    """Return least value and extent of a sum of multiples of variables with constant ranges and of terms without any
    of ``ranges``, as most indices are; None for another expression."""
    form = owner.linear(expr)
    low, extent = form, 1
    for term, coefficient in form.terms.items():
        if isinstance(term, Var) and term in ranges:
            begin, count = ranges[term]
            if not (isinstance(begin, IntImm) and isinstance(count, IntImm) and count.value > 0):
                return None
            steps = abs(coefficient) * (count.value - 1)
            first = coefficient * begin.value - (steps if coefficient < 0 else 0)
            low, extent = low.without(term).shift(first), extent + steps
        elif not ranges.keys().isdisjoint(leaves(term)):
            return None
    return (owner.expr(owner.merge_remainders(low)), IntImm(extent)) if extent < 1 << 62 else None


def _extent(low: Expr, high: Expr, owner: Analyzer) -> Expr:
    """``high - low + 1`` in canonical form."""
    distance = owner.merge_remainders(owner.linear(high) - owner.linear(low))
    return owner.expr(owner.merge_remainders(distance.shift(1)))


def upper_bound_expr(expr: ExprLike, ranges: Ranges, analyzer: Analyzer | None = None) -> Expr | None:
    """An expression without the variables of ``ranges`` that is >= ``expr`` for all their values, or None."""
    owner = analyzer if analyzer is not None else Analyzer()
    return _extremes([as_expr(expr, INT64)], ranges, owner, (True,))[0][0]


def lower_bound_expr(expr: ExprLike, ranges: Ranges, analyzer: Analyzer | None = None) -> Expr | None:
    """An expression without the variables of ``ranges`` that is <= ``expr`` for all their values, or None."""
    owner = analyzer if analyzer is not None else Analyzer()
    return _extremes([as_expr(expr, INT64)], ranges, owner, (False,))[0][0]


def partition_point(
    condition: Expr, var: Var, ranges: Ranges | None = None, analyzer: Analyzer | None = None
) -> tuple[Expr | None, Expr | None] | None:
    """The half-open range ``[lower, upper)`` of ``var`` in which ``condition`` holds for all values of the variables of
    ``ranges``: ``io * 6 + ii < m`` with ``ii`` in ``[0, 6)`` holds for ``io`` in ``[None, m // 6)``.

    An end of None is no bound. The result is None if the condition isn't a conjunction of comparisons that are affine
    in ``var`` with a constant coefficient.
    """
    owner = analyzer if analyzer is not None else Analyzer()
    inner = {v: r for v, r in (ranges or {}).items() if v is not var}
    if any(uses_var(as_expr(end), {var}) for bounds in inner.values() for end in bounds):
        return None
    with owner.scope():
        _bind(inner, owner)
        try:
            lower, upper = _partition(condition, var, _Extremes(inner, owner))
        except _NoBoundError:
            return None
        return None if lower is None else owner.expr(lower), None if upper is None else owner.expr(upper)


def _partition(condition: Expr, var: Var, extremes: _Extremes) -> tuple[Linear | None, Linear | None]:
    analyzer = extremes.analyzer
    if isinstance(condition, BinaryOp) and condition.op == "and":
        first, second = _partition(condition.a, var, extremes), _partition(condition.b, var, extremes)
        return _tighter("max", first[0], second[0], analyzer), _tighter("min", first[1], second[1], analyzer)
    if isinstance(condition, IntImm) and condition.value:
        return None, None
    if isinstance(condition, UnaryOp) and isinstance(condition.a, Compare):
        inner = condition.a
        if inner.op not in ("eq", "ne") and inner.a.dtype is INT64:
            return _partition(Compare(OPPOSITES[inner.op], inner.a, inner.b), var, extremes)
    if not isinstance(condition, Compare) or condition.a.dtype is not INT64 or condition.op == "ne":
        raise _NoBoundError
    form = analyzer.linear(condition.a) - analyzer.linear(condition.b)
    if not analyzer.is_exact(form):
        raise _NoBoundError
    if condition.op == "eq":
        first, second = _below(form.shift(-1), var, extremes), _below(~form, var, extremes)
        return _tighter("max", first[0], second[0], analyzer), _tighter("min", first[1], second[1], analyzer)
    if condition.op in ("gt", "ge"):
        form = -form
    return _below(form.shift(-1) if condition.op in ("le", "ge") else form, var, extremes)


def _below(form: Linear, var: Var, extremes: _Extremes) -> tuple[Linear | None, Linear | None]:
    """Return the ends of the range of ``var`` in which ``form < 0`` for all values of the other variables."""
    coefficient = form.terms.get(var, 0)
    rest = form.without(var)
    if coefficient == 0 or any(uses_var(term, {var}) for term in rest.terms):
        raise _NoBoundError
    largest = extremes.bound(rest, upper=True)
    divisor = constant(abs(coefficient))
    if coefficient > 0:  # coefficient * var <= -largest - 1
        return None, extremes.analyzer.floordiv((-largest).shift(-1), divisor).shift(1)
    return extremes.analyzer.floordiv(largest, divisor).shift(1), None


def _tighter(op: str, a: Linear | None, b: Linear | None, analyzer: Analyzer) -> Linear | None:
    if a is None or b is None:
        return a if b is None else b
    return analyzer.extremum(op, a, b)
