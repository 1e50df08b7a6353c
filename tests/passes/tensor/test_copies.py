"""Copies of statements in which numbers replace variables compute what the loops compute."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

from tilewright.passes.tensor.unroll_loop import unroll_loops
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import Buffer, BufferLoad, Expr, Var, binary, cast, const, select
from tilewright.tensorir.functor import walk
from tilewright.tensorir.sources import sources_of, tracing, with_sources
from tilewright.tensorir.stmt import BufferStore, For, IfThenElse, LetStmt, PrimFunc, Stmt, sequence

#: An output of 64 elements; indices are taken modulo that.
SIZE = 64
OUT, IN = Buffer("B", (const(SIZE, INT64),)), Buffer("A", (const(SIZE, INT64),))


def loop(var: Var, low: int | Expr, extent: int, body: Stmt, kind: str = "unrolled") -> For:
    return For(var, low if isinstance(low, Expr) else const(low, INT64), const(extent, INT64), kind, body)


def store(place: Expr, value: Expr) -> Stmt:
    """Add to an element, so that each iteration counts."""
    index = (binary("floormod", place, SIZE),)
    return BufferStore(OUT, BufferLoad(OUT, index) + value, index)


@st.composite
def integers(draw: st.DrawFn, names: list[Var], depth: int = 2) -> Expr:
    """Expressions of the variables around."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(names)) if names and draw(st.booleans()) else const(draw(st.integers(-4, 9)), INT64)
    a, b = draw(integers(names, depth - 1)), draw(integers(names, depth - 1))
    kind = draw(st.sampled_from(["add", "sub", "mul", "min", "max", "floordiv", "floormod", "select", "choose"]))
    if kind in ("floordiv", "floormod"):
        return binary(kind, a, draw(st.integers(1, 5)))
    if kind in ("select", "choose"):
        return select(a < b if kind == "select" else a.equal(b), a, draw(integers(names, depth - 1)))
    return binary(kind, a, b)


@st.composite
def nests(draw: st.DrawFn, names: list[Var], depth: int) -> Stmt:
    """Statements with loops, written out or not, whose bounds may depend on variables around them."""
    if depth == 0:
        load = BufferLoad(IN, (binary("floormod", draw(integers(names)), SIZE),))
        return store(draw(integers(names)), load * cast("float32", draw(integers(names, 1))))
    parts = []
    for _ in range(draw(st.integers(1, 2))):
        kind = draw(st.sampled_from(["loop", "loop", "serial", "if", "let", "store"]))
        if kind in ("loop", "serial"):
            var = Var("i")
            low = draw(integers(names, 1)) if draw(st.booleans()) else draw(st.integers(0, 3))
            body = draw(nests([*names, var], depth - 1))
            parts.append(loop(var, low, draw(st.integers(1, 3)), body, "unrolled" if kind == "loop" else "serial"))
        elif kind == "if":
            parts.append(IfThenElse(draw(integers(names)) < draw(integers(names)), draw(nests(names, depth - 1))))
        elif kind == "let":
            var = Var("x")
            parts.append(LetStmt(var, draw(integers(names)), draw(nests([*names, var], depth - 1))))
        else:
            parts.append(draw(nests(names, 0)))
    return sequence(*parts)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(nests([], 4))
def test_copies_compute_what_loops_compute(keeps_results, body: Stmt) -> None:
    after = keeps_results(unroll_loops, PrimFunc("f", (IN, OUT), body, {"num_outputs": 1}))
    assert not any(isinstance(node, For) and node.kind == "unrolled" for node in walk(after.body))


def test_the_numbers_of_an_inner_variable_may_depend_on_an_outer_one(keeps_results) -> None:
    i, j, k = Var("i"), Var("j"), Var("k")
    at = i * 16 + j
    for low in (i * 2, i * i, i):
        body = loop(i, 0, 3, loop(j, low, 2, store(at, BufferLoad(IN, (at,)))))
        keeps_results(unroll_loops, PrimFunc("f", (IN, OUT), body, {"num_outputs": 1}))
    # The innermost numbers change within the first round of the middle loop, and not from that to the next round.
    body = loop(k, binary("min", j, 1), 2, store(binary("floormod", j * 7 + k, 5), BufferLoad(IN, (j * 8 + k,))))
    nest = loop(i, 0, 2, loop(j, i * 2, 2, body))
    keeps_results(unroll_loops, PrimFunc("f", (IN, OUT), nest, {"num_outputs": 1}))


def test_parts_may_depend_on_fewer_variables(keeps_results) -> None:
    i, j, k = Var("i"), Var("j"), Var("k")
    for a, b in ((i, j), (i, k), (j, k)):
        at = binary("floormod", a * 5 + b * 3, 7) + i * 16 + j * 5 + k
        body = loop(i, 0, 2, loop(j, 0, 3, loop(k, 0, 4, store(at, BufferLoad(IN, (at,))))))
        keeps_results(unroll_loops, PrimFunc("f", (IN, OUT), body, {"num_outputs": 1}))


def test_copies_of_a_store_have_its_sources() -> None:
    i, j = Var("i"), Var("j")
    inner = store(i * 4 + j, BufferLoad(IN, (j,)))
    nest = loop(i, 0, 2, loop(j, 0, 4, inner))
    func = PrimFunc("f", (IN, OUT), nest, {"num_outputs": 1})
    with tracing():
        after = unroll_loops(with_sources(func, {nest: frozenset({0}), inner: frozenset({1})}))
    assert {sources_of(node) for node in walk(after.body) if isinstance(node, BufferStore)} == {frozenset({1})}
