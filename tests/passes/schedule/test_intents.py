"""Intents: schedules state what tensor passes lower, by annotations that users may write as well."""

from __future__ import annotations

import numpy as np

from tests.passes.schedule.kernels import apply_rule
from tilewright.graphir.module import IRModule
from tilewright.passes.context import PassContext
from tilewright.passes.schedule.contraction import ScheduleContraction
from tilewright.passes.schedule.inline import reduction_blocks
from tilewright.passes.tensor import tensor_pipeline
from tilewright.tensorir import assert_structural_equal, interpret, parse
from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import cast
from tilewright.tensorir.keys import DOT_PRODUCT
from tilewright.tensorir.schedule import Schedule
from tilewright.tensorir.target import Target

TARGET = Target("llvm", mcpu="znver4", mtriple="x86_64-unknown-linux-gnu", num_threads=1)


def product_of_bytes() -> Schedule:
    a, b = te.placeholder((20, 8), "uint8", name="a"), te.placeholder((8, 48), "int8", name="b")
    k = te.reduce_axis(8, "k")
    result = te.compute((20, 48), lambda i, j: te.sum(cast("int32", a[i, k]) * cast("int32", b[k, j]), axis=k))
    return Schedule(te.create_prim_func("f", [a, b], [result]))


def test_the_instruction_of_a_product_and_the_order_of_its_panel_are_stated() -> None:
    schedule = product_of_bytes()
    (ref,) = reduction_blocks(schedule)
    assert apply_rule(ScheduleContraction(), schedule, ref, TARGET)
    text = str(schedule.func)
    assert 'in range(4) annotations {"dot_product": 4}' in text
    assert 'in range(4) annotations {"interleave": True}' in text
    assert_structural_equal(parse(text), schedule.func)
    with TARGET, PassContext() as ctx:
        lowered = str(tensor_pipeline(TARGET)(IRModule({"f": schedule.func})))
    assert "dot(" in lowered and "annotations" not in lowered
    said = {(remark.pass_name, remark.kind) for remark in ctx.remarks}
    assert {("InterleaveStores", "applied"), ("DotProduct", "applied")} <= said
    assert ("DotProduct", "missed") not in said


def test_a_schedule_by_hand_states_an_instruction() -> None:
    a, b = te.placeholder((8,), "uint8", name="a"), te.placeholder((2, 16, 4), "int8", name="b")
    k, g = te.reduce_axis(2, "k"), te.reduce_axis(4, "g")
    total = te.compute(
        (16,), lambda j: te.sum(cast("int32", a[k * 4 + g]) * cast("int32", b[k, j, g]), axis=[k, g]), name="total"
    )
    schedule = Schedule(te.create_prim_func("f", [a, b], [total]))
    ref = schedule.get_block("total")
    column, step, products = schedule.get_loops(ref)
    schedule.reorder(step, column, products)
    schedule.decompose_reduction(ref, step)
    schedule.vectorize(column)
    schedule.annotate(products, DOT_PRODUCT, 4)
    with TARGET:
        lowered = tensor_pipeline(TARGET)(IRModule({"f": schedule.func}))["f"]
    assert "dot(" in str(lowered)
    rng = np.random.default_rng(5)
    left, right = rng.integers(0, 255, 8).astype("u1"), rng.integers(-128, 127, (2, 16, 4)).astype("i1")
    found = np.zeros(16, "i4")
    interpret(lowered, left, right, found)
    np.testing.assert_array_equal(found, np.einsum("kg,kjg->j", left.reshape(2, 4).astype("i4"), right.astype("i4")))
