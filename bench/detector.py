"""Build a detector of objects in images as an ONNX model, as exporters write the smallest network of the YOLOv8 family.

(Ultralytics, 2023.) Convolutions with SiLU, blocks that split and concatenate channels, pyramid pooling, a neck that
upsamples and concatenates, and heads whose boxes are expectations over a softmax. The weights are random.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto
from onnx_writer import Writer

#: Channels of the five steps that halve the image, and the number of bottlenecks after the last four.
CHANNELS, BOTTLENECKS = (16, 32, 64, 128, 256), (1, 2, 2, 1)
STRIDES = (8, 16, 32)
#: The number of bins; the distance to a box's side is an expectation over them.
BINS = 16


class _Detector(Writer):
    """Writes the parts of the network. Values are passed along with the number of their channels."""

    def __init__(self) -> None:
        super().__init__()
        self._random = np.random.default_rng(8)

    def plain(self, x: str, of: int, to: int, kernel: int = 1, stride: int = 1) -> str:
        """Add a convolution with a bias; batch normalizations are folded into it as exporters do."""
        scale = np.float32(np.sqrt(2 / (of * kernel**2)))
        weight = self._random.standard_normal((to, of, kernel, kernel), np.float32) * scale
        bias = self._random.standard_normal(to, np.float32) * np.float32(0.1)
        at = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4}
        return self("Conv", x, self.constant(weight), self.constant(bias), **at)

    def convolution(self, x: str, of: int, to: int, kernel: int = 1, stride: int = 1) -> str:
        """Add a convolution with SiLU, for which ONNX has no operator."""
        x = self.plain(x, of, to, kernel, stride)
        return self("Mul", x, self("Sigmoid", x))

    def split(self, x: str, *sizes: int, axis: int = 1) -> Sequence[str]:
        """Split ``x`` along an axis."""
        first = self("Split", x, self.integers(*sizes), axis=axis)
        names = [first, *(f"{first}_{number}" for number in range(1, len(sizes)))]
        self.nodes[-1].output[:] = names
        return names

    def block(self, x: str, of: int, to: int, bottlenecks: int, shortcut: bool) -> str:
        """Send half of the channels through bottlenecks, and concatenate all intermediate results (*C2f*)."""
        half = to // 2
        parts = list(self.split(self.convolution(x, of, to), half, half))
        for _ in range(bottlenecks):
            inner = self.convolution(self.convolution(parts[-1], half, half, 3), half, half, 3)
            parts.append(self("Add", parts[-1], inner) if shortcut else inner)
        return self.convolution(self("Concat", *parts, axis=1), half * len(parts), to)

    def pooling(self, x: str, channels: int) -> str:
        """Take maxima over windows of 5, 9 and 13 pixels, by pooling three times (*SPPF*)."""
        parts = [self.convolution(x, channels, channels // 2)]
        for _ in range(3):
            parts.append(self("MaxPool", parts[-1], kernel_shape=[5, 5], strides=[1, 1], pads=[2] * 4))
        return self.convolution(self("Concat", *parts, axis=1), 2 * channels, channels)

    def joined_above(self, x: str, finer: str) -> str:
        """Upsample ``x`` to the size of ``finer``, and concatenate both; so sizes need not be multiples of 32."""
        sizes = self("Concat", self("Shape", x, end=2), self("Shape", finer, start=2), axis=0)
        at = {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
        return self("Concat", self("Resize", x, "", "", sizes, **at), finer, axis=1)

    def head(self, x: str, of: int, classes: int) -> str:
        """Return the bins of four distances and the scores of the classes, ``[n, 4 * BINS + classes, pixels]``."""
        parts = []
        for inner, to in ((max(16, of // 4, 4 * BINS), 4 * BINS), (max(CHANNELS[2], min(classes, 100)), classes)):
            value = self.convolution(self.convolution(x, of, inner, 3), inner, inner, 3)
            parts.append(self.plain(value, inner, to))
        shape = self.integers(0, 4 * BINS + classes, -1)
        return self("Reshape", self("Concat", *parts, axis=1), shape)

    def places(self, x: str, stride: int) -> str:
        """Return the positions of the pixels of ``x`` in the image, and their stride: ``[3, pixels]``."""
        zero, one, all_ = self.constant(np.int64(0)), self.constant(np.int64(1)), self.integers(-1)
        half, scale = self.constant(np.float32(0.5)), self.constant(np.float32(stride))
        height, width = (self("Squeeze", self("Shape", x, start=axis, end=axis + 1)) for axis in (2, 3))
        ranges = [self("Cast", self("Range", zero, end, one), to=TensorProto.FLOAT) for end in (height, width)]
        ys, xs = (self("Mul", self("Add", value, half), scale) for value in ranges)
        grid = self("Shape", x, start=2)
        ys, xs = self("Expand", self("Unsqueeze", ys, self.integers(1)), grid), self("Expand", xs, grid)
        strides = self("Expand", scale, grid)
        rows = [self("Unsqueeze", self("Reshape", value, all_), self.integers(0)) for value in (xs, ys, strides)]
        return self("Concat", *rows, axis=0)

    def boxes(self, bins: str, places: str) -> str:
        """Return boxes, ``[n, 4, pixels]``: centre, width and height, from the bins of their distances."""
        shares = self("Softmax", self("Reshape", bins, self.integers(0, 4, BINS, -1)), axis=2)
        weights = self.constant(np.arange(BINS, dtype=np.float32).reshape(1, 1, BINS, 1))
        distances = self("ReduceSum", self("Mul", shares, weights), self.integers(2), keepdims=0)
        at, strides = self.split(places, 2, 1, axis=0)
        before, behind = (self("Mul", part, strides) for part in self.split(distances, 2, 2))
        low, high = self("Sub", at, before), self("Add", at, behind)
        centre = self("Mul", self("Add", low, high), self.constant(np.float32(0.5)))
        return self("Concat", centre, self("Sub", high, low), axis=1)


def detector(classes: int = 80) -> onnx.ModelProto:
    """Build the network for images ``[batch, 3, height, width]`` of any size; it returns ``[batch, 4 + classes,
    boxes]``."""
    o = _Detector()
    value, seen = o.convolution("image", 3, CHANNELS[0], 3, 2), []
    for of, to, bottlenecks in zip(CHANNELS, CHANNELS[1:], BOTTLENECKS, strict=False):
        value = o.block(o.convolution(value, of, to, 3, 2), to, to, bottlenecks, shortcut=True)
        seen.append(value)
    _, fine, middle, _ = seen
    _, _, c3, c4, c5 = CHANNELS
    coarse = o.pooling(value, c5)
    middle = o.block(o.joined_above(coarse, middle), c5 + c4, c4, 1, shortcut=False)
    fine = o.block(o.joined_above(middle, fine), c4 + c3, c3, 1, shortcut=False)
    middle = o.block(o("Concat", o.convolution(fine, c3, c3, 3, 2), middle, axis=1), c3 + c4, c4, 1, shortcut=False)
    coarse = o.block(o("Concat", o.convolution(middle, c4, c4, 3, 2), coarse, axis=1), c4 + c5, c5, 1, shortcut=False)
    levels = list(zip((fine, middle, coarse), (c3, c4, c5), STRIDES, strict=True))
    found = o("Concat", *(o.head(level, channels, classes) for level, channels, _ in levels), axis=2)
    places = o("Concat", *(o.places(level, stride) for level, _, stride in levels), axis=1)
    bins, scores = o.split(found, 4 * BINS, classes)
    o.named(o("Concat", o.boxes(bins, places), o("Sigmoid", scores), axis=1), "boxes")
    image = {"image": (TensorProto.FLOAT, ("batch", 3, "height", "width"))}
    return o.model(image, {"boxes": ("batch", 4 + classes, "boxes_")}, "detector")
