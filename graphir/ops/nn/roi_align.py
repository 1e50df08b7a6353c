"""Regions of images, sampled to one size (K. He et al., Mask R-CNN, 2017)."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.dims import as_dim, dim_equal
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import FLOATS, check_dtype, compute_type, guarded, normalize, widened
from tilewright.graphir.ops.nn.window import pair
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.expr import Expr, Var, all_of, as_expr, call, cast, const, maximum, minimum, select
from tilewright.tensorir.tensor import Tensor, lowest

METHODS = ("avg", "max")


@dataclasses.dataclass(frozen=True)
class RoiAlignAttrs:
    """How regions are sampled.

    Attributes:
        output_size: height and width of the result: the bins that a region is divided into.
        spatial_scale: pixels of the image for a unit of the regions' coordinates.
        sampling_ratio: samples along each axis of a bin; 0: about one for each pixel.
        method: ``avg`` or ``max`` of a bin's samples. As in ONNX, ``max`` takes the greatest of the four weighed pixels
            around a sample in the place of their sum.
        aligned: whether coordinates mean centres of pixels, half a pixel before what is counted.
    """

    output_size: Any = (1, 1)
    spatial_scale: float = 1.0
    sampling_ratio: int = 0
    method: str = "avg"
    aligned: bool = True

    def __post_init__(self) -> None:
        ratio = operator.index(self.sampling_ratio)
        if ratio < 0:
            raise ValueError(f"sampling_ratio: expected no negative number, found {ratio}")
        if self.method not in METHODS:
            raise ValueError(f"method: expected one of {', '.join(METHODS)}, found {self.method!r}")
        size = pair(self.output_size, "output_size")
        normalize(self, output_size=size, sampling_ratio=ratio, spatial_scale=float(self.spatial_scale))


@dataclasses.dataclass(frozen=True)
class _Samples:
    """The samples of a bin along one axis.

    Attributes:
        begin: where the bin begins, in pixels.
        step: the distance of samples.
        count: how many there are.
        first: the number of the first that is looked at; those before it lie outside of the image.
    """

    begin: Any
    step: Any
    count: Any
    first: Any


@register_operator
class roi_align(Operator):
    """``data`` (N, C, H, W) in regions ``rois`` (R, 4: left, top, right, bottom) of the images ``batch_indices`` (R,):
    (R, C, height, width). Samples lie between four pixels; those more than a pixel outside are zero. An index of no
    image is moved to the nearest."""

    name = "nn.roi_align"
    arguments = ("data", "rois", "batch_indices")
    kind = "opaque"
    Attrs = RoiAlignAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: RoiAlignAttrs) -> TensorType:
        data, rois, batch = args
        check_dtype(self, 0, data, FLOATS)
        if data.ndim != 4:
            raise self.error(0, "images in layout NCHW (4 dimensions)", data)
        if rois.ndim != 2 or rois.shape[1] != 4 or rois.dtype is not data.dtype:
            raise self.error(1, f"regions (R, 4) of type {data.dtype!s}", rois)
        if batch.ndim != 1 or not batch.dtype.is_integer or not dim_equal(batch.shape[0], rois.shape[0]):
            raise self.error(2, f"an integer for each of the {rois.shape[0]} regions", batch)
        if any(isinstance(dim, int) and dim == 0 for dim in (data.shape[0], *data.shape[2:])):
            raise self.error(0, "images with pixels", data)
        return TensorType((rois.shape[0], data.shape[1], *attrs.output_size), data.dtype)

    def reference(self, args: Sequence[Any], attrs: RoiAlignAttrs) -> Any:
        data, rois, batch = widened(args[0]), widened(args[1]), args[2]
        out = np.zeros((len(rois), data.shape[1], *attrs.output_size), data.dtype)
        for number, (roi, index) in enumerate(zip(rois, batch, strict=True)):
            image = data[min(max(int(index), 0), len(data) - 1)]
            axes = [_bin_samples(roi, n, image.shape[1 + n], attrs) for n in range(2)]
            for y, x in np.ndindex(*attrs.output_size):
                out[number, :, y, x] = _pooled(image, axes[0][y], axes[1][x], attrs.method)
        return out.astype(args[0].dtype)

    def compute(self, args: Sequence[Tensor], attrs: RoiAlignAttrs, out: TensorType) -> Tensor:
        data, rois, batch = args
        dtype = compute_type(data.dtype)
        extents = data.shape[2:]
        # Of the samples about a pixel apart, more than half a pixel, no more than these lie on the image.
        most = [as_expr(attrs.sampling_ratio or 2 * extent + 3) for extent in extents]
        axes = [te.reduce_axis(count, name) for count, name in zip(most, ("iy", "ix"), strict=True)]
        there = [as_expr(dim) > 0 for dim in (data.shape[0], *extents) if not isinstance(as_dim(dim), int)]

        def samples(place: Sequence[Expr], n: int) -> _Samples:
            return _samples(rois, place[0], place[2 + n], extents[n], n, attrs, dtype)

        def sampled(*place: Var) -> te.Reduction:
            image = maximum(minimum(cast("int64", batch[place[0]]), data.shape[0] - 1), 0)
            counted: list[Expr] = []
            on_image: list[Expr] = []
            pixels: list[list[tuple[Expr, Expr]]] = []
            for n, axis in enumerate(axes):
                bin_ = samples(place, n)
                number = bin_.first + axis
                at = bin_.begin + (cast(dtype, number) + 0.5) * bin_.step
                counted.append(number < bin_.count)
                is_inside = (at >= -1) & (at <= cast(dtype, extents[n]))
                on_image.append(is_inside)
                pixels.append(_neighbours(select(is_inside, at, const(0, dtype)), extents[n], dtype))
            values = [
                wy * wx * cast(dtype, guarded(all_of(*there), data[image, place[1], y, x], 0))
                for y, wy in pixels[0]
                for x, wx in pixels[1]
            ]
            value = values[0]
            for other in values[1:]:
                value = value + other if attrs.method == "avg" else maximum(value, other)
            value = select(all_of(*on_image), value, const(0, dtype))
            nothing = const(0 if attrs.method == "avg" else lowest(dtype), dtype)
            value = select(all_of(*counted), value, nothing)
            return (te.sum if attrs.method == "avg" else te.max)(value, axis=axes)

        pooled = te.compute(out.shape, sampled, name="roi_align_samples")

        def element(*place: Var) -> Expr:
            bins = [samples(place, n) for n in range(2)]
            count = bins[0].count * bins[1].count
            value = pooled[place]
            if attrs.method == "avg":
                return cast(out.dtype, value / cast(dtype, maximum(count, 1)))
            if not attrs.sampling_ratio:
                # Samples that nobody looked at lie outside of the image: they are zeros.
                for bin_, looked_at in zip(bins, most, strict=True):
                    missed = (bin_.first > 0) | (bin_.first + looked_at < bin_.count)
                    value = select(missed, maximum(value, const(0, dtype)), value)
                value = select(count > 0, value, const(0, dtype))
            return cast(out.dtype, value)

        return te.compute(out.shape, element, name="roi_align")


def _samples(
    rois: Tensor, number: Expr, bin_: Expr, extent: Expr, n: int, attrs: RoiAlignAttrs, dtype: DataType
) -> _Samples:
    """The samples of bin ``bin_`` along axis ``n`` (0: height) of region ``number``."""
    offset = 0.5 if attrs.aligned else 0.0
    begin = cast(dtype, rois[number, 1 - n]) * attrs.spatial_scale - offset
    end = cast(dtype, rois[number, 3 - n]) * attrs.spatial_scale - offset
    length = end - begin if attrs.aligned else maximum(end - begin, const(1, dtype))
    bins = attrs.output_size[n]
    size = length / bins
    begin = begin + cast(dtype, bin_) * size
    if attrs.sampling_ratio:
        count = as_expr(attrs.sampling_ratio)
        return _Samples(begin, size / cast(dtype, count), count, as_expr(0))
    count = _integer(call("ceil", size), dtype)
    step = size / cast(dtype, maximum(count, 1))
    first = _integer(call("ceil", (-1 - begin) / select(step > 0, step, const(1, dtype)) - 0.5), dtype)
    return _Samples(begin, step, count, first)


def _integer(value: Expr, dtype: DataType) -> Expr:
    """A number that is not negative as an integer; what is too large, or no number, is limited first."""
    value = select(value > 0, value, const(0, dtype))
    return cast("int64", select(value < 2.0**30, value, const(2.0**30, dtype)))


def _neighbours(at: Expr, extent: Expr, dtype: DataType) -> list[tuple[Expr, Expr]]:
    """The pixels before and behind a place on the image, and what they weigh."""
    at = maximum(at, const(0, dtype))
    at = minimum(at, cast(dtype, extent - 1))
    low = maximum(minimum(cast("int64", call("floor", at)), extent - 1), 0)
    high = maximum(minimum(low + 1, extent - 1), 0)
    share = at - cast(dtype, low)
    return [(low, 1 - share), (high, share)]


# The reference.


def _bin_samples(roi: Any, n: int, extent: int, attrs: RoiAlignAttrs) -> list[Any]:
    """For each bin along an axis the places of its samples on the image; NaN for those outside."""
    offset = 0.5 if attrs.aligned else 0.0
    begin, end = (roi[k - n] * roi.dtype.type(attrs.spatial_scale) - roi.dtype.type(offset) for k in (1, 3))
    length = end - begin if attrs.aligned else max(end - begin, roi.dtype.type(1))
    size = length / attrs.output_size[n]
    count = attrs.sampling_ratio or max(int(np.ceil(size)), 0)
    found = []
    for number in range(attrs.output_size[n]):
        at = begin + number * size + (np.arange(count, dtype=roi.dtype) + roi.dtype.type(0.5)) * size / max(count, 1)
        found.append(np.where((at >= -1) & (at <= extent), np.clip(at, 0, extent - 1), np.nan))
    return found


def _pooled(image: Any, rows: Any, columns: Any, method: str) -> Any:
    """The mean or the greatest of a bin's samples, for each channel."""
    y, x = np.meshgrid(rows, columns, indexing="ij")
    if y.size == 0:
        return np.zeros(len(image), image.dtype)
    inside = ~(np.isnan(y) | np.isnan(x))
    y, x = np.where(inside, y, 0), np.where(inside, x, 0)
    low_y, low_x = np.floor(y).astype(np.int64), np.floor(x).astype(np.int64)
    high_y, high_x = np.minimum(low_y + 1, image.shape[1] - 1), np.minimum(low_x + 1, image.shape[2] - 1)
    share_y, share_x = y - low_y, x - low_x
    parts = np.stack(
        [
            (1 - share_y) * (1 - share_x) * image[:, low_y, low_x],
            (1 - share_y) * share_x * image[:, low_y, high_x],
            share_y * (1 - share_x) * image[:, high_y, low_x],
            share_y * share_x * image[:, high_y, high_x],
        ]
    )
    samples = np.where(inside, parts.sum(0) if method == "avg" else parts.max(0), 0)
    return samples.mean((1, 2)) if method == "avg" else samples.max((1, 2))
