"""The analyzer: simplifies expressions and proves conditions from what is known about variables.

``(i * 16 + j) // 16`` becomes ``i`` once ``j`` is bound to ``[0, 16)``; ``i * 16 + j < n * 16`` becomes ``i < n``.
Index expressions (int64 scalars, and vectors that are affine in the lane) go through the linear forms of
:mod:`.index`; everything else through the tables of :mod:`.rules`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tilewright.tensorir.arith import rules
from tilewright.tensorir.arith.bounds import PROVE_BUDGET, SIMPLIFY_BUDGET
from tilewright.tensorir.arith.facts import Derived
from tilewright.tensorir.arith.intern import reads_memory, same_structure
from tilewright.tensorir.arith.interval import EVERYTHING, INFINITY, NONNEGATIVE, Bound, Interval
from tilewright.tensorir.arith.linear import Linear, constant
from tilewright.tensorir.arith.pattern import RuleTable
from tilewright.tensorir.arith.prove import ProvingAlgebra
from tilewright.tensorir.conditions import OPPOSITES, conjuncts
from tilewright.tensorir.dtype import BOOL, INT64
from tilewright.tensorir.expr import (
    BinaryOp,
    Broadcast,
    BufferLoad,
    Cast,
    Compare,
    Expr,
    ExprLike,
    FloatImm,
    IntImm,
    Ramp,
    Select,
    UnaryOp,
    Var,
    as_expr,
    binary,
    cast,
    compare,
    const,
    select,
)
from tilewright.tensorir.functor import uses_var

#: Conjunctions of up to this many conditions are searched for conditions that follow from the others.
MAX_CONJUNCTS = 8


class Analyzer(ProvingAlgebra):
    """Simplifies and proves under the facts that it was given.

    Facts are the ranges of variables (:meth:`bind`, :meth:`bind_nonnegative`) and conditions (:meth:`assume`,
    :meth:`assuming`). Symbolic dimensions are not known to be >= 0 until the caller says so with
    :meth:`bind_nonnegative`. A range is taken at its word: ``bind(i, 0, n)`` says ``0 <= i <= n - 1``.

    Args:
        fast: also apply the float rules that round differently or assume finite values (optimization level 3).
    """

    def __init__(self, *, fast: bool = False) -> None:
        super().__init__()
        self._lane_vars: dict[int, Var] = {}
        float_tables = (rules.EXACT_FLOAT_RULES, rules.FAST_FLOAT_RULES) if fast else (rules.EXACT_FLOAT_RULES,)
        self._tables: dict[str, tuple[RuleTable, ...]] = {
            "int": (rules.INTEGER_RULES, rules.SELECT_RULES),
            "uint": (rules.INTEGER_RULES, rules.SELECT_RULES),
            "bool": (rules.BOOL_RULES, rules.SELECT_RULES),
            "float": (*float_tables, rules.SELECT_RULES),
        }

    # -- facts --------------------------------------------------------------------------------------------------------

    def bind(self, var: Var, minimum: ExprLike, extent: ExprLike | None = None) -> None:
        """Say that ``var`` takes the values ``minimum .. minimum + extent - 1`` (no upper end without an extent).
        Replaces what was known about the variable's range."""
        facts = self.facts
        low = self.simplify(as_expr(minimum, var.dtype))
        high = None if extent is None else self.simplify(low + as_expr(extent, var.dtype) - 1)
        for table in (facts.ranges, facts.intervals, facts.values):
            table.pop(var, None)
        if var.dtype is INT64:
            lower_form = self.linear(low)
            upper_form = None if high is None else self.linear(high)
            facts.ranges[var] = (lower_form, upper_form)
            if upper_form is not None and lower_form.key == upper_form.key:
                facts.values[var] = lower_form
            upper = INFINITY if upper_form is None else self.interval(upper_form).upper
            bounds = Interval(self.interval(lower_form).lower, upper)
        else:
            upper = INFINITY if high is None else self.integer_interval(high).upper
            bounds = Interval(self.integer_interval(low).lower, upper)
        if bounds.lower <= bounds.upper:  # else the range is empty and nothing is evaluated in it
            facts.intervals[var] = bounds
        if self.intern.knows(var):
            self.forget()

    def bind_nonnegative(self, var: Var) -> None:
        """Say that ``var >= 0``, as every dimension of a tensor is."""
        self.facts.intervals[var] = self.facts.intervals.get(var, EVERYTHING).intersect(NONNEGATIVE)
        if self.intern.knows(var):
            self.forget()

    def assume(self, condition: Expr) -> None:
        """Say that ``condition`` holds from now on (until the surrounding scope ends). Conditions on the contents of
        memory are ignored, because a store may change them."""
        known = self._visit(condition)
        if isinstance(known, IntImm) or known.dtype is not BOOL or reads_memory(known):
            return
        if isinstance(known, BinaryOp) and known.op == "and":
            self.assume(known.a)
            self.assume(known.b)
            return
        if isinstance(known, UnaryOp):
            if isinstance(known.a, BinaryOp) and known.a.op == "or":
                self.assume(UnaryOp("not", known.a.a))
                self.assume(UnaryOp("not", known.a.b))
            self.facts.truths[known.a] = False
        self.facts.truths[known] = True
        if isinstance(known, Compare):
            self.facts.truths[self._visit(Compare(OPPOSITES[known.op], known.a, known.b))] = False
            if known.a.dtype is INT64:
                a, b = self.linear(known.a), self.linear(known.b)
                if self.is_exact(a) and self.is_exact(b):
                    self._assume_comparison(known.op, a - b)
        self.forget()

    def _assume_comparison(self, op: str, form: Linear) -> None:
        if op in ("lt", "le"):
            self._assume_nonnegative((-form).shift(-1 if op == "lt" else 0))
        elif op in ("gt", "ge"):
            self._assume_nonnegative(form.shift(-1 if op == "gt" else 0))
        elif op == "eq":
            self._assume_zero(form)
        elif self.interval(form).lower == 0:  # != 0 and >= 0
            self._assume_nonnegative(form.shift(-1))
        elif self.interval(form).upper == 0:
            self._assume_nonnegative((-form).shift(-1))

    def _assume_nonnegative(self, form: Linear) -> None:
        if len(form.terms) > 1:
            self.facts.nonnegative += (form,)
        elif form.terms:  # constant bounds say it all
            ((term, coefficient),) = form.terms.items()
            if coefficient > 0:
                bounds = Interval(-(form.const // coefficient), INFINITY)
            else:
                bounds = Interval(-INFINITY, form.const // -coefficient)
            self.facts.intervals[term] = self.facts.intervals.get(term, EVERYTHING).intersect(bounds)
            if coefficient > 0 and form.const < 0:
                self._assume_positive(term)

    def _assume_positive(self, term: Expr) -> None:
        """Note what follows from ``term >= 1``: no factor that is never negative is 0, as in the extent ``m * n`` of a
        loop that runs, and ``x // d >= 1`` says ``x >= d``."""
        factors = self.factors(term)
        if len(factors) > 1 and all(self.term_interval(factor).lower >= 0 for factor in factors):
            for factor in dict.fromkeys(factors):
                if self.term_interval(factor).lower < 1:
                    self._assume_nonnegative(Linear({factor: 1}, -1))
        elif isinstance(term, BinaryOp) and term.op == "floordiv" and isinstance(term.b, IntImm) and term.b.value > 0:
            whole = self.linear(term.a)
            if self.is_exact(whole):
                self._assume_nonnegative(whole.shift(-term.b.value))

    def _assume_zero(self, form: Linear) -> None:
        self._assume_nonnegative(form)
        self._assume_nonnegative(-form)
        if len(form.terms) == 1:
            ((term, coefficient),) = form.terms.items()
            if isinstance(term, BinaryOp) and term.op == "floormod" and abs(coefficient) == 1:
                whole, divisor = self.linear(term.a).single(), self.linear(term.b)
                if whole is not None and divisor.is_const and divisor.const > 0:
                    self.facts.remainders[whole] = (divisor.const, -form.const * coefficient)
        for term in sorted(form.terms, key=self.intern.order, reverse=True):
            coefficient = form.terms[term]
            rest = form.without(term)
            if not isinstance(term, Var) or abs(coefficient) != 1:
                continue
            if not any(uses_var(other, {term}) for other in rest.terms):
                self.facts.values[term] = rest.scale(-coefficient)
                return

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """A ``with`` block at whose end all that was bound or assumed inside is forgotten."""
        facts = self.facts
        derived = self.derived
        self.facts, self.derived = facts.copy(), Derived(derived)
        try:
            yield
        finally:
            self.facts, self.derived = facts, derived

    @contextlib.contextmanager
    def assuming(self, *conditions: Expr) -> Iterator[None]:
        """A scope in which the conditions hold."""
        with self.scope():
            for condition in conditions:
                self.assume(condition)
            yield

    # -- questions ----------------------------------------------------------------------------------------------------

    def simplify(self, expr: ExprLike) -> Expr:
        """An equal expression in canonical form; ``expr`` itself if it has that form already."""
        expr = as_expr(expr)
        result = self._visit(expr)
        return expr if same_structure(expr, result) else result

    def canonical(self, expr: Expr) -> Expr:
        """The canonical form of ``expr``: the same object for all expressions whose forms are the same, as long as
        this analyzer learns nothing new about their variables."""
        return self._visit(expr)

    def bounds(self, expr: ExprLike) -> Interval:
        """Constant bounds of an integer scalar, both included; infinite where nothing is known."""
        expr = as_expr(expr)
        if expr.dtype is not INT64:
            return self.integer_interval(self._visit(expr))
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
            if self._decide(condition.op, a, b, PROVE_BUDGET):
                return True
        result = self._visit(condition)
        if isinstance(result, BinaryOp) and result.op == "or":
            return self.prove(result.a) or self.prove(result.b)
        return _is_true(result)

    def prove_equal(self, a: ExprLike, b: ExprLike) -> bool:
        """Whether two values of one type are always equal."""
        a, b = as_expr(a), as_expr(b)
        if a.dtype is not b.dtype:
            return False
        if self._visit(a) is self._visit(b):
            return True
        return not a.dtype.is_float and self.prove(Compare("eq", a, b))

    def prove_less(self, a: ExprLike, b: ExprLike) -> bool:
        """Whether ``a < b`` always holds."""
        return self.prove(compare("lt", a, b))

    # -- rewriting ----------------------------------------------------------------------------------------------------

    def _visit(self, expr: Expr) -> Expr:
        found = self.derived.simplified.find(expr)
        if found is None:
            found = self._rewrite(expr)
            self.derived.simplified[expr] = found
            self.derived.simplified[found] = found
        return found

    def _rewrite(self, expr: Expr) -> Expr:
        dtype = expr.dtype
        if dtype is INT64:
            return self.expr(self.linear(expr))
        if dtype.element is INT64:
            affine = self._affine_vector(expr)
            if affine is not None:
                return affine
        if isinstance(expr, Compare):
            decided = self._comparison(expr)
            if decided is not None:
                return decided
        result = self.operand(expr)
        if dtype is BOOL:
            truth = self.facts.truths.get(result)
            if truth is not None:
                return self.intern.integer(int(truth), BOOL)
            if isinstance(result, BinaryOp) and result.op == "and":
                return self._conjunction(result)
            if isinstance(result, BinaryOp) and result.op == "or":
                return self._disjunction(result)
        return result

    def operand(self, expr: Expr) -> Expr:
        """``expr`` with simplified operands, folded and by the rules of its type."""
        rebuilt = self._rebuild(expr)
        if type(rebuilt) is not type(expr):
            return self._visit(rebuilt) if rebuilt.dtype is not INT64 else rebuilt
        kind = rebuilt.dtype.kind
        for table in self._tables.get(kind, ()):
            changed = table.apply(rebuilt)
            if changed is not None:
                return self._visit(changed)
        if isinstance(rebuilt, Compare):
            return self._compare_rules(rebuilt)
        if isinstance(rebuilt, UnaryOp) and isinstance(rebuilt.a, Compare) and not rebuilt.a.a.dtype.is_float:
            changed = rules.INTEGER_NEGATION_RULES.apply(rebuilt)
            if changed is not None:
                return self._visit(changed)
        return rebuilt

    def _rebuild(self, expr: Expr) -> Expr:
        """``expr`` over simplified operands as an interned node, or what it folds to."""
        changed = False
        values: list[Any] = []
        for name, role in expr.node_fields:
            value = new = getattr(expr, name)
            if role == "child" and value is not None:
                new = self._visit(value)
            elif role == "children":
                new = tuple([self._visit(item) for item in value])
                if all(a is b for a, b in zip(new, value, strict=True)):
                    new = value
            changed = changed or new is not value
            values.append(new)
        rebuilt: Expr = type(expr)(*values) if changed else expr
        fold = _FOLDS.get(type(rebuilt))
        if fold is not None:
            folded = fold(rebuilt)
            if folded is not rebuilt:
                return self._visit(folded) if folded.dtype is not INT64 else self._interned(folded)
        return self.intern.node(rebuilt)

    def _interned(self, expr: Expr) -> Expr:
        return self.intern.integer(expr.value) if isinstance(expr, IntImm) else self.expr(self.linear(expr))

    # -- vectors ------------------------------------------------------------------------------------------------------

    def _lane(self, lanes: int) -> Var:
        var = self._lane_vars.get(lanes)
        if var is None:
            var = self._lane_vars[lanes] = Var("lane")
            self.lanes[var] = Interval(0, lanes - 1)
        return var

    def _per_lane(self, expr: Expr, lane: Var) -> Expr | None:
        """The value of lane number ``lane`` of an int64 vector, as a scalar; None if it isn't built by arithmetic."""
        if isinstance(expr, Broadcast):
            return expr.value
        if isinstance(expr, Ramp):
            return expr.base + lane * expr.stride
        if isinstance(expr, BinaryOp):
            a, b = self._per_lane(expr.a, lane), self._per_lane(expr.b, lane)
            return None if a is None or b is None else binary(expr.op, a, b)
        if isinstance(expr, UnaryOp):
            a = self._per_lane(expr.a, lane)
            return None if a is None else UnaryOp(expr.op, a)
        return None

    def _affine_vector(self, expr: Expr) -> Expr | None:
        """An int64 vector as a ramp or a broadcast, if it is one."""
        lanes = expr.dtype.lanes
        lane = self._lane(lanes)
        scalar = self._per_lane(expr, lane)
        if scalar is None:
            return None
        base, stride = constant(0), constant(0)
        form = self.linear(scalar)
        base = base.shift(form.const)
        for term, coefficient in form.terms.items():
            factors = list(self.factors(term))
            if lane in factors:
                factors.remove(lane)
                if any(uses_var(factor, {lane}) for factor in factors):
                    return None
                stride = stride.combine(self.product(tuple(factors)), coefficient)
            elif uses_var(term, {lane}):
                return None
            else:
                base = base.combine(Linear({term: 1}, 0), coefficient)
        if not stride.terms and stride.const == 0:
            return self.intern.node(Broadcast(self.expr(base), lanes))
        return self.intern.node(Ramp(self.expr(base), self.expr(stride), lanes))

    # -- comparisons and conditions ---------------------------------------------------------------------------------

    def _comparison(self, expr: Compare) -> Expr | None:
        """A comparison of integers, decided or in canonical form; None if the rules have to do."""
        dtype = expr.a.dtype
        if dtype is INT64:
            a, b = self.linear(expr.a), self.linear(expr.b)
            decided = self._decide(expr.op, a, b, SIMPLIFY_BUDGET)
            if decided is None and self.is_exact(a) and self.is_exact(b):
                result = self._canonical_comparison(expr.op, a - b)
                truth = self.facts.truths.get(result)
                return result if truth is None else self.intern.integer(int(truth), BOOL)
        elif dtype.element is INT64:
            lane = self._lane(dtype.lanes)
            x, y = self._per_lane(expr.a, lane), self._per_lane(expr.b, lane)
            if x is None or y is None:
                return None
            decided = self._decide(expr.op, self.linear(x), self.linear(y), SIMPLIFY_BUDGET)
            scalar = compare(expr.op, x, y)
            if decided is None and not uses_var(scalar, {lane}):
                return self.intern.node(Broadcast(self._visit(scalar), dtype.lanes))
        elif dtype.is_integer and dtype.lanes == 1:
            low, high = self.integer_interval(self._visit(expr.a)), self.integer_interval(self._visit(expr.b))
            decided = _decide_by_intervals(expr.op, low, high)
        else:
            return None
        return None if decided is None else self._truth(decided, expr)

    def _truth(self, value: bool, expr: Expr) -> Expr:
        return self._visit(const(value, expr.dtype))

    def _decide(self, op: str, a: Linear, b: Linear, budget: int) -> bool | None:
        """Whether ``a op b`` is always true or always false."""
        if a.key == b.key:
            return op in ("eq", "le", "ge")
        if not (self.is_exact(a) and self.is_exact(b)):
            return None
        form = a - b
        if op in ("eq", "ne"):
            equal = self._decide_zero(form, budget)
            return equal if op == "eq" or equal is None else not equal
        if op in ("gt", "ge"):
            form = -form
        if op in ("le", "ge"):
            form = form.shift(-1)
        if self.is_nonnegative((-form).shift(-1), budget):
            return True
        return False if self.is_nonnegative(form, budget) else None

    def _decide_zero(self, form: Linear, budget: int) -> bool | None:
        if form.is_const:
            return form.const == 0
        coefficient, base = self.modular(form)
        if coefficient and base % coefficient:
            return False
        if self.is_nonnegative(form.shift(-1), budget) or self.is_nonnegative((-form).shift(-1), budget):
            return False
        return True if self.is_nonnegative(form, budget) and self.is_nonnegative(-form, budget) else None

    def _canonical_comparison(self, op: str, form: Linear) -> Expr:
        """The comparison ``form op 0`` with common factors and low parts that decide nothing taken out."""
        if op in ("eq", "ne"):
            divisor = form.gcd()
            form = Linear({t: c // divisor for t, c in form.terms.items()}, form.const // divisor)
            leading = min(form.terms, key=self.intern.order)
            if form.terms[leading] < 0:
                form = -form
        else:
            if op in ("gt", "ge"):
                form = -form
            form = self._without_low_part(form.shift(-1) if op in ("le", "ge") else form)
            op = "lt"
        positive = Linear({t: c for t, c in form.terms.items() if c > 0}, 0)
        negative = Linear({t: -c for t, c in form.terms.items() if c < 0}, 0)
        offset = form.const
        if op == "lt" and positive.is_const:  # offset < negative
            return self._comparison_node("ge", negative, constant(offset + 1))
        if negative.is_const:
            return self._comparison_node(op, positive, constant(-offset))
        if op == "lt" and offset == -1:
            return self._comparison_node("le", positive, negative)
        if offset > 0:
            return self._comparison_node(op, positive.shift(offset), negative)
        return self._comparison_node(op, positive, negative.shift(-offset))

    def _comparison_node(self, op: str, a: Linear, b: Linear) -> Expr:
        return self.intern.node(Compare(op, self.expr(a), self.expr(b)))

    def _without_low_part(self, form: Linear) -> Linear:
        """A form of the same sign as ``form``: ``16 * i + j`` with ``0 <= j < 16`` is negative where ``i`` is."""
        for unit in sorted({abs(c) for c in form.terms.values()} | {form.gcd()}, reverse=True):
            if unit == 1:
                break
            high_const, low_const = divmod(form.const, unit)
            low = Linear({t: c for t, c in form.terms.items() if c % unit}, low_const)
            bounds = self.interval(low)
            if bounds.is_finite and bounds.lower // unit == bounds.upper // unit:
                carry = int(bounds.lower) // unit
                return Linear({t: c // unit for t, c in form.terms.items() if c % unit == 0}, high_const + carry)
        return form

    def _compare_rules(self, expr: Compare) -> Expr:
        table = rules.EXACT_FLOAT_COMPARE_RULES if expr.a.dtype.is_float else rules.INTEGER_COMPARE_RULES
        changed = table.apply(expr)
        return expr if changed is None else self._visit(changed)

    def _conjunction(self, expr: BinaryOp) -> Expr:
        """A conjunction without the conditions that follow from the others."""
        parts = conjuncts(expr)
        if len(parts) > MAX_CONJUNCTS or not any(isinstance(p, Compare) and p.a.dtype is INT64 for p in parts):
            return expr
        kept = list(parts)
        for part in parts:
            others = [other for other in kept if other is not part]
            if not others or not isinstance(part, Compare) or part.a.dtype is not INT64:
                continue
            with self.assuming(*others):
                decided = self._decide_comparison(part)
            if decided is False:
                return self.intern.integer(0, BOOL)
            if decided:
                kept = others
        result = kept[0]
        for part in kept[1:]:
            result = self.intern.binary("and", result, part)
        return result

    def _disjunction(self, expr: BinaryOp) -> Expr:
        """``a or b`` of comparisons, where one follows from the other or from its opposite."""
        a, b = expr.a, expr.b
        if not all(isinstance(side, Compare) and side.a.dtype is INT64 for side in (a, b)):
            return expr
        with self.assuming(UnaryOp("not", a)):
            decided = self._decide_comparison(b)
        if decided is not None:
            return self.intern.integer(1, BOOL) if decided else a
        with self.assuming(UnaryOp("not", b)):
            decided = self._decide_comparison(a)
        return b if decided is False else expr

    def _decide_comparison(self, expr: Any) -> bool | None:
        return self._decide(expr.op, self.linear(expr.a), self.linear(expr.b), SIMPLIFY_BUDGET)


def _is_true(expr: Expr) -> bool:
    if isinstance(expr, Broadcast):
        expr = expr.value
    return isinstance(expr, IntImm) and bool(expr.value)


def _is_false(expr: Expr) -> bool:
    if isinstance(expr, Broadcast):
        expr = expr.value
    return isinstance(expr, IntImm) and not expr.value


def _decide_by_intervals(op: str, a: Interval, b: Interval) -> bool | None:
    """Whether ``x op y`` is the same for all values of the two intervals."""

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


# -- folding of nodes whose operands are simplified -----------------------------------------------------------------


def _splat(expr: Any, make: Callable[..., Expr], *operands: Expr) -> Expr:
    """The operation on scalars, broadcast, where all operands are broadcasts."""
    if all(isinstance(o, Broadcast) for o in operands):
        values = [o.value for o in operands if isinstance(o, Broadcast)]
        return Broadcast(make(*values), expr.dtype.lanes)
    result: Expr = expr
    return result


def _fold_binary(expr: BinaryOp) -> Expr:
    if expr.dtype.lanes != 1:
        return _splat(expr, lambda a, b: BinaryOp(expr.op, a, b), expr.a, expr.b)
    if isinstance(expr.a, (IntImm, FloatImm)) and isinstance(expr.b, (IntImm, FloatImm)):
        folded = binary(expr.op, expr.a, expr.b)
        return expr if isinstance(folded, BinaryOp) else folded
    return expr


def _fold_unary(expr: UnaryOp) -> Expr:
    a = expr.a
    if expr.dtype.lanes != 1:
        return _splat(expr, lambda v: UnaryOp(expr.op, v), a)
    if isinstance(a, FloatImm):
        return FloatImm(-a.value, a.dtype)
    if isinstance(a, IntImm):
        value = {"neg": -a.value, "not": 1 - a.value, "bitnot": ~a.value}[expr.op]
        return const(value, a.dtype)
    return expr


def _fold_compare(expr: Compare) -> Expr:
    if expr.dtype.lanes != 1:
        return _splat(expr, lambda a, b: Compare(expr.op, a, b), expr.a, expr.b)
    if isinstance(expr.a, (IntImm, FloatImm)) and isinstance(expr.b, (IntImm, FloatImm)):
        return compare(expr.op, expr.a, expr.b)
    return expr


def _fold_select(expr: Select) -> Expr:
    condition = expr.condition
    if isinstance(condition, Broadcast):
        return Select(condition.value, expr.true_value, expr.false_value)
    if isinstance(condition, IntImm):
        return select(condition, expr.true_value, expr.false_value)
    if expr.dtype is BOOL:
        true_value, false_value = expr.true_value, expr.false_value
        if _is_true(true_value) and _is_false(false_value):
            return condition
        if _is_false(true_value) and _is_true(false_value):
            return UnaryOp("not", condition)
    return expr


def _fold_cast(expr: Cast) -> Expr:
    value, dtype = expr.value, expr.dtype
    if dtype is value.dtype:
        return value
    if isinstance(value, Broadcast):
        return Broadcast(cast(dtype.element, value.value), dtype.lanes)
    if isinstance(value, IntImm):
        source = np.asarray(value.value, value.dtype.numpy)
        return const(source.astype(dtype.numpy).item(), dtype)  # one rounding from the integer
    if isinstance(value, FloatImm):
        if dtype.is_float:
            return FloatImm(float(dtype.numpy.type(value.value)), dtype)
        if dtype.is_bool:
            return IntImm(int(value.value != 0), dtype)
        if math.isfinite(value.value):
            whole = int(value.value)
            if const(whole, dtype).value == whole:  # type: ignore[attr-defined]
                return IntImm(whole, dtype)  # out of range is left to the machine
        return expr
    if isinstance(value, Cast) and value.value.dtype is dtype and _widens(dtype, value.dtype):
        return value.value  # there and back
    return expr


def _widens(narrow: Any, wide: Any) -> bool:
    """Whether every value of ``narrow`` is a value of ``wide``."""
    if narrow.is_bool:
        return not wide.is_bool
    if narrow.is_float:
        return bool(wide.is_float and wide.bits > narrow.bits)
    if wide.is_float or wide.is_bool:
        return False
    return bool(wide.bits >= narrow.bits)  # wrapping there and back keeps the bits


def _fold_load(expr: BufferLoad) -> Expr:
    if expr.predicate is None:
        return expr
    if _is_true(expr.predicate):
        return BufferLoad(expr.buffer, expr.indices)
    return const(0, expr.dtype) if _is_false(expr.predicate) else expr


_FOLDS: dict[type[Expr], Callable[[Any], Expr]] = {
    BinaryOp: _fold_binary,
    UnaryOp: _fold_unary,
    Compare: _fold_compare,
    Select: _fold_select,
    Cast: _fold_cast,
    BufferLoad: _fold_load,
}
