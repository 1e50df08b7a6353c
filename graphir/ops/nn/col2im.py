"""Sum columns of windows to an image: elements of several windows at one pixel are added."""

from __future__ import annotations

import dataclasses
import itertools
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.dims import Dim, as_dim, dim_equal, format_shape, product, simplify
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import NUMBERS, check_dtype, compute_type, guarded, normalize, sequence_of, widened
from tilewright.graphir.ops.nn.window import window_count
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.errors import ArgumentValueError
from tilewright.tensorir.expr import Expr, Var, all_of, as_expr, cast
from tilewright.tensorir.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class Col2ImAttrs:
    """The position of windows on the image.

    Attributes:
        image_shape: the extents of the image, one or more.
        block_shape: the extents of a window.
        strides: the steps between windows along each axis; None: 1.
        padding: the distance by which windows extend beyond the image before each axis, and then behind each; None: 0.
        dilation: the distance between pixels in a window, for each axis; None: 1.
    """

    image_shape: Any
    block_shape: Any
    strides: Any = None
    padding: Any = None
    dilation: Any = None

    def __post_init__(self) -> None:
        image = tuple(as_dim(dim) for dim in sequence_of(self.image_shape, "image_shape"))
        ndim = len(image)
        given = {
            "block_shape": (self.block_shape, ndim, 1),
            "strides": ((1,) * ndim if self.strides is None else self.strides, ndim, 1),
            "padding": ((0,) * (2 * ndim) if self.padding is None else self.padding, 2 * ndim, 0),
            "dilation": ((1,) * ndim if self.dilation is None else self.dilation, ndim, 1),
        }
        fields: dict[str, Any] = {"image_shape": image}
        for name, (value, count, least) in given.items():
            fields[name] = tuple(operator.index(item) for item in sequence_of(value, name))
            if len(fields[name]) != count or min(fields[name], default=least) < least:
                raise ArgumentValueError(f"{name}: expected {count} integers of at least {least}, found {value!r}")
        normalize(self, **fields)


@register_operator
class col2im(Operator):
    """Sum columns ``(N, C * pixels of a window, windows)`` to an image ``(N, C, *image_shape)``, as
    ``torch.nn.functional.fold``, for any number of axes."""

    name = "nn.col2im"
    arguments = ("data",)
    kind = "reduction"
    bounded_reference = False
    Attrs = Col2ImAttrs

    def windows(self, attrs: Col2ImAttrs) -> list[Dim]:
        """Return the number of windows along each axis."""
        ndim = len(attrs.image_shape)
        pads = [(attrs.padding[n], attrs.padding[n + ndim]) for n in range(ndim)]
        return [
            window_count(self, attrs.image_shape[n], attrs.block_shape[n], attrs.strides[n], attrs.dilation[n], pads[n])
            for n in range(ndim)
        ]

    def infer_type(self, args: Sequence[TensorType], attrs: Col2ImAttrs) -> TensorType:
        (data,) = args
        check_dtype(self, 0, data, NUMBERS)
        if data.ndim != 3:
            raise self.error(0, "columns (N, C * pixels of a window, windows)", data)
        size = math.prod(attrs.block_shape)
        channels = simplify(as_dim(as_expr(data.shape[1]) // size))
        if simplify(data.shape[1] - channels * size) != 0:
            raise self.error(0, f"a number of rows that {size} divides", data)
        windows = self.windows(attrs)
        if not dim_equal(product(windows), data.shape[2]):
            raise self.error(0, f"{product(windows)} columns, as {format_shape(windows)} windows fit", data)
        return TensorType((data.shape[0], channels, *attrs.image_shape), data.dtype)

    def reference(self, args: Sequence[Any], attrs: Col2ImAttrs) -> Any:
        (data,) = args
        ndim = len(attrs.image_shape)
        windows = [int(count) for count in self.windows(attrs)]  # type: ignore[arg-type]
        size = math.prod(attrs.block_shape)
        channels = data.shape[1] // size
        columns = widened(data).reshape(data.shape[0], channels, *attrs.block_shape, *windows)
        spans = [
            max((windows[n] - 1) * attrs.strides[n] + (attrs.block_shape[n] - 1) * attrs.dilation[n] + 1, 0)
            for n in range(ndim)
        ]
        before = attrs.padding[:ndim]
        room = [max(spans[n], before[n] + attrs.image_shape[n]) for n in range(ndim)]
        image = np.zeros((*columns.shape[:2], *room), columns.dtype)
        for offset in itertools.product(*map(range, attrs.block_shape)):
            begins = [at * step for at, step in zip(offset, attrs.dilation, strict=True)]
            taken: Any = (slice(None), slice(None), *offset)
            spans_now = [
                slice(begins[n], begins[n] + (windows[n] - 1) * attrs.strides[n] + 1, attrs.strides[n])
                for n in range(ndim)
            ]
            where: Any = (slice(None), slice(None), *spans_now)
            image[where] += columns[taken]
        inner = tuple(slice(before[n], before[n] + attrs.image_shape[n]) for n in range(ndim))
        whole = (slice(None), slice(None))
        return image[whole + inner].astype(data.dtype)

    def compute(self, args: Sequence[Tensor], attrs: Col2ImAttrs, out: TensorType) -> Tensor:
        (data,) = args
        windows = self.windows(attrs)
        size = math.prod(attrs.block_shape)
        wide = compute_type(data.dtype)
        axes = [te.reduce_axis(extent, f"k{n}") for n, extent in enumerate(attrs.block_shape)]

        def element(*place: Var) -> te.Reduction:
            row: Expr = as_expr(0)
            column: Expr = as_expr(0)
            conditions: list[Expr] = []
            for n, axis in enumerate(axes):
                from_first = place[2 + n] + attrs.padding[n] - axis * attrs.dilation[n]
                window = from_first // attrs.strides[n]
                conditions.extend([from_first >= 0, window < windows[n]])
                if attrs.strides[n] > 1:
                    conditions.append((from_first % attrs.strides[n]).equal(0))
                row = row * attrs.block_shape[n] + axis
                column = column * windows[n] + window
            load = data[place[0], place[1] * size + row, column]
            return te.sum(cast(wide, guarded(all_of(*conditions), load, 0)), axis=axes)

        summed = te.compute(out.shape, element, name="col2im")
        if wide is out.dtype:
            return summed
        return te.compute(out.shape, lambda *place: cast(out.dtype, summed[place]), name="col2im_cast")
