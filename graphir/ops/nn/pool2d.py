"""Pooling: the greatest or the mean value of windows over an image."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from tilewright.graphir import expr as graph
from tilewright.graphir.dims import as_dim
from tilewright.graphir.layout import parse_layout
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import FLOATS, NUMBERS, check_dtype, compute_type, guarded, normalize, widened
from tilewright.graphir.ops.layout_transform import change_layout
from tilewright.graphir.ops.nn.window import borders, pair, window_count
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.expr import Expr, Var, all_of, as_expr, cast, maximum, minimum
from tilewright.tensorir.tensor import Tensor, lowest


def _image_layout(name: str) -> None:
    layout = parse_layout(name)
    if sorted(layout.primal) != sorted("NCHW") or {axis for axis, size in layout.axes if size} - {"C"}:
        raise ValueError(f"layout: expected a layout of NCHW with blocks of channels at most, found {name}")


@dataclasses.dataclass(frozen=True)
class PoolAttrs:
    """How the window moves.

    Attributes:
        pool_size: of the window, for height and width.
        strides: of the window; by default ``pool_size``, so that windows do not overlap.
        padding: around the image: one size, (height, width), or (top, left, bottom, right); smaller than the window.
        dilation: distance of the pixels in a window.
        ceil_mode: whether a last window that only partly lies on the image counts.
        layout: ``NCHW``, ``NHWC``, or blocked as ``NCHW16c``.
    """

    pool_size: Any
    strides: Any = None
    padding: Any = (0, 0)
    dilation: Any = (1, 1)
    ceil_mode: bool = False
    layout: str = "NCHW"

    def __post_init__(self) -> None:
        size = pair(self.pool_size, "pool_size")
        normalize(
            self,
            pool_size=size,
            strides=size if self.strides is None else pair(self.strides, "strides"),
            padding=borders(self.padding),
            dilation=pair(self.dilation, "dilation"),
        )
        _image_layout(self.layout)
        for n, amount in enumerate(self.padding):
            span = (size[n % 2] - 1) * self.dilation[n % 2] + 1
            if amount >= span:
                raise ValueError(f"padding: expected less than the window's span {span}, found {amount}")


@dataclasses.dataclass(frozen=True)
class AvgPoolAttrs(PoolAttrs):
    """As :class:`PoolAttrs`; ``count_include_pad`` tells whether padding counts as zeros in the mean."""

    count_include_pad: bool = False


class Pool2d(Operator):
    """Base of pooling with a sliding window."""

    arguments = ("data",)
    kind = "reduction"
    dtypes: ClassVar[Sequence[str]] = NUMBERS

    def infer_type(self, args: Sequence[TensorType], attrs: PoolAttrs) -> TensorType:
        (data,) = args
        check_dtype(self, 0, data, self.dtypes)
        layout = parse_layout(attrs.layout)
        if not layout.matches(data.shape):
            raise self.error(0, f"a tensor in layout {layout} ({layout.ndim} dimensions)", data)
        shape = list(data.shape)
        for n, axis in enumerate("HW"):
            position, padding = layout.position(axis), (attrs.padding[n], attrs.padding[n + 2])
            shape[position] = window_count(
                self, shape[position], attrs.pool_size[n], attrs.strides[n], attrs.dilation[n], padding, attrs.ceil_mode
            )
        return TensorType(shape, data.dtype)

    def channel_axis(self, argument: int, attrs: PoolAttrs) -> int | None:
        return parse_layout(attrs.layout).position("C")

    def in_layout(self, args: Sequence[Any], blocked: Sequence[Any], attrs: PoolAttrs, plain: str, target: str) -> Any:
        if attrs.layout != plain:
            return None
        return graph.Call(self, [blocked[0]], dataclasses.replace(attrs, layout=target))

    def windows(self, data: np.ndarray[Any, Any], attrs: PoolAttrs, fill: Any) -> np.ndarray[Any, Any]:
        """The pixels of every window of an NCHW image in a last axis; ``fill`` stands for those outside."""
        (kh, kw), (sh, sw), (dh, dw) = attrs.pool_size, attrs.strides, attrs.dilation
        out = self.infer_type([TensorType(data.shape, data.dtype)], dataclasses.replace(attrs, layout="NCHW")).shape
        oh, ow = int(out[2]), int(out[3])  # type: ignore[arg-type]
        top, left = attrs.padding[:2]
        rows, columns = (oh - 1) * sh + (kh - 1) * dh + 1, (ow - 1) * sw + (kw - 1) * dw + 1
        bottom, right = max(0, rows - data.shape[2] - top), max(0, columns - data.shape[3] - left)
        image = np.pad(data, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
        taken = [image[:, :, y * dh :: sh, x * dw :: sw][:, :, :oh, :ow] for y in range(kh) for x in range(kw)]
        return np.stack(taken, axis=-1)

    def pooled(self, data: np.ndarray[Any, Any], attrs: Any) -> np.ndarray[Any, Any]:
        """The result on an NCHW image."""
        raise NotImplementedError(f"operator {self.name} states no NumPy reference")

    def reference(self, args: Sequence[Any], attrs: Any) -> Any:
        data = change_layout(widened(args[0]), attrs.layout, "NCHW")
        with np.errstate(all="ignore"):
            result = self.pooled(data, attrs)
        return change_layout(result, "NCHW", attrs.layout).astype(args[0].dtype, copy=False)


def _window(data: Tensor, attrs: PoolAttrs, place: Sequence[Expr], axes: Sequence[Var]) -> tuple[list[Expr], Expr]:
    """The indices of a window's pixel, and whether it lies on the image."""
    layout = parse_layout(attrs.layout)
    indices = list(place)
    conditions: list[Expr] = []
    for n, axis in enumerate("HW"):
        position = layout.position(axis)
        start = place[position] * attrs.strides[n]
        at = start + axes[n] * attrs.dilation[n] - attrs.padding[n]
        indices[position] = at
        if attrs.padding[n]:
            conditions.append(at >= 0)
        if attrs.padding[n + 2] or attrs.ceil_mode:
            conditions.append(at < data.shape[position])
    return indices, all_of(*conditions)


def _axes(attrs: PoolAttrs) -> tuple[Var, Var]:
    return te.reduce_axis(attrs.pool_size[0], "kh"), te.reduce_axis(attrs.pool_size[1], "kw")


@register_operator
class max_pool2d(Pool2d):
    """The greatest value in each window; padding never wins. NaN propagates."""

    name = "nn.max_pool2d"
    commutes_with_scale = "positive"
    Attrs = PoolAttrs

    def pooled(self, data: np.ndarray[Any, Any], attrs: PoolAttrs) -> np.ndarray[Any, Any]:
        fill = np.asarray(lowest(DataType(data.dtype.name)), data.dtype)
        result: np.ndarray[Any, Any] = self.windows(data, attrs, fill).max(axis=-1)
        return result

    def compute(self, args: Sequence[Tensor], attrs: PoolAttrs, out: TensorType) -> Tensor:
        (data,) = args
        axes = _axes(attrs)

        def element(*place: Var) -> te.Reduction:
            indices, inside = _window(data, attrs, place, axes)
            return te.max(guarded(inside, data[tuple(indices)], lowest(data.dtype)), axis=axes)

        return te.compute(out.shape, element, name="max_pool2d")


@register_operator
class avg_pool2d(Pool2d):
    """The mean of each window, over the pixels on the image or, with ``count_include_pad``, also the padding.

    The part of a last window that ``ceil_mode`` lets stand out beyond the padding never counts."""

    name = "nn.avg_pool2d"
    commutes_with_scale = "any"
    dtypes = FLOATS
    Attrs = AvgPoolAttrs

    def pooled(self, data: np.ndarray[Any, Any], attrs: AvgPoolAttrs) -> np.ndarray[Any, Any]:
        plain: PoolAttrs = attrs
        counted = np.ones((1, 1, *data.shape[2:]), data.dtype)
        if attrs.count_include_pad:
            top, left, bottom, right = attrs.padding
            counted = np.ones((1, 1, data.shape[2] + top + bottom, data.shape[3] + left + right), data.dtype)
            plain = dataclasses.replace(attrs, padding=(0, 0, 0, 0))
        number = self.windows(counted, plain, 0).sum(axis=-1)
        total: np.ndarray[Any, Any] = self.windows(data, attrs, 0).sum(axis=-1)
        result: np.ndarray[Any, Any] = total / np.maximum(number, 1)
        return result

    def compute(self, args: Sequence[Tensor], attrs: AvgPoolAttrs, out: TensorType) -> Tensor:
        (data,) = args
        axes = _axes(attrs)
        wide = compute_type(data.dtype)
        layout = parse_layout(attrs.layout)

        def total(*place: Var) -> te.Reduction:
            indices, inside = _window(data, attrs, place, axes)
            return te.sum(cast(wide, guarded(inside, data[tuple(indices)], 0)), axis=axes)

        summed = te.compute(out.shape, total, name="avg_pool2d_sum")

        def mean(*place: Var) -> Expr:
            count: Expr = as_expr(1)
            for n, axis in enumerate("HW"):
                position = layout.position(axis)
                count = count * _count(place[position], data.shape[position], attrs, n)
            return cast(out.dtype, summed[place] / cast(wide, count))

        return te.compute(out.shape, mean, name="avg_pool2d")


def _count(window: Expr, extent: Expr, attrs: AvgPoolAttrs, n: int) -> Expr:
    """How many pixels of a window count along one axis; at least 1."""
    size, stride, dilation = attrs.pool_size[n], attrs.strides[n], attrs.dilation[n]
    before, behind = attrs.padding[n], attrs.padding[n + 2]
    if not attrs.ceil_mode and (attrs.count_include_pad or not (before or behind)):
        return as_expr(size)
    margin = before if attrs.count_include_pad else 0
    end = extent + (behind if attrs.count_include_pad else 0)
    start = window * stride - before
    # Pixels start + k * dilation with -margin <= pixel < end.
    first = maximum(0, (-margin - start + (dilation - 1)) // dilation)
    last = minimum(size - 1, (end - 1 - start) // dilation)
    return maximum(1, last - first + 1)


@dataclasses.dataclass(frozen=True)
class GlobalPoolAttrs:
    """``layout``: ``NCHW``, ``NHWC``, or blocked as ``NCHW16c``."""

    layout: str = "NCHW"

    def __post_init__(self) -> None:
        _image_layout(self.layout)


class GlobalPool2d(Operator):
    """Base of pooling over whole images: height and width become 1."""

    arguments = ("data",)
    kind = "reduction"
    Attrs = GlobalPoolAttrs
    dtypes: ClassVar[Sequence[str]] = NUMBERS

    def infer_type(self, args: Sequence[TensorType], attrs: GlobalPoolAttrs) -> TensorType:
        (data,) = args
        check_dtype(self, 0, data, self.dtypes)
        layout = parse_layout(attrs.layout)
        if not layout.matches(data.shape):
            raise self.error(0, f"a tensor in layout {layout} ({layout.ndim} dimensions)", data)
        shape = list(data.shape)
        for axis in "HW":
            if shape[layout.position(axis)] == 0:
                raise self.error(0, "an image with pixels", data)
            shape[layout.position(axis)] = 1
        return TensorType(shape, data.dtype)

    def channel_axis(self, argument: int, attrs: GlobalPoolAttrs) -> int | None:
        return parse_layout(attrs.layout).position("C")

    def in_layout(
        self, args: Sequence[Any], blocked: Sequence[Any], attrs: GlobalPoolAttrs, plain: str, target: str
    ) -> Any:
        if attrs.layout != plain:
            return None
        return graph.Call(self, [blocked[0]], dataclasses.replace(attrs, layout=target))

    def spatial(self, attrs: GlobalPoolAttrs) -> tuple[int, int]:
        """The dimensions that are pooled."""
        layout = parse_layout(attrs.layout)
        return layout.position("H"), layout.position("W")

    def pixel(self, data: Tensor, attrs: GlobalPoolAttrs, place: Sequence[Expr], axes: Sequence[Var]) -> Expr:
        """The pixel of the image of ``place`` that the reduction axes are at."""
        indices = list(place)
        for position, axis in zip(self.spatial(attrs), axes, strict=True):
            indices[position] = axis
        return data[tuple(indices)]

    def axes(self, data: Tensor, attrs: GlobalPoolAttrs) -> list[Var]:
        """Fresh reduction axes over height and width."""
        names = ("kh", "kw")
        return [te.reduce_axis(data.shape[at], name) for at, name in zip(self.spatial(attrs), names, strict=True)]


@register_operator
class global_max_pool2d(GlobalPool2d):
    """The greatest value of each channel of an image; NaN propagates."""

    name = "nn.global_max_pool2d"
    commutes_with_scale = "positive"

    def reference(self, args: Sequence[Any], attrs: GlobalPoolAttrs) -> Any:
        return widened(args[0]).max(axis=self.spatial(attrs), keepdims=True).astype(args[0].dtype, copy=False)

    def compute(self, args: Sequence[Tensor], attrs: GlobalPoolAttrs, out: TensorType) -> Tensor:
        (data,) = args
        axes = self.axes(data, attrs)
        return te.compute(
            out.shape, lambda *place: te.max(self.pixel(data, attrs, place, axes), axis=axes), name="global_max_pool2d"
        )


@register_operator
class global_avg_pool2d(GlobalPool2d):
    """The mean of each channel of an image."""

    name = "nn.global_avg_pool2d"
    commutes_with_scale = "any"
    dtypes = FLOATS

    def reference(self, args: Sequence[Any], attrs: GlobalPoolAttrs) -> Any:
        return widened(args[0]).mean(axis=self.spatial(attrs), keepdims=True).astype(args[0].dtype, copy=False)

    def compute(self, args: Sequence[Tensor], attrs: GlobalPoolAttrs, out: TensorType) -> Tensor:
        (data,) = args
        axes = self.axes(data, attrs)
        wide = compute_type(data.dtype)
        count = as_expr(1)
        for position in self.spatial(attrs):
            count = count * as_expr(as_dim(data.shape[position]))
        summed = te.compute(
            out.shape,
            lambda *place: te.sum(cast(wide, self.pixel(data, attrs, place, axes)), axis=axes),
            name="global_avg_pool2d_sum",
        )
        return te.compute(
            out.shape, lambda *place: cast(out.dtype, summed[place] / cast(wide, count)), name="global_avg_pool2d"
        )
