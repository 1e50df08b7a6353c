"""ScheduleKernels: every nest gets a schedule, and what no rule fits stays as it was."""

from __future__ import annotations

import pytest

from tests.passes.schedule.kernels import (
    TARGET,
    chain,
    column_sums,
    dense,
    innermost,
    loop_kinds,
    outermost,
    row_sums,
    scheduled,
    softmax,
)
from tilewright.passes.context import PassContext
from tilewright.passes.schedule import schedule_kernels
from tilewright.passes.schedule.schedule_kernels import schedule_rest
from tilewright.tensorir import assert_structural_equal, parse
from tilewright.tensorir.errors import ScheduleError
from tilewright.tensorir.expr import Var
from tilewright.tensorir.schedule import BlockRef, Schedule
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.target import Target


@pytest.mark.parametrize(
    "func",
    [
        dense(64, 64, 64),
        softmax(40, 200),
        softmax(Var("m"), Var("n")),
        row_sums(64),
        column_sums(40),
        chain(6, 50, small=True),
        chain(6, 50, small=False),
    ],
    ids=["dense", "softmax", "symbolic softmax", "row sums", "column sums", "rows", "plane"],
)
def test_every_nest_is_parallel_outside_and_of_vectors_inside(func: PrimFunc) -> None:
    found, _ = scheduled(func)
    assert {loop.kind for loop in outermost(found)} == {"parallel"}
    assert {loop.kind for loop in innermost(found)} <= {"vectorized"}


def test_rule_that_fails_half_way_leaves_the_kernel_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(schedule: Schedule, ref: BlockRef, target: Target, reassociate: bool) -> bool:
        schedule.split(schedule.get_loops(ref)[0], [None, 3])
        raise ScheduleError("no tile\nfits here")

    monkeypatch.setattr(schedule_kernels, "schedule_contraction", lambda *_: False)
    expected, _ = scheduled(dense(6, 8, 4))
    monkeypatch.setattr(schedule_kernels, "schedule_contraction", fails)
    found, ctx = scheduled(dense(6, 8, 4))
    assert_structural_equal(found, expected)
    assert [remark.message for remark in ctx.remarks] == ["the rule 'contraction' does not fit: no tile"]
    assert ctx.remarks[0].kind == "missed"


def test_block_that_cannot_be_scheduled_keeps_its_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(schedule: Schedule, ref: BlockRef, target: Target) -> None:
        schedule.parallel(schedule.get_loops(ref)[0])
        raise ScheduleError("no")

    monkeypatch.setattr(schedule_kernels, "schedule_elementwise", fails)
    func, ctx = scheduled(chain(6, 50, small=True))
    assert loop_kinds(func) == {"serial"}
    assert any("keeps its plain loops: no" in remark.message and remark.kind == "missed" for remark in ctx.remarks)


def test_scheduled_loops_stay_as_they_are() -> None:
    func, _ = scheduled(dense(64, 64, 64))
    schedule = Schedule(func)
    assert schedule_rest(schedule, TARGET, PassContext()).func is func


def test_loops_without_blocks_stay_as_they_were_written() -> None:
    func = parse("""
primfunc @f(a: Buffer[(4,), float32], b: Buffer[(4,), float32]) attrs {"num_outputs": 1} {
  for i in range(4) {
    b[i] = a[i] + 1.0
  }
}
""")
    found, ctx = scheduled(func)
    assert found is func
    assert [remark.kind for remark in ctx.remarks] == ["missed"]
    assert "needs every computation in a block" in ctx.remarks[0].message
