"""Define models for tests of profiles."""

from __future__ import annotations

import numpy as np

import tilewright as tw
from tilewright import graphir as gi


def weights(*shape: int, seed: int = 0) -> gi.Constant:
    return gi.const((np.random.default_rng(seed).standard_normal(shape) / 4).astype("f4"))


def perceptron() -> tw.IRModule:
    """Build two products and a softmax, of any number of rows; the first product is called fc1."""
    x = gi.var("x", shape=("batch", 64))
    hidden = gi.nn.relu(gi.Call("matmul", [x, weights(64, 32)], span="fc1"))
    return tw.IRModule.from_expr(
        gi.Function([x], gi.nn.softmax(gi.Call("matmul", [hidden, weights(32, 10)], span="fc2")))
    )


def looping(times: int = 3) -> tw.IRModule:
    """Build a product that runs ``times`` times, followed by one of two branches."""
    x, c = gi.var("x", shape=("n", 16)), gi.var("c", shape=(), dtype="bool")
    i, state = gi.var("i", shape=(), dtype="int64"), gi.var("state", shape=("n", 16))
    step = gi.Function([i, state], gi.Tuple([gi.nn.relu(gi.matmul(state, weights(16, 16))) + state]))
    loop = gi.TupleGetItem(gi.Loop(gi.const(times), None, step, [gi.tanh(x)]), 0)
    branch = gi.If(c, gi.nn.softmax(loop), gi.cumsum(loop, axis=1))
    return tw.IRModule.from_expr(gi.Function([x, c], branch))


def choosing() -> tw.IRModule:
    """Build a model that computes a size itself: the number of nonzero elements."""
    x = gi.var("x", shape=("n",))
    places = gi.get_operator("nonzero")(gi.greater(gi.exp(x), 1.0))
    return tw.IRModule.from_expr(gi.Function([x], gi.tanh(gi.cast(places, "float32")) * 2.0))
