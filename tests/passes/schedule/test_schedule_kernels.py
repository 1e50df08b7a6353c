"""ScheduleKernels: every nest gets a schedule; one that fits no rule stays unchanged."""

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
from tilewright.passes.schedule.contraction import ContractionPlan, ScheduleContraction
from tilewright.passes.schedule.elementwise import ElementwisePlan, ScheduleElementwise
from tilewright.passes.schedule.rule import Declined
from tilewright.passes.schedule.schedule_kernels import apply_rules
from tilewright.tensorir import assert_structural_equal, parse
from tilewright.tensorir.errors import ScheduleError
from tilewright.tensorir.expr import Var
from tilewright.tensorir.schedule import Schedule
from tilewright.tensorir.stmt import PrimFunc


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
    def fails(rule: ScheduleContraction, schedule: Schedule, plan: ContractionPlan) -> None:
        schedule.split(schedule.get_loops(schedule.get_block(plan.block))[0], [None, 3])
        raise ScheduleError("no tile\nfits here")

    with monkeypatch.context() as patched:
        patched.setattr(ScheduleContraction, "match", lambda *_: Declined("not now"))
        expected, _ = scheduled(dense(6, 8, 4))
    monkeypatch.setattr(ScheduleContraction, "apply", fails)
    found, ctx = scheduled(dense(6, 8, 4))
    assert_structural_equal(found, expected)
    missed = [remark.message for remark in ctx.remarks if remark.kind == "missed"]
    assert missed == ["the rule 'contraction' does not fit: no tile"]


def test_block_that_cannot_be_scheduled_keeps_its_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(rule: ScheduleElementwise, schedule: Schedule, plan: ElementwisePlan) -> None:
        schedule.parallel(schedule.get_loops(schedule.get_block(plan.block))[0])
        raise ScheduleError("no")

    monkeypatch.setattr(ScheduleElementwise, "apply", fails)
    func, ctx = scheduled(chain(6, 50, small=True))
    assert loop_kinds(func) == {"serial"}
    assert any(" not scheduled: no" in remark.message and remark.kind == "missed" for remark in ctx.remarks)


def test_scheduled_loops_stay_as_they_are() -> None:
    func, _ = scheduled(dense(64, 64, 64))
    schedule = Schedule(func)
    assert apply_rules(schedule, TARGET, PassContext()).func is func


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
