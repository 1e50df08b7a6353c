"""Winograd: 3x3 convolutions become transforms and products where that is estimated to be faster."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from both_targets import on_both_targets

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.visitor import call_nodes
from tilewright.passes import PassContext
from tilewright.passes.graph import Winograd

RNG = np.random.default_rng(4)
BLOCKED = {"padding": (1, 1, 1, 1), "data_layout": "NCHW4c", "kernel_layout": "OIHW4i4o", "out_layout": "NCHW4c"}


def normal(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def convolution(size: int, blocks: int = 16, **attrs: Any) -> gi.IRModule:
    x = gi.var("x", shape=(1, blocks, size, size, 4))
    return gi.IRModule.from_expr(
        gi.Function([x], gi.nn.conv2d(x, gi.const(normal(blocks, blocks, 3, 3, 4, 4)), **{**BLOCKED, **attrs}))
    )


def tiles(mod: gi.IRModule) -> list[int]:
    """The tiles of the convolutions that were transformed."""
    return [call.attrs.tile for call in call_nodes(mod["main"].body) if call.op.name == "nn.winograd_output"]


def run(mod: gi.IRModule, opt_level: int = 3, **config: Any) -> tuple[gi.IRModule, PassContext]:
    with PassContext(opt_level=opt_level, config={"graphir.Winograd": config}) as ctx:
        return Winograd()(mod), ctx


def test_a_convolution_becomes_transforms_around_a_product(rewrites) -> None:
    x = gi.var("x", shape=(2, 16, 56, 56, 4))
    weight = gi.const(np.zeros((16, 16, 3, 3, 4, 4), np.float32))
    op = gi.get_operator
    image = op("nn.winograd_input")(x, tile=4, padding=(1, 1, 1, 1))
    products = op("nn.winograd_product")(image, op("nn.winograd_weight")(weight, tile=4))
    image = op("nn.winograd_output")(products, tile=4, size=(2, 56, 56))
    left = gi.var("x", shape=(2, 16, 56, 56, 4))
    convolved = gi.nn.conv2d(left, weight, **BLOCKED)
    rewrites(
        Winograd(),
        gi.IRModule.from_expr(gi.Function([left], gi.nn.relu(convolved))),
        gi.IRModule.from_expr(gi.Function([x], gi.nn.relu(image))),
    )


@pytest.mark.parametrize("padding", [(1, 1, 1, 1), (0, 0, 0, 0), (2, 1, 0, 3)])
@pytest.mark.parametrize("size", [13, 18])
def test_values_stay(size: int, padding: tuple[int, ...]) -> None:
    mod = convolution(size, 4, padding=padding)
    with PassContext(config={"graphir.Winograd": {"gain": 0.0}}):
        after = Winograd()(mod)
    assert tiles(after)
    x = normal(1, 4, size, size, 4)
    found, expected = (gi.evaluate(each, x, dtype="float64") for each in (after, mod))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@on_both_targets
def test_one_build_for_any_batch_and_image(target: tw.Target) -> None:
    x = gi.var("x", shape=("n", 16, "h", "w"))
    weight = normal(32, 16, 3, 3)
    mod = gi.IRModule.from_expr(gi.Function([x], gi.nn.relu(gi.nn.conv2d(x, gi.const(weight), padding=1))))
    with PassContext(opt_level=3, config={"graphir.Winograd": {"gain": 0.0}}):
        model = tw.build(mod, target=target)
    assert "winograd_product" in model.ir("optimized")
    for n, h, w in ((1, 8, 8), (2, 5, 11), (1, 1, 2), (3, 14, 7)):
        data = normal(n, 16, h, w)
        expected = gi.evaluate(mod, data, dtype="float64")
        np.testing.assert_allclose(model(data), expected, rtol=1e-4, atol=1e-4)


def test_float64_is_as_exact_as_the_direct_sum() -> None:
    data, weight = normal(1, 16, 12, 12, dtype="float64"), normal(16, 16, 3, 3, dtype="float64")
    x = gi.var("x", shape=data.shape, dtype="float64")
    mod = gi.IRModule.from_expr(gi.Function([x], gi.nn.conv2d(x, gi.const(weight), padding=1)))
    with PassContext(opt_level=3, config={"graphir.Winograd": {"gain": 0.0}}):
        model = tw.build(mod)
    assert "winograd_product" in model.ir("optimized")
    np.testing.assert_allclose(model(data), gi.evaluate(mod, data), rtol=1e-11, atol=1e-11)


def test_a_large_image_takes_tiles_of_four_and_a_small_one_of_two() -> None:
    assert tiles(run(convolution(56))[0]) == [4]
    assert tiles(run(convolution(14, 64))[0]) == [2]


def test_the_remark_states_both_estimates() -> None:
    _, ctx = run(convolution(56))
    (remark,) = [remark for remark in ctx.remarks if remark.kind == "applied"]
    assert "with F(4x4, 3x3)" in remark.message and "ms direct" in remark.message


def test_rates_decide() -> None:
    mod = convolution(56)
    assert tiles(run(mod, gflops=1e6)[0]) == []  # operations cost nothing: what moves more bytes loses
    assert tiles(run(mod, gain=100.0)[0]) == []


def test_opt_level_2_keeps_the_direct_sum() -> None:
    x = gi.var("x", shape=(1, 64, 56, 56))
    mod = gi.IRModule.from_expr(gi.Function([x], gi.nn.conv2d(x, gi.const(normal(64, 64, 3, 3)), padding=1)))
    for opt_level, transformed in ((2, False), (3, True)):
        with PassContext(opt_level=opt_level):
            assert ("winograd" in tw.build(mod).ir("optimized")) == transformed


def volume(shape: tuple[Any, ...], outputs: int, depth: int, **attrs: Any) -> gi.IRModule:
    x = gi.var("x", shape=shape)
    weight = gi.const(normal(outputs, shape[1], depth, 3, 3))
    return gi.IRModule.from_expr(gi.Function([x], gi.nn.relu(gi.nn.conv3d(x, weight, **attrs))))


@on_both_targets
@pytest.mark.parametrize(
    ("depth", "padding"), [(3, (1, 1, 1, 1, 1, 1)), (1, (0, 1, 1, 0, 1, 1)), (2, (0, 1, 0, 2, 0, 2))]
)
def test_volumes_are_summed_over_their_depth_as_well(target: tw.Target, depth: int, padding: tuple[int, ...]) -> None:
    mod = volume(("n", 16, "d", "h", 9), 32, depth, padding=padding)
    with PassContext(opt_level=3, config={"graphir.Winograd": {"gain": 0.0}}):
        model = tw.build(mod, target=target)
    assert "winograd_product" in model.ir("optimized")
    for n, d, h in ((1, 3, 8), (2, 5, 11), (3, 2, 4)):
        data = normal(n, 16, d, h, 9)
        expected = gi.evaluate(mod, data, dtype="float64")
        np.testing.assert_allclose(model(data), expected, rtol=1e-4, atol=2e-4)


def blocks_of_volumes(depth: int, **attrs: Any) -> gi.IRModule:
    layouts = {"data_layout": "NCDHW4c", "kernel_layout": "OIDHW4i4o", "padding": 1}
    x = gi.var("x", shape=(1, 2, 8, 28, 28, 4))
    weight = gi.const(normal(2, 2, depth, 3, 3, 4, 4))
    return gi.IRModule.from_expr(gi.Function([x], gi.nn.conv3d(x, weight, **layouts, **attrs)))


def test_a_deep_window_gains_more_as_its_slices_are_transformed_once() -> None:
    assert [tiles(run(blocks_of_volumes(depth))[0]) for depth in (1, 3)] == [[], [4]]


@pytest.mark.parametrize("attrs", [{"strides": (2, 1, 1)}, {"dilation": (2, 1, 1)}], ids=str)
def test_volumes_with_gaps_between_slices_stay(attrs: dict[str, Any]) -> None:
    assert tiles(run(blocks_of_volumes(3), gain=0.0)[0])
    assert tiles(run(blocks_of_volumes(3, **attrs), gain=0.0)[0]) == []


KEPT = {
    "a stride": {"strides": 2},
    "a dilation": {"dilation": 2},
    "groups": {"groups": 2},
}


@pytest.mark.parametrize("name", KEPT)
def test_other_convolutions_stay(name: str) -> None:
    attrs = KEPT[name]
    x = gi.var("x", shape=(1, 16, 56, 56, 4))
    weight = gi.const(normal(16, 16 // attrs.get("groups", 1), 3, 3, 4, 4))
    mod = gi.IRModule.from_expr(gi.Function([x], gi.nn.conv2d(x, weight, **{**BLOCKED, **attrs})))
    after, _ = run(mod, gain=0.0)
    gi.assert_structural_equal(after, mod)


def with_weight_as_input(size: int, channels: int) -> gi.IRModule:
    x, w = gi.var("x", shape=(2, channels, size, size)), gi.var("w", shape=(channels, channels, 3, 3))
    return gi.IRModule.from_expr(gi.Function([x, w], gi.nn.conv2d(x, w, padding=1)))


def test_a_weight_that_is_no_constant_is_transformed_in_every_call() -> None:
    mod = with_weight_as_input(13, 32)
    with PassContext(opt_level=3, config={"graphir.Winograd": {"gain": 0.0}}):
        model = tw.build(mod)
    assert "winograd_weight" in model.ir("optimized")
    for _ in range(2):
        inputs = normal(2, 32, 13, 13), normal(32, 32, 3, 3)
        np.testing.assert_allclose(model(*inputs), gi.evaluate(mod, *inputs, dtype="float64"), rtol=1e-4, atol=2e-4)


def test_the_transform_of_a_weight_in_every_call_counts() -> None:
    x = gi.var("x", shape=(1, 128, 8, 8, 4))
    w, known = gi.var("w", shape=(128, 128, 3, 3, 4, 4)), gi.const(np.zeros((128, 128, 3, 3, 4, 4), np.float32))
    mods = [gi.IRModule.from_expr(gi.Function([x, w], gi.nn.conv2d(x, weight, **BLOCKED))) for weight in (w, known)]
    assert [tiles(run(mod)[0]) for mod in mods] == [[], [2]]


def test_a_plain_layout_stays_with_a_remark() -> None:
    x = gi.var("x", shape=(1, 64, 56, 56))
    mod = gi.IRModule.from_expr(gi.Function([x], gi.nn.conv2d(x, gi.const(normal(64, 64, 3, 3)), padding=1)))
    after, ctx = run(mod, gain=0.0)
    gi.assert_structural_equal(after, mod)
    assert any("without blocks of channels" in remark.message for remark in ctx.remarks)
