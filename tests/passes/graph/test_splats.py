"""Tensors that repeat one number stay that number, from folding to machine code."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.visitor import call_nodes, post_order
from tilewright.passes import PassContext, Sequential
from tilewright.passes.graph import FoldConstant, FuseOps

N = 1000


def folded(expr):
    return FoldConstant()(tw.IRModule.from_expr(expr))["main"].body


@pytest.mark.parametrize(
    ("expr", "value"),
    [
        (gi.full((N,), 1.5), 1.5),
        (gi.zeros((2, N), "int32"), 0),
        (gi.ones((N,), "bool"), True),
        (gi.broadcast_to(gi.const(2.0), (N, 2)), 2.0),
        (gi.full((N,), 1.5) * 2.0 + gi.ones((3, N)), 4.0),
        (gi.exp(gi.zeros((N,))), 1.0),
        (gi.cast(gi.full((N,), 2.75), dtype="int32"), 2),
        (gi.transpose(gi.reshape(gi.full((N,), 7.0), (2, -1))), 7.0),
        (gi.maximum(gi.full((N, 1), -np.inf), gi.full((2,), -3.0)), -3.0),
    ],
    ids=str,
)
def test_what_is_one_number_takes_the_memory_of_one(expr, value):
    made = folded(expr)
    assert isinstance(made, gi.Constant) and made.type == expr.type and made.is_computed
    assert made.splat == value and not any(made.data.strides)
    np.testing.assert_array_equal(made.data, np.full(made.shape, value))


@pytest.mark.parametrize(
    "expr",
    [gi.full((N,), 1.0) * np.arange(N, dtype="f4"), gi.arange(N), gi.concatenate([gi.ones((N,)), gi.zeros((N,))])],
)
def test_what_has_several_numbers_is_no_splat(expr):
    made = folded(expr)
    assert made.splat is None
    np.testing.assert_array_equal(made.data, gi.evaluate(expr))


def test_the_operators_that_read_it_write_it(rewrites):
    x = gi.var("x", shape=(N,))
    p = gi.var("x", shape=(N,))
    scaled = gi.maximum(x * gi.ones((N,)) * 1.5, gi.zeros((N,)))
    before = FoldConstant()(tw.IRModule.from_expr(gi.Function([x], scaled)))
    inner = gi.maximum(p * gi.full((N,), 1.0) * 1.5, gi.full((N,), 0.0))
    group = gi.Function([p], inner, attrs={"Primitive": True, "kind": "broadcast"})
    rewrites(FuseOps(), before, tw.IRModule.from_expr(gi.Function([x], group(x))))


def test_sums_of_products_read_it_from_memory():
    x = gi.var("x", shape=("n", 8))
    mod = tw.IRModule.from_expr(gi.Function([x], gi.nn.relu(gi.nn.dense(x, gi.ones((4, 8))) + gi.ones((4,)))))
    after = Sequential([FoldConstant(), FuseOps()])(mod)["main"]
    assert [call.op.name for call in call_nodes(after.body.op)] == ["nn.dense", "full", "add", "nn.relu"]
    constants = [node for node in post_order(after) if isinstance(node, gi.Constant)]
    assert [constant.shape for constant in constants] == [(4, 8)]


@pytest.mark.parametrize("opt_level", range(4))
@pytest.mark.parametrize("fill", [1.5, np.inf, -np.inf, np.nan, -0.0, 0.0])
def test_models_with_splats_compute_the_same(fill, opt_level):
    x = gi.var("x", shape=("n", 8))
    body = gi.Tuple([x * gi.full((8,), fill), gi.full((3,), fill), gi.sum(gi.exp(x) + gi.full((8,), fill), axis=1)])
    value = np.random.default_rng(0).standard_normal((5, 8)).astype("float32")
    with PassContext(opt_level=opt_level):
        found = tw.build(gi.Function([x], body))(value)
    for a, b in zip(found, gi.evaluate(gi.Function([x], body), value), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
        if opt_level == 3:
            continue  # the sign of a zero may be another one
        np.testing.assert_array_equal(np.signbit(a)[~np.isnan(a)], np.signbit(b)[~np.isnan(b)])


def test_an_artifact_holds_one_number(tmp_path):
    sizes = {}
    for size in (10, 1 << 20):
        x = gi.var("x", shape=(size,))
        tw.build(gi.Function([x], gi.maximum(x + gi.full((size,), 0.5), gi.zeros((size,))))).export(tmp_path / "a.tw")
        sizes[size] = (tmp_path / "a.tw").stat().st_size
    assert sizes[1 << 20] < sizes[10] + 4096
