"""ScopedMutator: test the facts that its analyzers know at each place of a program."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilewright.passes.tensor.scoped import ScopedMutator
from tilewright.tensorir import parse
from tilewright.tensorir.arith import Analyzer
from tilewright.tensorir.expr import Expr, Var
from tilewright.tensorir.functor import walk
from tilewright.tensorir.stmt import BufferStore, Stmt

PROGRAM = """
primfunc @f(A: Buffer[(99,), float32], n: int64) {
  for i in range(8) {
    let q: int64 = i // 2
    for j in range(n) {
      if j < 5 {
        A[i + q + j] = 1.0
      }
      A[i + q + j] = 2.0
    }
    A[i + q] = 3.0
  }
  A[n] = 4.0
}
"""


class Asker(ScopedMutator):
    """Calls ``ask`` at each store, with the program's variables by name; keeps the answers."""

    def __init__(self, program: str, ask: Callable[[Asker, dict[str, Expr]], object]) -> None:
        func = parse(program)
        super().__init__(func)
        self.variables: dict[str, Expr] = {var.name: var for var in walk(func.body) if isinstance(var, Var)}
        self.ask = ask
        self.answers: list[object] = []
        self.mutate(func.body)

    def mutate_BufferStore(self, op: BufferStore) -> Stmt:
        self.answers.append(self.ask(self, self.variables))
        return op


def test_the_analyzer_knows_ranges_and_conditions_of_its_place():
    asked = Asker(PROGRAM, lambda asker, at: asker.analyzer.prove(at["j"] < 5))
    assert asked.answers == [True, False, False, False]


def test_the_analyzer_of_ranges_knows_no_conditions():
    asked = Asker(PROGRAM, lambda asker, at: asker.range_analyzer.prove(at["j"] < 5))
    assert asked.answers == [False, False, False, False]


def test_the_analyzer_of_ranges_knows_loops_lets_and_sizes():
    def ask(asker: ScopedMutator, at: dict[str, Expr]) -> bool:
        prove = asker.range_analyzer.prove
        return prove(at["n"] >= 0) and prove(at["i"] < 8) and prove(at["q"] < 4) and prove(at["j"] < at["n"])

    assert Asker(PROGRAM, ask).answers == [True, True, True, True]  # what it has learned it keeps


def test_the_analyzer_of_ranges_is_not_told_of_loops_that_were_left_before_somebody_asked():
    def ask(asker: Asker, _: dict[str, Expr]) -> int | None:
        return len(asker.range_analyzer.facts.ranges) if len(asker.answers) == 3 else None

    assert Asker(PROGRAM, ask).answers == [None, None, None, 0]


def test_nobody_learns_what_nobody_asks(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise AssertionError("it was told")

    monkeypatch.setattr(Analyzer, "bind", refuse)
    monkeypatch.setattr(Analyzer, "assume", refuse)
    assert Asker(PROGRAM, lambda asker, at: None).answers == [None] * 4
