"""Canonical forms order terms by place, regardless of the order of queries."""

from __future__ import annotations

import itertools

from tilewright.tensorir import parse
from tilewright.tensorir.arith import Analyzer
from tilewright.tensorir.arith.facts import Findings
from tilewright.tensorir.arith.places import order_of
from tilewright.tensorir.arith.term_order import TermOrder
from tilewright.tensorir.expr import Var

N, I, J, K = (Var(name) for name in ("n", "i", "j", "k"))


def _nest() -> TermOrder:
    order = TermOrder()
    for var, around in ((N, None), (I, N), (J, I), (K, J)):
        order.place(var, around)
    return order


def test_outer_variables_come_first_and_small_terms() -> None:
    expected = [N, I, I * N, J, J // 4]
    assert all(_nest().sort(terms) == expected for terms in itertools.permutations(expected))


def test_who_asks_first_makes_no_difference() -> None:
    texts = set()
    for first in (K + J, J * K + I, I // 4 + K // 2, K):
        analyzer = Analyzer(Findings(_nest()))
        analyzer.simplify(first)
        texts.add(str(analyzer.simplify(K // 2 + J + N * K + I + J // 4 + N)))
    assert texts == {"n + i + j + j // 4 + k // 2 + n * k"}


def test_a_loop_around_others_gets_a_place_around_them() -> None:
    order = _nest()
    tasks = [Var(f"task_{number}") for number in range(2000)]  # more than there are numbers between two labels
    for task in tasks:
        order.place(task, N)
    assert order.sort([K, J, tasks[0], I, tasks[-1], N]) == [N, tasks[-1], tasks[0], I, J, K]


def test_a_variable_stays_where_it_is() -> None:
    order = _nest()
    order.place(I, K)
    assert order.sort([J, I]) == [I, J]


def test_a_variable_without_a_place_is_inside_of_all_others_until_it_gets_one() -> None:
    order = _nest()
    new = Var("new")
    assert order.sort([new, new * J, K]) == [K, new, new * J]
    order.place(new, I)
    assert order.sort([K, new * J, J, new]) == [new, J, new * J, K]


def test_places_of_a_function_are_those_of_its_definitions() -> None:
    func = parse("""
    primfunc @f(A: Buffer[(n * 64,), float32], n: int64, m: int64) {
      for i in range(n) {
        let t: int64 = i * 2
        for j in range(m) { A[t + j] = 0.0 }
      }
      for k in range(m) { A[k] = 1.0 }
    }
    """)
    names = {var.name: var for var in func.variables}
    loop = func.body.stmts[0]
    names |= {"i": loop.var, "t": loop.body.var, "j": loop.body.body.var, "k": func.body.stmts[1].var}
    found = order_of(func).sort([names[name] for name in "ktnjim"])
    assert [var.name for var in found] == ["n", "m", "i", "t", "j", "k"]
