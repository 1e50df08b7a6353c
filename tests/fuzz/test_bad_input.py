"""Spoiled input of every entry point is accepted or refused by an error of the family: no other error, no crash, no
hang, no memory beyond bounds."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.extra.lark import from_lark
from lark import Lark

from tests.fuzz import bad_input
from tests.fuzz.bad_input import Examiner, examine
from tests.fuzz.entries import ENTRIES, REFUSED
from tests.fuzz.entry import Entry
from tests.onnx.process import ROOT
from tilewright import tensorir as ti
from tilewright.tensorir.errors import ParseError

#: Inputs of an entry point as cheap as a parser of short texts, in every run and in exhaustive ones.
QUICK, MANY = 400, 20_000


@pytest.fixture(scope="module")
def examiner() -> Iterator[Examiner]:
    with Examiner(seed=0) as found:
        yield found


@pytest.mark.parametrize("count", [QUICK, pytest.param(MANY, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("name", ENTRIES)
def test_spoiled_input(examiner: Examiner, name: str, count: int) -> None:
    found = examiner.report(name, range(max(20, count // ENTRIES[name].cost)))
    assert not found.bugs, "\n".join(f"--entry {bug.entry!r} --show {bug.number}: {bug.reason}" for bug in found.bugs)
    if name not in ("cache entry", "command line"):  # a bad entry is no error, and a command ends with an exit code
        assert found.counts.keys() - {"accepted"}
    assert found.peak < 1 << 30


class _Crashing(Entry):
    name = "crashing"

    def draw(self, rng: random.Random) -> int:
        return rng.randrange(3)

    def run(self, value: int) -> None:
        if value == 0:
            raise KeyError("foreign")
        if value == 1:
            raise ParseError("of the family")
        while True:
            pass


def test_foreign_errors_and_hangs_are_bugs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bad_input, "ALARM", 0.05)
    before = signal.signal(signal.SIGPROF, bad_input._alarm)
    try:
        ends = {examine(_Crashing(), 0, number) for number in range(20)}
    finally:
        signal.signal(signal.SIGPROF, before)
    assert {status for status, _ in ends} == {"bug", "ParseError"}
    reasons = sorted(reason for status, reason in ends if status == "bug")
    assert len(reasons) == 2 and "KeyError in" in reasons[0] and "no end after" in reasons[1]


_GRAMMAR = Lark((ROOT / "tensorir" / "grammar.lark").read_text(encoding="utf-8"), start="functions", parser="lalr")


@pytest.mark.exhaustive
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(from_lark(_GRAMMAR))
def test_any_text_of_the_loop_grammar(text: str) -> None:
    try:
        ti.parser.parse_all(text)
    except REFUSED:
        return


def test_an_input_is_drawn_again_by_its_number() -> None:
    texts = ENTRIES["loop text"]()
    again = [texts.draw(bad_input.generator(texts.name, 3, number)) for number in range(20)]
    assert again == [texts.draw(bad_input.generator(texts.name, 3, number)) for number in range(20)]
    assert len(set(again)) > 15
