"""FoldConstant computes expressions that depend only on constants."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import graphir as gi
from tilewright.graphir.visitor import call_nodes
from tilewright.passes import PassContext
from tilewright.passes.graph import FoldConstant, fold_constant
from tilewright.passes.pipelines import graph_pipeline

HEAD = "def @main(%x: Tensor[(2,), float32]) {"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("%0 = add(float32(1.0), float32(2.0)) %1 = add(%x, %0) %1", "%1 = add(%x, float32(3.0)) %1"),
        ("%0 = transpose(const(int64, [[1, 2]])) %0", "const(int64, [[1], [2]])"),
        ("%0 = (%x, float32(1.0)) %1 = %0.0 %1", "%x"),
        ("%0 = less(int64(1), int64(2)) %1 = if %0 { %x } else { %2 = tanh(%x) %2 } %1", "%x"),
        ("let %v = negative(float32(1.0)) %1 = add(%x, %v) %1", "%1 = add(%x, float32(-1.0)) %1"),
        ("%0 = tanh(%x) %0", "%0 = tanh(%x) %0"),
    ],
)
def test_rewrites(rewrites, before, after):
    rewrites(FoldConstant(), f"{HEAD} {before} }}", f"{HEAD} {after} }}")


def test_results_far_larger_than_their_arguments_stay(rewrites):
    mod = gi.IRModule.from_expr(gi.broadcast_to(gi.const(1.0), (1 << 30,)))
    ctx = rewrites(FoldConstant(), mod, mod)
    assert any("not folded" in remark.message for remark in ctx.remarks)


def test_the_limit_is_an_option():
    mod = gi.IRModule.from_expr(gi.broadcast_to(gi.const(1.0), (100,)))
    with PassContext(config={"graphir.FoldConstant": {"max_bytes": 399}}):
        assert FoldConstant()(mod) is mod
    with PassContext(config={"graphir.FoldConstant": {"max_bytes": 400}}):
        assert isinstance(FoldConstant()(mod)["main"].body, gi.Constant)


def test_the_limit_is_of_all_such_results_together():
    x = gi.var("x", shape=(100,), dtype="float32")
    parts = [gi.broadcast_to(gi.const(np.float32(value)), (100,)) for value in (1, 2)]
    mod = gi.IRModule({"main": gi.Function([x], (x + parts[0]) * parts[1])})
    for limit, left in ((399, 2), (400, 1), (799, 1), (800, 0)):
        with PassContext(config={"graphir.FoldConstant": {"max_bytes": limit}}):
            after = FoldConstant()(mod)
        assert sum(call.op.name == "broadcast_to" for call in call_nodes(after["main"])) == left


def test_what_depends_on_sizes_of_a_call_stays(rewrites):
    vector = gi.const(np.arange(9, dtype="f4"))
    mod = gi.IRModule.from_expr(gi.slice(vector, begin=(gi.symbol("n"),), end=(gi.symbol("n") + 2,)))
    dims = gi.IRModule.from_expr(gi.get_operator("sizes")(values=(gi.symbol("n"), 2)))
    for unchanged in (mod, dims):
        rewrites(FoldConstant(), unchanged, unchanged)


def large_product() -> gi.IRModule:
    weight, scale = gi.const(np.full((256, 128), 3, "f4")), gi.const(np.full((256, 1), 2, "f4"))
    return gi.IRModule.from_expr(gi.transpose(gi.multiply(weight, scale)))


def test_large_results_are_computed_when_they_are_read():
    after = FoldConstant()(large_product())["main"].body
    assert isinstance(after, gi.Constant) and not after.is_computed
    np.testing.assert_array_equal(after.data, np.full((128, 256), 6))


def test_passes_and_remarks_do_not_compute_large_results():
    mod = large_product()
    with PassContext(opt_level=3) as ctx:
        for _ in range(2):
            for step in graph_pipeline().passes:
                mod = step(mod, ctx)
    after = mod["main"].body
    assert isinstance(after, gi.Constant) and not after.is_computed
    assert gi.structural_equal(after, gi.const(np.full((128, 256), np.float32(6))))


def test_small_results_and_those_that_may_fail_are_there_at_once():
    small = gi.transpose(gi.const(np.ones((2, 3), "f4")))
    picked = gi.take(gi.const(np.ones((256, 128), "f4")), gi.const(np.arange(256)), axis=0)
    for expr in (small, picked):
        after = FoldConstant()(gi.IRModule.from_expr(expr))["main"].body
        assert isinstance(after, gi.Constant) and after.is_computed


def test_the_text_of_a_module_is_the_same_whenever_values_are_computed(monkeypatch):
    later = str(FoldConstant()(large_product()))
    monkeypatch.setattr(fold_constant, "_LATER_BYTES", 1 << 40)
    assert str(FoldConstant()(large_product())) == later
