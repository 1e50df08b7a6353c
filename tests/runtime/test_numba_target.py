"""The targets ``numba`` and ``llvm`` give the same results, for operators of every family."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.codegen.numba_.source import MOST_COMPILED_CALLS

pytestmark = pytest.mark.optimized
RNG = np.random.default_rng(5)
IMAGE = RNG.standard_normal((2, 4, 7, 6)).astype("f4")
MATRIX = RNG.standard_normal((5, 9)).astype("f4")

FAMILIES: dict[str, tuple[np.ndarray, Callable[[gi.Expr], list[gi.Expr]]]] = {
    "arithmetic": (
        MATRIX,
        lambda x: [x + 1.0, x * x - x / 2.0, gi.maximum(x, 0.5), gi.power(gi.abs(x), 1.5), gi.floor_mod(x, 0.7)],
    ),
    "functions": (
        MATRIX,
        lambda x: [
            *[gi.get_operator(name)(x) for name in ("exp", "tanh", "sigmoid", "erf", "sin", "cos", "floor", "sign")],
            gi.log(gi.abs(x)),
            gi.rsqrt(gi.abs(x) + 0.1),
            gi.nn.gelu(x),
        ],
    ),
    "comparisons": (
        MATRIX,
        lambda x: [x > 0.0, gi.where(x <= 0.2, x, 1.0), gi.logical_not(gi.isnan(x)), gi.cast(x * 9.0, dtype="int8")],
    ),
    "reductions": (
        MATRIX,
        lambda x: [
            gi.sum(x, axis=0),
            gi.mean(x, axis=1, keepdims=True),
            gi.max(x),
            gi.argmax(x, axis=1),
            gi.prod(x, axis=1),
        ],
    ),
    "shapes": (
        MATRIX,
        lambda x: [
            gi.transpose(x),
            gi.reshape(x, newshape=(9, 5)),
            gi.concatenate([x, x * 2.0], axis=1),
            x[1:, ::2],
            gi.pad(x, pad_width=((1, 0), (0, 2))),
            gi.take(x, gi.const(np.array([2, 0])), axis=0),
        ],
    ),
    "contractions": (
        MATRIX,
        lambda x: [
            gi.matmul(x, gi.transpose(x)),
            gi.nn.relu(gi.nn.dense(x, gi.const(RNG.standard_normal((3, 9)).astype("f4")))),
        ],
    ),
    "rows": (
        MATRIX,
        lambda x: [
            gi.nn.softmax(x),
            gi.nn.log_softmax(x),
            gi.nn.layer_norm(x, gi.const(np.ones(9, "f4")), gi.const(np.zeros(9, "f4"))),
        ],
    ),
    "images": (
        IMAGE,
        lambda x: [
            gi.nn.conv2d(x, gi.const(RNG.standard_normal((3, 4, 3, 3)).astype("f4")), padding=(1, 1)),
            gi.nn.max_pool2d(x, pool_size=(2, 2)),
            gi.nn.avg_pool2d(x, pool_size=(3, 3), padding=(1, 1)),
            gi.layout_transform(x, src_layout="NCHW", dst_layout="NCHW2c"),
        ],
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_both_targets_agree_with_the_references(family: str) -> None:
    values, build = FAMILIES[family]
    x = gi.var("x", shape=("n", *values.shape[1:]) if family != "shapes" else values.shape)
    function = gi.Function([x], gi.Tuple(build(x)))
    expected = gi.evaluate(function, values)
    for target in ("llvm", "numba"):
        found = tw.build(function, target=target)(values)
        for number, (a, b) in enumerate(zip(found, expected, strict=True)):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6, err_msg=f"{target}, result {number}")


@pytest.mark.parametrize("dtype", ["bool", "int16", "uint8", "float16", "bfloat16", "float64"])
def test_element_types_agree_on_both_targets(dtype: str) -> None:
    x = gi.var("x", shape=("n", 3), dtype=dtype)
    body = gi.concatenate([x, x], axis=1) if dtype == "bool" else gi.maximum(gi.add(x, x), x)
    values = np.arange(12).reshape(4, 3).astype(gi.TensorType((), dtype).dtype.numpy)
    function = gi.Function([x], body)
    results = [tw.build(function, target=target)(values) for target in ("llvm", "numba")]
    np.testing.assert_array_equal(results[0], results[1])


@pytest.mark.parametrize(("kernels", "compiled"), [(MOST_COMPILED_CALLS, True), (MOST_COMPILED_CALLS + 1, False)])
def test_python_itself_calls_the_kernels_of_a_large_model(kernels: int, compiled: bool) -> None:
    x = gi.var("x", shape=("n", 3))
    y = x
    for _ in range(kernels):
        y = gi.nn.dense(y, gi.const(np.eye(3, dtype="f4") * 2))
    model = tw.build(gi.Function([x], y), target="numba")
    head = model.source.splitlines()
    at = next(number for number, line in enumerate(head) if line.startswith("def main("))
    assert head[at - 1].startswith("@numba.njit") is compiled
    np.testing.assert_array_equal(model(np.ones((2, 3), "f4")), np.full((2, 3), 2.0**kernels))
