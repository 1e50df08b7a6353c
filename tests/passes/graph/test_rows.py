"""Rules of SimplifyExpr for dense layers and products between reshapes: rows stay split, so that what follows joins the
layer."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import graphir as gi
from tilewright.passes import Sequential
from tilewright.passes.graph import FuseOps, InferType, SimplifyExpr

W = gi.const(np.ones((8, 12), np.float32))
MATRIX = gi.const(np.ones((12, 8), np.float32))
BIAS = gi.const(np.arange(8, dtype=np.float32))
X = gi.var("x", shape=("batch", 3, 12))
HEADS = gi.var("heads", shape=("batch", 3, 4, 3))


def mod(x: gi.Expr, body: gi.Expr) -> gi.IRModule:
    return gi.IRModule({"main": gi.Function([x], body)})


@pytest.mark.parametrize("bias_first", [False, True])
@pytest.mark.parametrize("multiplied", [lambda x: gi.nn.dense(x, W), lambda x: gi.matmul(x, MATRIX)])
def test_a_reshape_moves_behind_a_dense_layer_and_its_bias(rewrites, multiplied, bias_first):
    made = multiplied(gi.reshape(X, (-1, 12)))
    made = BIAS + made if bias_first else made + BIAS
    before = gi.reshape(made, multiplied(X).shape)
    after = multiplied(X)
    rewrites(SimplifyExpr(), mod(X, before), mod(X, BIAS + after if bias_first else after + BIAS), opt_level=1)


def test_a_reshape_that_joins_the_last_axes_as_well_joins_only_these(rewrites):
    before = gi.nn.dense(gi.reshape(HEADS, (-1, 12)), W)
    rows = gi.reshape(HEADS, (*HEADS.shape[:2], 12))
    rewrites(
        SimplifyExpr(), mod(HEADS, before), mod(HEADS, gi.reshape(gi.nn.dense(rows, W), before.shape)), opt_level=1
    )


@pytest.mark.parametrize(
    "build",
    [
        lambda x: gi.nn.dense(gi.reshape(x, (-1, 18)), gi.const(np.ones((8, 18), np.float32))),
        lambda x: gi.matmul(gi.reshape(x, (-1, 12)), gi.const(np.ones((5, 12, 8), np.float32))),
        lambda x: gi.reshape(gi.nn.dense(x, W), (-1, 8)) + gi.const(np.ones((1, 8), np.float32)),
    ],
)
def test_what_is_no_layer_of_rows_stays(rewrites, build):
    x = gi.var("x", shape=(6, 3, 12))
    rewrites(SimplifyExpr(), mod(x, build(x)), mod(x, build(x)), opt_level=1)


def test_what_follows_a_layer_is_in_its_kernel():
    body = gi.nn.gelu(gi.reshape(gi.nn.dense(gi.reshape(X, (-1, 12)), W) + BIAS, gi.nn.dense(X, W).shape))
    found = Sequential([InferType(), SimplifyExpr(), FuseOps()])(mod(X, body))
    assert str(found).count("Primitive") == 1
