"""Test models with sizes that no tile divides: each remainder of rows, of lines and of images, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi

RNG = np.random.default_rng(3)
SIZES = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 33, 65]


@pytest.fixture(scope="module", params=["llvm", "numba"])
def target(request: pytest.FixtureRequest) -> tw.Target:
    return tw.Target(request.param, num_threads=2 if request.param == "llvm" else 1)


@pytest.fixture(scope="module", params=[2, 3])
def level(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def built(function: gi.Function, target: tw.Target, level: int) -> tw.Executable:
    with tw.PassContext(opt_level=level):
        return tw.build(tw.IRModule.from_expr(function), target=target)


W = RNG.standard_normal((37, 50)).astype("f4")


@pytest.fixture(scope="module")
def layer(target: tw.Target, level: int) -> tw.Executable:
    """Build a dense layer with an epilogue of many operations and a residual connection."""
    x, r = gi.var("x", shape=("n", 50)), gi.var("r", shape=("n", 37))
    hidden = gi.sigmoid(gi.nn.dense(x, gi.const(W))) + r
    return built(gi.Function([x, r], gi.nn.relu(hidden)), target, level)


@pytest.mark.parametrize("n", SIZES)
def test_rows_of_a_dense_layer(layer: tw.Executable, n: int) -> None:
    x, r = RNG.standard_normal((n, 50)).astype("f4"), RNG.standard_normal((n, 37)).astype("f4")
    expected = np.maximum(1 / (1 + np.exp(-(x.astype("f8") @ W.T))) + r, 0)
    np.testing.assert_allclose(layer(x, r), expected, rtol=1e-4, atol=1e-5)


K = RNG.standard_normal((32, 1, 3, 3)).astype("f4")
P = RNG.standard_normal((24, 32, 1, 1)).astype("f4")


@pytest.fixture(scope="module")
def images(target: tw.Target, level: int) -> tw.Executable:
    """Build a depthwise convolution, whose lines are rows of tiles, and a pointwise one."""
    x = gi.var("x", shape=("pages", 32, "height", "width"))
    each = gi.nn.conv2d(x, gi.const(K), padding=(1, 1), groups=32)
    return built(gi.Function([x], gi.nn.relu(gi.nn.conv2d(each, gi.const(P)))), target, level)


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 16), (2, 3), (5, 17), (7, 31), (3, 33), (12, 15), (4, 47)])
def test_lines_of_images(images: tw.Executable, height: int, width: int) -> None:
    x = RNG.standard_normal((2, 32, height, width)).astype("f4")
    framed = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))).astype("f8")
    each = sum(
        framed[:, :, i : i + height, j : j + width] * K[:, 0, i, j][:, None, None] for i in range(3) for j in range(3)
    )
    expected = np.maximum(np.einsum("oc,nchw->nohw", P[:, :, 0, 0].astype("f8"), each), 0)
    np.testing.assert_allclose(images(x), expected, rtol=1e-3, atol=1e-3)
