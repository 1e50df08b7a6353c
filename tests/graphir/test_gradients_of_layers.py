"""Gradients of operators that are written in others: each agrees with central differences in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.graphir.test_gradients import check, op
from tilewright import graphir as gi

RANDOM = np.random.default_rng(3)


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), ("n", 4, 4), (2, 3, 5, 5), (0, 3, 3), (2, 0, 0)])
def test_determinants(shape: Any) -> None:
    sizes = tuple(3 if size == "n" else size for size in shape)
    check(op("det"), shape, arrays=[RANDOM.standard_normal(sizes)])


@pytest.mark.parametrize(
    "rows",
    [
        [[1, 2, 3], [2, 4, 6], [1, 0, 1]],
        [[0, 2, 3], [0, 1, 5], [0, 0, 1]],
        [[1, 2, 3], [2, 4, 6], [3, 6, 9]],
        [[0, 0, 0], [0, 0, 0], [0, 0, 0]],
    ],
)
def test_determinants_of_singular_matrices(rows: list[list[float]]) -> None:
    matrix = np.array(rows, np.float64)
    cofactors = np.empty_like(matrix)
    for i, j in np.ndindex(3, 3):
        minor = np.delete(np.delete(matrix, i, 0), j, 1)
        cofactors[i, j] = (-1) ** (i + j) * (minor[0, 0] * minor[1, 1] - minor[0, 1] * minor[1, 0])
    x = gi.var("x", shape=(3, 3), dtype="float64")
    _, found = gi.evaluate(tw.grad(gi.Function([x], gi.det(x))), matrix)
    np.testing.assert_allclose(found, cofactors, atol=1e-12)


@pytest.mark.parametrize("strides", [(1, 1), (2, 3)])
def test_windows_without_padding_over_images_of_any_size(strides: tuple[int, int]) -> None:
    check(op("nn.conv2d", strides=strides), (2, 3, "n", "m"), (2, 3, 2, 3))
    check(op("nn.lp_pool", pool_size=(3, 2), strides=strides, p=2.0), (2, 3, "n", "m"))


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_runs_that_are_written(mode: str) -> None:
    starts = gi.const(np.array([2, 0, -1]))
    check(lambda x, u: gi.tensor_scatter(x, u, starts, axis=1, mode=mode), (3, 4, 2), (3, 3, 2))
    check(lambda x, u: gi.tensor_scatter(x, u, starts, axis=-1, mode=mode), (3, "m", 4), (3, "m", 2))


@pytest.mark.parametrize(
    ("attrs", "shape"),
    [
        ({"image_shape": (5, 6), "block_shape": (2, 3)}, (2, 12, 16)),
        (
            {"image_shape": (6, 5), "block_shape": (3, 2), "strides": (2, 3), "padding": (1, 0, 2, 1)}
            | {"dilation": (1, 2)},
            (1, 6, 8),
        ),
        ({"image_shape": (7,), "block_shape": (3,), "strides": (2,)}, ("n", 6, 3)),
    ],
)
def test_columns_that_are_added(attrs: dict[str, Any], shape: Any) -> None:
    check(op("nn.col2im", **attrs), shape, arrays=[RANDOM.standard_normal([3 if d == "n" else d for d in shape])])


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("attrs", "data", "weight", "space"),
    [
        ({"padding": 1}, (2, 4, 5, 4), (3, 4, 3, 3), (5, 4)),
        ({"groups": 2, "offset_groups": 2, "strides": (2, 1), "dilation": (1, 2)}, (1, 4, 5, 6), (2, 2, 2, 2), (2, 4)),
    ],
)
def test_windows_that_are_moved(attrs: dict[str, Any], data: Any, weight: Any, space: Any, masked: bool) -> None:
    elements = attrs.get("offset_groups", 1) * weight[2] * weight[3]
    shapes = [data, weight, (data[0], 2 * elements, *space), *[(data[0], elements, *space)] * masked]
    arrays = [RANDOM.standard_normal(shape) for shape in shapes]
    check(op("nn.deform_conv2d", **attrs), *shapes, arrays=arrays)


@pytest.mark.parametrize("method", ["avg", "max"])
@pytest.mark.parametrize("aligned", [False, True])
def test_regions(method: str, aligned: bool) -> None:
    data = RANDOM.standard_normal((2, 3, 6, 7))
    rois = np.array([[0.3, 0.7, 9.1, 8.2], [-3.4, 2.1, 4.3, 15.7], [5.2, 5.1, 5.9, 5.3]])
    sampled = op(
        "nn.roi_align", output_size=(2, 3), spatial_scale=0.5, sampling_ratio=2, method=method, aligned=aligned
    )
    check(lambda x, r: sampled(x, r, gi.const(np.array([1, 0, 1]))), ("n", 3, "h", 7), (3, 4), arrays=[data, rois])


@pytest.mark.parametrize(
    ("build", "shapes", "message"),
    [
        (gi.det, [("n", "n")], "det: no gradient of matrices of n rows"),
        (
            lambda x, r: gi.nn.roi_align(x, r, gi.const(np.array([0]))),
            [(1, 1, 4, 4), (1, 4)],
            "nn.roi_align: no gradient of samples whose number depends on the regions",
        ),
    ],
)
def test_calls_that_compositions_do_not_cover(build: Any, shapes: Any, message: str) -> None:
    variables = [gi.var(f"x{number}", shape=shape, dtype="float64") for number, shape in enumerate(shapes)]
    with pytest.raises(tw.TilewrightError, match=message):
        tw.grad(gi.Function(variables, build(*variables)), cotangents=True)
