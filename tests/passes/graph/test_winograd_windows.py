"""WinogradWindows: gradients of 3x3 weights become transforms and sums where that is estimated to be faster."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from both_targets import on_both_targets

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.visitor import call_nodes
from tilewright.passes import PassContext
from tilewright.passes.graph import WinogradWindows

RNG = np.random.default_rng(9)
ALWAYS = {"graphir.Winograd": {"gain": 0.0}}


def normal(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def of_weight(x: gi.Expr, g: gi.Expr, **attrs: Any) -> gi.Expr:
    """Return the gradient of a weight: images and gradients of the results, convolved channel by channel."""
    exchanged = [gi.transpose(each, axes=(1, 0, 2, 3)) for each in (x, g)]
    return gi.transpose(gi.nn.conv2d(*exchanged, **{"padding": (1, 1), **attrs}), axes=(1, 0, 2, 3))


def gradient(shape: tuple[Any, ...], outputs: int, dtype: str = "float32", **attrs: Any) -> gi.IRModule:
    images, _, height, width = shape
    x, g = gi.var("x", shape=shape, dtype=dtype), gi.var("g", shape=(images, outputs, height, width), dtype=dtype)
    return gi.IRModule.from_expr(gi.Function([x, g], of_weight(x, g, **attrs)))


def names(mod: gi.IRModule) -> set[str]:
    return {call.op.name for call in call_nodes(mod["main"].body)}


def run(mod: gi.IRModule, gain: float = 0.0) -> tuple[gi.IRModule, PassContext]:
    with PassContext(config={"graphir.Winograd": {"gain": gain}}) as ctx, tw.Target("llvm", mcpu="x86-64-v3"):
        return WinogradWindows()(mod), ctx


def test_a_convolution_becomes_transforms_around_sums(rewrites) -> None:
    def images(name: str) -> gi.Var:
        return gi.var(name, shape=(4, 64, 56, 56))

    left = [images("x"), images("g")]
    turned = [gi.transpose(each, axes=(1, 0, 2, 3)) for each in left]
    right = [images("x"), images("g")]
    twice = [gi.transpose(gi.transpose(each, axes=(1, 0, 2, 3)), axes=(1, 0, 2, 3)) for each in right]
    op = gi.get_operator
    x, g = (op("layout_transform")(each, src_layout="NCHW", dst_layout="NCHW8c") for each in twice)
    image = op("nn.winograd_input")(x, tile=4, padding=(1, 1, 1, 1))
    sums = op("nn.winograd_sums")(image, op("nn.winograd_window")(g, tile=4))
    result = op("nn.winograd_sums_output")(sums, tile=4)
    result = op("layout_transform")(result, src_layout="OIHW8i8o", dst_layout="IOHW")
    with tw.Target("llvm", mcpu="x86-64-v3"):
        rewrites(
            WinogradWindows(),
            gi.IRModule.from_expr(gi.Function(left, gi.nn.conv2d(*turned, padding=(1, 1)))),
            gi.IRModule.from_expr(gi.Function(right, result)),
        )


@on_both_targets
@pytest.mark.parametrize("padding", [(1, 1, 1, 1), (0, 2, 2, 0)], ids=str)
def test_one_build_for_any_number_of_images(target: tw.Target, padding: tuple[int, ...]) -> None:
    mod = gradient(("n", 16, 9, 7), 32, padding=padding)
    with PassContext(opt_level=3, config=ALWAYS):
        model = tw.build(mod, target=target)
    assert "winograd_sums" in model.ir("optimized")
    for images in (1, 3):
        data = normal(images, 16, 9, 7), normal(images, 32, 9, 7)
        expected = gi.evaluate(mod, *data, dtype="float64")
        np.testing.assert_allclose(model(*data), expected, rtol=1e-4, atol=3e-4)


@pytest.mark.parametrize("size", [(1, 1), (2, 5), (4, 8), (7, 7), (13, 6)])
def test_float64_is_as_exact_as_the_direct_sum(size: tuple[int, int]) -> None:
    mod = gradient((2, 16, *size), 16, "float64")
    with PassContext(opt_level=3, config=ALWAYS):
        model = tw.build(mod)
    data = normal(2, 16, *size, dtype="float64"), normal(2, 16, *size, dtype="float64")
    np.testing.assert_allclose(model(*data), gi.evaluate(mod, *data), rtol=1e-11, atol=1e-11)


def test_the_estimate_decides_and_the_remark_states_it() -> None:
    mod = gradient((8, 128, 28, 28), 128)
    (applied,) = [remark.message for remark in run(mod, 1.15)[1].remarks if remark.kind == "applied"]
    assert "with F(3x3, 4x4)" in applied and "ms direct" in applied
    after, ctx = run(mod, 100.0)
    gi.assert_structural_equal(after, mod)
    assert any(remark.message.startswith("no Winograd: estimated") for remark in ctx.remarks)


def test_sums_that_take_longer_than_the_products_keep_the_direct_sum() -> None:
    """Few tiles, many channels: the sums at the points are four times as large as the result."""
    assert "nn.conv2d" in names(run(gradient((1, 512, 4, 4), 512), 1.15)[0])


@pytest.mark.parametrize(
    "mod",
    [
        gradient((2, 16, 8, 8), 16, padding=(2, 2)),  # results of 5x5
        gradient((2, 16, 8, 8), 16, padding=(5, 5, 4, 4), dilation=2),
        gradient((2, 16, 8, 8), 13),
        gradient((2, 16, 8, 8), 16, "float16"),
    ],
    ids=["larger results", "gaps", "channels", "halves"],
)
def test_other_convolutions_stay(mod: gi.IRModule) -> None:
    gi.assert_structural_equal(run(mod)[0], mod)


def test_transposes_around_it_are_gone_from_a_step() -> None:
    with PassContext(opt_level=3):
        text = tw.build(gradient((8, 64, 28, 28), 64)).ir("optimized")
    assert "winograd_sums_output" in text and "transpose(" not in text
