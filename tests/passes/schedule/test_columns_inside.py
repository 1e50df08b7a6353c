"""Large images in blocks of channels are read once for all channels of the result, tile by tile."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.passes.schedule.kernels import loops_of, planned_contraction
from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.passes.context import PassContext
from tilewright.passes.schedule import ScheduleKernels
from tilewright.passes.schedule.cost import tiles_with_all_columns
from tilewright.tensorir import tensor as te
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.target import Target

TARGET = Target("llvm", mcpu="x86-64-v3", num_threads=1)
CACHE = TARGET.cache_bytes(2)


def convolution(depth: int, height: int, width: int, channels: int = 4, blocks: int = 8) -> PrimFunc:
    """Windows of three images of ``channels`` blocks of 8 channels, which give ``blocks`` such blocks."""
    data = te.placeholder((channels, depth + 2, height, width, 8), name="data")
    weight = te.placeholder((blocks, channels, 3, 8, 8), name="weight")
    ic, k, c = (te.reduce_axis(extent, name) for extent, name in ((channels, "ic"), (3, "k"), (8, "c")))
    result = te.compute(
        (blocks, depth, height, width, 8),
        lambda o, d, h, w, v: te.sum(data[ic, d + k, h, w, c] * weight[o, ic, k, c, v], axis=(ic, k, c)),
        name="conv",
    )
    return te.create_prim_func("f", [data, weight], [result])


def height_beyond_the_cache() -> int:
    return CACHE // (4 * 4 * 8 * 8 * 50) + 4


def test_an_image_beyond_the_cache_is_read_once_in_parts_that_fit() -> None:
    found = planned_contraction(convolution(6, height_beyond_the_cache(), 50), TARGET)
    assert found.columns_inside
    assert found.tiles * found.tile.rows * 4 * 3 * 8 * 4 <= CACHE // 4 + found.tile.rows * 4 * 3 * 8 * 4


@pytest.mark.parametrize("changed", [{"depth": 1, "height": 2}, {"blocks": 2}])
def test_a_small_image_and_few_channels_of_the_result_stay_inside(changed: dict[str, int]) -> None:
    sizes = {"depth": 6, "height": height_beyond_the_cache(), "width": 50, **changed}
    assert not planned_contraction(convolution(**sizes), TARGET).columns_inside


def test_windows_slide_outside_of_the_channels_and_inside_of_the_lines() -> None:
    height = height_beyond_the_cache()
    func = convolution(6, height, 50)
    with PassContext(opt_level=2), TARGET:
        made = ScheduleKernels()(IRModule({func.name: func}))[func.name]
    tasks = [loop for loop in loops_of(made) if loop.kind == "parallel"]
    tiles = planned_contraction(func, TARGET)
    chunks = -(-50 // (tiles.tiles * tiles.tile.rows))
    assert tasks[0].extent.value == 6 * height * chunks * 8 // tiles.tile.vectors
    text = str(made)
    blocks = 8 // tiles.tile.vectors
    assert f"vo: spatial(8) = {tasks[0].var.name} % {blocks}" in text
    assert f"vd: spatial(6) = {tasks[0].var.name} // {blocks} % 6" in text


@pytest.mark.parametrize("window", [(3, 1, 1), (1, 1, 1), (1, 3, 3)])
def test_results_are_those_of_the_other_order(window: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    x = gi.var("x", shape=(1, 16, 4, 9, 11))
    weight = rng.standard_normal((32, 16, *window)).astype("f4")
    function = gi.Function([x], gi.nn.conv3d(x, gi.const(weight), padding=[extent // 2 for extent in window]))
    image = rng.standard_normal((1, 16, 4, 9, 11)).astype("f4")
    found = []
    for inside in (False, True):
        config = {"schedule.contraction.columns_inside": inside, "schedule.contraction.tiles": 1}
        with PassContext(opt_level=2, config=config):
            found.append(tw.build(function, target=tw.Target("llvm", num_threads=2))(image))
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[0], gi.evaluate(function, image, dtype="float64"), rtol=1e-5, atol=1e-5)


def test_the_weight_is_read_again_only_where_that_is_less_than_the_image() -> None:
    image, tile = 8 * CACHE, CACHE // 64
    assert tiles_with_all_columns(image, CACHE // 4, tile, 100, 100, 8, TARGET) == 15  # 100 tiles in 7 parts
    assert not tiles_with_all_columns(image, CACHE, tile, 100, 100, 8, TARGET)
    assert tiles_with_all_columns(image, CACHE, tile, 100, 1, 8, TARGET)
    assert not tiles_with_all_columns(image, CACHE // 4, tile, 100, 100, 1, TARGET)
    assert not tiles_with_all_columns(0, CACHE // 4, tile, 100, 100, 8, TARGET)  # of unknown size
