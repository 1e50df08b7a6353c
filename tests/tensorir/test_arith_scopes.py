"""Scopes of an analyzer: derived facts are reused wherever no new fact concerns them."""

from __future__ import annotations

import pytest

from tilewright.tensorir import structural_equal
from tilewright.tensorir.arith import Analyzer
from tilewright.tensorir.arith.facts import Findings
from tilewright.tensorir.expr import Expr, Var, call, compare

I, J, N = (Var(name) for name in ("i", "j", "n"))
F = Var("f", "float32")


def derived(findings: Findings) -> int:
    """Return the number of facts derived in all scopes."""
    scopes = {findings.root, *findings.inner.values()}
    return sum(len(table) for scope in scopes for table in (scope.linear, scope.intervals, scope.simplified))


def test_a_condition_concerns_its_variables_only() -> None:
    analyzer = Analyzer()
    analyzer.bind(I, 0, 16)
    analyzer.bind(J, 0, 16)
    outer = analyzer.here
    about_i, about_j = (I * 4 + 3) // 8, (J * 4 + 3) // 8
    with analyzer.assuming(I < 8):
        assert analyzer.here is not outer
        assert analyzer.here.home(about_i) is analyzer.here
        assert analyzer.here.home(about_j) is outer
        analyzer.simplify(about_j)
        assert outer.linear[about_j] is analyzer.linear(about_j)
        assert analyzer.bounds(about_i).upper == 3
    assert analyzer.bounds(about_i).upper == 7


def test_a_condition_concerns_variables_whose_range_depends_on_its_own() -> None:
    analyzer = Analyzer()
    analyzer.bind_nonnegative(N)
    analyzer.bind(I, 0, N)
    analyzer.bind(J, 0, I + 1)
    assert not analyzer.prove(J < 8)
    with analyzer.assuming(N <= 8):
        assert analyzer.prove(J < 8)
    assert not analyzer.prove(J < 8)


def test_a_range_that_replaces_another_one_is_the_one_that_counts() -> None:
    analyzer = Analyzer()
    analyzer.bind(I, 0, 8)
    assert analyzer.prove(I < 8)
    with analyzer.scope():
        analyzer.bind(I, 0, 9)
        assert not analyzer.prove(I < 8)
    assert analyzer.prove(I < 8)


def test_a_sum_made_at_one_place_is_another_where_more_is_known_of_its_terms() -> None:
    analyzer = Analyzer()
    analyzer.bind(I, 0, 16)
    analyzer.bind(J, 0, 16)
    made = analyzer.simplify(J * 3 + I * 16 + I % 4)
    with analyzer.assuming(compare("eq", J, 5)):
        assert analyzer.simplify(made) is analyzer.simplify(I * 16 + I % 4 + 15)
    with analyzer.assuming(I < 4):
        assert analyzer.simplify(made) is analyzer.simplify(I * 17 + J * 3)
    with analyzer.assuming(J < 4):
        assert analyzer.simplify(made) is made


def test_facts_of_an_inner_scope_leave_those_around_alone() -> None:
    analyzer = Analyzer()
    analyzer.bind(I, 0, 16)
    analyzer.bind(J, 0, 16)
    facts = analyzer.facts
    tables = facts.ranges, facts.intervals, facts.values, facts.remainders, facts.truths
    before = [dict(table) for table in tables]
    with analyzer.assuming(compare("eq", I % 4, 0), compare("eq", I, J), I >= 4):
        assert analyzer.prove(I % 4 < 1)
        analyzer.bind(J, 0, 5)
    assert not analyzer.prove(I % 4 < 1)
    assert analyzer.facts is facts
    assert [dict(table) for table in tables] == before


def test_who_is_told_the_same_derives_nothing_anew() -> None:
    shared = Findings(shared=True)
    questions = [(I * 4 + J) // 4, (I * 4 + J) % 4, I * 4 + J < N]

    def ask() -> list[Expr]:
        analyzer = Analyzer(shared)
        analyzer.bind_nonnegative(N)
        analyzer.bind(I, 0, N)
        analyzer.bind(J, 0, 4)
        with analyzer.assuming(I * 4 < N):
            return [analyzer.simplify(question) for question in questions]

    first = ask()
    scopes, known = len(shared.inner), derived(shared)
    assert known
    assert all(a is b for a, b in zip(ask(), first, strict=True))
    assert (len(shared.inner), derived(shared)) == (scopes, known)


@pytest.mark.parametrize("fast_first", [False, True])
def test_forms_that_round_differently_stay_apart(fast_first: bool) -> None:
    shared = Findings(shared=True)
    exact, fast = Analyzer(shared), Analyzer(shared, fast=True)
    expr = call("exp", F) * call("exp", F)
    for analyzer in (fast, exact) if fast_first else (exact, fast):
        analyzer.simplify(expr)
    assert structural_equal(exact.simplify(expr), Analyzer().simplify(expr))
    assert structural_equal(fast.simplify(expr), Analyzer(fast=True).simplify(expr))
    assert exact.simplify(expr) is not fast.simplify(expr)
