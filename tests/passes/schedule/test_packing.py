"""Panels of a product's vector operand: packed by the tasks that read them where that is worth it, else first."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.passes.schedule.kernels import TARGET, apply_rule, dense, loops_of, outermost, planned_contraction, run
from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.passes.context import PassContext
from tilewright.passes.schedule import ScheduleKernels
from tilewright.passes.schedule.contraction import ScheduleContraction
from tilewright.passes.schedule.inline import reduction_blocks
from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import Var
from tilewright.tensorir.keys import TRANSPOSE
from tilewright.tensorir.schedule import Schedule
from tilewright.tensorir.stmt import PrimFunc

RNG = np.random.default_rng(17)


def stack(batch: int, shared: bool = False) -> PrimFunc:
    """Products of ``[20, 6]`` and ``[6, 32]`` matrices, of which the right one may be the same for all."""
    a, b = te.placeholder((batch, 20, 6), name="a"), te.placeholder((6, 32) if shared else (batch, 6, 32), name="b")
    k = te.reduce_axis(6, "k")
    factor = (lambda n, j: b[k, j]) if shared else (lambda n, j: b[n, k, j])
    product = te.compute((batch, 20, 32), lambda n, i, j: te.sum(a[n, i, k] * factor(n, j), axis=k), name="c")
    return te.create_prim_func("stack", [a, b], [product])


def scheduled(func: PrimFunc, panels: int) -> tuple[PrimFunc, PassContext]:
    config = {
        f"schedule.contraction.{name}": value for name, value in (("panels", panels), ("vectors", 1), ("tiles", 9))
    }
    with PassContext(opt_level=3, config=config) as ctx, TARGET:
        return ScheduleKernels()(IRModule({func.name: func}))[func.name], ctx


@pytest.mark.parametrize(("columns", "transposed"), [(32, False), (32, True), (27, False)])
@pytest.mark.parametrize("steps", [1, 8, 13])
def test_tasks_that_pack_their_panels_give_the_product(steps: int, columns: int, transposed: bool) -> None:
    a, b = RNG.standard_normal((19, steps)).astype("f4"), RNG.standard_normal((steps, columns)).astype("f4")
    bias = RNG.standard_normal(columns).astype("f4")
    func, _ = scheduled(dense(19, columns, steps, transposed), panels=2)
    assert [loop.kind for loop in outermost(func)] == ["parallel"]
    found = run(func, [a, np.ascontiguousarray(b.T) if transposed else b, bias], (19, columns))
    np.testing.assert_allclose(found, np.maximum(a.astype("f8") @ b + bias, 0), rtol=1e-5, atol=1e-5)


def test_matrices_of_a_stack_are_packed_by_their_tasks() -> None:
    a, b = RNG.standard_normal((3, 20, 6)).astype("f4"), RNG.standard_normal((3, 6, 32)).astype("f4")
    func, _ = scheduled(stack(3), panels=4)
    assert [loop.extent.value for loop in outermost(func)] == [3]
    np.testing.assert_allclose(run(func, [a, b], (3, 20, 32)), a.astype("f8") @ b, rtol=1e-5, atol=1e-5)


def test_a_transposed_operand_is_transposed_in_registers() -> None:
    func, _ = scheduled(dense(19, 32, 16, transposed=True), panels=2)
    assert sum(bool(loop.annotations.get(TRANSPOSE)) for loop in loops_of(func)) == 1


@pytest.mark.parametrize(
    ("func", "panels"),
    [
        (dense(19, 30, 8, transposed=True), 2),  # the last panel is padded
        (dense(19, 32, 8), 3),  # four panels
        (dense(Var("n"), 32, 8), 2),  # several tasks may read a panel
        (stack(3, shared=True), 2),
    ],
    ids=["padded", "not divisible", "unknown rows", "shared"],
)
def test_panels_that_tasks_cannot_pack_are_refused(func: PrimFunc, panels: int) -> None:
    _, ctx = scheduled(func, panels)
    assert any("panels that tasks can pack for themselves" in remark.message for remark in ctx.remarks)
    assert not any("panels" in remark.message for remark in ctx.remarks if remark.kind == "plan")


@pytest.mark.parametrize(
    ("func", "panels"),
    [
        (dense(64, 768, 1024), 4),  # 32 panels of 24 columns for 8 tasks
        (dense(64, 768, 1024, transposed=True), 4),
        (dense(64, 760, 1024), 4),
        (dense(64, 64, 64), 0),  # the cache holds the operand
        (dense(64, 1024, 1024, transposed=True), 0),  # the last panel is padded
        (dense(Var("n"), 1024, 1024), 0),
        (dense(64, 1024, Var("k")), 0),  # the size of the operand is unknown
    ],
)
def test_tasks_pack_their_panels_where_the_operand_is_large(func: PrimFunc, panels: int) -> None:
    assert planned_contraction(func).panels == panels


def test_a_plan_without_panels_packs_first() -> None:
    schedule = Schedule(dense(19, 32, 8))
    (ref,) = reduction_blocks(schedule)
    assert apply_rule(ScheduleContraction(), schedule, ref)
    assert len(outermost(schedule.func)) > 1


@pytest.mark.parametrize("threads", [1, 2])
def test_a_large_weight_is_packed_by_the_threads_that_read_it(threads: int) -> None:
    a, w = RNG.standard_normal((33, 301)).astype("f4"), RNG.standard_normal((768, 301)).astype("f4")
    x, y = gi.var("x", shape=a.shape), gi.var("w", shape=w.shape)
    target = tw.Target("llvm", mcpu="x86-64-v3", num_threads=threads)
    with PassContext(opt_level=3) as ctx:
        model = tw.build(gi.Function([x, y], gi.nn.dense(x, y)), target)
    assert any("panels" in remark.message for remark in ctx.remarks if remark.kind == "plan")
    for _ in range(3):
        np.testing.assert_allclose(model(a, w), a.astype("f8") @ w.T, rtol=1e-4, atol=1e-4)
