"""Witnesses: values that satisfy all facts of an analyzer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tilewright.tensorir.arith import Analyzer
from tilewright.tensorir.expr import Expr, Var, as_expr

N, M, I, J = (Var(name) for name in "nmij")

#: What an analyzer may be told, one after the other.
TOLD = {
    "rows": lambda analyzer: analyzer.bind(I, 0, N),
    "tile": lambda analyzer: analyzer.bind(J, 0, 6),
    "backwards": lambda analyzer: analyzer.bind(J, 0, N - I),
    "sizes": lambda analyzer: analyzer.bind_nonnegative(N),
    "small": lambda analyzer: analyzer.assume(N < 4),
    "large": lambda analyzer: analyzer.assume((N >= 2) & (M > N)),
    "whole": lambda analyzer: analyzer.assume((N % 6).equal(0)),
    "inside": lambda analyzer: analyzer.assume(I * 6 + J < N),
}
CONDITIONS: dict[str, list[Expr]] = {
    "rows": [I >= 0, I < N],
    "tile": [J >= 0, J < 6],
    "backwards": [J >= 0, J < N - I],
    "sizes": [N >= 0],
    "small": [N < 4],
    "large": [N >= 2, M > N],
    "whole": [(N % 6).equal(0)],
    "inside": [I * 6 + J < N],
}


@given(st.lists(st.sampled_from(sorted(TOLD)), unique=True, max_size=5))
def test_every_witness_agrees_with_all_that_was_told(names):
    names = [name for name in names if not (name == "backwards" and "tile" in names)]
    analyzer = Analyzer()
    for name in names:
        TOLD[name](analyzer)
    for witness in analyzer.facts.witnesses():
        assert all(witness.agrees(condition) for name in names for condition in CONDITIONS[name])


def test_what_a_witness_refutes_is_not_searched_for(monkeypatch):
    analyzer = Analyzer()
    analyzer.bind(I, 0, N)
    analyzer.bind(J, 0, 6)
    searched = []
    monkeypatch.setattr(type(analyzer), "_search", lambda *args: searched.append(args) or False)
    assert not analyzer.prove(I * 6 + J < N)
    assert not searched
    assert not analyzer.prove(I * 6 + J < N * 6)
    assert searched  # nobody is a counterexample, so it was tried


def test_no_witness_is_asked_about_ranges_with_constant_ends():
    analyzer = Analyzer()
    analyzer.bind(I, 0, 16)
    analyzer.bind(J, 0, N)
    assert not analyzer.prove(I < 8)
    assert not analyzer.here.proofs  # its constant bounds say all
    assert not analyzer.prove(J < N - 1)
    assert analyzer.here.proofs


def test_facts_told_after_a_question_count():
    analyzer = Analyzer()
    first = next(analyzer.facts.witnesses())
    analyzer.bind(N, 3, 4)
    assert next(analyzer.facts.witnesses()) is not first
    assert all(3 <= (witness.value(N) or 0) < 7 for witness in analyzer.facts.witnesses())


def test_scopes_that_end_give_witnesses_back():
    analyzer = Analyzer()
    before = list(analyzer.facts.witnesses())
    with analyzer.scope():
        analyzer.assume(as_expr(N) > 5000)
        assert not list(analyzer.facts.witnesses())
    assert before
    assert list(analyzer.facts.witnesses()) == before
