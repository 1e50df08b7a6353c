"""SimplifyInference: remove dropout, and turn batch normalization into a multiplication and an addition."""

from __future__ import annotations

from tilewright import graphir as gi
from tilewright.graphir.visitor import call_nodes
from tilewright.passes import Sequential
from tilewright.passes.graph import FoldConstant, SimplifyInference


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
