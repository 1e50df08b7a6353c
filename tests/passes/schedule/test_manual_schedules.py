"""Schedules made by hand stay as they are; rules get the loops that they are handed."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright import passes
from tilewright import tensorir as ti
from tilewright.tensorir.errors import PassError

SHAPES = (65, 33, 47)


def product() -> ti.PrimFunc:
    m, k, n = SHAPES
    a, b, step = ti.placeholder((m, k), "float32", "a"), ti.placeholder((k, n), "float32", "b"), ti.reduce_axis(k, "k")
    c = ti.compute((m, n), lambda i, j: ti.tensor.sum(a[i, step] * b[step, j], axis=step), name="c")
    return ti.create_prim_func("product", [a, b], [c])


def by_hand(func: ti.PrimFunc) -> ti.PrimFunc:
    schedule = ti.Schedule(func)
    block = schedule.get_block("c")
    i, j, k = schedule.get_loops(block)
    i, row = schedule.split(i, [None, 4])
    j, lane = schedule.split(j, [None, 16])
    schedule.reorder(i, j, k, row, lane)
    schedule.decompose_reduction(block, k)
    schedule.vectorize(lane)
    schedule.unroll(row)
    schedule.parallel(i)
    return schedule.func


def build(func: ti.PrimFunc, kind: str = "llvm") -> tuple[ti.PrimFunc, list[str]]:
    """Check a model's results; the kernel after its schedule, and the remarks of schedule passes."""
    with tw.PassContext() as ctx:
        model = tw.build(func, target=kind)
    m, k, n = SHAPES
    a, b = np.random.default_rng(0).random((m, k), "f4"), np.random.default_rng(1).random((k, n), "f4")
    np.testing.assert_allclose(model(a, b), a.astype("f8") @ b, rtol=1e-5)
    kernel = gi.parse(model.ir("scheduled"))["product"]
    assert isinstance(kernel, ti.PrimFunc)
    return kernel, [remark.message for remark in ctx.remarks if remark.pass_name == "ScheduleKernels"]


@pytest.mark.parametrize("kind", ["llvm", "numba"])
def test_a_schedule_made_by_hand_is_kept(kind: str) -> None:
    func = by_hand(product())
    kernel, remarks = build(func, kind)
    assert ti.structural_equal(kernel.body, func.body, map_free_vars=True)
    assert remarks == ["keeps the loops that it was given (attribute 'schedule')"]


@pytest.mark.parametrize("kind", ["llvm", "numba"])
def test_a_function_handed_to_the_rules_is_scheduled(kind: str) -> None:
    kernel, remarks = build(product().with_attr("schedule", "auto"), kind)
    assert any(isinstance(node, ti.For) and node.kind == "parallel" for node in ti.walk(kernel.body))
    assert remarks[0] == "its loops are scheduled (attribute 'schedule')"
    assert ("scheduled by the rule 'contraction'" in remarks) is (kind == "llvm")


@pytest.mark.parametrize("kind", ["llvm", "numba"])
def test_naive_loops_stay_naive(kind: str) -> None:
    kernel, _ = build(product(), kind)
    assert all(node.kind == "serial" for node in ti.walk(kernel.body) if isinstance(node, ti.For))


def test_a_block_of_a_function_can_be_handed_over_alone() -> None:
    n = gi.symbol("n")
    x = ti.placeholder((n, 40), "float32", "x")
    y = ti.compute((n, 40), lambda i, j: x[i, j] + 1.0, name="y")
    z = ti.compute((n, 40), lambda i, j: y[i, j] * 2.0, name="z")
    schedule = ti.Schedule(ti.create_prim_func("f", [x], [y, z]))
    schedule.annotate(schedule.get_block("z"), "schedule", "auto")
    with tw.PassContext() as ctx:
        model = tw.build(schedule.func)
    text = model.ir("scheduled")
    first, second = text.split("block y")[0], text.split("block y")[1]
    assert "vectorized(" not in first and "vectorized(" in second
    assert any("but for those of z" in remark.message for remark in ctx.remarks)
    values = np.random.default_rng(0).random((7, 40), "f4")
    for found, expected in zip(model(values), (values + 1, (values + 1) * 2), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_pass_can_keep_the_rules_off_a_kernel_of_a_graph() -> None:
    @passes.primfunc_pass(opt_level=0, name="ByHand")
    def halves(func: ti.PrimFunc, mod: tw.IRModule, ctx: tw.PassContext) -> ti.PrimFunc:
        schedule = ti.Schedule(func)
        (block,) = schedule.get_blocks()
        schedule.split(schedule.get_loops(block)[0], [2, None])
        return schedule.func.with_attr("schedule", "manual")

    x = gi.var("x", shape=(10,))
    model = tw.build(gi.Function([x], gi.exp(x)), passes={"tensor": halves})
    assert "range(2)" in model.ir("scheduled") and "vectorized" not in model.ir("scheduled")
    values = np.linspace(-1, 1, 10, dtype="f4")
    np.testing.assert_allclose(model(values), np.exp(values), rtol=1e-5)


def test_settings_of_a_rule_for_loops_that_stay_are_an_error() -> None:
    with pytest.raises(PassError, match=r"'schedule.contraction.rows' of the function: its loops stay as they are"):
        tw.build(product().with_attr("schedule.contraction.rows", 4))
    _, remarks = build(product().with_attr("schedule", "auto").with_attr("schedule.contraction.rows", 4))
    assert any("rows 4 (set)" in message for message in remarks)


def test_a_reduction_over_nothing_starts_all_the_same() -> None:
    n = gi.symbol("n")
    x, k = ti.placeholder((5, n), "float32", "x"), ti.reduce_axis(n, "k")
    total = ti.compute((5,), lambda i: ti.tensor.sum(x[i, k], axis=k), name="total")
    model = tw.build(ti.create_prim_func("total", [x], [total]))
    np.testing.assert_array_equal(model(np.ones((5, 0), "f4")), np.zeros(5, "f4"))
    np.testing.assert_array_equal(model(np.ones((5, 3), "f4")), np.full(5, 3, "f4"))
