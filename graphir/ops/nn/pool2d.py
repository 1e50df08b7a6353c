"""Pool images: compute the greatest or the mean value of windows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

from tilewright.graphir import expr as graph
from tilewright.graphir.dims import as_dim
from tilewright.graphir.layout import parse_layout
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import FLOATS, NUMBERS, check_dtype, compute_type, normalize, widened
from tilewright.graphir.ops.nn.pool_nd import AvgPool, LayoutPool, MaxPool, PoolAttrs, check_layout
from tilewright.graphir.ops.nn.window import pair
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import Expr, Var, as_expr, cast
from tilewright.tensorir.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class Pool2dAttrs(PoolAttrs):
    """As :class:`PoolAttrs`, for height and width; each size may be given once for both."""

    padding: Any = (0, 0)
    dilation: Any = (1, 1)
    layout: str = "NCHW"

    def __post_init__(self) -> None:
        normalize(self, pool_size=pair(self.pool_size, "pool_size"))
        super().__post_init__()


@dataclasses.dataclass(frozen=True)
class AvgPool2dAttrs(Pool2dAttrs):
    """As :class:`Pool2dAttrs`; ``count_include_pad``: whether padding counts as zeros in the mean."""

    count_include_pad: bool = False


@register_operator
class max_pool2d(LayoutPool, MaxPool):
    """Compute the greatest value in each window; padding never wins. NaN propagates."""

    name = "nn.max_pool2d"
    Attrs = Pool2dAttrs


@register_operator
class avg_pool2d(LayoutPool, AvgPool):
    """Compute the mean of each window, over the pixels on the image or, with ``count_include_pad``, also the padding.

    The part of a last window that ``ceil_mode`` lets stand out beyond the padding never counts."""

    name = "nn.avg_pool2d"
    Attrs = AvgPool2dAttrs


@dataclasses.dataclass(frozen=True)
class GlobalPoolAttrs:
    """``layout``: ``NCHW``, ``NHWC``, or blocked as ``NCHW16c``."""

    layout: str = "NCHW"

    def __post_init__(self) -> None:
        check_layout(self.layout, "HW")


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
        """Return the dimensions that are pooled."""
        layout = parse_layout(attrs.layout)
        return layout.position("H"), layout.position("W")

    def pixel(self, data: Tensor, attrs: GlobalPoolAttrs, place: Sequence[Expr], axes: Sequence[Var]) -> Expr:
        """Return the pixel at the reduction axes in the image of ``place``."""
        indices = list(place)
        for position, axis in zip(self.spatial(attrs), axes, strict=True):
            indices[position] = axis
        return data[tuple(indices)]

    def axes(self, data: Tensor, attrs: GlobalPoolAttrs) -> list[Var]:
        """Create reduction axes over height and width."""
        names = ("kh", "kw")
        return [te.reduce_axis(data.shape[at], name) for at, name in zip(self.spatial(attrs), names, strict=True)]


@register_operator
class global_max_pool2d(GlobalPool2d):
    """Compute the greatest value of each channel of an image; NaN propagates."""

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
    """Compute the mean of each channel of an image."""

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
