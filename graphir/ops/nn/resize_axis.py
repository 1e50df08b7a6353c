"""Interpolate along one axis, linearly or cubically: compute weighted sums of neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.dims import Dim, as_dim, simplify
from tilewright.graphir.op import register_operator
from tilewright.graphir.ops.common import FLOATS, check_dtype, guarded
from tilewright.graphir.ops.nn.resize import Resize, ResizeAttrs
from tilewright.graphir.ops.nn.resize_coordinates import Ratio, kernel, outside
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import Expr, Var, as_expr, cast, const, maximum, minimum, select
from tilewright.tensorir.tensor import Tensor


@register_operator
class resize_axis(Resize):
    """Resize a tensor of float32 or float64 along one axis: compute weighted sums of neighbours."""

    name = "nn.resize_axis"
    kind = "reduction"
    bounded_reference = False

    def infer_type(self, args: Sequence[TensorType], attrs: ResizeAttrs) -> TensorType:
        if len(attrs.axes) != 1 or attrs.size is None or attrs.scale is None:
            raise self.error("axes", "one axis, and its size and scale", attrs)
        check_dtype(self, 0, args[0], FLOATS[2:])
        return super().infer_type(args, attrs)

    def taps(self, extent: Dim, attrs: ResizeAttrs) -> tuple[Dim, Dim, Ratio]:
        """Return the number of weighted elements, the number of them before the place, and the factor of distances."""
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
            beyond = np.expand_dims(outside((numerator, denominator), extent), tuple(range(1, x.ndim - axis)))
            result = np.where(beyond, attrs.extrapolation_value, result)
        return result.astype(x.dtype)

    def compute(self, args: Sequence[Tensor], attrs: ResizeAttrs, out: TensorType) -> Tensor:
        (x,) = args
        axis = attrs.axes[0] % x.ndim
        extent, dtype = as_dim(x.shape[axis]), x.dtype
        count, before, (p, q) = self.taps(extent, attrs)
        factor = cast(dtype, as_expr(p)) / cast(dtype, as_expr(q))
        is_scaled = attrs.antialias

        def weigh(index: Expr, tap: Any) -> tuple[Expr, Expr]:
            """Return the weight of the tap for ``index`` of the result, and its place in the source, which may be
            outside."""
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
            beyond = outside(self.place(place[axis], extent, attrs), extent)
            return select(beyond, const(attrs.extrapolation_value, dtype), value)

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
    """Return a divisor: 1 where all weights are zero, so that the sum stays zero."""
    return select(total.equal(const(0, total.dtype)), const(1, total.dtype), total)
