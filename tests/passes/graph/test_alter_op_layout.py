"""AlterOpLayout: convolutions, and the operators between them, work on blocks of channels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.dims import symbol
from tilewright.graphir.visitor import call_nodes
from tilewright.passes import PassContext, Sequential
from tilewright.passes.graph import AlterOpLayout, FoldConstant
from tilewright.tensorir.target import Target

RNG = np.random.default_rng(3)
PIPELINE = Sequential([AlterOpLayout(), FoldConstant()])


@pytest.fixture(autouse=True)
def target():
    """Vectors of eight float32, whatever the machine has."""
    with Target("llvm", mcpu="x86-64-v3") as target:
        yield target


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def conv(x: gi.Expr, channels: int, size: int = 3) -> gi.Expr:
    shape = (channels, x.shape[1], size, size)
    return gi.nn.conv2d(x, gi.const(RNG.standard_normal(shape).astype(np.float32)), padding=(size // 2, size // 2))


def part(x: gi.Expr, begin: int, end: int) -> gi.Expr:
    return gi.slice(x, begin=(begin,), end=(end,), axes=(1,))


def transforms(mod: gi.IRModule) -> list[tuple[str, str]]:
    calls = [call for call in call_nodes(mod["main"].body) if call.op.name == "layout_transform"]
    return [
        (call.attrs.src_layout, call.attrs.dst_layout) for call in calls if not isinstance(call.args[0], gi.Constant)
    ]


BETWEEN = {
    "relu": gi.nn.relu,
    "residual": lambda y: gi.nn.relu(y) + y,
    "bias": lambda y: gi.nn.bias_add(y, RNG.standard_normal(16).astype(np.float32)),
    "channel factors": lambda y: y * gi.const(RNG.standard_normal((16, 1, 1)).astype(np.float32)),
    "scalar": lambda y: y * 2.0,
    "pooling": lambda y: gi.nn.avg_pool2d(gi.nn.max_pool2d(y, pool_size=(2, 2)), pool_size=(2, 2)),
    "concatenate": lambda y: gi.concatenate([y, gi.nn.relu(y)], axis=1),
    "gate": lambda y: y * gi.sigmoid(gi.mean(y, axis=(3, -2), keepdims=True)),
    "nearest neighbours": lambda y: gi.nn.resize(y, size=(8, 8), axes=(3, 2)) + y,
    "interpolation": lambda y: gi.nn.resize(y, scale=(2.0, 1.0), method="linear"),
    "known sizes": lambda y: gi.match_shape(y, shape=(y.shape[0], 16, 8, 8)) + y,
    "pixels of four channels": lambda y: gi.nn.interleave(gi.concatenate([y, y], axis=1), strides=(1, 2)),
    "halves of the channels": lambda y: part(y, 0, 8) * part(y, 8, 16),
    "part of the image": lambda y: gi.slice(
        y, begin=(None, -1, 7), end=(1, None, None), strides=(1, -2, -3), axes=(0, 3, 2)
    ),
    "map of one channel": lambda y: y * gi.const(RNG.standard_normal((1, 1, 8, 8)).astype(np.float32)),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_nothing_is_transformed_between_two_convolutions(keeps_values, name):
    x = gi.var("x", shape=("n", 8, 8, 8))
    mod = gi.IRModule({"main": gi.Function([x], conv(BETWEEN[name](conv(x, 16)), 8))})
    after = keeps_values(PIPELINE, mod, RNG.standard_normal((2, 8, 8, 8)).astype(np.float32))
    assert transforms(after) == [("NCHW", "NCHW8c"), ("NCHW8c", "NCHW")]


def test_an_image_of_three_channels_is_read_as_it_is(keeps_values):
    x = gi.var("x", shape=(1, 3, 8, 8))
    mod = gi.IRModule({"main": gi.Function([x], conv(x, 16))})
    after = keeps_values(PIPELINE, mod, RNG.standard_normal((1, 3, 8, 8)).astype(np.float32))
    assert transforms(after) == [("NCHW8c", "NCHW")]


def test_an_operator_that_needs_the_plain_layout_gets_it(keeps_values):
    x = gi.var("x", shape=(1, 8, 4, 4))
    mod = gi.IRModule({"main": gi.Function([x], conv(gi.nn.softmax(conv(x, 8), axis=1), 8))})
    after = keeps_values(PIPELINE, mod, RNG.standard_normal((1, 8, 4, 4)).astype(np.float32))
    assert transforms(after) == [("NCHW", "NCHW8c"), ("NCHW8c", "NCHW")] * 2


def test_a_depthwise_convolution_works_on_blocks_as_its_neighbours_do(keeps_values):
    x = gi.var("x", shape=("n", 8, 8, 8))
    weight = gi.const(RNG.standard_normal((16, 1, 3, 3)).astype(np.float32))
    depthwise = gi.nn.conv2d(conv(x, 16), weight, padding=(1, 1), strides=(2, 1), groups=16)
    mod = gi.IRModule({"main": gi.Function([x], conv(depthwise, 8))})
    after = keeps_values(PIPELINE, mod, RNG.standard_normal((2, 8, 8, 8)).astype(np.float32))
    assert transforms(after) == [("NCHW", "NCHW8c"), ("NCHW8c", "NCHW")]


@pytest.mark.parametrize("channels", [5, 12, 17])
def test_the_last_block_of_channels_may_be_full_in_part(keeps_values, channels):
    x = gi.var("x", shape=("n", 8, 8, 8))
    mod = gi.IRModule({"main": gi.Function([x], conv(gi.nn.relu(conv(x, channels)), 16))})
    after = keeps_values(PIPELINE, mod, RNG.standard_normal((2, 8, 8, 8)).astype(np.float32))
    assert transforms(after) == [("NCHW", "NCHW8c"), ("NCHW8c", "NCHW")]
    (first, second) = [call for call in call_nodes(after["main"].body) if call.op.name == "nn.conv2d"]
    assert first.attrs.channels == 0
    assert second.attrs.channels == channels


def test_what_is_behind_the_channels_is_never_read(keeps_values):
    x = gi.var("x", shape=(1, 12, 6, 6))
    # 0 / 0 behind the channels, which the second convolution must not multiply, not even by zero
    quotient = gi.nn.relu(conv(x, 12, 1)) / gi.const(RNG.uniform(1, 2, (12, 1, 1)).astype(np.float32))
    mod = gi.IRModule({"main": gi.Function([x], conv(quotient, 16))})
    after = keeps_values(PIPELINE, mod, RNG.standard_normal((1, 12, 6, 6)).astype(np.float32))
    assert transforms(after) == [("NCHW", "NCHW8c"), ("NCHW8c", "NCHW")]


def test_a_depthwise_convolution_fills_its_last_block_up(keeps_values):
    x = gi.var("x", shape=(1, 8, 8, 8))
    weight = gi.const(RNG.standard_normal((12, 1, 3, 3)).astype(np.float32))
    depthwise = gi.nn.conv2d(conv(x, 12), weight, padding=(1, 1), groups=12)
    mod = gi.IRModule({"main": gi.Function([x], depthwise)})
    after = keeps_values(PIPELINE, mod, RNG.standard_normal((1, 8, 8, 8)).astype(np.float32))
    assert [call.attrs.groups for call in call_nodes(after["main"].body) if call.op.name == "nn.conv2d"] == [1, 16]


def test_images_whose_last_blocks_are_not_full_are_joined_in_the_plain_layout(keeps_values):
    x = gi.var("x", shape=(1, 8, 4, 4))
    mod = gi.IRModule({"main": gi.Function([x], conv(gi.concatenate([conv(x, 12), conv(x, 8)], axis=1), 8))})
    after = keeps_values(PIPELINE, mod, RNG.standard_normal((1, 8, 4, 4)).astype(np.float32))
    assert ("NCHW8c", "NCHW") in transforms(after)[:-1]


@pytest.mark.parametrize(
    ("channels", "bounds", "plain"),
    [
        (22, {"begin": (8,), "end": (22,)}, False),  # the last block, of which a part is full
        (22, {"begin": (-14,), "end": (99,)}, False),
        (22, {"begin": (8,), "end": (None,)}, False),
        (20, {"begin": (8,), "end": (18,)}, True),  # zeros would have to follow
        (16, {"begin": (4,), "end": (16,)}, True),
        (16, {"begin": (0,), "end": (12,)}, True),
        (16, {"begin": (None,), "end": (None,), "strides": (2,)}, True),
        (16, {"begin": (None,), "end": (None,), "strides": (-1,)}, True),
    ],
    ids=str,
)
def test_slices_of_whole_blocks_of_channels_keep_the_layout(keeps_values, channels, bounds, plain):
    x = gi.var("x", shape=("n", 8, 6, 6))
    some = gi.slice(conv(x, channels), axes=(1,), **bounds)
    mod = gi.IRModule({"main": gi.Function([x], conv(some, 8))})
    after = keeps_values(PIPELINE, mod, normal(2, 8, 6, 6))
    assert (("NCHW8c", "NCHW") in transforms(after)[:-1]) == plain


def test_channels_that_fill_half_a_vector_lie_in_a_smaller_block(keeps_values):
    x = gi.var("x", shape=("n", 8, 8, 8))
    mod = gi.IRModule({"main": gi.Function([x], conv(gi.nn.relu(conv(x, 4)), 16))})
    after = keeps_values(PIPELINE, mod, RNG.standard_normal((2, 8, 8, 8)).astype(np.float32))
    assert transforms(after) == [("NCHW", "NCHW8c"), ("NCHW8c", "NCHW")]
    (first, second) = [call for call in call_nodes(after["main"].body) if call.op.name == "nn.conv2d"]
    assert (first.attrs.out_layout, second.attrs.data_layout, second.attrs.out_layout) == ("NCHW4c", "NCHW4c", "NCHW8c")


@pytest.mark.parametrize("groups", [2, 4])
def test_groups_of_whole_blocks_work_on_them(keeps_values, groups):
    x = gi.var("x", shape=(1, 8 * groups, 6, 6))
    weight = gi.const(RNG.standard_normal((16 * groups, 8, 3, 3)).astype(np.float32))
    mod = gi.IRModule({"main": gi.Function([x], gi.nn.conv2d(x, weight, groups=groups))})
    after = keeps_values(PIPELINE, mod, RNG.standard_normal((1, 8 * groups, 6, 6)).astype(np.float32))
    assert transforms(after) == [("NCHW", "NCHW8c"), ("NCHW8c", "NCHW")]


@pytest.mark.parametrize(("channels", "groups", "reason"), [(3, 1, "too few for blocks"), (8, 4, "groups")])
def test_a_convolution_that_stays_says_why(channels, groups, reason):
    x = gi.var("x", shape=(1, 8, 4, 4))
    weight = gi.const(np.ones((channels, 8 // groups, 1, 1), np.float32))
    mod = gi.IRModule({"main": gi.Function([x], gi.nn.conv2d(x, weight, groups=groups))})
    with PassContext() as ctx:
        assert AlterOpLayout()(mod) is mod
    assert any(reason in remark.message for remark in ctx.remarks)


def conv3d(x: gi.Expr, channels: int, size: int = 3, **attrs: Any) -> gi.Expr:
    weight = normal(channels, x.shape[1] // attrs.get("groups", 1), size, size, size)
    return gi.nn.conv3d(x, gi.const(weight), **{"padding": size // 2, **attrs})


def test_volumes_lie_in_blocks_of_channels(rewrites) -> None:
    weights = [gi.const(np.zeros((16, channels, 3, 3, 3), np.float32)) for channels in (3, 16)]
    x, y = (gi.var("x", shape=("n", 3, 4, 6, 6)) for _ in range(2))
    first = gi.nn.conv3d(x, weights[0], padding=1)
    before = gi.nn.conv3d(gi.nn.max_pool(gi.nn.relu(first), pool_size=(2, 2, 2)), weights[1], strides=2, padding=1)
    out = {"out_layout": "NCDHW8c"}
    kernels = [
        gi.layout_transform(weight, src_layout="OIDHW", dst_layout=layout)
        for weight, layout in zip(weights, ("OIDHW8o", "OIDHW8i8o"), strict=True)
    ]
    first = gi.nn.conv3d(y, kernels[0], padding=1, kernel_layout="OIDHW8o", **out)
    pooled = gi.nn.max_pool(gi.nn.relu(first), pool_size=(2, 2, 2), layout="NCDHW8c")
    second = gi.nn.conv3d(
        pooled, kernels[1], strides=2, padding=1, data_layout="NCDHW8c", kernel_layout="OIDHW8i8o", **out
    )
    after = gi.layout_transform(second, src_layout="NCDHW8c", dst_layout="NCDHW")
    rewrites(
        AlterOpLayout(), gi.IRModule.from_expr(gi.Function([x], before)), gi.IRModule.from_expr(gi.Function([y], after))
    )


BETWEEN_VOLUMES = {
    "relu": gi.nn.relu,
    "residual": lambda y: gi.nn.relu(y) + y,
    "bias": lambda y: gi.nn.bias_add(y, normal(16)),
    "pooling": lambda y: gi.nn.avg_pool(gi.nn.max_pool(y, pool_size=(2, 1, 2)), pool_size=(1, 2, 1), padding=0),
    "norm of windows": lambda y: gi.nn.lp_pool(y, pool_size=(2, 2, 2), strides=1),
    "concatenate": lambda y: gi.concatenate([y, gi.nn.relu(y)], axis=1),
    "gate": lambda y: y * gi.sigmoid(gi.mean(y, axis=(2, 3, 4), keepdims=True)),
    "nearest neighbours": lambda y: gi.nn.resize(y, scale=(2.0, 2.0, 1.0), axes=(2, 3, 4)),
    "pixels of four channels": lambda y: gi.nn.interleave(gi.concatenate([y, y], axis=1), strides=(1, 2, 2)),
    "channel by channel": lambda y: conv3d(y, 16, groups=16),
    "groups": lambda y: conv3d(y, 16, groups=2, strides=(1, 2, 1)),
}


@pytest.mark.parametrize("name", BETWEEN_VOLUMES)
def test_nothing_is_transformed_between_convolutions_of_volumes(keeps_values, name):
    x = gi.var("x", shape=("n", 8, 4, 4, 6))
    mod = gi.IRModule({"main": gi.Function([x], conv3d(BETWEEN_VOLUMES[name](conv3d(x, 16)), 8))})
    after = keeps_values(PIPELINE, mod, normal(2, 8, 4, 4, 6))
    assert transforms(after) == [("NCDHW", "NCDHW8c"), ("NCDHW8c", "NCDHW")]


def test_places_of_the_greatest_are_counted_in_the_plain_layout(keeps_values):
    x = gi.var("x", shape=(1, 8, 4, 4, 4))
    mod = gi.IRModule({"main": gi.Function([x], gi.nn.max_pool_indices(conv3d(x, 8), pool_size=(2, 2, 2)))})
    after = keeps_values(PIPELINE, mod, normal(1, 8, 4, 4, 4))
    assert transforms(after) == [("NCDHW", "NCDHW8c"), ("NCDHW8c", "NCDHW")]


VOLUMES = {
    "a few channels": (3, 20, {"strides": (1, 2, 1), "padding": (1, 0, 1, 0, 1, 2)}),
    "blocks that are full in part": (21, 37, {"dilation": (1, 2, 1), "padding": 1}),
    "groups": (32, 32, {"groups": 2, "strides": 2, "padding": 1}),
    "channel by channel": (19, 19, {"groups": 19, "padding": (0, 1, 0, 1, 0, 1)}),
    "padding that depends on the size": (16, 16, {"padding": (0, 1, 1, symbol("d") % 2, 0, 1)}),
}


#: numba takes ten seconds for loops over sizes that are not known.
BUILDS = [*((name, "llvm") for name in VOLUMES), ("groups", "numba"), ("padding that depends on the size", "numba")]


@pytest.mark.parametrize(("name", "kind"), BUILDS)
def test_models_of_volumes_agree_with_double_precision(name, kind):
    channels, outputs, attrs = VOLUMES[name]
    weight = gi.const(normal(outputs, channels // attrs.get("groups", 1), 2, 3, 3))
    x = gi.var("x", shape=("n", channels, "d", 7, "w"))
    function = gi.Function([x], gi.nn.relu(gi.nn.bias_add(gi.nn.conv3d(x, weight, **attrs), normal(outputs))))
    with PassContext(opt_level=2) as ctx:
        model = tw.build(function, target=Target(kind, num_threads=1 if kind == "numba" else 2))
    assert any("works in NCDHW" in remark.message for remark in ctx.remarks)
    for n, d, w in ((1, 3, 5), (2, 4, 9), (3, 5, 8)):
        data = normal(n, channels, d, 7, w)
        expected = gi.evaluate(function, data, dtype="float64")
        np.testing.assert_allclose(model(data), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_volumes_of_other_floats_lie_in_blocks(dtype):
    x, weight = gi.var("x", shape=(1, 16, 3, 5, 7), dtype=dtype), gi.const(normal(32, 16, 2, 2, 3)).data
    function = gi.Function([x], gi.nn.conv3d(x, gi.const(weight.astype(x.dtype.numpy)), padding=1, strides=(1, 1, 2)))
    with PassContext(opt_level=2):
        model = tw.build(function, target=Target("llvm", num_threads=1))
    assert "NCDHW" in model.ir("optimized")
    data = normal(1, 16, 3, 5, 7).astype(x.dtype.numpy)
    tolerance = {"float16": 5e-3, "bfloat16": 4e-2, "float64": 1e-11}[dtype]
    found, expected = model(data).astype("float64"), gi.evaluate(function, data, dtype="float64")
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * 4)
