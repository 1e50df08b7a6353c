"""A task of a depthwise convolution copies the part of the image that its windows cover, with its border."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.graphir.module import IRModule
from tilewright.passes.context import PassContext
from tilewright.passes.schedule import ScheduleKernels
from tilewright.passes.schedule.facts import block_of
from tilewright.passes.schedule.inline import inline_producers, reduction_blocks
from tilewright.passes.schedule.strip import Strip, find_strip
from tilewright.tensorir import interpret
from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import Var, maximum, minimum, select
from tilewright.tensorir.functor import walk
from tilewright.tensorir.schedule import Schedule
from tilewright.tensorir.stmt import Allocate, BufferStore, For, PrimFunc
from tilewright.tensorir.target import Target

TARGET = Target("llvm", mcpu="x86-64-v3", num_threads=2)  # 8 lanes of float32


def convolution(
    height: int | Var, width: int | Var, stride: int = 1, size: int = 3, blocks: int = 2, dense: bool = False
) -> PrimFunc:
    """A window of ``size`` x ``size`` with its centre on each ``stride``-th pixel of ``blocks`` blocks of channels."""
    border = size // 2
    data = te.placeholder((blocks, height, width, 8), name="data")
    weight = te.placeholder((blocks, size, size, 8), name="weight")
    shape = (blocks, height + 2 * border, width + 2 * border, 8)

    def pixel(c: Var, y: Var, x: Var, lane: Var) -> object:
        inside = (y >= border) & (y < height + border) & (x >= border) & (x < width + border)
        at = maximum(minimum(y - border, height - 1), 0), maximum(minimum(x - border, width - 1), 0)
        return select(inside, data[c, at[0], at[1], lane], 0.0)

    padded = te.compute(shape, pixel, name="padded")
    ky, kx = te.reduce_axis(size, "ky"), te.reduce_axis(size, "kx")
    c = te.reduce_axis(blocks, "c")

    def element(o: Var, y: Var, x: Var, lane: Var) -> object:
        place = (y * stride + ky, x * stride + kx, lane)
        if dense:
            return te.sum(padded[(c, *place)] * weight[o, ky, kx, lane], axis=[c, ky, kx])
        return te.sum(padded[(o, *place)] * weight[o, ky, kx, lane], axis=[ky, kx])

    out = (blocks, (height - 1) // stride + 1, (width - 1) // stride + 1, 8)
    result = te.compute(out, element, name="conv")
    return te.create_prim_func("conv", [data, weight], [result])


def scheduled(func: PrimFunc) -> PrimFunc:
    with PassContext(opt_level=3), TARGET:
        return ScheduleKernels()(IRModule({func.name: func}))[func.name]


def strip_of(func: PrimFunc, rows: int = 4) -> Strip | None:
    schedule = Schedule(func)
    inline_producers(schedule)
    (ref,) = reduction_blocks(schedule)
    lines, row = block_of(schedule, ref).iters[1:3]
    found = find_strip(schedule, ref, row, rows, 8)
    assert found is None or found.lines is lines
    return found


@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize(
    ("height", "width", "stride", "blocks"),
    [
        *((*size, stride, 2) for size in ((1, 1), (7, 5), (Var("h"), Var("w"))) for stride in (1, 2)),
        # Strips below and beside one another, the last ones smaller; how many blocks there are changes nothing of them.
        (19, 67, 1, 1),
        (19, 131, 2, 1),
    ],
)
def test_convolution_of_strips_equals_the_sum_over_its_windows(
    height: int | Var, width: int | Var, stride: int, blocks: int, size: int
) -> None:
    rng = np.random.default_rng(size)
    h, w = (value if isinstance(value, int) else 19 for value in (height, width))
    data = rng.standard_normal((blocks, h, w, 8)).astype("f4")
    weight = rng.standard_normal((blocks, size, size, 8)).astype("f4")
    image = np.pad(data.astype("f8"), ((0, 0), (size // 2,) * 2, (size // 2,) * 2, (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(image, (size, size), (1, 2))[:, ::stride, ::stride]
    expected = np.einsum("cyxlij,cijl->cyxl", windows, weight)
    found = np.full(expected.shape, np.nan, np.float32)
    func = scheduled(convolution(height, width, stride, size, blocks))
    interpret(func, data, weight, found, *[19 for _ in func.variables])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("extent", [56, 112, None])
def test_image_with_its_border_is_made_inside_the_tasks(extent: int | None) -> None:
    func = scheduled(convolution(extent or Var("h"), extent or Var("w")))
    (outer,) = [node for node in walk(func.body) if isinstance(node, For) and node.kind == "parallel"]
    assert "padded" in [node.buffer.name for node in walk(outer) if isinstance(node, BufferStore)]
    (padded,) = [n.buffer for n in walk(func.body) if isinstance(n, Allocate) and n.buffer.name == "padded"]
    assert padded.scope == "stack"


@pytest.mark.parametrize(("height", "width"), [(14, 14), (112, 112), (7, 300)])
def test_strip_of_a_task_fits_the_first_cache(height: int, width: int) -> None:
    strip = strip_of(convolution(height, width))
    assert strip is not None
    assert (strip.height + 2) * (strip.tiles * 4 + 2) * 8 * 4 <= 24 << 10
    lines = -(-height // strip.height)
    assert strip.height == -(-height // lines)  # none is much shorter than the others


def test_image_that_all_channels_need_is_made_once() -> None:
    assert strip_of(convolution(14, 14, dense=True)) is None


def test_image_without_a_border_is_not_copied() -> None:
    data, weight = te.placeholder((2, 16, 16, 8), name="data"), te.placeholder((2, 3, 3, 8), name="weight")
    ky, kx = te.reduce_axis(3, "ky"), te.reduce_axis(3, "kx")
    result = te.compute(
        (2, 14, 14, 8),
        lambda o, y, x, lane: te.sum(data[o, y + ky, x + kx, lane] * weight[o, ky, kx, lane], axis=[ky, kx]),
    )
    assert strip_of(te.create_prim_func("conv", [data, weight], [result])) is None
