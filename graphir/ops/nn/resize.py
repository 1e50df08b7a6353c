"""Tensors resized along axes: nearest, linear and cubic interpolation.

A place in the result stands for a place in the source, a rational number: all that maps one to the other are sizes and
scales, so it is computed with integers. What is nearest to it and how far away its neighbours are is then exact, at any
size. Coordinate modes, rounding, cubic coefficient and antialiasing are those of the ONNX operator Resize.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.base import call_operator
from tilewright.graphir.dims import Dim, as_dim, dim_equal, simplify
from tilewright.graphir.op import Operator, get_operator, register_operator
from tilewright.graphir.ops import calls
from tilewright.graphir.ops.common import (
    FLOATS,
    NUMBERS,
    axis_index,
    check_dtype,
    compute_type,
    guarded,
    normalize,
    sequence_of,
)
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.dtype import FLOAT32, FLOAT64, DataType
from tilewright.tensorir.expr import Expr, Var, as_expr, cast, const, maximum, minimum, select
from tilewright.tensorir.tensor import Tensor, highest, lowest

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

#: A rational number of integers or integer expressions; the denominator is positive.
Ratio = tuple[Any, Any]


def simplest_fraction(value: float) -> tuple[int, int]:
    """The simplest fraction that is ``value`` in single precision: 3/5 for 0.6, which is what was meant."""
    if not math.isfinite(value):
        raise ValueError(f"expected a finite number, found {value}")
    exact = Fraction(float(value))
    limit = 1
    while np.float32(float(found := exact.limit_denominator(limit))) != np.float32(value):
        limit *= 2
    return found.numerator, found.denominator


def _ratio(value: Any) -> Ratio:
    return value if isinstance(value, tuple) else simplest_fraction(value)


@dataclasses.dataclass(frozen=True)
class ResizeAttrs:
    """What is resized, and how.

    Attributes:
        size: the new extents of ``axes``; None: they follow from ``scale``, rounded down.
        scale: for each of ``axes`` new extent by old, a number or a pair (numerator, denominator); None: it follows
            from ``size``.
        axes: the axes that are resized; None: the last ones, as many as ``size`` or ``scale`` has.
        method: ``nearest``, ``linear`` or ``cubic``.
        coordinate_mode: which place in the source a place in the result is: ``half_pixel``, ``half_pixel_symmetric``,
            ``pytorch_half_pixel``, ``align_corners``, ``asymmetric`` or ``tf_crop_and_resize``.
        rounding: for ``nearest``: ``round_prefer_floor``, ``round_prefer_ceil``, ``floor`` or ``ceil``.
        cubic_coeff: for ``cubic``: Keys' parameter, -0.75 or -0.5.
        exclude_outside: whether elements outside weigh nothing; otherwise the outermost stand for them.
        antialias: whether the filter becomes as wide as several elements where the result is smaller.
        roi: for ``tf_crop_and_resize``: where on the axes the part begins, for all of them, and then where it ends, in
            shares of the extent less 1.
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
            raise ValueError("size: expected size or scale, found neither")
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
                raise ValueError(f"{name}: expected {expected} values, found {len(found)}")
        for name, value, known in (
            ("method", self.method, METHODS),
            ("coordinate_mode", self.coordinate_mode, COORDINATES),
            ("rounding", self.rounding, ROUNDINGS),
            ("keep_aspect_ratio", self.keep_aspect_ratio, POLICIES),
        ):
            if value not in known:
                raise ValueError(f"{name}: expected one of {', '.join(known)}, found {value!r}")
        for numerator, denominator in scale or ():
            if isinstance(numerator, int) and isinstance(denominator, int) and numerator * denominator <= 0:
                raise ValueError(f"scale: expected positive numbers, found {numerator}/{denominator}")
        if self.coordinate_mode == "tf_crop_and_resize" and roi is None:
            raise ValueError("roi: expected the part that is resized, as coordinate_mode is tf_crop_and_resize")
        if self.antialias and self.method == "nearest":
            raise ValueError("antialias: expected method linear or cubic, found nearest")
        normalize(self, size=size, scale=scale, axes=axes, roi=roi)


def resolved(attrs: ResizeAttrs, shape: Sequence[Dim]) -> tuple[tuple[Dim, ...], tuple[Ratio, ...]]:
    """New extents and scales of ``attrs.axes`` of a tensor of that shape.

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


def _choose(condition: Any, a: Any, b: Any) -> Any:
    """``a`` if the condition holds, else ``b``, for a condition that is known or an expression."""
    return select(condition, as_expr(a), as_expr(b)) if isinstance(condition, Expr) else (a if condition else b)


def _equal(a: Any, b: Any) -> Any:
    return as_expr(a).equal(b) if isinstance(a, Expr) or isinstance(b, Expr) else a == b


def source_place(index: Any, extent: Any, size: Any, scale: Ratio, mode: str, roi: tuple[Ratio, Ratio] | None) -> Ratio:
    """The place in an axis of ``extent`` elements that ``index`` in the resized axis of ``size`` elements stands for.

    The formulas are those of the ONNX operator Resize, with integers and integer expressions alike (``index`` may also
    be a NumPy array).
    """
    p, q = scale
    # The length before it was rounded down to ``size``, a rational number too.
    length, unit = (p, 1) if dim_equal(as_dim(q), as_dim(extent)) else (p * extent, q)
    if mode == "asymmetric":
        return index * q, p
    if mode == "half_pixel_symmetric":
        return extent * p - size * q + (2 * index + 1) * q - p, 2 * p
    if mode in ("half_pixel", "pytorch_half_pixel"):
        half = (2 * index + 1) * q - p
        if mode == "pytorch_half_pixel":
            half = _choose(_equal(size, 1), 0 * index, half)
        return half, 2 * p
    single = _equal(length, unit)
    steps = _choose(single, 1, length - unit)
    if mode == "align_corners":
        return _choose(single, 0 * index, index * ((extent - 1) * unit)), steps
    assert roi is not None
    (a, b), (c, d) = roi  # the part from a / b to c / d
    inner = _choose(single, (extent - 1) + 0 * index, 2 * index * ((extent - 1) * unit))
    return inner * (c * b - a * d) + 2 * a * d * (extent - 1) * steps, 2 * b * d * steps


def nearest_index(numerator: Any, denominator: Any, rounding: str) -> Any:
    """The integer nearest to a rational number, as ``rounding`` says; not yet limited to the tensor."""
    if rounding == "floor":
        return numerator // denominator
    if rounding == "ceil":
        return 0 - (0 - numerator) // denominator
    if rounding == "round_prefer_floor":  # the ceiling of what is less by a half
        return 0 - (denominator - 2 * numerator) // (2 * denominator)
    return (2 * numerator + denominator) // (2 * denominator)


def _outside(place: Ratio, extent: Any) -> Any:
    """Whether a place lies outside of the source."""
    return (place[0] < 0) | (place[0] > (extent - 1) * place[1])


def kernel(distance: Any, method: str, coeff: float, absolute: Callable[[Any], Any], where: Callable[..., Any]) -> Any:
    """What an element in that distance weighs (R. G. Keys, Cubic Convolution Interpolation, 1981)."""
    t = absolute(distance)
    if method == "linear":
        return where(t < 1, 1 - t, 0 * t)
    near = ((coeff + 2) * t - (coeff + 3)) * t * t + 1
    far = ((coeff * t - 5 * coeff) * t + 8 * coeff) * t - 4 * coeff
    return where(t <= 1, near, where(t < 2, far, 0 * t))


class Resize(Operator):
    """Base of the operators that resize."""

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

    def steps(self, shape: Sequence[Dim], attrs: ResizeAttrs) -> list[ResizeAttrs]:
        """One axis after another: the attributes for each that really changes."""
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
        """The place in the source for axis ``n`` of those that are resized; their sizes and scales are known."""
        roi = None if attrs.roi is None else (attrs.roi[n], attrs.roi[n + len(attrs.axes)])
        return source_place(index, extent, attrs.size[n], attrs.scale[n], attrs.coordinate_mode, roi)


@register_operator
class resize(Resize):
    """``x`` resized along axes by interpolation, one axis after another; integers are rounded to the nearest, to the
    even one of two, and limited to their type."""

    name = "nn.resize"
    kind = "reduction"

    def simplify_inference(self, args: Sequence[Any], attrs: ResizeAttrs) -> Any:
        """Nearest neighbours are picked, not summed: an operator that joins others."""
        return self.decompose(args, attrs) if attrs.method == "nearest" else None

    def reference(self, args: Sequence[Any], attrs: ResizeAttrs) -> Any:
        (x,) = args
        wide = _wide(DataType(x.dtype.name)).numpy if attrs.method != "nearest" else x.dtype
        result = x.astype(wide)
        for step in self.steps(x.shape, attrs):
            which = "nn.resize_nearest" if attrs.method == "nearest" else "nn.resize_axis"
            result = get_operator(which).reference([result], step)
        if x.dtype.kind in "iu" and attrs.method != "nearest":
            result = np.rint(result)
            low, high = lowest(DataType(x.dtype.name)), highest(DataType(x.dtype.name))
            return np.where(result >= float(high), high, np.where(result <= float(low), low, result)).astype(x.dtype)
        return result.astype(x.dtype)

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
    """The type in which elements are weighed: it has all values of the type but those of 64-bit integers."""
    if dtype.is_float:
        return compute_type(dtype)
    return FLOAT32 if dtype.bits <= 16 else FLOAT64


def _limits(dtype: DataType, wide: DataType) -> dict[str, float]:
    """The least and the greatest number of ``wide`` that an integer type has."""
    low, high = float(lowest(dtype)), float(highest(dtype))
    if int(high) > int(highest(dtype)):
        high = float(np.nextafter(np.asarray(high, wide.numpy), np.asarray(0, wide.numpy)))
    return {"a_min": low, "a_max": high}


@register_operator
class resize_nearest(Resize):
    """``x`` resized along axes, each element that of the source nearest to its place."""

    name = "nn.resize_nearest"
    kind = "injective"

    def reference(self, args: Sequence[Any], attrs: ResizeAttrs) -> Any:
        (x,) = args
        result = x
        for step in self.steps(x.shape, attrs):
            (axis,), extent = step.axes, x.shape[step.axes[0]]
            place = self.place(np.arange(step.size[0]), extent, step)
            result = np.take(result, np.clip(nearest_index(*place, attrs.rounding), 0, extent - 1), axis=axis)
            if attrs.coordinate_mode == "tf_crop_and_resize":
                outside = np.expand_dims(_outside(place, extent), tuple(range(1, x.ndim - axis)))
                result = np.where(outside, np.asarray(attrs.extrapolation_value).astype(x.dtype), result)
        return result.copy() if result is x else result

    def compute(self, args: Sequence[Tensor], attrs: ResizeAttrs, out: TensorType) -> Tensor:
        (x,) = args
        steps = self.steps([as_dim(extent) for extent in x.shape], attrs)

        def element(*place: Var) -> Expr:
            indices: list[Expr] = list(place)
            outside: Expr = const(False, "bool")
            some = const(True, "bool")
            for step in steps:
                (axis,) = step.axes
                extent = as_dim(x.shape[axis])
                at = self.place(place[axis], extent, step)
                indices[axis] = maximum(minimum(as_expr(nearest_index(*at, attrs.rounding)), extent - 1), 0)
                some = _and(some, as_expr(extent) > 0, extent)
                if attrs.coordinate_mode == "tf_crop_and_resize":
                    outside = outside | _outside(at, extent)
            value = guarded(some, x[tuple(indices)], 0)
            if attrs.coordinate_mode != "tf_crop_and_resize":
                return value
            return select(outside, const(_as_type(attrs.extrapolation_value, x.dtype), x.dtype), value)

        return te.compute(out.shape, element, name="resize_nearest")


def _and(conditions: Expr, condition: Expr, extent: Dim) -> Expr:
    """Both, where the second is not known already: an axis of symbolic extent may have no element to read."""
    if isinstance(extent, int):
        return conditions
    return condition if getattr(conditions, "value", None) else conditions & condition


def _as_type(value: float, dtype: DataType) -> float | int:
    return value if dtype.is_float else int(value)


@register_operator
class resize_axis(Resize):
    """A tensor of float32 or float64 resized along one axis: sums of neighbours by their weights."""

    name = "nn.resize_axis"
    kind = "reduction"

    def infer_type(self, args: Sequence[TensorType], attrs: ResizeAttrs) -> TensorType:
        if len(attrs.axes) != 1 or attrs.size is None or attrs.scale is None:
            raise self.error("axes", "one axis, and its size and scale", attrs)
        check_dtype(self, 0, args[0], FLOATS[2:])
        return super().infer_type(args, attrs)

    def taps(self, extent: Dim, attrs: ResizeAttrs) -> tuple[Dim, Dim, Ratio]:
        """How many elements are weighed, how many of them lie before the place, and the factor of distances."""
        reach = 1 if attrs.method == "linear" else 2
        p, q = attrs.scale[0]
        if not attrs.antialias:
            return 2 * reach, reach - 1, (1, 1)
        if isinstance(p, int) and isinstance(q, int):
            half = max(reach, -(-reach * q // p))
            return 2 * half, half - 1, (p, q) if p < q else (1, 1)
        wide = simplify(maximum((as_expr(reach * q) + (p - 1)) // maximum(p, 1), reach))
        return simplify(2 * wide), simplify(wide - 1), (minimum(p, q), as_expr(q))

    def reference(self, args: Sequence[Any], attrs: ResizeAttrs) -> Any:
        (x,) = args
        axis = attrs.axes[0] % x.ndim
        extent = x.shape[axis]
        numerator, denominator = self.place(np.arange(attrs.size[0]), extent, attrs)
        base = numerator // denominator
        share = (numerator - base * denominator) / denominator
        count, before, (p, q) = self.taps(extent, attrs)
        offsets: np.ndarray[Any, Any] = np.arange(count) - before  # type: ignore[arg-type, operator]
        distances = (offsets - share[:, None]) * (p / q)
        weights = kernel(distances, attrs.method, attrs.cubic_coeff, np.abs, np.where)
        places = base[:, None] + offsets
        if attrs.exclude_outside:
            weights = np.where((places >= 0) & (places < extent), weights, 0)
        if attrs.exclude_outside or attrs.antialias:
            total = weights.sum(1, keepdims=True)
            weights = weights / np.where(total == 0, 1, total)
        taken = np.moveaxis(np.take(x.astype(np.float64), np.clip(places, 0, extent - 1), axis=axis), axis + 1, -1)
        result = (taken * np.expand_dims(weights, tuple(range(1, x.ndim - axis)))).sum(-1)
        if attrs.coordinate_mode == "tf_crop_and_resize":
            outside = np.expand_dims(_outside((numerator, denominator), extent), tuple(range(1, x.ndim - axis)))
            result = np.where(outside, attrs.extrapolation_value, result)
        return result.astype(x.dtype)

    def compute(self, args: Sequence[Tensor], attrs: ResizeAttrs, out: TensorType) -> Tensor:
        (x,) = args
        axis = attrs.axes[0] % x.ndim
        extent, dtype = as_dim(x.shape[axis]), x.dtype
        count, before, (p, q) = self.taps(extent, attrs)
        factor = cast(dtype, as_expr(p)) / cast(dtype, as_expr(q))
        is_scaled = attrs.antialias

        def weigh(index: Expr, tap: Any) -> tuple[Expr, Expr]:
            """The weight of the tap for ``index`` of the result, and its place in the source, which may lie outside."""
            numerator, denominator = map(as_expr, self.place(index, extent, attrs))
            base = numerator // denominator
            share = cast(dtype, numerator - base * denominator) / cast(dtype, denominator)
            distance = cast(dtype, as_expr(tap) - before) - share
            distance = distance * factor if is_scaled else distance
            weight = kernel(distance, attrs.method, attrs.cubic_coeff, _absolute, select)
            at = base + (as_expr(tap) - before)
            if attrs.exclude_outside:
                weight = select((at >= 0) & (at < extent), weight, const(0, dtype))
            return weight, at

        def load(place: Sequence[Expr], at: Expr) -> Expr:
            inside = maximum(minimum(at, extent - 1), 0)
            value = x(*place[:axis], inside, *place[axis + 1 :])
            return value if isinstance(extent, int) else guarded(as_expr(extent) > 0, value, 0)

        def finished(place: Sequence[Var], value: Expr) -> Expr:
            if attrs.coordinate_mode != "tf_crop_and_resize":
                return value
            outside = _outside(self.place(place[axis], extent, attrs), extent)
            return select(outside, const(attrs.extrapolation_value, dtype), value)

        if not attrs.antialias:
            assert isinstance(count, int)

            def element(*place: Var) -> Expr:
                taps = [weigh(place[axis], tap) for tap in range(count)]
                value = _sum([weight * load(place, at) for weight, at in taps])
                if attrs.exclude_outside:
                    value = value / _nonzero(_sum([weight for weight, _ in taps]))
                return finished(place, value)

            return te.compute(out.shape, element, name="resize")
        k, m = te.reduce_axis(count, "k"), te.reduce_axis(count, "m")
        total = te.compute((out.shape[axis],), lambda i: te.sum(weigh(i, k)[0], axis=k), name="resize_weights")

        def weighed(*place: Var) -> te.Reduction:
            weight, at = weigh(place[axis], m)
            return te.sum(weight * load(place, at), axis=m)

        summed = te.compute(out.shape, weighed, name="resize_sum")
        return te.compute(
            out.shape, lambda *place: finished(place, summed[place] / _nonzero(total[place[axis]])), name="resize"
        )


def _absolute(value: Expr) -> Expr:
    return maximum(value, 0 - value)


def _sum(values: Sequence[Expr]) -> Expr:
    result = values[0]
    for value in values[1:]:
        result = result + value
    return result


def _nonzero(total: Expr) -> Expr:
    """A divisor: where nothing weighs anything, the sum is zero and stays so."""
    return select(total.equal(const(0, total.dtype)), const(1, total.dtype), total)
