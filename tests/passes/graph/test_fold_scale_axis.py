"""FoldScaleAxis moves constant factors per channel into weights, where that is right."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import graphir as gi
from tilewright.graphir.visitor import call_nodes
from tilewright.passes import Sequential
from tilewright.passes.graph import BackwardFoldScaleAxis, FoldConstant, FoldScaleAxis, ForwardFoldScaleAxis

RNG = np.random.default_rng(1)
X = gi.var("x", shape=(2, 4, 5, 5))
VALUES = RNG.standard_normal((2, 4, 5, 5)).astype(np.float32)
POSITIVE = gi.const(RNG.uniform(0.5, 2, (8, 1, 1)).astype(np.float32))
MIXED = gi.const(np.linspace(-1, 2, 8, dtype=np.float32).reshape(8, 1, 1))
BIAS = gi.const(RNG.standard_normal((8, 1, 1)).astype(np.float32))
INPUT = gi.const(RNG.uniform(0.5, 2, (4, 1, 1)).astype(np.float32))
NEGATIVE = gi.const(-INPUT.data)
SHIFT = gi.const(RNG.standard_normal((4, 1, 1)).astype(np.float32))
SAME = {"pool_size": (3, 3), "strides": (1, 1), "padding": (1, 1)}


def conv(x: gi.Expr) -> gi.Expr:
    weight = np.random.default_rng(2).standard_normal((8, 4, 3, 3)).astype(np.float32)
    return gi.nn.conv2d(x, gi.const(weight), padding=(1, 1))


def multiplications(mod: gi.IRModule) -> int:
    return sum(call.op.name == "multiply" for call in call_nodes(mod["main"].body))


@pytest.mark.parametrize(
    ("a_pass", "build"),
    [
        (BackwardFoldScaleAxis(), lambda x: conv(x) * MIXED),
        (BackwardFoldScaleAxis(), lambda x: conv(x) * 2.0),
        (BackwardFoldScaleAxis(), lambda x: gi.nn.relu(conv(x) + BIAS) * POSITIVE),
        (BackwardFoldScaleAxis(), lambda x: gi.nn.bias_add(conv(x), BIAS.data.reshape(8)) * MIXED),
        (BackwardFoldScaleAxis(), lambda x: gi.nn.avg_pool2d(conv(x), pool_size=(2, 2)) * MIXED),
        (BackwardFoldScaleAxis(), lambda x: gi.nn.relu(conv(x) * MIXED) * POSITIVE),
        (ForwardFoldScaleAxis(), lambda x: conv(x * INPUT)),
        (ForwardFoldScaleAxis(), lambda x: conv(gi.nn.relu(x * INPUT))),
        (ForwardFoldScaleAxis(), lambda x: conv(gi.nn.max_pool2d(x * INPUT, pool_size=(2, 2)))),
        (FoldScaleAxis(), lambda x: conv(x * INPUT) * MIXED),
        (ForwardFoldScaleAxis(), lambda x: conv(x * INPUT + SHIFT)),
        (ForwardFoldScaleAxis(), lambda x: conv(SHIFT + x * NEGATIVE)),
        (ForwardFoldScaleAxis(), lambda x: conv(gi.nn.relu(x * INPUT + SHIFT))),
        (ForwardFoldScaleAxis(), lambda x: conv((x * INPUT + SHIFT) * INPUT + SHIFT)),
        (ForwardFoldScaleAxis(), lambda x: (lambda y: conv(y) + conv(y))(x * INPUT)),
        (ForwardFoldScaleAxis(), lambda x: (lambda y: conv(y) + conv(gi.nn.relu(y + SHIFT)))(x * INPUT)),
        (ForwardFoldScaleAxis(), lambda x: (lambda y: conv(y) + conv(gi.nn.max_pool2d(y, **SAME)))(x * INPUT + SHIFT)),
    ],
)
def test_the_factor_goes_into_the_weights(keeps_values, a_pass, build):
    mod = gi.IRModule({"main": gi.Function([X], build(X))})
    after = keeps_values(Sequential([a_pass, FoldConstant()], opt_level=3), mod, VALUES)
    assert multiplications(after) == 0


@pytest.mark.parametrize(
    ("a_pass", "build"),
    [
        (BackwardFoldScaleAxis(), lambda x: gi.nn.relu(conv(x)) * MIXED),  # relu(-1 * y) is not -1 * relu(y)
        (BackwardFoldScaleAxis(), lambda x: gi.tanh(conv(x)) * POSITIVE),
        (BackwardFoldScaleAxis(), lambda x: (lambda y: y * POSITIVE + y)(conv(x))),  # y has another user
        (BackwardFoldScaleAxis(), lambda x: conv(x) * gi.const(np.arange(1, 6, dtype=np.float32))),  # along the width
        (ForwardFoldScaleAxis(), lambda x: conv(gi.tanh(x * INPUT))),
        (ForwardFoldScaleAxis(), lambda x: (lambda y: gi.add(conv(y), gi.sum(y)))(x * INPUT)),
        (ForwardFoldScaleAxis(), lambda x: (lambda y: gi.Tuple([conv(y), y]))(x * INPUT)),
        (ForwardFoldScaleAxis(), lambda x: conv(x * gi.const(np.float32([[[1]], [[0]], [[2]], [[3]]])) + SHIFT)),  # / 0
        (ForwardFoldScaleAxis(), lambda x: conv(x * INPUT + gi.const(np.ones((5, 5), "f4")))),  # no shift of channels
        (ForwardFoldScaleAxis(), lambda x: (lambda y: conv(y) + conv(gi.nn.relu(y)))(x * NEGATIVE)),  # relu(-1 * y)
    ],
)
def test_where_it_would_be_wrong_nothing_changes(rewrites, a_pass, build):
    mod = gi.IRModule({"main": gi.Function([X], build(X))})
    rewrites(a_pass, mod, mod)


def test_dense_takes_factors_on_both_sides(keeps_values):
    x = gi.var("x", shape=("n", 4))
    weight, before, behind = (gi.const(RNG.standard_normal(s).astype(np.float32)) for s in ((3, 4), (4,), (3,)))
    mod = gi.IRModule({"main": gi.Function([x], gi.nn.dense(x * before, weight) * behind)})
    values = RNG.standard_normal((2, 4)).astype(np.float32)
    assert multiplications(keeps_values(Sequential([FoldScaleAxis(), FoldConstant()]), mod, values)) == 0


def test_a_factor_before_an_addition_divides_what_is_added(rewrites):
    x = gi.var("x", shape=("n", 2))
    scale, shift, weight = gi.const(np.float32([2, 4])), gi.const(np.float32([1, 1])), gi.const(np.ones((3, 2), "f4"))
    before = gi.nn.dense(x * scale + shift, weight)
    after = gi.nn.dense(x + gi.const(np.float32([[0.5, 0.25]])), weight * gi.const(np.float32([2, 4])))
    fold = Sequential([ForwardFoldScaleAxis(), FoldConstant()], opt_level=3)
    expected = FoldConstant()(gi.IRModule.from_expr(gi.Function([x], after)))
    rewrites(fold, gi.IRModule.from_expr(gi.Function([x], before)), expected)


def test_each_of_several_users_takes_the_factor_up(rewrites):
    x = gi.var("x", shape=("n", 2))
    scale = gi.const(np.float32([2, 4]))
    first, second = (gi.const(np.full((3, 2), value, "f4")) for value in (1, 2))

    def model(scaled, *weights):
        return gi.IRModule.from_expr(
            gi.Function([x], gi.nn.dense(scaled, weights[0]) + gi.nn.dense(scaled, weights[1]))
        )

    fold = Sequential([ForwardFoldScaleAxis(), FoldConstant()], opt_level=3)
    rewrites(fold, model(x * scale, first, second), FoldConstant()(model(x, first * scale, second * scale)))
