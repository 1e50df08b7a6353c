"""Gradients of operators: each agrees with central differences in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.gradient import COMPOSITIONS, GRADIENTS

SIZES = {"n": 3, "m": 4}
STEP = 1e-5


def arrays_of(shapes: Sequence[Sequence[Any]], positive: bool = False, seed: int = 0) -> list[np.ndarray]:
    """Return inputs in float64 without ties, away from 0."""
    rng = np.random.default_rng(seed)
    found = []
    for number, shape in enumerate(shapes):
        sizes = tuple(SIZES.get(dim, dim) for dim in shape)
        values = rng.permutation(np.linspace(0.15, 1.65 + 0.013 * number, int(np.prod(sizes))) * (1 + 0.017 * number))
        signs = 1 if positive else rng.choice([-1, 1], values.shape)
        found.append((values * signs).reshape(sizes))
    return found


def check(
    build: Callable[..., gi.Expr],
    *shapes: Sequence[Any],
    arrays: Sequence[np.ndarray] | None = None,
    positive: bool = False,
) -> gi.Function:
    """Compare the gradients of ``build(*variables)`` by all variables, with random cotangents of the results, with
    central differences along two random directions."""
    variables = [gi.var(f"x{number}", shape=shape, dtype="float64") for number, shape in enumerate(shapes)]
    function = gi.Function(variables, build(*variables))
    differentiated = tw.grad(function, cotangents=True)
    inputs = arrays_of(shapes, positive) if arrays is None else [np.asarray(array, np.float64) for array in arrays]
    rng = np.random.default_rng(1)
    results = gi.evaluate(function, *inputs)
    results = results if isinstance(results, tuple) else (results,)
    smooth = [result for result in results if result.dtype.kind == "f"]
    weights = [rng.standard_normal(result.shape) for result in smooth]

    def weighted(*moved: np.ndarray) -> float:
        found = gi.evaluate(function, *moved)
        found = [part for part in (found if isinstance(found, tuple) else (found,)) if part.dtype.kind == "f"]
        return float(sum((weight * part).sum() for weight, part in zip(weights, found, strict=True)))

    found = gi.evaluate(differentiated, *inputs, *weights)
    for mine, theirs in zip(found, results, strict=False):
        np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-12)
    gradients = found[len(results) :]
    assert [gradient.shape for gradient in gradients] == [array.shape for array in inputs]
    for _ in range(2):
        ways = [rng.standard_normal(array.shape) for array in inputs]
        ahead = weighted(*[array + STEP * way for array, way in zip(inputs, ways, strict=True)])
        behind = weighted(*[array - STEP * way for array, way in zip(inputs, ways, strict=True)])
        slope = float(sum((gradient * way).sum() for gradient, way in zip(gradients, ways, strict=True)))
        np.testing.assert_allclose(slope, (ahead - behind) / (2 * STEP), rtol=2e-7, atol=2e-7)
    return differentiated


def op(name: str, **attrs: Any) -> Callable[..., gi.Expr]:
    return lambda *args: gi.get_operator(name)(*args, **attrs)


SMOOTH = (
    "exp exp2 expm1 sin cos tan atan sinh cosh tanh asinh sigmoid erf negative abs square reciprocal copy floor sign "
    "zeros_like ones_like nn.relu nn.leaky_relu nn.gelu nn.silu nn.swish nn.elu nn.celu nn.selu nn.hard_sigmoid "
    "nn.hard_swish nn.softplus nn.softsign nn.mish nn.thresholded_relu nn.shrink nn.dropout"
)
POSITIVE = "log log2 log10 log1p sqrt rsqrt"


@pytest.mark.parametrize("name", SMOOTH.split())
def test_functions(name: str) -> None:
    check(op(name), ("n", 5))


@pytest.mark.parametrize("name", POSITIVE.split())
def test_functions_of_positive_numbers(name: str) -> None:
    check(op(name), (3, 5), positive=True)


@pytest.mark.parametrize(
    ("name", "factor", "shift"), [("asin", 0.5, 0), ("acos", 0.5, 0), ("atanh", 0.5, 0), ("acosh", 1, 1)]
)
def test_functions_with_a_domain(name: str, factor: float, shift: float) -> None:
    check(op(name), (3, 5), arrays=[arrays_of([(3, 5)], positive=bool(shift))[0] * factor + shift])


@pytest.mark.parametrize(
    ("name", "attrs"),
    [
        ("nn.gelu", {"approximate": True}),
        ("nn.swish", {"beta": 1.7}),
        ("nn.celu", {"alpha": 0.4}),
        ("nn.elu", {"alpha": 0.4}),
        ("clip", {"a_min": -0.7, "a_max": 0.9}),
        ("clip", {"a_min": None, "a_max": 0.2}),
        ("nn.leaky_relu", {"alpha": 0.3}),
        ("nn.shrink", {"lambd": 0.4, "bias": 0.1}),
    ],
)
def test_functions_with_attributes(name: str, attrs: dict[str, Any]) -> None:
    check(op(name, **attrs), (4, 5))


BINARY = ["add", "subtract", "multiply", "divide", "maximum", "minimum", "floor_mod", "trunc_mod"]


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("shapes", [[("n", 4), ("n", 4)], [(2, "n", 1), (4,)], [(), (3, 2)], [(3, 1), (1, 3)]])
def test_arithmetic_with_broadcasting(name: str, shapes: Any) -> None:
    check(op(name), *shapes)


@pytest.mark.parametrize("shapes", [[(3, 4), (3, 4)], [(2, 3), ()], [(1, 3), (4, 1)]])
def test_powers(shapes: Any) -> None:
    check(op("power"), *shapes, positive=True)


def test_power_at_base_and_exponent_zero() -> None:
    x, y = gi.var("x", shape=(3,), dtype="float64"), gi.var("y", shape=(3,), dtype="float64")
    _, by_x, by_y = gi.evaluate(
        tw.grad(gi.Function([x, y], gi.sum(x**y))), np.array([0.0, 0, 2]), np.array([0.0, 2, 0])
    )
    np.testing.assert_array_equal(by_x, [0, 0, 0])
    np.testing.assert_allclose(by_y, [0, 0, np.log(2)])


def test_equal_arguments_of_maximum_share() -> None:
    x, y = gi.var("x", shape=(3,)), gi.var("y", shape=(3,))
    values = np.array([1, 2, 3], "float32"), np.array([3, 2, 1], "float32")
    for operator, expected in ((gi.maximum, [0, 0.5, 1]), (gi.minimum, [1, 0.5, 0])):
        _, by_x, by_y = gi.evaluate(tw.grad(gi.Function([x, y], gi.sum(operator(x, y)))), *values)
        np.testing.assert_array_equal(by_x, expected)
        np.testing.assert_array_equal(by_y, expected[::-1])


def test_where_gives_each_its_own() -> None:
    check(lambda x, y: gi.where(gi.const(np.array([True, False, True])), x, y * 2.0), (2, 3), ("n", 2, 1))


def test_comparisons_have_no_gradient() -> None:
    check(lambda x: gi.where(x > 0.3, x * x, x) + gi.cast(x > 0.2, dtype="float64"), (3, 4))


@pytest.mark.parametrize(
    "name", ["sum", "mean", "prod", "max", "min", "sum_squares", "norm", "variance", "std", "logsumexp", "nn.lp_norm"]
)
@pytest.mark.parametrize(
    ("axis", "keepdims", "shape"), [(None, False, (3, 4)), (1, True, (2, "n", 3)), ((0, 2), False, ("n", 2, "m"))]
)
def test_reductions(name: str, axis: Any, keepdims: bool, shape: Any) -> None:
    check(op(name, axis=axis, keepdims=keepdims), shape)


@pytest.mark.parametrize(
    ("name", "attrs"),
    [
        ("norm", {"ord": 1, "axis": 0}),
        ("variance", {"unbiased": True}),
        ("variance", {"unbiased": True, "axis": 0}),
        ("nn.lp_norm", {"p": 3, "axis": 1}),
        ("max", {"axis": 1, "initial": 0.5}),
        ("cumsum", {"axis": 1}),
        ("cumsum", {"axis": 0, "exclusive": True, "reverse": True}),
        ("nn.softmax", {"axis": 0}),
        ("nn.log_softmax", {"axis": -1}),
        ("nn.lp_normalize", {"axis": 0}),
        ("top_k", {"k": 2, "axis": 1}),
        ("cummax", {"axis": 1}),
        ("cummin", {"axis": 0}),
        ("tril", {}),
    ],
)
def test_rows(name: str, attrs: dict[str, Any]) -> None:
    check(op(name, **attrs), ("n", 5))


def test_products_of_zeros() -> None:
    check(op("prod", axis=1), (3, 3), arrays=[[[0, 2, 3], [0, 0, 3], [1, 2, 3]]])


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_products(exclusive: bool, reverse: bool) -> None:
    attrs = {"axis": 1, "exclusive": exclusive, "reverse": reverse}
    check(op("cumprod", **attrs), ("n", 5))
    zeros = [[0, 2, 3, 1.5], [0.5, 0, 0, 3], [1, 2, 3, 0]]
    check(op("cumprod", **attrs), (3, 4), arrays=[zeros])


@pytest.mark.parametrize("method", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(("padding", "corners"), [("zeros", False), ("border", True), ("reflection", False)])
def test_samples_of_an_image(method: str, padding: str, corners: bool) -> None:
    rng = np.random.default_rng(3)
    image, places = rng.standard_normal((2, 3, 4, 5)), rng.uniform(-1.4, 1.4, (2, 3, 2, 2))
    sampled = op("nn.grid_sample", method=method, padding_mode=padding, align_corners=corners)
    check(sampled, ("b", 3, "h", 5), ("b", 3, 2, 2), arrays=[image, places])


@pytest.mark.parametrize("extents", [(7,), (3, 4, 5)])
def test_samples_along_other_numbers_of_axes(extents: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    shapes = (1, 2, *extents), (1, *(2 for _ in extents), len(extents))
    check(op("nn.grid_sample"), *shapes, arrays=[rng.standard_normal(shapes[0]), rng.uniform(-1.2, 1.2, shapes[1])])


def test_norms_of_zeros_have_gradient_zero() -> None:
    x = gi.var("x", shape=(2, 2))
    for name in ("norm", "nn.lp_norm"):
        function = tw.grad(gi.Function([x], gi.sum(gi.get_operator(name)(x, axis=1))))
        _, found = gi.evaluate(function, np.array([[0, 0], [3, 4]], "float32"))
        np.testing.assert_allclose(found, [[0, 0], [0.6, 0.8]], rtol=1e-6)


@pytest.mark.parametrize(
    ("build", "shapes"),
    [
        (lambda x: gi.reshape(x, newshape=(6, -1)), [("n", 2, 6)]),
        (lambda x: gi.expand_dims(x, axis=(0, 2)), [("n", 2)]),
        (lambda x: gi.squeeze(x, axis=1), [("n", 1, 2)]),
        (lambda x: gi.transpose(x, axes=(2, 0, 1)), [("n", 2, 3)]),
        (lambda x: gi.flip(x, axis=1), [("n", 3)]),
        (lambda x: gi.broadcast_to(x, shape=(2, "n", 3)), [("n", 1)]),
        (lambda x: gi.tile(x, reps=(2, 1, 3)), [(2, 3)]),
        (lambda x: gi.tile(x, reps=(2,)), [(2, 3)]),
        (lambda x: gi.repeat(x, repeats=3, axis=1), [("n", 2, 2)]),
        (lambda x, y: gi.concatenate(x, y, x, axis=1), [("n", 2), ("n", "m")]),
        (lambda x, y: gi.stack(x, y, axis=1), [("n", 2), ("n", 2)]),
        (lambda x: gi.split(x, 3, axis=1)[1], [("n", 6)]),
        (lambda x: gi.Tuple(list(gi.split(x, (1, 3), axis=1))), [("n", 6)]),
        (lambda x: x[1:, ::2], [("n", 5)]),
        (lambda x: x[::-2, -3:-1], [(5, 4)]),
        (lambda x: x[1, None, ..., -1], [(3, 2, 4)]),
        (lambda x: gi.slice(x, begin=(3,), end=(None,), strides=(-1,), axes=(1,)), [("n", 6)]),
        (lambda x: gi.slice(x, begin=(2,), end=(2,)), [(4, 2)]),
        (lambda x: gi.pad(x, pad_width=((1, 2), (-1, 0))), [("n", 4)]),
        (lambda x: gi.pad(x, pad_width=((2, 1), (0, -1)), mode="edge"), [(3, 4)]),
        (lambda x: gi.pad(x, pad_width=((2, 1), (1, 2)), mode="reflect"), [(3, 4)]),
        (lambda x: gi.pad(x, pad_width=((0, 0), (5, 3)), mode="wrap"), [(2, 4)]),
        (lambda x: gi.diagonal(x, axis1=2, axis2=0), [(3, 2, 3)]),
        (lambda x: gi.diagonal(x), [("n", "n")]),
        (lambda x: gi.nn.dilate(x, strides=(2, 3), padding=(1, -1, 0, 2)), [("n", 3, 4)]),
        (lambda x: gi.nn.batch_flatten(x), [("n", 2, 3)]),
        (lambda x: gi.nn.depth_to_space(x, block_size=2), [(2, 8, 2, 3)]),
        (lambda x: gi.match_shape(x, shape=(3, 2)), [("n", 2)]),
    ],
)
def test_shapes(build: Any, shapes: Any) -> None:
    check(build, *shapes)


INDICES = np.array([[0, 2, -1], [1, 1, 7]])


@pytest.mark.parametrize(
    ("build", "shapes"),
    [
        (lambda x: gi.take(x, gi.const(INDICES), axis=1), [("n", 4, 2)]),
        (lambda x: gi.take(x, gi.const(INDICES), axis=0), [("m", 2)]),
        (lambda x: gi.take(x, gi.const(np.int64(1)), axis=1), [(2, 3)]),
        (lambda x: gi.gather_elements(x, gi.const(INDICES), axis=0), [(4, 3)]),
        (lambda x: gi.gather_elements(x, gi.const(INDICES), axis=1), [(2, "m")]),
        (lambda x: gi.gather_nd(x, gi.const(INDICES[:, :2])), [(4, 3, 2)]),
        (lambda x: gi.reverse_sequence(x, gi.const([2, 3, 1])), [(4, 3, 2)]),
        (lambda x, u: gi.scatter_elements(x, gi.const(INDICES[:1]), u, axis=1), [(2, 4), (1, 3)]),
        (lambda x, u: gi.scatter_elements(x, gi.const(INDICES), u, axis=1, reduction="add"), [(2, 4), (2, 3)]),
        (lambda x, u: gi.scatter_nd(x, gi.const([[0], [2], [-9]]), u), [("m", 3), (3, 3)]),
        (lambda x, u: gi.scatter_nd(x, gi.const([[0], [0]]), u, reduction="add"), [("m", 3), (2, 3)]),
    ],
)
def test_indexing(build: Any, shapes: Any) -> None:
    check(build, *shapes)


@pytest.mark.parametrize(
    "shapes",
    [
        [(2, 3), (3, 4)],
        [("n", 3), (3, "m")],
        [(3,), (3,)],
        [(3,), (2, 3, 4)],
        [("n", 2, 3), (3,)],
        [("n", 2, 3), (3, 4)],
        [(2, 1, 2, 3), (4, 3, 2)],
        [(2, 3), ("n", 3, 4)],
    ],
)
def test_matmul(shapes: Any) -> None:
    check(op("matmul"), *shapes)


@pytest.mark.parametrize(
    ("name", "attrs", "shapes"),
    [
        ("nn.dense", {}, [("n", 3), (4, 3)]),
        ("nn.dense", {}, [(2, "n", 3), (4, 3)]),
        ("nn.dense", {}, [(3,), (4, 3)]),
        ("nn.batch_matmul", {"transpose_b": True}, [("n", 2, 3), ("n", 4, 3)]),
        ("gemm", {"alpha": 0.5, "beta": 2.0, "transpose_a": True}, [(3, 2), (3, 4), (4,)]),
        ("einsum", {"equation": "bij,bkj->ik"}, [(2, 3, 4), (2, 5, 4)]),
        ("nn.bias_add", {}, [("n", 4, 2), (4,)]),
        ("nn.prelu", {}, [("n", 4, 2), (4,)]),
        ("nn.layer_norm", {}, [("n", 2, 5), (5,), (5,)]),
        ("nn.layer_norm", {"axis": 1, "epsilon": 0.1}, [("n", 4, 2), (4,), (4,)]),
        ("nn.rms_norm", {}, [("n", 5), (5,)]),
        ("nn.group_norm", {"num_groups": 2}, [("n", 4, 3), (4,), (4,)]),
        ("nn.instance_norm", {}, [("n", 2, 3, 2), (2,), (2,)]),
        ("nn.batch_norm_training", {}, [("n", 2, 3, 2), (2,), (2,), (2,), (2,)]),
        ("nn.lrn", {"size": 3, "alpha": 0.5}, [("n", 4, 2)]),
        ("nn.attention", {}, [(2, 3, 4), (2, 5, 4), (2, 5, 3)]),
        ("nn.attention", {"causal": True, "offset": 1, "scale": 0.3}, [(1, 4, "n", 2), (1, 2, "m", 2), (1, 2, "m", 3)]),
        ("nn.attention", {}, [(2, 3, 4), (2, 5, 4), (2, 5, 3), (3, 5)]),
    ],
)
def test_layers(name: str, attrs: dict[str, Any], shapes: Any) -> None:
    check(op(name, **attrs), *shapes)


def test_batch_norm() -> None:
    check(op("nn.batch_norm"), ("n", 2, 3), (2,), (2,), (2,), (2,), positive=True)


CONVOLUTIONS = [
    ("nn.conv1d", {}, [("n", 3, 6), (4, 3, 3)]),
    ("nn.conv1d", {"strides": 2, "padding": (2, 1), "dilation": 2, "groups": 2}, [("n", 4, 9), (6, 2, 3)]),
    ("nn.conv2d", {"padding": 1}, [("n", 2, 5, 4), (3, 2, 3, 3)]),
    ("nn.conv2d", {"padding": (1, 0, 2, 1), "strides": (2, 3)}, [(2, 2, 7, 8), (3, 2, 3, 2)]),
    ("nn.conv2d", {"strides": 3}, [(1, 2, 8, 8), (3, 2, 2, 2)]),
    ("nn.conv2d", {"groups": 4, "dilation": (1, 2)}, [("n", 4, 4, 6), (8, 1, 3, 2)]),
    ("nn.conv2d", {"padding": 1, "strides": 2}, [(2, 2, "n", "m"), (3, 2, 3, 3)]),
    ("nn.conv2d", {"data_layout": "NHWC", "kernel_layout": "HWIO"}, [(2, 4, 5, 2), (3, 3, 2, 3)]),
    ("nn.conv3d", {"padding": 1, "strides": (1, 2, 1)}, [(1, 2, 3, 4, 3), (2, 2, 2, 3, 2)]),
    ("nn.conv_transpose", {}, [("n", 3, 4), (3, 2, 3)]),
    ("nn.conv_transpose", {}, [("n", 3, 0), (3, 2, 3)]),
    ("nn.conv_transpose", {"strides": 2, "padding": 1, "output_padding": 1}, [(2, 3, 3, 4), (3, 2, 3, 3)]),
    ("nn.conv_transpose", {"groups": 2, "dilation": 2, "padding": (0, 1)}, [(1, 4, 3, 3), (4, 2, 2, 3)]),
]


@pytest.mark.parametrize(("name", "attrs", "shapes"), CONVOLUTIONS)
def test_convolutions(name: str, attrs: dict[str, Any], shapes: Any) -> None:
    check(op(name, **attrs), *shapes)


POOLS = [
    ({"pool_size": (2, 2)}, ("n", 2, 4, 6)),
    ({"pool_size": (3, 2), "strides": (2, 1), "padding": (1, 0)}, (2, 3, 5, 4)),
    ({"pool_size": (2, 2), "layout": "NHWC"}, (2, 4, 4, 3)),
    ({"pool_size": (2, 3), "strides": (2, 2), "ceil_mode": True}, (1, 2, 5, 6)),
    ({"pool_size": (2, 2), "dilation": (2, 1), "strides": (1, 1)}, (1, 2, "m", 4)),
]


@pytest.mark.parametrize("name", ["nn.max_pool2d", "nn.avg_pool2d"])
@pytest.mark.parametrize(("attrs", "shape"), POOLS)
def test_pools(name: str, attrs: dict[str, Any], shape: Any) -> None:
    check(op(name, **attrs), shape)


@pytest.mark.parametrize(
    ("name", "attrs", "shape"),
    [
        ("nn.max_pool", {"pool_size": (3,), "strides": (2,), "padding": (1,)}, (2, 3, 7)),
        ("nn.max_pool", {"pool_size": (2, 2, 2)}, (1, 2, 4, 2, 4)),
        ("nn.avg_pool", {"pool_size": (3,), "padding": (1,), "count_include_pad": True}, ("n", 3, 7)),
        ("nn.avg_pool", {"pool_size": (3,), "padding": (1,), "count_include_pad": True, "ceil_mode": True}, (2, 3, 6)),
        ("nn.avg_pool", {"pool_size": (2, 2, 2), "padding": 1}, (1, 2, 4, 2, 4)),
        ("nn.lp_pool", {"pool_size": (2, 2), "p": 3}, (2, 2, 4, 4)),
        ("nn.global_avg_pool2d", {}, ("n", 2, "m", 3)),
        ("nn.global_max_pool2d", {"layout": "NHWC"}, (2, 2, 4, 3)),
    ],
)
def test_other_pools(name: str, attrs: dict[str, Any], shape: Any) -> None:
    check(op(name, **attrs), shape)


@pytest.mark.parametrize(
    ("shape", "attrs"),
    [
        ((2, 3, 4, 5), {"size": (7, 6), "method": "linear"}),
        ((1, 2, 4, 5), {"size": (3, 2), "method": "cubic", "antialias": True}),
        ((2, 3, 4), {"size": (7,), "method": "linear", "coordinate_mode": "align_corners"}),
        ((1, 2, 4, 5), {"scale": (2, 3)}),
        ((2, 6), {"size": (4,), "method": "linear", "coordinate_mode": "tf_crop_and_resize", "roi": (-0.3, 1.2)}),
    ],
)
def test_resizes(shape: Any, attrs: dict[str, Any]) -> None:
    check(op("nn.resize", **attrs), shape)


def test_max_pool_gives_the_first_of_equal_elements_the_gradient() -> None:
    x = gi.var("x", shape=(1, 1, 2, 2))
    _, found = gi.evaluate(
        tw.grad(gi.Function([x], gi.sum(gi.nn.max_pool2d(x, pool_size=(2, 2))))), np.ones((1, 1, 2, 2), "float32")
    )
    np.testing.assert_array_equal(found, [[[[1, 0], [0, 0]]]])


@pytest.mark.parametrize(("name", "gates", "states"), [("nn.rnn", 1, 1), ("nn.gru", 3, 1), ("nn.lstm", 4, 2)])
def test_recurrent_layers(name: str, gates: int, states: int) -> None:
    steps, batch, size, hidden = 3, "n", 2, 2
    initial = [(1, batch, hidden)] * states
    shapes = [(steps, batch, size), (1, gates * hidden, size), (1, gates * hidden, hidden), (1, 2 * gates * hidden)]
    check(op(name), *shapes, *initial)


def test_every_rule_is_of_an_operator() -> None:
    assert set(gi.list_operators()) >= {*GRADIENTS, *COMPOSITIONS}
    assert not {*GRADIENTS} & {*COMPOSITIONS}


def test_elements_that_share_the_maximum_share_its_gradient() -> None:
    x = gi.var("x", shape=(4,))
    _, found = gi.evaluate(tw.grad(gi.Function([x], gi.max(x))), np.array([1, 5, 5, 2], "float32"))
    np.testing.assert_array_equal(found, [0, 0.5, 0.5, 0])
