"""Share fixtures of the tests of the graph passes: run a pass, and compare with the expected module and with NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright import graphir as gi
from tilewright.passes import Pass, PassContext

Check = Callable[..., Any]


@pytest.fixture
def rewrites() -> Check:
    """``rewrites(a_pass, before, expected, opt_level=3)``: exactly ``expected`` comes out; gives the context."""

    def check(a_pass: Pass, before: Any, expected: Any, opt_level: int = 3) -> PassContext:
        left, right = (gi.parse(m) if isinstance(m, str) else m for m in (before, expected))
        text = str(left)
        with PassContext(opt_level=opt_level) as ctx:
            after = a_pass(left)
        gi.verify(after)
        gi.assert_structural_equal(after, right)
        assert str(left) == text, "the pass changed its input"
        return ctx

    return check


@pytest.fixture
def keeps_values() -> Check:
    """``keeps_values(a_pass, mod, *inputs)``: the transformed module, after comparing it with float64 NumPy."""

    def check(a_pass: Pass, mod: gi.IRModule, *inputs: Any, opt_level: int = 3) -> gi.IRModule:
        with PassContext(opt_level=opt_level):
            after = a_pass(mod)
        gi.verify(after)
        expected = gi.evaluate(mod, *inputs, dtype="float64")
        found = gi.evaluate(after, *inputs, dtype="float64")
        for a, b in zip(np.atleast_1d(found), np.atleast_1d(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        return after

    return check


@pytest.fixture
def network() -> tuple[gi.IRModule, np.ndarray]:
    """A small residual network with batch normalization, and an input for it."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> gi.Constant:
        return gi.const((rng.standard_normal(shape) / 4).astype(np.float32))

    def positive(*shape: int) -> gi.Constant:
        return gi.const(rng.uniform(0.5, 2, shape).astype(np.float32))

    def block(x: gi.Expr, channels: int, residual: bool = False) -> gi.Expr:
        y = gi.nn.conv2d(x, normal(channels, x.shape[1], 3, 3), padding=(1, 1))
        y = gi.nn.batch_norm(y, positive(channels), normal(channels), normal(channels), positive(channels))
        return gi.nn.relu(y + x if residual else y)

    x = gi.var("x", shape=("n", 3, 6, 6))
    y = block(block(x, 32), 32, residual=True)
    y = gi.nn.relu(
        gi.nn.bias_add(gi.nn.conv2d(gi.nn.max_pool2d(y, pool_size=(2, 2)), normal(48, 32, 1, 1)), normal(48))
    )
    y = gi.concatenate([y, y * positive(48, 1, 1)], axis=1)
    y = gi.nn.dropout(gi.nn.conv2d(y * positive(96, 1, 1), normal(10, 96, 3, 3)))
    y = gi.nn.dense(gi.nn.batch_flatten(gi.nn.global_avg_pool2d(y)), normal(10, 10))
    return gi.IRModule.from_expr(gi.Function([x], gi.nn.softmax(y))), rng.standard_normal((2, 3, 6, 6)).astype(
        np.float32
    )
