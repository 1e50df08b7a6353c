"""Loops over several formulas, each for a part of the range, as a loop for each formula::

    for i in range(96):                                           for i in range(32):
        c[i] = select(i < 32, x[i],                                   c[i] = x[i]
               select(i < 64, y[i - 32], z[i - 64]))      ->      for i in range(32, extent=32):
                                                                      c[i] = y[i - 32]
                                                                  for i in range(64, extent=32):
                                                                      c[i] = z[i - 64]

A split at the turn of a condition is free if it deals the loads of the body out: what one side loads, the other has no
use for, and all parts together are as much code as before. So concatenations and stacks of any number of values cost
the copies that they are. Splits in the middle first: a parallel loop, which stays one, finds its formula by bisection.

A condition that a loop does not change leaves it in the same way, when it deals out the loads: the loop is written once
for each side. One that decides about the whole body leaves it always, as each side is written once anyway::

    for i in range(n):                                            if m < 5:
        for j in range(m):                                            for i in range(n):
            if m < 5 and j < i:                        ->                 for j in range(m):
                c[i, j] = x[i]                                                if j < i:
                                                                                  c[i, j] = x[i]
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tilewright.passes.tensor.loop_guards import FALSE, TRUE, Conditions, Guard, with_known
from tilewright.tensorir.arith import Analyzer
from tilewright.tensorir.arith.region import partition_point
from tilewright.tensorir.conditions import OPPOSITES, conjuncts
from tilewright.tensorir.expr import BufferLoad, Compare, Expr, Var, all_of, compare, maximum, minimum
from tilewright.tensorir.functor import CALLS, DIVISIONS, LOADS, free_vars, kinds, uses_var, walk_to_loads
from tilewright.tensorir.stmt import For, IfThenElse, Stmt, sequence

_Found = TypeVar("_Found")

#: What keeps a condition in its loop, which may not run.
_STAYS = LOADS | DIVISIONS | CALLS


@dataclass(frozen=True)
class Cases:
    """A loop's range in two parts, or three.

    Attributes:
        low: the body up to ``first``.
        first: the end of the part in which the condition is known to have its first value.
        between: the body from ``first`` to ``second``, where lanes of one vector differ.
        second: the begin of the part in which it has its second value.
        high: the body from ``second`` on.
    """

    low: Stmt
    first: Expr
    between: Stmt
    second: Expr
    high: Stmt


def find_cases(loop: For, conditions: Conditions, analyzer: Analyzer) -> Cases | None:
    """Return a split that deals out the loads of a loop's body, near the middle of its cases; None if there is none.

    Args:
        conditions: those of the body.
        analyzer: knows what holds around the loop.
    """
    guards = {guard.condition: guard for guard in conditions.guards if guard.condition in conditions.choosing}
    loads = 0
    end = loop.min + loop.extent
    for condition, guard in _from_the_middle(list(guards.items())):
        if not isinstance(condition, Compare) or condition.op in ("eq", "ne"):
            continue
        turn = _turn(loop, guard, condition, analyzer)
        if turn is None:
            continue
        first, second = turn
        if analyzer.prove(first <= loop.min) or analyzer.prove(second >= end):
            continue
        loads = loads or _loads(loop.body)
        low, high = (
            with_known(loop.body, _known_in_part(loop, fact, conditions.guards, analyzer))
            for fact in (compare("lt", loop.var, first), compare("ge", loop.var, second))
        )
        if _deals_out(low, high, loads):
            first, second = (_within(place, loop.min, end, analyzer) for place in turn)
            return Cases(low, first, loop.body, second, high)
    return None


def find_choice(body: Stmt, conditions: Conditions, analyzer: Analyzer) -> tuple[Expr, Stmt, Stmt] | None:
    """Return the condition, near the middle of those that a loop does not change, that deals out the loads of its body,
    with the body where it holds and where it does not; None if there is none.

    Args:
        conditions: those of the body.
        analyzer: knows what holds around the loop.
    """
    choosing = [condition for condition in conditions.invariant if condition in conditions.choosing]
    loads = _loads(body) if choosing else 0
    for condition in _from_the_middle(choosing):
        if isinstance(condition, Compare):
            opposite = compare(OPPOSITES[condition.op], condition.a, condition.b)
            taken, other = (
                with_known(body, _known_where(each, conditions.invariant, analyzer)) for each in (condition, opposite)
            )
            if _deals_out(taken, other, loads):
                return condition, taken, other
    return None


def find_outer_choice(loop: For) -> tuple[Expr, Stmt, Stmt] | None:
    """Return the condition that decides, before ``loop`` runs, about all of its body, with the body where it holds and
    where it does not (nothing, for an ``if`` without ``else``); None if there is none.

    The body is one ``if``, directly or in loops around nothing else. Of an ``if`` without ``else`` the terms of a
    conjunction are conditions, too. What reads memory or divides stays: it would run where the loop does not.
    """
    inner: list[For] = []
    stmt = loop.body
    while isinstance(stmt, For):
        inner.append(stmt)
        stmt = stmt.body
    if not isinstance(stmt, IfThenElse):
        return None
    variables = {loop.var, *(each.var for each in inner)}
    terms = [stmt.condition] if stmt.else_body is not None else list(conjuncts(stmt.condition))
    moved = [term for term in terms if not kinds(term) & _STAYS and not uses_var(term, variables)]
    if not moved:
        return None
    kept = [term for term in terms if term not in moved]
    taken = IfThenElse(all_of(*kept), stmt.then_body) if kept else stmt.then_body
    other = stmt.else_body
    return all_of(*moved), _within_loops(inner, taken), sequence() if other is None else _within_loops(inner, other)


def _within_loops(loops: Sequence[For], body: Stmt) -> Stmt:
    """Return ``body`` inside of ``loops``, which are given outermost first."""
    for loop in reversed(loops):
        body = For(loop.var, loop.min, loop.extent, loop.kind, body, loop.annotations)
    return body


def _known_in_part(loop: For, fact: Expr, guards: Sequence[Guard], analyzer: Analyzer) -> dict[Expr, Expr]:
    """Return the conditions of ``guards`` that are decided in the part of the loop where ``fact`` holds, with their
    values there."""
    known: dict[Expr, Expr] = {}
    with analyzer.scope():
        analyzer.bind(loop.var, loop.min, loop.extent)
        analyzer.assume(fact)
        for guard in guards:
            with analyzer.scope():
                for inner, (low, extent) in guard.inner.items():
                    analyzer.bind(inner, low, extent)
                _decide(guard.condition, analyzer, known)
    return known


def _within(place: Expr, begin: Expr, end: Expr, analyzer: Analyzer) -> Expr:
    """Return ``place``, or the end of the range that it lies beyond."""
    if not analyzer.prove(place <= end):
        place = minimum(place, end)
    if not analyzer.prove(place >= begin):
        place = maximum(place, begin)
    return analyzer.simplify(place)


def _known_where(condition: Expr, conditions: Sequence[Expr], analyzer: Analyzer) -> dict[Expr, Expr]:
    """Return those of ``conditions`` that are decided where ``condition`` holds, with their values there."""
    known: dict[Expr, Expr] = {}
    with analyzer.scope():
        analyzer.assume(condition)
        for each in conditions:
            _decide(each, analyzer, known)
    return known


def _decide(condition: Expr, analyzer: Analyzer, known: dict[Expr, Expr]) -> None:
    """Add the value of ``condition`` to ``known``, if the analyzer can prove it."""
    if condition in known or not isinstance(condition, Compare):
        return
    if analyzer.prove(condition):
        known[condition] = TRUE
    elif analyzer.prove(compare(OPPOSITES[condition.op], condition.a, condition.b)):
        known[condition] = FALSE


def _deals_out(first: Stmt, second: Stmt, loads: int) -> bool:
    """Return whether two parts of a body load something each, and together no more than the body, which has
    ``loads``."""
    counts = _loads(first), _loads(second)
    return all(counts) and sum(counts) <= loads


def _from_the_middle(found: Sequence[_Found]) -> Iterator[_Found]:
    """Yield what was ``found``, which chains of cases list by place, from the middle to both ends."""
    middle = len(found) // 2
    for behind, before in itertools.zip_longest(found[middle:], found[:middle][::-1]):
        yield from (each for each in (behind, before) if each is not None)


def _turn(loop: For, guard: Guard, condition: Compare, analyzer: Analyzer) -> tuple[Expr, Expr] | None:
    """Return where the part in front of the turn of ``condition`` ends, and where the one behind it begins; None if
    there is no such turn, or something inside of the loop decides it."""
    holds = partition_point(condition, loop.var, guard.inner, analyzer)
    fails = partition_point(compare(OPPOSITES[condition.op], condition.a, condition.b), loop.var, guard.inner, analyzer)
    if holds is None or fails is None:
        return None
    before, behind = (holds, fails) if holds[0] is None else (fails, holds)
    first, second = before[1], behind[0]
    if first is None or second is None or before[0] is not None or behind[1] is not None:
        return None
    hidden: set[Var] = {loop.var, *guard.inner, *guard.lets}
    if not hidden.isdisjoint(free_vars(first)) or not hidden.isdisjoint(free_vars(second)):
        return None
    return analyzer.simplify(first), analyzer.simplify(second)


def _loads(body: Stmt) -> int:
    """Return the number of loads in the text of a body; equal ones count once."""
    return len({node for node in walk_to_loads(body) if isinstance(node, BufferLoad)})
