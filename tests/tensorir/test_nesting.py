"""Programs that are nested deeply, or too large to be worked on, are errors of the family, wherever they come in."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tilewright as tw
from tilewright import tensorir as ti
from tilewright.tensorir import nesting
from tilewright.tensorir.errors import BudgetError, CodegenError, NestingError, ScheduleError

A = ti.Buffer("a", (4,), "float32")
FIRST = A[0]
STORE = ti.BufferStore(A, FIRST + 1.0, (0,))
LEVELS = 10_000


def function(body: ti.Stmt) -> ti.PrimFunc:
    return ti.PrimFunc("deep", (A,), body)


def repeated(wrap: Callable[[int, ti.Node], ti.Node], inner: ti.Node, count: int = LEVELS) -> ti.Node:
    for number in range(count):
        inner = wrap(number, inner)
    return inner


def lets(count: int = LEVELS) -> ti.PrimFunc:
    names = [ti.Var(f"x{number}", "float32") for number in range(count)]
    body: ti.Stmt = ti.BufferStore(A, names[-1], (0,))
    for number in reversed(range(count)):
        body = ti.LetStmt(names[number], names[number - 1] + 1.0 if number else FIRST, body)
    return function(body)


def expression(wrap: Callable[[int, ti.Expr], ti.Expr], count: int = LEVELS) -> ti.PrimFunc:
    return function(ti.BufferStore(A, repeated(wrap, FIRST, count), (0,)))


DEEP = {
    "calls": lambda: expression(lambda _, x: ti.call("exp", x)),
    "sums to the right": lambda: expression(lambda _, x: A[1] + x),
    "negations": lambda: expression(lambda _, x: ti.UnaryOp("neg", x)),
    "selections": lambda: expression(lambda _, x: ti.Select(A[1] > FIRST, x, FIRST)),
    "loops": lambda: function(repeated(lambda n, s: ti.For(ti.Var(f"i{n}"), 0, 1, "serial", s), STORE)),
    "branches": lambda: function(repeated(lambda _, s: ti.IfThenElse(FIRST < 2.0, s), STORE)),
    "sequences": lambda: function(repeated(lambda _, s: ti.SeqStmt((s, STORE)), STORE)),
}
WORK = {
    "print": str,
    "verify": ti.verify,
    "interpret": lambda func: ti.interpret(func, np.ones(4, "f4")),
    "build for llvm": lambda func: tw.build(func, target=tw.Target("llvm", num_threads=1)),
    "build for numba": lambda func: tw.build(func, target=tw.Target("numba", num_threads=1)),
    "schedule": ti.Schedule,
    "run a pass": lambda func: tw.passes.get_pass("Simplify")(tw.IRModule({"f": func})),
}


@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("kind", DEEP)
def test_ten_thousand_levels(kind: str, work: str) -> None:
    with pytest.raises(NestingError, match="at most 1000 levels"):
        WORK[work](DEEP[kind]())


@pytest.mark.parametrize("make", [lets, lambda: expression(lambda _, x: x + 1.5)], ids=["lets", "sums"])
def test_long_chains_are_no_nesting_for_text_and_verifier(make: Callable[[], ti.PrimFunc]) -> None:
    func = make()
    ti.verify(func)
    assert ti.structural_equal(ti.parse(str(func)), func)


@pytest.mark.parametrize("target", ["llvm", "numba"])
@pytest.mark.parametrize("make", [lets, lambda: expression(lambda _, x: x + 1.5)], ids=["lets", "sums"])
def test_long_chains_are_too_deep_for_a_build(make: Callable[[], ti.PrimFunc], target: str) -> None:
    with pytest.raises(NestingError, match=r"building: .* found 1000\d"):
        tw.build(make(), target=target)


def test_a_recursion_that_python_ends_is_translated() -> None:
    """Of five hundred levels Python's stack has too few frames, though compiled code had enough."""
    with pytest.raises(NestingError, match="building: the program is nested more deeply than this can follow"):
        tw.build(expression(lambda _, x: ti.call("exp", x), 500), target=tw.Target("llvm", num_threads=1))


def test_source_that_python_cannot_parse() -> None:
    branches = function(repeated(lambda _, s: ti.IfThenElse(FIRST < 2.0, s), STORE, 110))
    with pytest.raises(CodegenError, match="too many levels of indentation"):
        tw.build(branches, target=tw.Target("numba", num_threads=1))


BRACKETS = {
    "parentheses": "a[0] = " + "(" * LEVELS + "1.0" + ")" * LEVELS,
    "signs": "a[0] = " + "-" * LEVELS + "a[0]",
    "calls": "a[0] = " + "exp(" * LEVELS + "a[0]" + ")" * LEVELS,
    "branches": "if a[0] < 1.0 {" * LEVELS + "a[0] = 1.0" + "}" * LEVELS,
    "loops": "for i in range(2) {" * LEVELS + "a[0] = 1.0" + "}" * LEVELS,
}


@pytest.mark.parametrize("kind", BRACKETS)
def test_text_with_ten_thousand_levels(kind: str) -> None:
    with pytest.raises(NestingError, match="reading the text"):
        ti.parse(f"primfunc @f(a: Buffer[(4,), float32]) {{ {BRACKETS[kind]} }}")


def test_attributes_with_ten_thousand_levels() -> None:
    nested = "[" * LEVELS + "]" * LEVELS
    with pytest.raises(NestingError):
        ti.parse(f'primfunc @f(a: Buffer[(4,), float32]) attrs {{"x": {nested}}} {{ a[0] = 1.0 }}')


@pytest.mark.parametrize("work", [*WORK, "hash"])
def test_few_nodes_with_a_trillion_occurrences(work: str) -> None:
    func = expression(lambda _, x: x + x, 40)
    do = WORK.get(work, ti.structural_hash)
    with pytest.raises((BudgetError, ScheduleError), match=r"expected a program with at most|a block"):
        do(func)


def test_occurrences_and_levels_are_counted() -> None:
    assert nesting.extent(ti.BinaryOp("add", FIRST, FIRST)) == (2, 5)
    assert nesting.extent(repeated(lambda _, x: x + 1.5, FIRST, 100))[0] == 2
    assert nesting.extent(repeated(lambda _, x: x + 1.5, FIRST, 100), chains=True)[0] == 101


def test_a_program_has_at_most_the_limits_of_levels_and_occurrences(monkeypatch: pytest.MonkeyPatch) -> None:
    program = ti.BinaryOp("add", FIRST, FIRST)
    levels, occurrences = nesting.extent(program)
    monkeypatch.setattr(nesting, "MOST_LEVELS", levels)
    monkeypatch.setattr(nesting, "MOST_OCCURRENCES", occurrences)
    nesting.check_extent("printing", [program])
    monkeypatch.setattr(nesting, "MOST_OCCURRENCES", occurrences - 1)
    with pytest.raises(BudgetError, match=f"printing: expected a program with at most {occurrences - 1} occurrences"):
        nesting.check_extent("printing", [program])
    monkeypatch.setattr(nesting, "MOST_LEVELS", levels - 1)
    with pytest.raises(NestingError, match=f"expected a program of at most {levels - 1} levels, found {levels}"):
        nesting.check_extent("printing", [program])
