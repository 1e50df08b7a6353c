"""SimplifyInference: remove dropout, and turn batch normalization into a multiplication and an addition."""

from __future__ import annotations

import numpy as np

from tilewright import graphir as gi
from tilewright.graphir.visitor import call_nodes
from tilewright.passes import Sequential
from tilewright.passes.graph import FoldConstant, FuseOps, SimplifyInference


def test_dropout_is_removed(rewrites):
    head = "def @main(%x: Tensor[(4,), float32]) {"
    rewrites(SimplifyInference(), f"{head} %0 = nn.dropout(%x) %1 = tanh(%0) %1 }}", f"{head} %1 = tanh(%x) %1 }}")


def test_batch_norm_folds_to_two_operators(network, keeps_values):
    mod, x = network
    after = keeps_values(Sequential([SimplifyInference(), FoldConstant()]), mod, x)
    names = [call.op.name for call in call_nodes(after["main"].body)]
    assert names[:4] == ["nn.conv2d", "multiply", "add", "nn.relu"]


def test_layer_norm_stays(rewrites):
    x = gi.var("x", shape=(2, 4))
    scale = gi.const([1.0, 2.0, 3.0, 4.0])
    mod = gi.IRModule({"main": gi.Function([x], gi.nn.layer_norm(x, scale, scale))})
    rewrites(SimplifyInference(), mod, mod)


def test_split_becomes_slices(rewrites):
    head = "def @main(%x: Tensor[(4, 6), float32]) {"
    slices = "%0 = slice(%x, begin=(0,), end=(2,), axes=(1,)) %1 = slice(%x, begin=(2,), end=(6,), axes=(1,))"
    after = SimplifyInference()(
        gi.parse(f"{head} %0 = split(%x, indices_or_sections=(2,), axis=1) %1 = %0.0 %2 = %0.1 %3 = (%1, %2) %3 }}")
    )
    rewrites(FoldConstant(), after, gi.parse(f"{head} {slices.replace('end=(6,)', 'end=(None,)')} %2 = (%0, %1) %2 }}"))


def test_the_parts_of_a_split_fuse_with_what_reads_them(keeps_values):
    x = gi.var("x", shape=("n", 8))
    first, second = gi.split(x, 2, axis=1)
    mod = gi.IRModule.from_expr(gi.Function([x], first * gi.sigmoid(second)))
    fused = Sequential([SimplifyInference(), FoldConstant(), FuseOps()])
    after = keeps_values(fused, mod, np.random.default_rng(0).standard_normal((3, 8)).astype("float32"))
    call = after["main"].body
    assert isinstance(call.op, gi.Function) and call.args == after["main"].params
    assert [inner.op.name for inner in call_nodes(call.op.body)] == ["slice", "slice", "sigmoid", "multiply"]
