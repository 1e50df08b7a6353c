"""Change the order of a tensor's elements in memory: NCHW to NCHW16c and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.dims import Dim, as_dim, dim_equal, format_shape, product
from tilewright.graphir.layout import Layout, parse_layout
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import guarded, normalize
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.errors import ArgumentValueError
from tilewright.tensorir.expr import Expr, Var, all_of
from tilewright.tensorir.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class LayoutTransformAttrs:
    """Layouts by name (see ``graphir.layout``).

    Attributes:
        src_layout: the layout of the argument.
        dst_layout: the layout of the result; it has the same axes.
        extents: extents of axes where the argument has padding to be dropped: ``{"C": 20}`` for a tensor whose 20
            channels fill one block of 16 and a part of another. Kept as a tuple of pairs.
    """

    src_layout: str
    dst_layout: str
    extents: Any = ()

    def __post_init__(self) -> None:
        source, target = parse_layout(self.src_layout), parse_layout(self.dst_layout)
        if sorted(source.primal) != sorted(target.primal):
            raise ArgumentValueError(f"dst_layout: expected a layout of the axes of {source}, found {target}")
        given = self.extents.items() if isinstance(self.extents, Mapping) else self.extents or ()
        extents = tuple(sorted((str(axis), as_dim(extent)) for axis, extent in given))
        for axis, _ in extents:
            if axis not in source.primal:
                raise ArgumentValueError(f"extents: expected axes of {source}, found {axis!r}")
        normalize(self, extents=extents)


@register_operator
class layout_transform(Operator):
    """Convert ``x`` from ``src_layout`` to ``dst_layout``. An axis that does not fill whole blocks of ``dst_layout`` is
    padded with zeros. The inverse cannot tell how much of the last block is padding: ``extents`` states it."""

    name = "layout_transform"
    arguments = ("x",)
    kind = "injective"
    reorders = True
    total_reference = True
    Attrs = LayoutTransformAttrs

    def _extents(self, shape: Sequence[Dim], attrs: LayoutTransformAttrs) -> dict[str, Dim]:
        return {**parse_layout(attrs.src_layout).extents(shape), **dict(attrs.extents)}

    def infer_type(self, args: Sequence[TensorType], attrs: LayoutTransformAttrs) -> TensorType:
        (x,) = args
        source = parse_layout(attrs.src_layout)
        if not source.matches(x.shape):
            raise self.error(0, f"a tensor in layout {source}", x)
        stored = source.extents(x.shape)
        for axis, extent in attrs.extents:
            whole = stored[axis]
            if not dim_equal(extent, whole) and (not isinstance(extent, int) or not isinstance(whole, int)):
                raise self.error("extents", f"a static extent of a static axis {axis}", f"{extent} for {whole}")
            if isinstance(extent, int) and isinstance(whole, int) and not 0 <= whole - extent < source.block(axis):
                least = whole - source.block(axis) + 1
                raise self.error("extents", f"{least} to {whole} for axis {axis} of {format_shape(x.shape)}", extent)
        return TensorType(parse_layout(attrs.dst_layout).shape(self._extents(x.shape, attrs)), x.dtype)

    def reference(self, args: Sequence[Any], attrs: LayoutTransformAttrs) -> Any:
        (x,) = args
        return change_layout(x, attrs.src_layout, attrs.dst_layout, dict(attrs.extents))

    def is_identity(self, args: Sequence[GraphExpr], attrs: LayoutTransformAttrs) -> bool:
        return attrs.src_layout == attrs.dst_layout

    def is_reshape(self, args: Sequence[TensorType], attrs: LayoutTransformAttrs) -> bool:
        (x,) = args
        out = self.infer_type(args, attrs)
        source, target = parse_layout(attrs.src_layout), parse_layout(attrs.dst_layout)
        return dim_equal(product(x.shape), product(out.shape)) and source.order(x.shape) == target.order(out.shape)

    def compute(self, args: Sequence[Tensor], attrs: LayoutTransformAttrs, out: TensorType) -> Tensor:
        (x,) = args
        source, target = parse_layout(attrs.src_layout), parse_layout(attrs.dst_layout)
        shape = [as_dim(extent) for extent in x.shape]
        extents = self._extents(shape, attrs)
        stored = target.extents(out.shape)
        padded = [axis for axis in target.primal if not dim_equal(extents[axis], stored[axis])]

        def element(*place: Var) -> Expr:
            index = target.logical(place)
            inside = all_of(*[index[axis] < extents[axis] for axis in padded])
            return guarded(inside, x[source.place(index)], 0)

        return te.compute(out.shape, element, name="layout_transform")


def change_layout(
    x: np.ndarray[Any, Any], src_layout: str, dst_layout: str, extents: Mapping[str, int] | None = None
) -> np.ndarray[Any, Any]:
    """Apply ``layout_transform`` to a NumPy array."""
    source, target = parse_layout(src_layout), parse_layout(dst_layout)
    dense = _unblock(x, source)[tuple(slice((extents or {}).get(axis)) for axis in source.primal)]
    return _block(dense.transpose([source.primal.index(axis) for axis in target.primal]), target)


def _unblock(x: np.ndarray[Any, Any], layout: Layout) -> np.ndarray[Any, Any]:
    """Return the array with one dimension for each axis, in the order of ``layout.primal``."""
    order = [n for axis in layout.primal for n, (name, _) in enumerate(layout.axes) if name == axis]
    shape = [x.shape[layout.position(axis)] * layout.block(axis) for axis in layout.primal]
    result: np.ndarray[Any, Any] = x.transpose(order).reshape(shape)
    return result


def _block(x: np.ndarray[Any, Any], layout: Layout) -> np.ndarray[Any, Any]:
    """Invert :func:`_unblock`, with zeros behind axes that do not fill whole blocks."""
    pad = [(0, -extent % layout.block(axis)) for axis, extent in zip(layout.primal, x.shape, strict=True)]
    if any(behind for _, behind in pad):  # a copy, which may be of hundreds of megabytes
        x = np.pad(x, pad)
    split: list[int] = []
    labels: list[tuple[str, int]] = []
    for axis, extent in zip(layout.primal, x.shape, strict=True):
        blocks = [(name, size) for name, size in layout.axes if name == axis and size]
        split.extend([extent // layout.block(axis), *[size for _, size in blocks]])
        labels.extend([(axis, 0), *blocks])
    order: list[int] = []
    for axis_of in layout.axes:
        order.append(next(n for n, label in enumerate(labels) if label == axis_of and n not in order))
    result: np.ndarray[Any, Any] = x.reshape(split).transpose(order)
    return result
