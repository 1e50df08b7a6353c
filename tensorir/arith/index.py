"""Algebra of index expressions: int64 scalars as linear forms over interned terms.

int64 is where shapes, loop variables and addresses live. As everywhere in this field, index arithmetic is assumed not
to overflow, so that ``(i * 16 + j) // 16`` is ``i`` for ``0 <= j < 16``. That is only assumed of values built from
variables: what is loaded from memory (or comes from a call, a cast, a bit operation) is *data*, which may hold any
int64, and only takes part in what is exact under wrapping as well (sums and products, which form a ring).
"""

from __future__ import annotations

import dataclasses
import math

from tilewright.tensorir.arith import interval as iv
from tilewright.tensorir.arith.cache import ScopedCache
from tilewright.tensorir.arith.intern import Interner
from tilewright.tensorir.arith.interval import EVERYTHING, Interval, type_interval
from tilewright.tensorir.arith.linear import ZERO, Linear, constant
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import BinaryOp, Call, Cast, Expr, IntImm, Select, UnaryOp, Var
from tilewright.tensorir.folding import fold_binary

#: How many forms a proof looks at while expressions are simplified, and when a caller asks for one.
SIMPLIFY_BUDGET = 12
PROVE_BUDGET = 150

#: Products of sums are multiplied out up to this many terms.
MAX_PRODUCT_TERMS = 16

_INDEX_OPS = ("add", "sub", "mul", "floordiv", "floormod", "truncdiv", "truncmod", "min", "max")

#: A derived value within these bounds cannot have come from an overflow.
_SMALL = Interval(-(1 << 62), 1 << 62)


@dataclasses.dataclass
class Facts:
    """What is known about variables and terms; copied where a scope opens."""

    #: Inclusive symbolic ends of variables' ranges.
    ranges: dict[Expr, tuple[Linear | None, Linear | None]] = dataclasses.field(default_factory=dict)
    #: Constant ends, of variables or of other terms.
    intervals: dict[Expr, Interval] = dataclasses.field(default_factory=dict)
    #: Variables that have exactly one value.
    values: dict[Expr, Linear] = dataclasses.field(default_factory=dict)
    #: Forms that are known to be >= 0.
    nonnegative: tuple[Linear, ...] = ()
    #: Terms whose remainder is known: term -> (modulus, remainder).
    remainders: dict[Expr, tuple[int, int]] = dataclasses.field(default_factory=dict)
    #: Conditions (interned) that are known.
    truths: dict[Expr, bool] = dataclasses.field(default_factory=dict)

    def copy(self) -> Facts:
        """An independent copy."""
        return Facts(
            dict(self.ranges),
            dict(self.intervals),
            dict(self.values),
            self.nonnegative,
            dict(self.remainders),
            dict(self.truths),
        )


class Derived:
    """What was derived from the facts: forms of expressions, bounds of terms, quotients and remainders, proofs, and
    simplified expressions; ``outer``: what was derived where this scope opened."""

    def __init__(self, outer: Derived | None = None) -> None:
        self.linear: ScopedCache[Expr, Linear] = ScopedCache(outer.linear if outer else None)
        self.intervals: ScopedCache[Expr, Interval] = ScopedCache(outer.intervals if outer else None)
        self.divisions: ScopedCache[tuple[object, int], Division] = ScopedCache(outer.divisions if outer else None)
        self.proofs: ScopedCache[tuple[object, int], bool] = ScopedCache(outer.proofs if outer else None)
        self.simplified: ScopedCache[Expr, Expr] = ScopedCache(outer.simplified if outer else None)


class IndexAlgebra:
    """Converts between expressions and linear forms, and answers for constant bounds and remainders.

    The forms and bounds that it remembers hold for the current :class:`Facts`; :meth:`forget` drops them.
    """

    def __init__(self) -> None:
        self.intern = Interner()
        self.facts = Facts()
        self._factors: dict[Expr, tuple[Expr, ...]] = {}
        self._data: set[Expr] = set()
        #: Variables that stand for the number of a lane, with their bounds.
        self.lanes: dict[Expr, Interval] = {}
        self.forget()

    def forget(self) -> None:
        """Drop what was derived from facts that no longer hold."""
        self.derived = Derived()

    # -- linear forms --------------------------------------------------------------------------------------------

    def linear(self, expr: Expr) -> Linear:
        """The canonical form of an int64 scalar."""
        found = self.derived.linear.find(expr)
        if found is None:
            found = self._convert(expr)
            self.derived.linear[expr] = found
        return found

    def _convert(self, expr: Expr) -> Linear:
        if isinstance(expr, IntImm):
            self.intern.offer_integer(expr)
            return constant(expr.value)
        if isinstance(expr, Var):
            return self._variable(expr)
        if isinstance(expr, BinaryOp):
            self.intern.offer(expr)
            return self._binary(expr)
        if isinstance(expr, UnaryOp) and expr.op == "neg":
            return -self.linear(expr.a)
        return self._operand_form(expr)

    def _operand_form(self, expr: Expr) -> Linear:
        result = self.operand(expr)
        if isinstance(result, (Var, UnaryOp)) or (isinstance(result, BinaryOp) and result.op in _INDEX_OPS):
            return self.linear(result) if result is not expr else self.term(result)
        return self.term(result)

    def operand(self, expr: Expr) -> Expr:
        """``expr``, which is none of the operations known here, with its operands simplified and interned. The
        analyzer, which knows all expressions, overrides this."""
        raise NotImplementedError

    def _variable(self, var: Var) -> Linear:
        self.intern.order(var)
        value = self.facts.values.get(var)
        if value is not None:
            return value
        bounds = self.facts.intervals.get(var)
        if bounds is not None and bounds.is_point:
            return constant(int(bounds.lower))
        return Linear({var: 1}, 0)

    def _binary(self, expr: BinaryOp) -> Linear:
        op = expr.op
        a, b = self.linear(expr.a), self.linear(expr.b)
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
            return self._truncated(op, a, b)
        return self._operand_form(expr)

    def term(self, expr: Expr) -> Linear:
        """The form of an interned expression taken as a term (or of a constant)."""
        if isinstance(expr, IntImm):
            return constant(expr.value)
        if not isinstance(expr, Var) and expr not in self._data and self._is_data(expr):
            self._data.add(expr)
        bounds = self.term_interval(expr)
        return constant(int(bounds.lower)) if bounds.is_point else Linear({expr: 1}, 0)

    def _is_data(self, expr: Expr) -> bool:
        operands: tuple[Expr, ...] = ()
        if isinstance(expr, BinaryOp) and expr.op in ("floordiv", "floormod", "min", "max"):
            operands = (expr.a, expr.b)
        elif isinstance(expr, Select):
            operands = (expr.true_value, expr.false_value)
        if operands and all(self.is_exact(self.linear(operand)) for operand in operands):
            return False
        bounds = self.term_interval(expr)
        return not (bounds.lower >= _SMALL.lower and bounds.upper <= _SMALL.upper)

    def mark_data(self, var: Var) -> None:
        """Say that ``var`` may hold any int64, so that its sums may wrap."""
        self._data.add(var)
        self.forget()

    def is_exact(self, form: Linear) -> bool:
        """Whether the form is an index, which does not overflow, rather than data."""
        data = self._data
        return not data or all(
            term not in data and not any(f in data for f in self._factors.get(term, ())) for term in form.terms
        )

    def factors(self, term: Expr) -> tuple[Expr, ...]:
        """The factors of a term: several for a product of terms."""
        return self._factors.get(term, (term,))

    def product(self, factors: tuple[Expr, ...]) -> Linear:
        """The form of a product of terms."""
        if not factors:
            return constant(1)
        ordered = tuple(sorted(factors, key=self.intern.order))
        result = ordered[0]
        for factor in ordered[1:]:
            result = self.intern.binary("mul", result, factor)
        if len(ordered) > 1:
            self._factors[result] = ordered
        form = self.derived.linear[result] = Linear({result: 1}, 0)
        return form

    def multiply(self, a: Linear, b: Linear) -> Linear:
        """``a * b``, multiplied out."""
        if a.is_const:
            return b.scale(a.const)
        if b.is_const:
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
        if form.is_const:
            return self.intern.integer(form.const)
        order = self.intern.order
        items = sorted(form.terms.items(), key=lambda item: (item[1] < 0, -abs(item[1]), order(item[0])))
        result: Expr | None = None
        constant_done = False
        for term, coefficient in items:
            if coefficient < 0 and not constant_done and result is None and form.const > 0:
                result, constant_done = self.intern.integer(form.const), True  # 7 - i rather than i * -1 + 7
            if result is None:
                result = self._scaled(term, coefficient)
            elif coefficient < 0:
                result = self.intern.binary("sub", result, self._scaled(term, -coefficient))
            else:
                result = self.intern.binary("add", result, self._scaled(term, coefficient))
        assert result is not None
        if form.const and not constant_done:
            op = "add" if form.const > 0 or form.const == -(1 << 63) else "sub"
            amount = form.const if op == "add" else -form.const
            result = self.intern.binary(op, result, self.intern.integer(amount))
        self.derived.linear[result] = form
        return result

    def _scaled(self, term: Expr, coefficient: int) -> Expr:
        if coefficient == 1:
            return term
        if coefficient == 1 << 63:
            coefficient = -coefficient
        return self.intern.binary("mul", term, self.intern.integer(coefficient))

    # -- minimum and maximum ----------------------------------------------------------------------------------------

    def extremum(self, op: str, a: Linear, b: Linear) -> Linear:
        """``min(a, b)`` or ``max(a, b)``."""
        if a.key == b.key:
            return a
        if a.is_const and b.is_const:
            return constant(min(a.const, b.const) if op == "min" else max(a.const, b.const))
        if not (self.is_exact(a) and self.is_exact(b)):
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
        exprs = sorted((self.expr(form) for form in operands), key=lambda e: (isinstance(e, IntImm), self._rank(e)))
        result = exprs[0]
        for other in exprs[1:]:
            result = self.intern.binary(op, result, other)
        return self.term(result)

    def _rank(self, expr: Expr) -> int:
        return self.intern.order(expr)

    def is_nonnegative(self, form: Linear, budget: int = SIMPLIFY_BUDGET) -> bool:
        """Whether ``form >= 0`` is proved; the prover overrides this test by constant bounds."""
        return self.interval(form).lower >= 0

    # -- division -----------------------------------------------------------------------------------------------------

    def floordiv(self, a: Linear, b: Linear) -> Linear:
        """``a // b``."""
        if not b.is_const:
            return self._divide_by_symbol(a, b)[0]
        if b.const == 0 or not self.is_exact(a):
            return self._division_term("floordiv", a, b)
        if b.const < 0:
            a, b = -a, -b
        return self.divide(a, b.const).quotient(self)

    def floormod(self, a: Linear, b: Linear) -> Linear:
        """``a % b``."""
        if not b.is_const:
            return self._divide_by_symbol(a, b)[1]
        if b.const == 0 or not self.is_exact(a):
            return self._division_term("floormod", a, b)
        if b.const < 0:
            return -self.divide(-a, -b.const).remainder(self)
        return self.divide(a, b.const).remainder(self)

    def divide(self, a: Linear, divisor: int) -> Division:
        """Quotient and remainder of an index by a positive constant."""
        key = (a.key, divisor)
        found = self.derived.divisions.find(key)
        if found is None:
            found = _split_division(self, a, divisor)
            self.derived.divisions[key] = found
        return found

    def _division_term(self, op: str, a: Linear, b: Linear) -> Linear:
        if a.is_const and b.is_const:
            folded = fold_binary(op, a.const, b.const, INT64)
            if folded is not None:
                return constant(int(folded))
        return self.term(self.intern.binary(op, self.expr(a), self.expr(b)))

    def _divide_by_symbol(self, a: Linear, b: Linear) -> tuple[Linear, Linear]:
        """Quotient and remainder by a divisor that is not constant: ``(i * n + j) // n`` is ``i`` if ``0 <= j < n``."""
        if len(b.terms) == 1 and b.const == 0 and self.is_exact(a) and self.is_exact(b):
            ((symbol, scale),) = b.terms.items()
            quotient, rest = ZERO, Linear({}, a.const)
            for term, coefficient in a.terms.items():
                cofactors = _remove_factors(self.factors(term), self.factors(symbol))
                if cofactors is None or coefficient % scale:
                    rest = rest + Linear({term: coefficient}, 0)
                else:
                    quotient = quotient + self.product(cofactors).scale(coefficient // scale)
            # A divisor of zero must stay in the program, so that it fails as it did. A division by what is not known
            # before the call, in an index, costs more than any search for the proof that it isn't one.
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

    def _truncated(self, op: str, a: Linear, b: Linear) -> Linear:
        if a.is_const and b.is_const and b.const:
            return constant(int(fold_binary(op, a.const, b.const, INT64) or 0))
        if self.is_exact(a) and self.is_exact(b) and self.is_nonnegative(a) and self.is_nonnegative(b):
            return self.floordiv(a, b) if op == "truncdiv" else self.floormod(a, b)
        return self.term(self.intern.binary(op, self.expr(a), self.expr(b)))

    def merge_remainders(self, form: Linear) -> Linear:
        """``(x // c) * c + x % c`` is ``x``, and ``(x // c % d) * c + x % c`` is ``x % (c * d)``."""
        mods = [t for t in form.terms if isinstance(t, BinaryOp) and t.op == "floormod" and isinstance(t.b, IntImm)]
        if not mods or len(form.terms) < 2 or not self.is_exact(form):
            return form
        for mod in mods:
            assert isinstance(mod, BinaryOp) and isinstance(mod.b, IntImm)
            divisor, scale = mod.b.value, form.terms[mod]
            whole = self.linear(mod.a)
            quotient = self.floordiv(whole, constant(divisor))
            if len(quotient.terms) == 1 and self._holds_multiple(form, quotient, scale * divisor):
                merged = form.combine(quotient, -scale * divisor).without(mod).combine(whole, scale)
                return self.merge_remainders(merged)
            for other in mods:
                assert isinstance(other, BinaryOp) and isinstance(other.b, IntImm)
                if form.terms[other] == scale * divisor and self.linear(other.a).key == quotient.key:
                    both = self.floormod(whole, constant(divisor * other.b.value))
                    return self.merge_remainders(form.without(mod).without(other).combine(both, scale))
        return form

    @staticmethod
    def _holds_multiple(form: Linear, part: Linear, factor: int) -> bool:
        return all(form.terms.get(term) == coefficient * factor for term, coefficient in part.terms.items())

    # -- constant bounds ----------------------------------------------------------------------------------------------

    def interval(self, form: Linear) -> Interval:
        """Constant bounds of an index."""
        lower: iv.Bound = form.const
        upper: iv.Bound = form.const
        for term, coefficient in form.terms.items():
            low, high = self.term_interval(term)
            if coefficient < 0:
                low, high = high, low
            lower += low * coefficient
            upper += high * coefficient
        return Interval(lower, upper)

    def term_interval(self, term: Expr) -> Interval:
        """Constant bounds of one term."""
        found = self.derived.intervals.find(term)
        if found is None:
            found = self._find_interval(term)
            known = self.facts.intervals.get(term)
            if known is not None:
                found = found.intersect(known)
            self.derived.intervals[term] = found
        return found

    def _find_interval(self, term: Expr) -> Interval:
        factors = self._factors.get(term)
        if factors is not None:
            if len(factors) % 2 == 0 and len(set(factors)) == 1:
                high = max(abs(end) for end in self.term_interval(factors[0]))
                return Interval(0, high ** len(factors) if high != math.inf else high)
            result = Interval(1, 1)
            for factor in factors:
                result = iv.multiply(result, self._operand_interval(factor))
            return result
        if isinstance(term, BinaryOp) and term.dtype is INT64:
            operation = iv.OPERATIONS.get(term.op)
            if operation is not None:
                return operation(self._operand_interval(term.a), self._operand_interval(term.b))
        if isinstance(term, Select) and term.dtype is INT64:
            return self._operand_interval(term.true_value).union(self._operand_interval(term.false_value))
        if isinstance(term, (Cast, Call)):
            return self.integer_interval(term)
        return self.lanes.get(term, EVERYTHING)

    def _operand_interval(self, expr: Expr) -> Interval:
        form = self.linear(expr)
        if form.single() is expr:
            return self.term_interval(expr)
        return self.interval(form) if self.is_exact(form) else EVERYTHING

    def integer_interval(self, expr: Expr) -> Interval:
        """Constant bounds of a scalar of any integer type, which wraps: where an operation might leave the range of its
        type, nothing but that range is known."""
        if expr.dtype is INT64 and not isinstance(expr, (Cast, Call)):
            return self._operand_interval(expr)
        whole = type_interval(expr.dtype) if expr.dtype is not INT64 else EVERYTHING
        found = whole
        if isinstance(expr, IntImm):
            found = Interval(expr.value, expr.value)
        elif isinstance(expr, Var):
            found = self.facts.intervals.get(expr, whole)
        elif isinstance(expr, Cast) and (expr.value.dtype.is_integer or expr.value.dtype.is_bool):
            found = self.integer_interval(expr.value)
        elif isinstance(expr, BinaryOp) and expr.op in iv.OPERATIONS:
            found = iv.OPERATIONS[expr.op](self.integer_interval(expr.a), self.integer_interval(expr.b))
        elif isinstance(expr, Select):
            found = self.integer_interval(expr.true_value).union(self.integer_interval(expr.false_value))
        elif isinstance(expr, Call) and expr.name in ("popcount", "count_leading_zeros"):
            found = Interval(0, expr.args[0].dtype.bits)
        return found if whole.lower <= found.lower and found.upper <= whole.upper else whole

    # -- remainders ---------------------------------------------------------------------------------------------------

    def modular(self, form: Linear) -> tuple[int, int]:
        """``(m, r)`` such that the form is ``r`` plus a multiple of ``m``, ``0 <= r < m``; ``m = 0`` for a constant."""
        modulus, remainder = 0, form.const
        for term, coefficient in form.terms.items():
            m, r = self._term_modular(term)
            modulus = math.gcd(modulus, m * coefficient)
            remainder += r * coefficient
        return modulus, remainder % modulus if modulus else remainder

    def _term_modular(self, term: Expr) -> tuple[int, int]:
        known = self.facts.remainders.get(term)
        if known is not None:
            return known
        factors = self._factors.get(term)
        if factors is not None:
            m, r = 0, 1
            for factor in factors:
                fm, fr = self._term_modular(factor)
                m, r = math.gcd(m * fm, m * fr, r * fm), r * fr
            return m, r % m if m else r
        if isinstance(term, (BinaryOp, Select)) and term.dtype is INT64:
            if isinstance(term, Select):
                (m1, r1), (m2, r2) = (self.modular(self.linear(v)) for v in (term.true_value, term.false_value))
            elif term.op in ("min", "max", "floormod"):
                (m1, r1), (m2, r2) = (self.modular(self.linear(v)) for v in (term.a, term.b))
                if term.op == "floormod":  # x - k * y
                    m = math.gcd(m1, m2, r2)
                    return (m, r1 % m) if m else (1, 0)
            else:
                return 1, 0
            m = math.gcd(m1, m2, r1 - r2)
            return (m, r1 % m) if m else (1, 0)
        return 1, 0


@dataclasses.dataclass(frozen=True)
class Division:
    """``x = divisor * (whole + rest // small) + (unit * (rest % small) + low)``; ``rest`` None: no such part."""

    whole: Linear
    rest: Linear | None
    small: int
    unit: int
    low: Linear

    def quotient(self, algebra: IndexAlgebra) -> Linear:
        """The form of the quotient."""
        if self.rest is None:
            return self.whole
        nested = self.rest.shift(-self.rest.const).single()
        rest, small = self.rest, self.small
        if isinstance(nested, BinaryOp) and nested.op == "floordiv" and isinstance(nested.b, IntImm):
            inner = nested.b.value  # (x // c + k) // d  ->  (x + k * c) // (c * d)
            if inner > 0:
                deeper = algebra.linear(nested.a).shift(rest.const * inner)
                return self.whole + algebra.divide(deeper, inner * small).quotient(algebra)
        return self.whole + algebra._division_term("floordiv", rest, constant(small))

    def remainder(self, algebra: IndexAlgebra) -> Linear:
        """The form of the remainder."""
        if self.rest is None:
            return self.low
        rest = self.rest
        for term, coefficient in self.rest.terms.items():  # (x % m) % d  ->  x % d  where d divides m
            if not isinstance(term, BinaryOp) or term.op != "floormod" or not isinstance(term.b, IntImm):
                continue
            if coefficient * term.b.value % self.small == 0:
                rest = rest.without(term).combine(algebra.linear(term.a), coefficient)
        if rest is not self.rest:
            return algebra.divide(rest, self.small).remainder(algebra).scale(self.unit) + self.low
        modulus, known = algebra.modular(rest)
        if modulus % self.small == 0:
            return self.low.shift(self.unit * (known % self.small))
        return algebra._division_term("floormod", rest, constant(self.small)).scale(self.unit) + self.low


def _split_division(algebra: IndexAlgebra, a: Linear, divisor: int) -> Division:
    """Take out of ``a / divisor`` all that divides, and the low part that never carries."""
    whole_const, rest_const = divmod(a.const, divisor)
    whole: dict[Expr, int] = {}
    rest: dict[Expr, int] = {}
    for term, coefficient in a.terms.items():
        multiple = abs(coefficient) // divisor * (1 if coefficient > 0 else -1)
        if multiple:
            whole[term] = multiple
        if coefficient - multiple * divisor:
            rest[term] = coefficient - multiple * divisor
    quotient, remaining = Linear(whole, whole_const), Linear(rest, rest_const)
    bounds = algebra.interval(remaining)
    if bounds.is_finite and bounds.lower // divisor == bounds.upper // divisor:
        carry = int(bounds.lower) // divisor
        return Division(quotient.shift(carry), None, 1, 1, remaining.shift(-carry * divisor))
    for unit in sorted({math.gcd(c, divisor) for c in rest.values()} - {1}, reverse=True):
        high_const, low_const = divmod(rest_const, unit)
        low = Linear({t: c for t, c in rest.items() if c % unit}, low_const)
        bounds = algebra.interval(low)
        if bounds.is_finite and bounds.lower // unit == bounds.upper // unit:
            carry = int(bounds.lower) // unit
            high = Linear({t: c // unit for t, c in rest.items() if c % unit == 0}, high_const + carry)
            low = low.shift(-carry * unit)
            inner = _split_division(algebra, high, divisor // unit)
            return Division(
                quotient + inner.whole, inner.rest, inner.small, inner.unit * unit, inner.low.scale(unit) + low
            )
    return Division(quotient, remaining, divisor, 1, ZERO)


def _remove_factors(factors: tuple[Expr, ...], removed: tuple[Expr, ...]) -> tuple[Expr, ...] | None:
    """``factors`` without each of ``removed``; None if one is missing."""
    left = list(factors)
    for factor in removed:
        if factor not in left:
            return None
        left.remove(factor)
    return tuple(left)
