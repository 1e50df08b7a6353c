"""Each step of a schedule checks what it needs: one small function that lacks it, and the reason that is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tilewright.tensorir import Schedule
from tilewright.tensorir.errors import ArgumentTypeError, ScheduleError
from tilewright.tensorir.expr import Buffer, IntImm, Var
from tilewright.tensorir.parser import parse
from tilewright.tensorir.schedule import LoopRef
from tilewright.tensorir.stmt import Block, BufferStore, For, PrimFunc, SeqStmt

Step = Callable[[Schedule], Any]


def schedule(body: str) -> Schedule:
    """Return the schedule of a function of ``x`` and ``y``, with intermediate ``t`` and ``u``, all of 8 elements."""
    head = "primfunc @f(x: Buffer[(8,), float32], y: Buffer[(8,), float32], n: int64)"
    buffers = " ".join(f"allocate {name}: Buffer[(8,), float32, arena]" for name in "tu")
    return Schedule(parse(f"{head} {{ {buffers} {body} }}"))


def blocks(*bodies: str) -> str:
    """Return a loop i0, i1, ... around each of these blocks b0, b1, ..., whose iteration variable is ``v``."""
    return "\n".join(
        f"for i{n} in range(8) {{ block b{n}(v: spatial(8) = i{n}) {body} }}" for n, body in enumerate(bodies)
    )


def loop(sch: Schedule, name: str) -> LoopRef:
    return next(ref for block in sch.get_blocks() for ref in sch.get_loops(block) if ref.name == name)


DOUBLED = "{ reads x[v] writes t[v] t[v] = x[v] * 2.0 }"
COPIED = "{ reads t[v] writes u[v] u[v] = t[v] }"
ADDED = "{ reads t[v] writes y[v] y[v] = t[v] + 1.0 }"
CLEARED = "{ writes x[v] x[v] = 0.0 }"
CHAIN = blocks(DOUBLED, ADDED)
#: A nest whose inner loop ends where the outer one is.
TRIANGLE = """for i in range(8) { for j in range(i + 1) { block b0(v: spatial(8) = i, w: spatial(8) = j) {
    writes t[w] t[w] = 0.0 } } }"""
ROWS = """for i in range(8) { for k in range(8) { block sum(v: spatial(8) = i, r: reduction(8) = k) WHERE {
    reads x[r] writes y[v] init { y[v] = 0.0 } y[v] = y[v] + x[r] } } }"""

LOOPS: list[tuple[str, Step, str]] = [
    (CHAIN, lambda s: s.fuse(), "fuse: expected at least one loop"),
    (CHAIN, lambda s: s.reorder(), "reorder: expected at least one loop"),
    (CHAIN, lambda s: s.fuse(loop(s, "i0"), loop(s, "i0")), "cannot fuse: a loop is given twice"),
    (
        CHAIN,
        lambda s: s.fuse(loop(s, "i0"), loop(s, "i1")),
        "other statements are between loops i0 and i1",
    ),
    (ROWS, lambda s: s.fuse(loop(s, "k"), loop(s, "i")), "must be directly nested, and given outermost first"),
    (
        ROWS + CHAIN,
        lambda s: s.reorder(loop(s, "i"), loop(s, "i0"), loop(s, "k")),
        "cannot reorder: loop i0 is not in the same nest as the others",
    ),
    (TRIANGLE, lambda s: s.fuse(loop(s, "i"), loop(s, "j")), "the bounds of j depend on a loop with which it is fused"),
    (TRIANGLE, lambda s: s.reorder(loop(s, "j"), loop(s, "i")), "cannot reorder: the bounds of j depend on i"),
    (CHAIN, lambda s: s.unannotate(loop(s, "i0"), "note"), "no annotation 'note'; found none"),
    (CHAIN, lambda s: s.tile([loop(s, "i0")], [2, 2]), "tile: 2 factors for 1 loops"),
    (CHAIN, lambda s: s.peel(loop(s, "i0"), 0), "cannot peel loop i0: 0 is not known to be positive"),
    (CHAIN, lambda s: s.get_loops("b0"), "expected a block, as get_block.. gives it; found 'b0'"),
]

BUFFERS: list[tuple[str, Step, str]] = [
    (CHAIN, lambda s: s.set_scope(s.get_block("b0"), 0, "cloud"), "unknown scope 'cloud'; expected one of"),
    (CHAIN, lambda s: s.cache_read(s.get_block("b1"), "t", "global"), "a cache must be in scope .*; found 'global'"),
    (
        blocks("{ reads x[v] writes x[v] x[v] = x[v] + 1.0 }"),
        lambda s: s.cache_read(s.get_block("b0"), "x", "stack"),
        "cannot cache x: block b0 also writes it",
    ),
    (
        blocks(DOUBLED, CLEARED),
        lambda s: s.cache_read(s.get_block("b0"), "x", "stack"),
        "cannot cache x: block b1 writes it after block b0",
    ),
    (
        blocks("{ writes y[v] y[v] = 1.0 }", "{ reads x[v] writes y[v] y[v] = x[v] }"),
        lambda s: s.cache_write(s.get_block("b0"), "y", "stack"),
        "cannot cache y: block b1 also writes it",
    ),
    (
        blocks("{ reads x[v], y[v] writes y[v] y[v] = y[v] + x[v] }"),
        lambda s: s.cache_write(s.get_block("b0"), "y", "stack"),
        "cannot cache y: block b0 accumulates onto its earlier contents",
    ),
    (
        CHAIN,
        lambda s: s.transform_layout(s.get_block("b0"), 0, lambda i: (i - 9,)),
        "has no known bounds, or may be neg",
    ),
]

INLINED: list[tuple[str, Step, str]] = [
    (
        blocks("{ writes t[v] t[v] = 1.0 t[v] = 2.0 }", ADDED),
        lambda s: s.compute_inline(s.get_block("b0")),
        "the body of block b0 is not a single unpredicated store",
    ),
    (TRIANGLE, lambda s: s.compute_inline(s.get_block("b0")), "cannot inline: v of block b0 do not index t"),
    (
        blocks("{ reads x[v], t[v] writes t[v] t[v] = t[v] + x[v] }", ADDED),
        lambda s: s.compute_inline(s.get_block("b0")),
        "cannot inline: block b0 reads its own buffer t",
    ),
    (blocks(DOUBLED), lambda s: s.compute_inline(s.get_block("b0")), "cannot inline: no block reads t"),
    (
        blocks(DOUBLED) + "block b1() { reads t[0:+8] writes y[0:+8] y[ramp(0, 1, 8)] = t[ramp(0, 1, 8)] }",
        lambda s: s.compute_inline(s.get_block("b0")),
        "cannot inline: block b1 reads vectors of t",
    ),
    (
        blocks(DOUBLED, CLEARED, ADDED),
        lambda s: s.compute_inline(s.get_block("b0")),
        "cannot inline: block b1 writes x, which b0 reads",
    ),
    (
        blocks(DOUBLED) + "for j in range(4) { block b1(v: spatial(4) = j) " + ADDED + " }",
        lambda s: s.reverse_compute_inline(s.get_block("b1")),
        "block b1 has another range of v than its producer",
    ),
    (
        blocks("{ writes t[v] t[v] = 1.0 }", CLEARED, "{ reads t[v], x[v] writes y[v] y[v] = t[v] + x[v] }"),
        lambda s: s.reverse_compute_inline(s.get_block("b2")),
        "block b1 writes x after the producer",
    ),
]

MOVED: list[tuple[str, Step, str]] = [
    (
        blocks(DOUBLED, CLEARED, ADDED),
        lambda s: s.compute_at(s.get_block("b0"), loop(s, "i2")),
        "block b1 later overwrites x, which block b0 reads",
    ),
    (
        blocks(f"where i0 > n {DOUBLED}", ADDED),
        lambda s: s.compute_at(s.get_block("b0"), loop(s, "i1")),
        "not known whether the predicate of block b0 belongs to its loops or to its computation",
    ),
    (
        blocks(DOUBLED, f"where i1 > n {ADDED}"),
        lambda s: s.reverse_compute_at(s.get_block("b1"), loop(s, "i0")),
        "not known whether the predicate of block b1 belongs to its loops or to its computation",
    ),
    (
        blocks(DOUBLED, CLEARED),
        lambda s: s.compute_at(s.get_block("b0"), loop(s, "i1")),
        "no block reads the result of block b0",
    ),
    (
        "for i in range(1) {" + blocks(DOUBLED, COPIED, ADDED.replace("t[", "u[")) + "}",
        lambda s: s.compute_at(s.get_block("b1"), loop(s, "i")),
        "block b0 in that loop computes only the elements that block b1 needs at its present place",
    ),
    (
        blocks(DOUBLED, "{ reads t[v], y[v] writes y[v] y[v] = t[v] + y[v] }").replace(
            "b1(v", "b1(w: reduction(8) = 0, v"
        ),
        lambda s: s.reverse_compute_at(s.get_block("b1"), loop(s, "i0")),
        "the reduction b1 is decomposed: its init is another block",
    ),
    (
        blocks(DOUBLED, CLEARED, "{ reads t[v], x[v] writes y[v] y[v] = t[v] + x[v] }"),
        lambda s: s.reverse_compute_at(s.get_block("b2"), loop(s, "i0")),
        "block b1 writes x after that loop",
    ),
    (
        "for i in range(4) { block a(v: spatial(8) = i) { writes t[v] t[v] = 0.0 } "
        "block b(v: spatial(8) = i + 4) { writes t[v] t[v] = 1.0 } }"
        "for j in range(8) { block c(v: spatial(8) = j) " + ADDED + " }",
        lambda s: s.reverse_compute_at(s.get_block("c"), loop(s, "i")),
        "several blocks write different parts of t",
    ),
    (
        "for i in range(2) { for j in range(2) { block a(v: spatial(8) = i * 4 + j * 2) { writes t[v] t[v] = 0.0 } } }"
        "for k in range(8) { block c(v: spatial(8) = k) " + ADDED + " }",
        lambda s: s.reverse_compute_at(s.get_block("c"), loop(s, "i")),
        "the elements that block a computes in one iteration are not known to fill a box",
    ),
]

PLAIN = ROWS.replace("WHERE", "")
REDUCED: list[tuple[str, Step, str]] = [
    (
        PLAIN + CHAIN,
        lambda s: s.decompose_reduction(s.get_block("sum"), loop(s, "i0")),
        "block sum is not in that loop",
    ),
    (CHAIN, lambda s: s.rfactor(loop(s, "i0")), "loop i0 drives the reductions of 0 blocks; expected one"),
    (
        PLAIN.replace("init { y[v] = 0.0 }", ""),
        lambda s: s.rfactor(loop(s, "k"), reassociate=True),
        "block sum is not a reduction C.i. = C.i. op value with an init",
    ),
    (PLAIN, lambda s: s.rfactor(loop(s, "k"), 5, reassociate=True), "factor_axis 5 is out of range for 1 dimensions"),
    (
        PLAIN.replace("k in range(8)", "k in range(i + 1)"),
        lambda s: s.rfactor(loop(s, "k"), reassociate=True),
        "its extent depends on other loops",
    ),
    (
        ROWS.replace("WHERE", "where i + k < n"),
        lambda s: s.decompose_reduction(s.get_block("sum"), loop(s, "i")),
        "the condition i . k < n of block sum uses both spatial and reduction loops",
    ),
    (
        PLAIN.replace("i in range(8)", "K").replace("k in range(8)", "i in range(k + 1)").replace("K", "k in range(8)"),
        lambda s: s.decompose_reduction(s.get_block("sum"), loop(s, "k")),
        "the bounds of loop i depend on a reduction loop",
    ),
]


@pytest.mark.parametrize(("body", "step", "message"), [*LOOPS, *BUFFERS, *INLINED, *MOVED, *REDUCED])
def test_a_step_that_would_change_the_result_is_refused(body: str, step: Step, message: str) -> None:
    sch = schedule(body.replace("WHERE", ""))
    before = sch.func
    with pytest.raises(ScheduleError, match=message):
        step(sch)
    assert sch.func is before


@pytest.mark.parametrize("primitive", ["cache_read", "cache_write"])
def test_a_copy_stands_outside_of_all_loops_of_its_block(primitive: str) -> None:
    """So that it is made once: no loop of the function has both of them."""
    sch = schedule(PLAIN)
    block = sch.get_block("sum")
    copy = getattr(sch, primitive)(block, 0, "arena")
    assert not set(sch.get_loops(copy)) & set(sch.get_loops(block))


def test_the_key_of_an_annotation_is_a_text() -> None:
    sch = schedule(CHAIN)
    with pytest.raises(ArgumentTypeError, match="annotate: expected the key of an annotation, found 3"):
        sch.annotate(sch.get_block("b0"), 3, "value")  # type: ignore[arg-type]


def test_blocks_and_loops_are_told_apart() -> None:
    x, i = Buffer("x", (8,)), Var("i")
    block = Block("b", (), None, (), (), None, BufferStore(x, 0.0, (0,)))
    twice = [For(var, 0, 8, "serial", block) for var in (i, Var("j"))]
    with pytest.raises(ScheduleError, match="two blocks are named b; expected unique names"):
        Schedule(PrimFunc("f", (x,), SeqStmt(tuple(twice)))).get_blocks()
    nested = For(i, 0, 8, "serial", For(i, IntImm(0), 8, "serial", block))
    with pytest.raises(ScheduleError, match="two loops have the same variable i"):
        Schedule(PrimFunc("f", (x,), nested)).get_blocks()
