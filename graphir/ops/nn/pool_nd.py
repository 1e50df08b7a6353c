"""Pool in any number of spatial dimensions: compute the greatest value, the mean, or the norm of windows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.expr import Call
from tilewright.graphir.layout import parse_layout
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import FLOATS, NUMBERS, check_dtype, compute_type, guarded, normalize, widened
from tilewright.graphir.ops.nn.window import Windows, margins, per_axis
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.dtype import INT64, DataType
from tilewright.tensorir.errors import ArgumentValueError
from tilewright.tensorir.expr import Expr, Var, as_expr, call, cast, const, select
from tilewright.tensorir.tensor import Tensor, lowest

Array = np.ndarray[Any, Any]


def window_sums(data: Tensor, windows: Windows, out: TensorType, term: Callable[[Expr], Expr], name: str) -> Tensor:
    """Return the sum of ``term(element)`` over each window; padding is zero, and halves are added in float32."""
    axes = windows.axes()
    wide = compute_type(data.dtype)

    def total(*place: Var) -> te.Reduction:
        indices, inside = windows.element(data, place, axes)
        return te.sum(term(cast(wide, guarded(inside, data[tuple(indices)], 0))), axis=axes)

    return te.compute(out.shape, total, name=name)


class Pool(Operator):
    """Base of pooling: each element of the result comes from a window of ``data``."""

    arguments = ("data",)
    kind = "reduction"
    contiguous_reads = True
    bounded_reference = False
    dtypes: ClassVar[Sequence[str]] = NUMBERS
    result_dtype: ClassVar[DataType | None] = None

    def windows(self, data: TensorType | Tensor | Array, attrs: Any) -> Windows:
        """Return the windows over ``data``.

        Raises:
            TypeInferenceError: ``data`` has another number of dimensions than the attributes are for.
        """
        raise NotImplementedError(f"operator {self.name} states no windows")

    def infer_type(self, args: Sequence[TensorType], attrs: Any) -> TensorType:
        (data,) = args
        check_dtype(self, 0, data, self.dtypes)
        return TensorType(self.windows(data, attrs).shape(self, data.shape), self.result_dtype or data.dtype)

    def pooled(self, data: Array, windows: Windows, attrs: Any) -> Array:
        """Compute the result on an array (halves come as float32) before it is rounded."""
        raise NotImplementedError(f"operator {self.name} states no NumPy reference")

    def reference(self, args: Sequence[Any], attrs: Any) -> Any:
        (data,) = args
        with np.errstate(all="ignore"):
            result = self.pooled(widened(data), self.windows(data, attrs), attrs)
        return result.astype(self.result_dtype.numpy if self.result_dtype else data.dtype, copy=False)


class MaxPool(Pool):
    """Base of pooling that takes the greatest value of each window; padding never wins; NaN propagates."""

    commutes_with_scale = "positive"

    def pooled(self, data: Array, windows: Windows, attrs: Any) -> Array:
        fill = np.asarray(lowest(DataType(data.dtype.name)), data.dtype)
        result: Array = windows.gather(self, data, fill).max(axis=-1)
        return result

    def compute(self, args: Sequence[Tensor], attrs: Any, out: TensorType) -> Tensor:
        (data,) = args
        windows = self.windows(data, attrs)
        axes = windows.axes()

        def element(*place: Var) -> te.Reduction:
            indices, inside = windows.element(data, place, axes)
            return te.max(guarded(inside, data[tuple(indices)], lowest(data.dtype)), axis=axes)

        return te.compute(out.shape, element, name=self.__name__)


class AvgPool(Pool):
    """Base of pooling that takes the mean of each window, over the elements inside or, with ``count_include_pad``,
    also the padding. The part of a last window that ``ceil_mode`` lets stand out beyond the padding never counts."""

    commutes_with_scale = "any"
    dtypes = FLOATS

    def pooled(self, data: Array, windows: Windows, attrs: Any) -> Array:
        shape = [1] * data.ndim
        for n, position in enumerate(windows.positions):
            padding = windows.padding[n] + windows.padding[n + windows.rank] if attrs.count_include_pad else 0
            shape[position] = data.shape[position] + padding
        unpadded = dataclasses.replace(windows, padding=(0,) * len(windows.padding))
        counting = unpadded if attrs.count_include_pad else windows
        number = counting.gather(self, np.ones(shape, data.dtype), 0).sum(axis=-1)
        total: Array = windows.gather(self, data, 0).sum(axis=-1)
        for position in windows.positions:  # with padding counted, one more window may start in the padding behind
            number = number.take(range(total.shape[position]), axis=position)
        result: Array = total / np.maximum(number, 1)
        return result

    def compute(self, args: Sequence[Tensor], attrs: Any, out: TensorType) -> Tensor:
        (data,) = args
        windows = self.windows(data, attrs)
        wide = compute_type(data.dtype)
        summed = window_sums(data, windows, out, lambda value: value, f"{self.__name__}_sum")

        def mean(*place: Var) -> Expr:
            return cast(out.dtype, summed[place] / windows.count(data, place, attrs.count_include_pad, wide))

        return te.compute(out.shape, mean, name=self.__name__)


@dataclasses.dataclass(frozen=True)
class WindowAttrs:
    """The steps of the window over the spatial dimensions.

    Attributes:
        pool_size: the size of the window, one number for each dimension.
        strides: the steps of the window; by default ``pool_size``, so that windows do not overlap.
        padding: one size, one for each dimension, or those before each and then those behind each; smaller than the
            window; integers, or expressions over symbolic dimensions.
        dilation: the distance between elements in a window.
        ceil_mode: whether a last window counts that is only partly on the data.
    """

    pool_size: Any
    strides: Any = None
    padding: Any = 0
    dilation: Any = 1
    ceil_mode: bool = False

    def __post_init__(self) -> None:
        rank = len(self.pool_size) if isinstance(self.pool_size, (tuple, list)) else 1
        size = per_axis(self.pool_size, "pool_size", rank)
        normalize(
            self,
            pool_size=size,
            strides=size if self.strides is None else per_axis(self.strides, "strides", rank),
            padding=margins(self.padding, "padding", rank),
            dilation=per_axis(self.dilation, "dilation", rank),
        )
        self.windows(tuple(range(2, rank + 2))).check_padding()

    def windows(self, positions: tuple[int, ...]) -> Windows:
        """Return the windows over the dimensions ``positions``."""
        return Windows(positions, self.pool_size, self.strides, self.padding, self.dilation, self.ceil_mode)


def check_layout(name: str, space: str) -> None:
    """Check the layout of a batch of images, or of volumes, with channels.

    Raises:
        ValueError: it has other axes, or blocks of others than channels.
    """
    layout = parse_layout(name)
    if sorted(layout.primal) != sorted(f"NC{space}") or {axis for axis, size in layout.axes if size} - {"C"}:
        raise ArgumentValueError(
            f"layout: expected a layout of NC{space} with blocks of channels at most, found {name}"
        )


@dataclasses.dataclass(frozen=True)
class PoolAttrs(WindowAttrs):
    """As :class:`WindowAttrs`; ``layout``: by default batch, channels and space, or any order of ``NCHW``, or of those
    of a row or a volume, possibly blocked, as ``NCDHW16c``."""

    layout: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layout:
            check_layout(self.layout, self.space)

    @property
    def space(self) -> str:
        """The names of the spatial axes; empty where there are too many for names."""
        rank = len(self.pool_size)
        return "DHW"[-rank:] if rank <= 3 else ""


@dataclasses.dataclass(frozen=True)
class AvgPoolAttrs(PoolAttrs):
    """As :class:`PoolAttrs`; ``count_include_pad``: whether padding counts as zeros in the mean."""

    count_include_pad: bool = False


@dataclasses.dataclass(frozen=True)
class LpPoolAttrs(PoolAttrs):
    """As :class:`PoolAttrs`; ``p`` is the exponent of the norm, above 0."""

    p: float = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.p > 0:
            raise ArgumentValueError(f"p: expected a number above 0, found {self.p!r}")


@dataclasses.dataclass(frozen=True)
class MaxPoolIndicesAttrs(WindowAttrs):
    """As :class:`WindowAttrs`; ``column_major``: whether the first spatial dimension varies fastest in the numbering
    (that of batch and channels is always row-major)."""

    column_major: bool = False


class PoolND(Pool):
    """Base of pooling over all dimensions behind batch and channels."""

    def windows(self, data: TensorType | Tensor | Array, attrs: Any) -> Windows:
        if data.ndim != len(attrs.pool_size) + 2:
            raise self.error(0, f"a tensor with {len(attrs.pool_size) + 2} dimensions for this pool_size", data)
        result: Windows = attrs.windows(tuple(range(2, data.ndim)))
        return result

    def channel_axis(self, argument: int, attrs: Any) -> int | None:
        return 1


class LayoutPool(PoolND):
    """Base of pooling in any layout of batch, channels and space."""

    def infer_type(self, args: Sequence[TensorType], attrs: PoolAttrs) -> TensorType:
        if attrs.layout and not parse_layout(attrs.layout).matches(args[0].shape):
            layout = parse_layout(attrs.layout)
            raise self.error(0, f"a tensor in layout {layout} ({layout.ndim} dimensions)", args[0])
        return super().infer_type(args, attrs)

    def windows(self, data: TensorType | Tensor | Array, attrs: PoolAttrs) -> Windows:
        if not attrs.layout:
            return super().windows(data, attrs)
        return attrs.windows(tuple(map(parse_layout(attrs.layout).position, attrs.space)))

    def channel_axis(self, argument: int, attrs: PoolAttrs) -> int | None:
        return parse_layout(attrs.layout).position("C") if attrs.layout else 1

    def in_layout(
        self, args: Sequence[Any], blocked: Sequence[Any], attrs: PoolAttrs, plain: str, target: str
    ) -> GraphExpr | None:
        if not attrs.space or plain != (attrs.layout or f"NC{attrs.space}"):
            return None
        return Call(self, [blocked[0]], dataclasses.replace(attrs, layout=target))


@register_operator
class max_pool(LayoutPool, MaxPool):
    """Compute the greatest value in each window; padding never wins. NaN propagates."""

    name = "nn.max_pool"
    Attrs = PoolAttrs


@register_operator
class avg_pool(LayoutPool, AvgPool):
    """Compute the mean of each window, over the elements inside or, with ``count_include_pad``, also the padding.

    The part of a last window that ``ceil_mode`` lets stand out beyond the padding never counts."""

    name = "nn.avg_pool"
    Attrs = AvgPoolAttrs


def power_sum(value: Expr, p: float) -> Expr:
    """Return ``abs(value) ** p``, the summand of a norm."""
    if p == 2:
        return value * value
    size = select(value < 0, const(0, value.dtype) - value, value)
    return size if p == 1 else call("pow", size, const(p, value.dtype))


def power_root(value: Expr, p: float) -> Expr:
    """Return ``value ** (1 / p)``, the norm of that sum."""
    if p == 1:
        return value
    return call("sqrt", value) if p == 2 else call("pow", value, const(1 / p, value.dtype))


@register_operator
class lp_pool(LayoutPool):
    """Compute the norm of each window, ``sum(abs(x) ** p) ** (1 / p)``; padding is zero."""

    name = "nn.lp_pool"
    dtypes = FLOATS
    Attrs = LpPoolAttrs

    def pooled(self, data: Array, windows: Windows, attrs: Any) -> Array:
        p = data.dtype.type(attrs.p)
        result: Array = (np.abs(windows.gather(self, data, 0)) ** p).sum(axis=-1) ** (1 / p)
        return result

    def compute(self, args: Sequence[Tensor], attrs: LpPoolAttrs, out: TensorType) -> Tensor:
        (data,) = args
        windows = self.windows(data, attrs)
        summed = window_sums(data, windows, out, lambda value: power_sum(value, attrs.p), "lp_pool_sum")
        return te.compute(out.shape, lambda *place: cast(out.dtype, power_root(summed[place], attrs.p)), name="lp_pool")


@register_operator
class max_pool_indices(PoolND):
    """Find the index of the greatest value of each window in the flattened data, the first of equal ones. NaN is the
    greatest value."""

    name = "nn.max_pool_indices"
    result_dtype = INT64
    Attrs = MaxPoolIndicesAttrs

    def pooled(self, data: Array, windows: Windows, attrs: Any) -> Array:
        numbers = np.arange(data.size)
        if attrs.column_major:
            reversed_axes = (0, 1, *range(data.ndim - 1, 1, -1))
            numbers = numbers.reshape([data.shape[axis] for axis in reversed_axes]).transpose(reversed_axes)
        places = windows.gather(self, numbers.reshape(data.shape), -1)
        values = windows.gather(self, data, np.asarray(lowest(DataType(data.dtype.name)), data.dtype))
        best = (values == values.max(axis=-1, keepdims=True)) | np.isnan(values)
        first = np.argmax(best & (places >= 0), axis=-1, keepdims=True)
        result: Array = np.take_along_axis(places, first, axis=-1)[..., 0]
        return result

    def compute(self, args: Sequence[Tensor], attrs: MaxPoolIndicesAttrs, out: TensorType) -> Tensor:
        (data,) = args
        windows = self.windows(data, attrs)
        axes = windows.axes()
        wide = compute_type(data.dtype)
        order = [0, 1, *(reversed(range(2, data.ndim)) if attrs.column_major else range(2, data.ndim))]

        def element(*place: Var) -> te.Reduction:
            indices, inside = windows.element(data, place, axes)
            number: Expr = as_expr(0)
            for axis in order:
                number = number * data.shape[axis] + indices[axis]
            # Padding has the least value and no index, so that any other element wins.
            number = select(inside, cast(INT64, number), const(-1, INT64))
            value = cast(wide, guarded(inside, data[tuple(indices)], lowest(data.dtype)))
            return te.argmax(value, axes, number)  # type: ignore[arg-type]

        return te.compute(out.shape, element, name="max_pool_indices")
