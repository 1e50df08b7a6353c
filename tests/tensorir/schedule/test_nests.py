"""Test the copies that an edit of a schedule makes, and the search for places."""

from __future__ import annotations

import itertools

import pytest

from tilewright.tensorir.parser import parse
from tilewright.tensorir.schedule import Schedule, nests
from tilewright.tensorir.stmt import SeqStmt

TWO_NESTS = """
primfunc @f(A: Buffer[(8,), float32], B: Buffer[(8,), float32], C: Buffer[(8,), float32]) {
  for i in range(8) {
    block first(v: spatial(8) = i) {
      B[v] = A[v] + 1.0
    }
  }
  for j in range(8) {
    block second(w: spatial(8) = j) {
      C[w] = A[w] * 2.0
    }
  }
}
"""


def test_an_edit_enters_no_other_nest(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = Schedule(parse(TWO_NESTS))
    before = schedule.func.body
    assert isinstance(before, SeqStmt)
    entered = []
    rewrite = nests.rewrite

    def watched(stmt, *args):  # type: ignore[no-untyped-def]
        entered.append(stmt)
        return rewrite(stmt, *args)

    monkeypatch.setattr(nests, "rewrite", watched)
    (loop,) = schedule.get_loops(schedule.get_block("first"))
    schedule.split(loop, [None, 4])
    after = schedule.func.body
    assert isinstance(after, SeqStmt)
    assert after.stmts[0] is not before.stmts[0]
    assert after.stmts[1] is before.stmts[1]
    assert before.stmts[1].body not in entered


def test_blocks_and_loops_are_found_after_edits() -> None:
    schedule = Schedule(parse(TWO_NESTS))
    for name in ("second", "first"):
        (loop,) = schedule.get_loops(schedule.get_block(name))
        schedule.split(loop, [None, 4])
    for name in ("first", "second"):
        outer, inner = schedule.get_loops(schedule.get_block(name))
        path = nests.path_to(schedule.func.body, name)
        assert path is not None and [loop.var for loop in nests.loops_in(path)] == [outer.var, inner.var]
    assert nests.path_to(schedule.func.body, "third") is None


def test_known_places_follow_the_edits() -> None:
    schedule = Schedule(parse(TWO_NESTS))
    loops = []
    for name in ("first", "second"):
        (loop,) = schedule.get_loops(schedule.get_block(name))
        loops += schedule.split(loop, [2, 2, 2])
    marks = (schedule.unroll, schedule.vectorize, schedule.parallel, lambda loop: schedule.annotate(loop, "key", 1))
    for mark, chosen in itertools.product(marks, (loops[1], loops[5], loops[0], loops[2])):
        mark(chosen)
        state = schedule._state
        for loop in (chosen, *loops):
            assert state.loop_path(loop) == nests.path_to(state.body, loop.var)
        for block in schedule.get_blocks():
            assert state.block_path(block) == nests.path_to(state.body, block.name)
            assert state.block(block) is state.block_path(block)[-1]
    outer, middle, inner = loops[:3]
    schedule.unannotate(outer, "key")
    schedule.reorder(inner, outer, middle)
    assert schedule.get_loops(schedule.get_block("first")) == [inner, outer, middle]
    assert [schedule._state.loop_path(loop)[-1].var for loop in loops] == [loop.var for loop in loops]
