"""Resize tensors along axes: the attributes, and the operator, which decomposes into one that picks nearest neighbours
and one that interpolates along an axis. Coordinate modes, rounding, cubic coefficient and antialiasing are those of the
ONNX operator Resize."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir import expr as graph
from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.base import call_operator
from tilewright.graphir.dims import Dim, as_dim, dim_equal, simplify
from tilewright.graphir.layout_rewrite import axes_in_layout
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops import calls
from tilewright.graphir.ops.common import (
    NUMBERS,
    axis_index,
    check_dtype,
    compute_type,
    normalize,
    sequence_of,
)
from tilewright.graphir.ops.nn.resize_coordinates import Ratio, simplest_fraction, source_place
from tilewright.graphir.types import TensorType
from tilewright.tensorir.dtype import FLOAT32, FLOAT64, DataType
from tilewright.tensorir.errors import ArgumentValueError
from tilewright.tensorir.expr import select
from tilewright.tensorir.tensor import highest, lowest

METHODS = ("nearest", "linear", "cubic")
COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
)
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
POLICIES = ("stretch", "not_larger", "not_smaller")


def _ratio(value: Any) -> Ratio:
    return value if isinstance(value, tuple) else simplest_fraction(value)


@dataclasses.dataclass(frozen=True)
class ResizeAttrs:
    """The resized axes, and the interpolation.

    Attributes:
        size: the new extents of ``axes``; None: they follow from ``scale``, rounded down.
        scale: for each of ``axes`` new extent by old, a number or a pair (numerator, denominator); None: it follows
            from ``size``.
        axes: the axes that are resized; None: the last ones, as many as ``size`` or ``scale`` has.
        method: ``nearest``, ``linear`` or ``cubic``.
        coordinate_mode: the mapping of places in the result to places in the source: ``half_pixel``,
            ``half_pixel_symmetric``, ``pytorch_half_pixel``, ``align_corners``, ``asymmetric`` or
            ``tf_crop_and_resize``.
        rounding: for ``nearest``: ``round_prefer_floor``, ``round_prefer_ceil``, ``floor`` or ``ceil``.
        cubic_coeff: for ``cubic``: Keys' parameter, -0.75 or -0.5.
        exclude_outside: whether elements outside have weight zero; otherwise they repeat the outermost.
        antialias: whether the filter widens to several elements where the result is smaller.
        roi: for ``tf_crop_and_resize``: the beginnings of the region on the axes, and then its ends, in shares of the
            extent less 1.
        extrapolation_value: for ``tf_crop_and_resize``: the value outside of the source.
        keep_aspect_ratio: ``stretch``, or all axes get the one scale with which the result is ``not_larger`` or
            ``not_smaller`` than ``size``.
    """

    size: Any = None
    scale: Any = None
    axes: Any = None
    method: str = "nearest"
    coordinate_mode: str = "half_pixel"
    rounding: str = "round_prefer_floor"
    cubic_coeff: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    roi: Any = None
    extrapolation_value: float = 0.0
    keep_aspect_ratio: str = "stretch"

    def __post_init__(self) -> None:
        size = None if self.size is None else tuple(as_dim(dim) for dim in sequence_of(self.size, "size"))
        scale = None if self.scale is None else tuple(_ratio(value) for value in sequence_of(self.scale, "scale"))
        if size is None and scale is None:
            raise ArgumentValueError("size: expected size or scale, found neither")
        given = size if size is not None else scale
        assert given is not None
        roi = None if self.roi is None else tuple(_ratio(value) for value in sequence_of(self.roi, "roi"))
        axes = tuple(range(-len(given), 0)) if self.axes is None else tuple(sequence_of(self.axes, "axes"))
        for name, found, expected in (
            ("scale", scale, len(given)),
            ("axes", axes, len(given)),
            ("roi", roi, 2 * len(given)),
        ):
            if found is not None and len(found) != expected:
                raise ArgumentValueError(f"{name}: expected {expected} values, found {len(found)}")
        for name, value, known in (
            ("method", self.method, METHODS),
            ("coordinate_mode", self.coordinate_mode, COORDINATES),
            ("rounding", self.rounding, ROUNDINGS),
            ("keep_aspect_ratio", self.keep_aspect_ratio, POLICIES),
        ):
            if value not in known:
                raise ArgumentValueError(f"{name}: expected one of {', '.join(known)}, found {value!r}")
        for numerator, denominator in scale or ():
            if isinstance(numerator, int) and isinstance(denominator, int) and numerator * denominator <= 0:
                raise ArgumentValueError(f"scale: expected positive numbers, found {numerator}/{denominator}")
        if self.coordinate_mode == "tf_crop_and_resize" and roi is None:
            raise ArgumentValueError("roi: expected the part that is resized, as coordinate_mode is tf_crop_and_resize")
        if self.antialias and self.method == "nearest":
            raise ArgumentValueError("antialias: expected method linear or cubic, found nearest")
        normalize(self, size=size, scale=scale, axes=axes, roi=roi)


def resolved(attrs: ResizeAttrs, shape: Sequence[Dim]) -> tuple[tuple[Dim, ...], tuple[Ratio, ...]]:
    """Return new extents and scales of ``attrs.axes`` of a tensor of that shape.

    A scale from sizes is the quotient of the extents.
    """
    extents = [shape[axis] for axis in attrs.axes]
    if attrs.size is None:
        return tuple(
            simplify(extent * p // q) for extent, (p, q) in zip(extents, attrs.scale, strict=True)
        ), attrs.scale
    if attrs.keep_aspect_ratio == "stretch":
        return attrs.size, attrs.scale or tuple(zip(attrs.size, extents, strict=True))
    p, q = attrs.size[0], extents[0]
    for size, extent in zip(attrs.size[1:], extents[1:], strict=True):
        less = size * q < p * extent
        take = less if attrs.keep_aspect_ratio == "not_larger" else size * q > p * extent
        if isinstance(take, bool):
            p, q = (size, extent) if take else (p, q)
        else:
            p, q = select(take, size, p), select(take, extent, q)
    return tuple(simplify((2 * p * extent + q) // (2 * q)) for extent in extents), ((p, q),) * len(extents)


class Resize(Operator):
    """Base of the resizing operators."""

    arguments = ("x",)
    Attrs = ResizeAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: ResizeAttrs) -> TensorType:
        (x,) = args
        check_dtype(self, 0, x, NUMBERS if attrs.method != "nearest" else ("bool", *NUMBERS))
        axes = [axis_index(self, axis, x.ndim, "axes") for axis in attrs.axes]
        if len(set(axes)) != len(axes):
            raise self.error("axes", "different axes", attrs.axes)
        shape = list(x.shape)
        for axis, dim in zip(axes, resolved(attrs, x.shape)[0], strict=True):
            if shape[axis] == 0 and dim != 0:
                raise self.error(0, f"elements along axis {axis}", x)
            shape[axis] = dim
        return TensorType(shape, x.dtype)

    def in_layout(
        self, args: Sequence[Any], blocked: Sequence[Any], attrs: ResizeAttrs, plain: str, target: str
    ) -> Any:
        """Resize in the blocked layout: each channel is resized by itself."""
        axes = axes_in_layout(attrs.axes, plain, target)
        if blocked[0] is None or axes is None:
            return None
        return graph.Call(self, [blocked[0]], dataclasses.replace(attrs, axes=axes))

    def steps(self, shape: Sequence[Dim], attrs: ResizeAttrs) -> list[ResizeAttrs]:
        """Split a resize into one axis after another: return the attributes for each axis that changes."""
        sizes, scales = resolved(attrs, shape)
        found: list[ResizeAttrs] = []
        for n, (axis, size, scale) in enumerate(zip(attrs.axes, sizes, scales, strict=True)):
            roi = None if attrs.roi is None else (attrs.roi[n], attrs.roi[n + len(attrs.axes)])
            whole = attrs.coordinate_mode != "tf_crop_and_resize" or roi == ((0, 1), (1, 1))
            if whole and dim_equal(size, shape[axis]) and dim_equal(*scale):
                continue
            one = dataclasses.replace(
                attrs, size=(size,), scale=(scale,), axes=(axis % len(shape),), roi=roi, keep_aspect_ratio="stretch"
            )
            found.append(one)
        return found

    def place(self, index: Any, extent: Any, attrs: ResizeAttrs, n: int = 0) -> Ratio:
        """Return the place in the source for axis ``n`` of those that are resized; their sizes and scales are known."""
        roi = None if attrs.roi is None else (attrs.roi[n], attrs.roi[n + len(attrs.axes)])
        return source_place(index, extent, attrs.size[n], attrs.scale[n], attrs.coordinate_mode, roi)


@register_operator
class resize(Resize):
    """Resize ``x`` along axes by interpolation, one axis after another; integers are rounded to the nearest, halves to
    even, and saturate."""

    name = "nn.resize"
    kind = "reduction"
    bounded_reference = False

    def simplify_inference(self, args: Sequence[Any], attrs: ResizeAttrs) -> Any:
        """Replace a resize to nearest neighbours, which are picked rather than summed, by an operator that fuses with
        others."""
        return self.decompose(args, attrs) if attrs.method == "nearest" else None

    def decompose(self, args: Sequence[GraphExpr], attrs: ResizeAttrs) -> GraphExpr:
        (x,) = args
        assert isinstance(x.type, TensorType)
        steps = self.steps(x.type.shape, attrs)
        if not steps:
            return call_operator("copy", x)
        fields = {field.name: getattr(steps[0], field.name) for field in dataclasses.fields(ResizeAttrs)}
        if attrs.method == "nearest":
            fields.update({n: tuple(getattr(step, n)[0] for step in steps) for n in ("size", "scale", "axes")})
            if attrs.roi is not None:
                fields["roi"] = tuple(step.roi[n] for n in (0, 1) for step in steps)
            return call_operator("nn.resize_nearest", x, **fields)
        dtype = x.type.dtype
        wide = _wide(dtype)
        result = x if wide is dtype else calls.cast(x, dtype=wide)
        for step in steps:
            fields.update(size=step.size, scale=step.scale, axes=step.axes, roi=step.roi)
            result = call_operator("nn.resize_axis", result, **fields)
        if wide is dtype:
            return result
        if dtype.is_integer:
            result = call_operator("clip", call_operator("round", result), **_limits(dtype, wide))
        return calls.cast(result, dtype=dtype)


def _wide(dtype: DataType) -> DataType:
    """Return the type in which elements are weighted: it has all values of the type but those of 64-bit integers."""
    if dtype.is_float:
        return compute_type(dtype)
    return FLOAT32 if dtype.bits <= 16 else FLOAT64


def _limits(dtype: DataType, wide: DataType) -> dict[str, float]:
    """Return the least and the greatest number of ``wide`` that an integer type has."""
    low, high = float(lowest(dtype)), float(highest(dtype))
    if int(high) > int(highest(dtype)):
        high = float(np.nextafter(np.asarray(high, wide.numpy), np.asarray(0, wide.numpy)))
    return {"a_min": low, "a_max": high}
