"""Sample regions of images to one size (K. He et al., Mask R-CNN, 2017)."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.graphir.dims import as_dim, dim_equal
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import FLOATS, check_dtype, compute_type, guarded, normalize, widened
from tilewright.graphir.ops.loop_nests import let, loop, nest
from tilewright.graphir.ops.nn.window import pair
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.errors import ArgumentValueError
from tilewright.tensorir.expr import (
    Buffer,
    Expr,
    Var,
    all_of,
    as_expr,
    call,
    cast,
    const,
    maximum,
    minimum,
    select,
)
from tilewright.tensorir.stmt import Allocate, BufferStore, LetStmt, Stmt, sequence
from tilewright.tensorir.tensor import Tensor, lowest

METHODS = ("avg", "max")


@dataclasses.dataclass(frozen=True)
class RoiAlignAttrs:
    """The sampling of regions.

    Attributes:
        output_size: height and width of the result: the bins that a region is divided into.
        spatial_scale: pixels of the image for a unit of the regions' coordinates.
        sampling_ratio: samples along each axis of a bin; 0: about one for each pixel.
        method: ``avg`` or ``max`` of a bin's samples. As in ONNX, ``max`` takes the greatest of the four weighted
            pixels around a sample instead of their sum.
        aligned: whether coordinates refer to centres of pixels, half a pixel before the pixel's number.
    """

    output_size: Any = (1, 1)
    spatial_scale: float = 1.0
    sampling_ratio: int = 0
    method: str = "avg"
    aligned: bool = True

    def __post_init__(self) -> None:
        ratio = operator.index(self.sampling_ratio)
        if ratio < 0:
            raise ArgumentValueError(f"sampling_ratio: expected no negative number, found {ratio}")
        if self.method not in METHODS:
            raise ArgumentValueError(f"method: expected one of {', '.join(METHODS)}, found {self.method!r}")
        size = pair(self.output_size, "output_size")
        normalize(self, output_size=size, sampling_ratio=ratio, spatial_scale=float(self.spatial_scale))


@register_operator
class roi_align(Operator):
    """Sample the regions ``rois`` (R, 4: left, top, right, bottom) of ``data`` (N, C, H, W), in the images
    ``batch_indices`` (R,): the result is (R, C, height, width). Samples are interpolated from four pixels; those more
    than a pixel outside are zero. An index out of bounds is clamped to the nearest image."""

    name = "nn.roi_align"
    arguments = ("data", "rois", "batch_indices")
    kind = "opaque"
    bounded_reference = False
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
            with np.errstate(all="ignore"):  # for regions with NaN
                axes = [_bin_samples(roi, n, image.shape[1 + n], attrs) for n in range(2)]
            for y, x in np.ndindex(*attrs.output_size):
                out[number, :, y, x] = _pooled(image, axes[0][y], axes[1][x], attrs.method)
        return out.astype(args[0].dtype)

    def compute(self, args: Sequence[Tensor], attrs: RoiAlignAttrs, out: TensorType) -> list[Tensor]:
        data, rois, batch = args
        dtype = compute_type(data.dtype)
        there = [as_expr(dim) > 0 for dim in (data.shape[0], *data.shape[2:]) if not isinstance(as_dim(dim), int)]
        is_mean = attrs.method == "avg"
        zero = const(0, dtype)

        def loops(outputs: list[Buffer]) -> Stmt:
            found = Buffer("found", (as_expr(1),), dtype, "register")

            def bin_at(place: list[Expr]) -> Stmt:
                axes = [_Samples(rois, place[0], place[2 + n], data.shape[2 + n], n, attrs, dtype) for n in range(2)]
                image = maximum(minimum(cast("int64", batch[place[0]]), data.shape[0] - 1), 0)

                def sample(pixels: Sequence[_Pixels]) -> Stmt:
                    values = [
                        wy * wx * cast(dtype, guarded(all_of(*there), data[image, place[1], y, x], 0))
                        for y, wy in pixels[0].weighed()
                        for x, wx in pixels[1].weighed()
                    ]
                    value = functools.reduce(operator.add if is_mean else maximum, values)
                    value = select(all_of(*(axis.is_inside for axis in pixels)), value, zero)
                    return _set(found, found[0] + value if is_mean else maximum(found[0], value))

                count = axes[0].count * axes[1].count
                result = found[0] / cast(dtype, maximum(count, 1)) if is_mean else select(count > 0, found[0], zero)
                # Samples outside the loops' range are outside the image: they are zeros.
                rows, columns = (axis.end - axis.first < axis.count for axis in axes)
                stmt = sequence(
                    _set(found, zero if is_mean else select(rows | columns, zero, const(lowest(dtype), dtype))),
                    axes[0].each(lambda y: axes[1].each(lambda x: sample((y, x)))),
                    BufferStore(outputs[0], cast(out.dtype, result), tuple(place)),
                )
                return Allocate(found, axes[0].around(axes[1].around(stmt)))

            return nest(out.shape, bin_at)

        return te.extern([(out.shape, out.dtype)], loops, "roi_align")


def _set(register: Buffer, value: Expr) -> Stmt:
    return BufferStore(register, value, (as_expr(0),))


class _Samples:
    """The samples of bin ``number`` along axis ``n`` (0: height) of a region.

    Attributes:
        begin: the beginning of the bin, in pixels.
        step: the distance between samples.
        count: the number of samples.
        first: the number of the first that may lie on the image.
        end: the number behind the last. Of samples about a pixel apart, more than half a pixel, there are no more up to
            here than about twice the image's extent, however large the region is.
    """

    def __init__(
        self, rois: Tensor, region: Expr, number: Expr, extent: Expr, n: int, attrs: RoiAlignAttrs, dtype: DataType
    ) -> None:
        self.extent = extent
        self.dtype = dtype
        axis = "yx"[n]
        self.begin, self.step = Var(f"begin_{axis}", dtype), Var(f"step_{axis}", dtype)
        self.first, self.end = Var(f"first_{axis}"), Var(f"end_{axis}")
        self.count: Expr = as_expr(attrs.sampling_ratio) if attrs.sampling_ratio else Var(f"count_{axis}")
        offset = 0.5 if attrs.aligned else 0.0
        begin = cast(dtype, rois[region, 1 - n]) * attrs.spatial_scale - offset
        end = cast(dtype, rois[region, 3 - n]) * attrs.spatial_scale - offset
        length = end - begin if attrs.aligned else maximum(end - begin, const(1, dtype))
        size = length / attrs.output_size[n]
        self.values: list[tuple[Expr, Expr]] = [(self.begin, begin + cast(dtype, number) * size)]
        if attrs.sampling_ratio:
            self.values.append((self.step, size / cast(dtype, self.count)))
            self.values += [(self.first, as_expr(0)), (self.end, self.count)]
            return
        self.values.append((self.count, _integer(call("ceil", size), dtype)))
        self.values.append((self.step, size / cast(dtype, maximum(self.count, 1))))
        unit = select(self.step > 0, self.step, const(1, dtype))
        # One sample more on either side, as the quotients are rounded.
        before, behind = ((place - self.begin) / unit for place in (const(-1, dtype), cast(dtype, extent)))
        self.values.append((self.first, minimum(_integer(before - 1.5, dtype), self.count)))
        self.values.append((self.end, maximum(minimum(_integer(behind + 1.5, dtype), self.count), self.first)))

    def around(self, stmt: Stmt) -> Stmt:
        """Run ``stmt`` where the attributes have their values."""
        for var, value in reversed(self.values):
            assert isinstance(var, Var)
            stmt = LetStmt(var, value, stmt)
        return stmt

    def each(self, body: Callable[[_Pixels], Stmt]) -> Stmt:
        """Run ``body`` for each sample that may lie on the image."""

        def sample(number: Var) -> Stmt:
            at = self.begin + (cast(self.dtype, self.first + number) + 0.5) * self.step
            return let("at", at, lambda place: _Pixels(place, self.extent).around(body))

        return loop(self.end - self.first, sample)


class _Pixels:
    """The pixels before and behind a place.

    Attributes:
        is_inside: whether the place lies on the image, or less than a pixel outside.
        low, high: the two pixels; the same one at the edge.
        share: the weight of the second; the first has the rest.
    """

    def __init__(self, at: Var, extent: Expr) -> None:
        dtype = at.dtype
        self.is_inside = (at >= -1) & (at <= cast(dtype, extent))
        self.low, self.share = Var("low"), Var("share", dtype)
        self.high = maximum(minimum(self.low + 1, extent - 1), 0)
        inner = select(self.is_inside, minimum(maximum(at, const(0, dtype)), cast(dtype, extent - 1)), const(0, dtype))
        self._inner = maximum(inner, const(0, dtype))
        self._low = maximum(minimum(cast("int64", call("floor", self._inner)), extent - 1), 0)

    def around(self, body: Callable[[_Pixels], Stmt]) -> Stmt:
        """Run ``body`` where the attributes have their values."""
        share = self._inner - cast(self.share.dtype, self.low)
        return LetStmt(self.low, self._low, LetStmt(self.share, share, body(self)))

    def weighed(self) -> list[tuple[Expr, Expr]]:
        """Return the pixels and their weights."""
        return [(self.low, 1 - self.share), (self.high, self.share)]


def _integer(value: Expr, dtype: DataType) -> Expr:
    """Convert a number that is not negative to an integer; values too large, and NaN, are clamped first."""
    value = select(value > 0, value, const(0, dtype))
    return cast("int64", select(value < 2.0**30, value, const(2.0**30, dtype)))


# The reference.


def _bin_samples(roi: Any, n: int, extent: int, attrs: RoiAlignAttrs) -> list[tuple[Any, int]]:
    """Return, for each bin along an axis, the places of its samples on the image, and their number including those
    outside."""
    real = roi.dtype.type
    begin, end = (roi[k - n] * real(attrs.spatial_scale) - real(0.5 if attrs.aligned else 0) for k in (1, 3))
    length = end - begin if attrs.aligned else max(end - begin, real(1))
    size = length / attrs.output_size[n]
    count = attrs.sampling_ratio or int(np.clip(np.ceil(np.nan_to_num(size)), 0, 2**30))
    step = size / max(count, 1)
    found = []
    for number in range(attrs.output_size[n]):
        start = begin + number * size
        first, stop = 0, count
        if not attrs.sampling_ratio:
            unit = step if step > 0 else real(1)
            first = int(np.clip(np.nan_to_num((-1 - start) / unit - real(1.5)), 0, count))
            stop = int(np.clip(np.nan_to_num((extent - start) / unit + real(1.5)), first, count))
        at = start + (np.arange(first, stop, dtype=np.int64).astype(roi.dtype) + real(0.5)) * step
        found.append((np.clip(at[(at >= -1) & (at <= extent)], 0, extent - 1), count))
    return found


def _pooled(image: Any, rows: tuple[Any, int], columns: tuple[Any, int], method: str) -> Any:
    """Compute the mean or the greatest of a bin's samples, for each channel."""
    y, x = np.meshgrid(rows[0], columns[0], indexing="ij")
    count = rows[1] * columns[1]
    if y.size == 0:
        return np.zeros(len(image), image.dtype)
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
    if method == "avg":
        return parts.sum((0, 2, 3)) / count
    greatest = parts.max((0, 2, 3))
    return greatest if y.size == count else np.maximum(greatest, 0)  # samples outside are zeros
