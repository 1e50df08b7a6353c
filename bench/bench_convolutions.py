"""Measure convolutions as they run inside of a network: images are blocked by channels, before and after.

A model of one plain convolution pays for blocking and unblocking its image, which in a network happens only at its
ends. Here a call only adds the border: a 3x3 convolution copies its image into one, whereas in a network the kernel
before writes inside of it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from bench_kernels import check, normal
from measure import FMA, Work, compare
from references import conv2d

import tilewright as tw
from tilewright import graphir as gi
from tilewright.tensorir.dtype import DataType

#: Lanes of a block of channels.
BLOCK = tw.Target("llvm").lanes(DataType("float32"))


@dataclasses.dataclass(frozen=True)
class Convolution:
    """A square filter, ``padding`` half of its size, on a square image.

    Attributes:
        goal: for a direct or a Winograd convolution the least share of the peak, counting multiply-adds of the direct
            sum; for a depthwise one the greatest time in seconds.
    """

    inputs: int
    filters: int
    image: int
    kernel: int = 1
    stride: int = 1
    groups: int = 1
    goal: float = 0.95

    @property
    def title(self) -> str:
        if self.groups > 1:
            return f"depthwise {self.kernel}x{self.kernel} {self.inputs} at {self.image}, in blocks"
        stride = f"/{self.stride}" if self.stride > 1 else ""
        return f"conv {self.kernel}x{self.kernel}{stride} {self.inputs}-{self.filters} at {self.image}, in blocks"

    @property
    def operations(self) -> int:
        """The multiplications and additions of the direct sum."""
        size = (self.image - 1) // self.stride + 1
        return 2 * size**2 * self.filters * self.inputs // self.groups * self.kernel**2


CASES = [
    *[
        Convolution(channels, channels, image, 3, groups=channels, goal=goal)
        for channels, image, goal in ((32, 112, 70e-6), (144, 56, 80e-6), (192, 28, 26e-6), (576, 14, 20e-6))
    ],
    # The convolutions of ResNet-50: first those that Winograd's formulas apply to.
    *[
        Convolution(c, c, image, 3, goal=goal)
        for c, image, goal in ((64, 56, 3), (128, 28, 3), (256, 14, 2), (512, 7, 1))
    ],
    Convolution(3, 64, 224, 7, 2),
    *[Convolution(c, c, image, 3, 2) for c, image in ((128, 56), (256, 28), (512, 14))],
    *[Convolution(2 * c, 4 * c, image, 1, 2) for c, image in ((128, 56), (256, 28), (512, 14))],
    Convolution(64, 64, 56),
    *[Convolution(c, 4 * c, image) for c, image in ((64, 56), (128, 28), (256, 14), (512, 7))],
    *[Convolution(4 * c, c, image) for c, image in ((64, 56), (128, 28), (256, 14), (512, 7))],
    *[Convolution(4 * c, 2 * c, image) for c, image in ((64, 56), (128, 28), (256, 14))],
]


def _in_blocks(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    n, c, h, w = x.shape
    return np.moveaxis(x.reshape(n, c // BLOCK, BLOCK, h, w), 2, -1)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title.replace(" ", "_"))
def test_convolution(benchmark: Any, case: Convolution) -> None:
    image = normal(1, case.inputs, case.image, case.image)
    weight = normal(case.filters, case.inputs // case.groups, case.kernel, case.kernel, seed=1)
    expected = _in_blocks(conv2d(*(array.astype(np.float64) for array in (image, weight)), case.stride, case.groups))
    blocked = case.inputs % BLOCK == 0
    blocks = f"NCHW{BLOCK}c"
    x = _in_blocks(image) if blocked else image
    given = normal(*x.shape)  # memory that begins at a page
    given[...] = x
    data = param = gi.var("x", shape=x.shape, dtype="float32")
    if blocked:
        data = gi.layout_transform(param, src_layout=blocks, dst_layout="NCHW")
    made = gi.nn.conv2d(
        data, gi.const(weight), strides=(case.stride,) * 2, padding=(case.kernel // 2,) * 2, groups=case.groups
    )
    result = gi.layout_transform(made, src_layout="NCHW", dst_layout=blocks)
    with tw.PassContext(opt_level=3):
        model = tw.build(gi.Function([param], result), target=tw.Target("llvm", num_threads=1))
    assert "layout_transform" not in model.ir("optimized"), "the layout changes have not cancelled out"
    check(model(given), expected, 1e-5)
    compare(
        benchmark,
        lambda: model(given),
        title=case.title,
        threads=1,
        work=Work(FMA, case.operations),
        goals={"median" if case.groups > 1 else "share": case.goal},
        budget=1.0,
    )
