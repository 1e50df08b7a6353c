"""Compute deformable convolution: the elements of windows are moved by offsets that are data."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.dims import Dim, as_dim, dim_equal, simplify
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import FLOATS, check_dtype, compute_type, guarded, normalize, same_dtype, widened
from tilewright.graphir.ops.nn.window import borders, pair, window_count
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.errors import ArgumentValueError
from tilewright.tensorir.expr import Expr, Var, all_of, call, cast, const
from tilewright.tensorir.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class DeformConv2dAttrs:
    """The steps of the window, as for ``nn.conv2d``; ``offset_groups``: groups of channels with offsets of their
    own."""

    strides: Any = (1, 1)
    padding: Any = (0, 0)
    dilation: Any = (1, 1)
    groups: int = 1
    offset_groups: int = 1

    def __post_init__(self) -> None:
        normalize(
            self,
            strides=pair(self.strides, "strides"),
            padding=borders(self.padding),
            dilation=pair(self.dilation, "dilation"),
        )
        for name in ("groups", "offset_groups"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise ArgumentValueError(f"{name}: expected a positive integer, found {getattr(self, name)!r}")


@register_operator
class deform_conv2d(Operator):
    """Convolve as ``nn.conv2d`` with samples between pixels: each element of each window is moved by an offset and
    sampled by linear interpolation, zero outside, then multiplied by the mask if there is one: Dai et al., "Deformable
    Convolutional Networks", 2017; Zhu et al., "Deformable ConvNets v2", 2019.

    ``offset`` is (batch, offset groups * window height * window width * 2, height, width), row before column; ``mask``
    the same with 1 in place of 2. Height and width are those of the result. Half types compute in float32.
    """

    name = "nn.deform_conv2d"
    arguments = ("data", "weight", "offset", "mask?")
    kind = "contraction"
    bounded_reference = False
    Attrs = DeformConv2dAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: DeformConv2dAttrs) -> TensorType:
        data, weight = args[:2]
        dtype = same_dtype(self, args)
        check_dtype(self, 0, data, FLOATS)
        for number, arg in enumerate(args):
            if arg.ndim != 4:
                raise self.error(number, "a tensor with 4 dimensions", arg)
        channels, (outputs, inputs) = data.shape[1], weight.shape[:2]
        if not isinstance(channels, int) or channels % attrs.offset_groups:
            raise self.error(0, f"channels divisible by {attrs.offset_groups} offset groups", data)
        if not dim_equal(simplify(as_dim(inputs) * attrs.groups), channels):
            raise self.error(1, f"{channels} input channels in {attrs.groups} groups", weight)
        if not isinstance(outputs, int) or outputs % attrs.groups:
            raise self.error(1, f"output channels divisible by {attrs.groups} groups", weight)
        space: list[Dim] = []
        for n in range(2):
            padding = attrs.padding[n], attrs.padding[n + 2]
            extent, size = data.shape[n + 2], weight.shape[n + 2]
            space.append(window_count(self, extent, size, attrs.strides[n], attrs.dilation[n], padding))
        for number, arg in enumerate(args[2:], 2):
            moved = simplify(as_dim(weight.shape[2]) * weight.shape[3] * (attrs.offset_groups * (4 - number)))
            expected = (data.shape[0], moved, *space)
            if not all(map(dim_equal, arg.shape, expected)):
                raise self.error(number, f"shape {expected}", arg)
        return TensorType((data.shape[0], outputs, *space), dtype)

    def reference(self, args: Sequence[Any], attrs: DeformConv2dAttrs) -> Any:
        data, weight, offset, *rest = [widened(arg) for arg in args]
        batch, channels, height, width = data.shape
        outputs, inputs, kh, kw = weight.shape
        rows, columns = offset.shape[2:]
        groups = attrs.offset_groups
        moved = offset.reshape(batch, groups, kh, kw, 2, rows, columns)
        y = self._places(0, kh, rows, attrs)[:, None, :, None] + moved[:, :, :, :, 0]
        x = self._places(1, kw, columns, attrs)[None, :, None, :] + moved[:, :, :, :, 1]
        image = data.reshape(batch, groups, channels // groups, height * width)
        sampled = np.zeros((batch, groups, channels // groups, kh, kw, rows, columns), data.dtype)
        for down, right in itertools.product(range(2), range(2)):
            at_y, at_x = np.floor(y) + down, np.floor(x) + right
            inside = (at_y >= 0) & (at_y < height) & (at_x >= 0) & (at_x < width)
            share = np.where(inside, (1 - np.abs(y - at_y)) * (1 - np.abs(x - at_x)), 0).astype(data.dtype)
            place = np.where(inside, at_y * width + at_x, 0).astype(np.int64)
            pixels = np.zeros((1,) * sampled.ndim, data.dtype)
            if image.shape[3]:
                flat = place.reshape(batch, groups, 1, kh * kw * rows * columns)
                pixels = np.take_along_axis(image, flat, axis=3).reshape(sampled.shape)
            sampled += share[:, :, None] * np.where(inside[:, :, None], pixels, 0)  # also for NaN in the first pixel
        if rest:
            sampled *= rest[0].reshape(batch, groups, 1, kh, kw, rows, columns)
        taken = sampled.reshape(batch, attrs.groups, inputs, kh, kw, rows, columns)
        kernel = weight.reshape(attrs.groups, outputs // attrs.groups, inputs, kh, kw)
        result = np.einsum("ngiklyx,goikl->ngoyx", taken, kernel, dtype=data.dtype)
        return result.reshape(batch, outputs, rows, columns).astype(args[0].dtype, copy=False)

    @staticmethod
    def _places(axis: int, size: int, count: int, attrs: DeformConv2dAttrs) -> np.ndarray[Any, Any]:
        """Return the positions of window elements along an axis before they are moved: (element, window)."""
        starts = np.arange(count) * attrs.strides[axis] - attrs.padding[axis]
        elements = np.arange(size) * attrs.dilation[axis]
        return elements[:, None] + starts  # type: ignore[no-any-return]

    def compute(self, args: Sequence[Tensor], attrs: DeformConv2dAttrs, out: TensorType) -> Tensor:
        data, weight, offset, *rest = args
        wide = compute_type(data.dtype)
        channels, (outputs, inputs, kh, kw) = data.shape[1], weight.shape
        grouped = channels // attrs.offset_groups

        def sample(n: Var, c: Var, i: Var, j: Var, y: Var, x: Var) -> Expr:
            element = (c // grouped * kh + i) * kw + j
            base_y = y * attrs.strides[0] + i * attrs.dilation[0] - attrs.padding[0]
            base_x = x * attrs.strides[1] + j * attrs.dilation[1] - attrs.padding[1]
            at_y = cast(wide, base_y) + cast(wide, offset[n, element * 2, y, x])
            at_x = cast(wide, base_x) + cast(wide, offset[n, element * 2 + 1, y, x])
            value = _interpolated(data, n, c, at_y, at_x)
            return value * cast(wide, rest[0][n, element, y, x]) if rest else value

        rows, columns = out.shape[2:]
        sampled = te.compute((data.shape[0], channels, kh, kw, rows, columns), sample, name="deform_conv2d_sample")
        taken, k, m = te.reduce_axis(inputs, "ic"), te.reduce_axis(kh, "kh"), te.reduce_axis(kw, "kw")
        made = outputs // attrs.groups

        def product(n: Var, o: Var, y: Var, x: Var) -> te.Reduction:
            own: Expr = taken if attrs.groups == 1 else o // made * inputs + taken
            return te.sum(sampled[n, own, k, m, y, x] * cast(wide, weight[o, taken, k, m]), axis=[taken, k, m])

        result = te.compute(out.shape, product, name="deform_conv2d")
        if wide is out.dtype:
            return result
        return te.compute(out.shape, lambda *place: cast(out.dtype, result[place]), name="deform_conv2d_cast")


def _interpolated(data: Tensor, item: Expr, channel: Expr, y: Expr, x: Expr) -> Expr:
    """Interpolate the image at a place between pixels from the four around it; those outside are zero."""
    one = const(1, y.dtype)
    top, left = call("floor", y), call("floor", x)
    below, right = y - top, x - left
    result: Expr = const(0, y.dtype)
    for down, across in itertools.product(range(2), range(2)):
        row, column = top + const(down, y.dtype), left + const(across, y.dtype)
        height, width = cast(y.dtype, data.shape[2]), cast(y.dtype, data.shape[3])
        zero = const(0, y.dtype)
        # Compared as floats: values beyond the range of integers are outside too, and so is NaN.
        inside = all_of(row >= zero, row < height, column >= zero, column < width)
        pixel = data[item, channel, cast("int64", row), cast("int64", column)]
        share = (below if down else one - below) * (right if across else one - right)
        result = result + share * cast(y.dtype, guarded(inside, pixel, 0))
    return result
