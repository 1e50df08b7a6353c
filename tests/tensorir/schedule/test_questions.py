"""Schedules query an analyzer only where constants do not decide; both give the same answers."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tilewright.tensorir import tensor as te
from tilewright.tensorir.arith import Analyzer, region_of
from tilewright.tensorir.expr import Expr, Var, as_expr, compare
from tilewright.tensorir.functor import walk
from tilewright.tensorir.schedule import Schedule, state
from tilewright.tensorir.schedule.questions import Questions, may_be_divided
from tilewright.tensorir.stmt import For, SeqStmt


def loop(name: str, extent: Any) -> For:
    return For(Var(name), as_expr(0), as_expr(extent), "serial", SeqStmt(()))


def asked(loops: list[For], expr: Expr) -> tuple[Expr, bool]:
    """The shorter form, and whether an analyzer was needed."""
    made: list[Analyzer] = []

    def make() -> Analyzer:
        made.append(Analyzer())
        for around in loops:
            made[-1].bind(around.var, around.min, around.extent)
            made[-1].assume(around.extent > 0)
        return made[-1]

    return Questions(loops, make).shorter(expr), bool(made)


def analyzed(loops: list[For], expr: Expr) -> Expr:
    """The shorter of ``expr`` and what an analyzer makes of it."""
    analyzer = Analyzer()
    for around in loops:
        analyzer.bind(around.var, around.min, around.extent)
        analyzer.assume(around.extent > 0)
    simple = analyzer.simplify(expr)
    return simple if len(list(walk(simple))) < len(list(walk(expr))) else expr


def test_the_place_of_a_split_loop_is_short_already() -> None:
    n = Var("n")
    for outermost in (7, n, (n + 15) // 16 * 3):
        i, j, k = loops = [loop("i", outermost), loop("j", 4), loop("k", 16)]
        place = (i.var * 4 + j.var) * 16 + k.var
        found, needed = asked(loops, place)
        assert found is place and not needed
        assert analyzed(loops, place) is place


def test_a_single_term_that_varies_is_all_that_is_left() -> None:
    i, j, k = loops = [loop("i", 1), loop("j", 1), loop("k", 16)]
    found, needed = asked(loops, (i.var * 4 + j.var) * 16 + k.var * 2)
    assert found is k.var * 2 and not needed
    found, needed = asked(loops, i.var * 4 + j.var)
    assert found is as_expr(0) and not needed


def test_quotients_and_remainders_of_longer_loops_are_short_already() -> None:
    n, inner = Var("n"), Var("inner")
    for extent in (32, n * 16):
        fused = loop("fused", extent)
        for place in (fused.var % 16 * 8 + inner, fused.var // 16 * 8 + inner):
            found, needed = asked([fused], place)
            assert found is place and not needed
            assert analyzed([fused], place) is place


def test_a_remainder_of_a_shorter_loop_is_given_to_the_analyzer() -> None:
    fused, inner = loop("fused", 16), Var("inner")
    found, needed = asked([fused], fused.var % 16 * 8 + inner)
    assert needed and str(found) == str(fused.var * 8 + inner)


def test_a_number_divides_a_product_of_sizes_if_it_divides_the_numbers_in_it() -> None:
    n, m = Var("n"), Var("m")
    assert may_be_divided(n * 2048 * m, 64, (n, m))
    assert not may_be_divided(n * 2048 * m, 48, (n, m))
    assert not may_be_divided(n, 2, (n, m))
    assert may_be_divided((n + 15) // 16, 2, (n, m))


@pytest.mark.parametrize("case", ["one iteration", "twice", "two factors", "bounded", "quotient"])
def test_what_may_get_shorter_is_given_to_the_analyzer(case: str) -> None:
    n = Var("n")
    i, j = loop("i", 7), loop("j", 4)
    once = loop("once", 1)
    loops, place = {
        "one iteration": ([i, once, j], (i.var * 3 + once.var) * 4 + j.var),
        "twice": ([i, j], i.var * 4 + i.var),
        "two factors": ([i, j], (i.var * 4 + j.var * 2) * 16),
        "bounded": ([loop("i", 2 - n), j], None),
        "quotient": ([i, j], (i.var * 4 + j.var) // 4),
    }[case]
    place = loops[0].var * 4 + j.var if place is None else place
    found, needed = asked(loops, place)
    assert needed
    assert str(found) == str(analyzed(loops, place))


def test_a_schedule_over_numbers_asks_no_analyzer(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Analyzer:
        raise AssertionError("numbers are enough")

    x, w = te.placeholder((32, 64), "float32", "x"), te.placeholder((64, 48), "float32", "w")
    k = te.reduce_axis(64, "k")
    product = te.compute((32, 48), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="product")
    sch = Schedule(te.create_prim_func("product", [x, w], [product]))
    monkeypatch.setattr(state.State, "analyzer", refuse)
    block = sch.get_block("product")
    i, j, k_loop = sch.get_loops(block)
    io, ii = sch.split(i, [None, 8])
    jo, jv, jl = sch.split(j, [None, 2, 8])
    sch.reorder(io, jo, k_loop, ii, jv, jl)
    sch.vectorize(jl)
    sch.unroll(jv)
    sch.decompose_reduction(block, k_loop)
    sch.parallel(io)


def questions_about(loops: list[For]) -> tuple[Questions, Analyzer]:
    """Questions that need no analyzer, and an analyzer that knows the same."""
    analyzer = Analyzer()
    for around in loops:
        analyzer.bind(around.var, around.min, around.extent)
        analyzer.assume(around.extent > 0)
    return Questions(loops, lambda: pytest.fail("an analyzer is asked")), analyzer


def test_boxes_of_sums_are_those_of_an_analyzer() -> None:
    n = Var("n")
    outer = [loop("i", n), loop("j", 1), loop("k", 8)]
    i, j, k = (around.var for around in outer)
    questions, analyzer = questions_about(outer)
    p, q = Var("p"), Var("q")
    ranges = {p: (as_expr(0), as_expr(4)), q: (as_expr(2), as_expr(3))}
    plain = (as_expr(3), i, j, n, p, q)
    for index in (*plain, k * 16 + p, (k * 4 + p) * 3 + q - 2, p * 5 + q + 1, j * 7 + k, i * 4 + j + p):
        assert questions.span(index, ranges) == region_of([index], ranges, analyzer)[0]
    for other in (i + k, k - p, k + 1, p // 2, i * n + p):
        assert questions.span(other, ranges) is None
    assert questions.span(p, {p: (as_expr(0), n)}) is None


def test_orders_of_sums_are_decided_as_by_an_analyzer() -> None:
    i, j = loops = [loop("i", 8), For(Var("j"), as_expr(-2), as_expr(4), "serial", SeqStmt(()))]
    questions, analyzer = questions_about(loops)
    for place in (i.var, i.var * 16 + j.var, j.var - i.var * 3, i.var * 2 - (j.var + i.var)):
        for bound, op in itertools.product(range(-25, 116), ("lt", "le", "gt", "ge")):
            condition = compare(op, place, bound)
            assert questions.prove(condition) is analyzer.prove(condition)


def test_numbers_of_32_bits_and_sums_that_wrap_are_left_to_an_analyzer() -> None:
    i = loop("i", 4)
    short = For(Var("s", "int32"), as_expr(0, "int32"), as_expr(4, "int32"), "serial", SeqStmt(()))
    questions, analyzer = Questions([i, short], Analyzer), Analyzer()
    halves = short.var * (1 << 30)  # negative for 2
    assert questions.prove(compare("ge", halves, 0)) is analyzer.prove(compare("ge", halves, 0)) is False
    assert questions.span(halves, {short.var: (short.min, short.extent)}) is None
    assert questions.span(i.var * (1 << 40) * (1 << 40), {}) is None
    assert questions.simplify(short.var * 4 * (1 << 30)).dtype == "int32"


def test_multiples_of_a_size_are_simplified_as_by_an_analyzer() -> None:
    n = Var("n")
    questions, analyzer = questions_about([])
    for size in (n, n * 4, n * 4 * 16 * 2):
        assert questions.simplify(size) is analyzer.simplify(size)
