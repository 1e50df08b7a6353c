"""Rewriting of expressions into canonical form, under conditions that are known to hold.

Index expressions (int64 scalars, and vectors that are affine in the lane) go through the linear forms of
:mod:`.index`; everything else is folded (:mod:`.folds`) and goes through the tables of :mod:`.rules`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from tilewright.tensorir.arith import rules
from tilewright.tensorir.arith.assumptions import assume_comparison
from tilewright.tensorir.arith.bounds import SIMPLIFY_BUDGET, BoundedTerms
from tilewright.tensorir.arith.comparisons import ComparingAlgebra, decide_by_intervals
from tilewright.tensorir.arith.facts import Findings, Scope
from tilewright.tensorir.arith.folds import FOLDS
from tilewright.tensorir.arith.interval import Interval
from tilewright.tensorir.arith.lane_numbers import lane_number
from tilewright.tensorir.arith.lanes import affine_vector, per_lane
from tilewright.tensorir.arith.linear import Linear
from tilewright.tensorir.arith.pattern import RuleTable
from tilewright.tensorir.conditions import OPPOSITES, conjuncts
from tilewright.tensorir.dtype import BOOL, INT64
from tilewright.tensorir.expr import (
    BinaryOp,
    Broadcast,
    BufferLoad,
    Compare,
    Expr,
    FloatImm,
    IntImm,
    UnaryOp,
    Var,
    compare,
    const,
)
from tilewright.tensorir.functor import leaves, reads_memory, uses_var

#: Conjunctions of up to this many conditions are searched for conditions that follow from the others.
MAX_CONJUNCTS = 8


#: The rules by the kind of an expression's type.
_EXACT_TABLES: dict[str, RuleTable] = {
    "int": rules.INTEGER_RULES + rules.SELECT_RULES,
    "uint": rules.INTEGER_RULES + rules.SELECT_RULES,
    "bool": rules.BOOL_RULES + rules.SELECT_RULES,
    "float": rules.EXACT_FLOAT_RULES + rules.SELECT_RULES,
}
_FAST_TABLES = {**_EXACT_TABLES, "float": rules.EXACT_FLOAT_RULES + rules.FAST_FLOAT_RULES + rules.SELECT_RULES}

#: Expressions that are no operations, at which no rule begins; most that come to the rules are loads.
_WITHOUT_RULES = frozenset((BufferLoad, Broadcast, FloatImm))


class _Scope:
    """A ``with`` block that restores the facts of its beginning at its end."""

    def __init__(self, algebra: BoundedTerms) -> None:
        self._algebra = algebra
        self._outer = algebra.here

    def __enter__(self) -> None:
        self._outer = self._algebra.open_scope()

    def __exit__(self, *_: object) -> None:
        self._algebra.close_scope(self._outer)


class RewritingAlgebra(ComparingAlgebra):
    """Finds canonical forms: the same object for all expressions whose forms are the same.

    Args:
        findings: of other analyzers of the same function, which this one shares.
        fast: also apply the float rules that round differently or assume finite values (optimization level 3).
    """

    def __init__(self, findings: Findings | None = None, *, fast: bool = False) -> None:
        super().__init__(findings)
        self._fast = fast
        self._tables = _FAST_TABLES if fast else _EXACT_TABLES

    # -- what is known ------------------------------------------------------------------------------------------------

    def assume(self, condition: Expr) -> None:
        """Say that ``condition`` holds from now on (until the surrounding scope ends). Conditions on the contents of
        memory are ignored, because a store may change them."""
        known_scopes = self.findings.inner
        said = self.here, self._fast, condition
        inner = known_scopes.get(said)
        if inner is not None:
            self.enter(inner)
            return
        known = self.canonical(condition)
        if not (isinstance(known, IntImm) or known.dtype is not BOOL or reads_memory(known)):
            key = self.here, known
            inner = known_scopes.get(key)
            if inner is not None:
                self.enter(inner)
            else:
                if isinstance(known, BinaryOp) and known.op == "and":
                    self.assume(known.a)
                    self.assume(known.b)
                else:
                    self._learn(known)
                known_scopes[key] = self.here
        known_scopes[said] = self.here

    def _learn(self, known: Expr) -> None:
        if isinstance(known, UnaryOp) and isinstance(known.a, BinaryOp) and known.a.op == "or":
            self.assume(UnaryOp("not", known.a.a))
            self.assume(UnaryOp("not", known.a.b))
        opposite: Expr | None = None
        form: Linear | None = None
        if isinstance(known, Compare):
            if known.a.dtype is INT64:
                a, b = self.linear(known.a), self.linear(known.b)
                if self.are_exact(a, b):
                    # Nothing decides the condition, so nothing decides its opposite.
                    form = a - b
                    opposite = self.opposite_of(known, form)
            if opposite is None:
                opposite = self.canonical(Compare(OPPOSITES[known.op], known.a, known.b))
        told = leaves(known)
        inner = Scope(self.here, told)
        inner.connect(told, told)
        self.enter(inner)
        facts = inner.facts
        facts.say(lambda witness: witness if witness.agrees(known) else None)
        false = [known.a] if isinstance(known, UnaryOp) else []
        if opposite is not None:
            false.append(opposite)
        facts.set_truths(known, false)
        if isinstance(known, Compare) and form is not None:
            assume_comparison(self, known.op, form)
            inner.clear()

    def scope(self) -> AbstractContextManager[None]:
        """A ``with`` block at whose end all that was bound or assumed inside is forgotten."""
        return _Scope(self)

    @contextlib.contextmanager
    def assuming(self, *conditions: Expr) -> Iterator[None]:
        """A scope in which the conditions hold."""
        with self.scope():
            for condition in conditions:
                self.assume(condition)
            yield

    # -- rewriting ----------------------------------------------------------------------------------------------------

    def canonical(self, expr: Expr) -> Expr:
        """The canonical form of ``expr``: the same object for all expressions whose forms are the same, as long as
        this analyzer learns nothing new about their variables."""
        if type(expr) is IntImm:
            return expr
        here = self.here
        known = here.fast if self._fast else here.simplified
        found = known.get(expr)
        if found is None:
            if expr.dtype is INT64:
                found = expr if type(expr) is Var and self.varies(expr) else self.expr(self.linear(expr))
                known[expr] = known[found] = found
                return found
            home = here.home(expr)
            if home is here:
                found = self._rewrite(expr)
                known[found] = found
            else:
                kept = home.fast if self._fast else home.simplified
                found = kept.get(expr)
                if found is None:
                    found = self.ask_in(home, self._rewrite, expr)
                    kept[expr] = kept[found] = found
            known[expr] = found
        return found

    def _rewrite(self, expr: Expr) -> Expr:
        if type(expr) is BufferLoad:  # neither a vector of indices nor a condition that may be known
            return self._rebuild(expr)
        dtype = expr.dtype
        if dtype.element is INT64:
            affine = affine_vector(self, expr)
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
                return IntImm(int(truth), BOOL)
            if isinstance(result, BinaryOp) and result.op == "and":
                return self._conjunction(result)
            if isinstance(result, BinaryOp) and result.op == "or":
                return self._disjunction(result)
        return result

    def operand(self, expr: Expr) -> Expr:
        """``expr`` with simplified operands, folded and by the rules of its type."""
        rebuilt = self._rebuild(expr)
        if type(rebuilt) is not type(expr):
            return self.canonical(rebuilt) if rebuilt.dtype is not INT64 else rebuilt
        if type(rebuilt) in _WITHOUT_RULES:
            return rebuilt
        table = self._tables.get(rebuilt.dtype.kind)
        changed = None if table is None else table.apply(rebuilt)
        if changed is not None:
            return self.canonical(changed)
        if isinstance(rebuilt, Compare):
            return self._compare_rules(rebuilt)
        if isinstance(rebuilt, UnaryOp) and isinstance(rebuilt.a, Compare) and not rebuilt.a.a.dtype.is_float:
            changed = rules.INTEGER_NEGATION_RULES.apply(rebuilt)
            if changed is not None:
                return self.canonical(changed)
        return rebuilt

    def _rebuild(self, expr: Expr) -> Expr:
        """``expr`` over simplified operands, or what it folds to."""
        rebuilt: Expr
        if isinstance(expr, BinaryOp):  # most of what comes here are operations and loads
            a, b = self.canonical(expr.a), self.canonical(expr.b)
            rebuilt = expr if a is expr.a and b is expr.b else expr.with_operands(a, b)
        elif isinstance(expr, BufferLoad):
            indices = self.all_canonical(expr.indices)
            mask = None if expr.predicate is None else self.canonical(expr.predicate)
            if mask is not expr.predicate:
                rebuilt = BufferLoad(expr.buffer, indices, mask)
            else:
                rebuilt = expr if indices is expr.indices else expr.with_operands(indices)
        else:
            rebuilt = self._rebuild_by_fields(expr)
        fold = FOLDS.get(type(rebuilt))
        if fold is not None:
            folded = fold(rebuilt)
            if folded is not rebuilt:
                return self.canonical(folded) if folded.dtype is not INT64 else self._folded(folded)
        return rebuilt

    def all_canonical(self, exprs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The canonical forms of ``exprs``; the same tuple if they have them already."""
        for number, expr in enumerate(exprs):
            new = self.canonical(expr)
            if new is not expr:
                return (*exprs[:number], new, *[self.canonical(other) for other in exprs[number + 1 :]])
        return exprs

    def _rebuild_by_fields(self, expr: Expr) -> Expr:
        changed = False
        values: list[Any] = []
        for name, role in expr.node_fields:
            value = new = getattr(expr, name)
            if role == "child" and value is not None:
                new = self.canonical(value)
            elif role == "children":
                new = self.all_canonical(value)
            changed = changed or new is not value
            values.append(new)
        return type(expr)(*values) if changed else expr

    def _folded(self, expr: Expr) -> Expr:
        return IntImm(expr.value) if isinstance(expr, IntImm) else self.expr(self.linear(expr))

    # -- comparisons --------------------------------------------------------------------------------------------------

    def _comparison(self, expr: Compare) -> Expr | None:
        """Return a comparison of integers, decided or in canonical form; None if only the rules apply."""
        dtype = expr.a.dtype
        if dtype is INT64:
            a, b = self.linear(expr.a), self.linear(expr.b)
            decided = self.decide(expr.op, a, b, SIMPLIFY_BUDGET)
            if decided is None and self.are_exact(a, b):
                result = self.canonical_comparison(expr.op, a - b)
                truth = self.facts.truths.get(result)
                return result if truth is None else IntImm(int(truth), BOOL)
        elif dtype.element is INT64:
            lane = lane_number(dtype.lanes)
            x, y = per_lane(expr.a, lane), per_lane(expr.b, lane)
            if x is None or y is None:
                return None
            decided = self.decide(expr.op, self.linear(x), self.linear(y), SIMPLIFY_BUDGET)
            scalar = compare(expr.op, x, y)
            if decided is None and not uses_var(scalar, {lane}):
                return Broadcast(self.canonical(scalar), dtype.lanes)
        elif dtype.is_integer and dtype.lanes == 1:
            low, high = self.integer_interval(self.canonical(expr.a)), self.integer_interval(self.canonical(expr.b))
            decided = decide_by_intervals(expr.op, low, high)
        else:
            return None
        return None if decided is None else self._truth(decided, expr)

    def _truth(self, value: bool, expr: Expr) -> Expr:
        return self.canonical(const(value, expr.dtype))

    def _compare_rules(self, expr: Compare) -> Expr:
        table = rules.EXACT_FLOAT_COMPARE_RULES if expr.a.dtype.is_float else rules.INTEGER_COMPARE_RULES
        changed = table.apply(expr)
        return expr if changed is None else self.canonical(changed)

    # -- conditions of several comparisons ----------------------------------------------------------------------------

    def _conjunction(self, expr: BinaryOp) -> Expr:
        """A conjunction without the conditions that follow from the others."""
        parts = conjuncts(expr)
        if len(parts) > MAX_CONJUNCTS or not any(isinstance(p, Compare) and p.a.dtype is INT64 for p in parts):
            return expr
        kept = list(parts)
        for part in parts:
            if not isinstance(part, Compare) or part.a.dtype is not INT64:
                continue
            others = self._related(part, kept)
            if not others:
                continue
            bounds = self.interval_under(others, part.a)
            if bounds is not None and type(part.b) is IntImm:
                decided = decide_by_intervals(part.op, bounds, Interval(part.b.value, part.b.value))
            else:
                decided = self._decide_under(others, part)
            if decided is False:
                return IntImm(0, BOOL)
            if decided:
                kept.remove(part)
        result = kept[0]
        for part in kept[1:]:
            result = BinaryOp("and", result, part)
        return result

    def _related(self, condition: Expr, conditions: list[Expr]) -> list[Expr]:
        """Return those of the other conditions from which anything may follow for the variables of ``condition``, at
        once or through further ones; nothing else can decide it."""
        reached = leaves(condition)
        left = [other for other in conditions if other is not condition]
        related: list[Expr] = []
        told = [self.here.affected(leaves(other)) for other in left]
        found = True
        while found:
            found = False
            for number, other in enumerate(left):
                if other not in related and not reached.isdisjoint(told[number]):
                    related.append(other)
                    reached |= told[number]
                    found = True
        return related if len(related) < 2 else [other for other in left if other in related]

    def _disjunction(self, expr: BinaryOp) -> Expr:
        """``a or b`` of comparisons, where one follows from the other or from its opposite."""
        a, b = expr.a, expr.b
        if not all(isinstance(side, Compare) and side.a.dtype is INT64 for side in (a, b)):
            return expr
        decided = self._decide_under([UnaryOp("not", a)], b)
        if decided is not None:
            return IntImm(1, BOOL) if decided else a
        return b if self._decide_under([UnaryOp("not", b)], a) is False else expr

    def _decide_under(self, conditions: list[Expr], comparison: Any) -> bool | None:
        """Return whether a comparison of indices is always true or always false where the conditions hold."""
        outer = self.open_scope()
        try:
            for condition in conditions:
                self.assume(condition)
            return self.decide(comparison.op, self.linear(comparison.a), self.linear(comparison.b), SIMPLIFY_BUDGET)
        finally:
            self.close_scope(outer)
