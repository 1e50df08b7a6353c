"""Reductions over axes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.base import call_operator
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops import calls
from tilewright.graphir.ops.common import (
    FLOATS,
    NUMBERS,
    Reduce,
    ReduceAttrs,
    axis_index,
    check_dtype,
    compute_type,
    is_half,
    widened,
)
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.dtype import FLOAT64, INT64
from tilewright.tensorir.expr import Expr, Var, as_expr, cast, const, maximum, minimum
from tilewright.tensorir.tensor import Tensor


@register_operator
class sum(Reduce):
    """The sum over axes; 0 for none. Integers keep their type and wrap."""

    name = "sum"

    def evaluate(self, x: np.ndarray[Any, Any], axes: tuple[int, ...], attrs: Any) -> Any:
        return np.sum(x, axis=axes, keepdims=attrs.keepdims, dtype=x.dtype)

    def combine(self, source: Expr, axes: Sequence[Var]) -> te.Reduction:
        return te.sum(source, axis=axes)


@register_operator
class prod(Reduce):
    """The product over axes; 1 for none. Integers keep their type and wrap."""

    name = "prod"

    def evaluate(self, x: np.ndarray[Any, Any], axes: tuple[int, ...], attrs: Any) -> Any:
        return np.prod(x, axis=axes, keepdims=attrs.keepdims, dtype=x.dtype)

    def combine(self, source: Expr, axes: Sequence[Var]) -> te.Reduction:
        return te.prod(source, axis=axes)


class NonEmptyReduce(Reduce):
    """Base of reductions that have no value over axes without elements."""

    def infer_type(self, args: Sequence[TensorType], attrs: Any) -> TensorType:
        out = super().infer_type(args, attrs)
        check_not_empty(self, args[0], self.axes(args[0].ndim, attrs))
        return out


def check_not_empty(op: Operator, x: TensorType, axes: Sequence[int]) -> None:
    """Check that no reduced axis is statically empty.

    Raises:
        TypeInferenceError: one is.
    """
    for axis in axes:
        if isinstance(x.shape[axis], int) and x.shape[axis] == 0:
            raise op.error(0, f"elements along axis {axis}", x)


@dataclasses.dataclass(frozen=True)
class ExtremeAttrs(ReduceAttrs):
    """As :class:`ReduceAttrs`; ``initial`` takes part beside the elements, so that there need be none."""

    initial: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.initial, np.generic):
            object.__setattr__(self, "initial", self.initial.item())


class Extreme(NonEmptyReduce):
    """Base of the two. A subclass states ``pair`` (of two values on expressions) and its NumPy reference."""

    Attrs = ExtremeAttrs

    def pair(self, a: Expr, b: Expr) -> Expr:
        """Of two values the one that is meant."""
        raise NotImplementedError(f"operator {self.name} states no choice between two values")

    def infer_type(self, args: Sequence[TensorType], attrs: ExtremeAttrs) -> TensorType:
        if attrs.initial is None:
            return super().infer_type(args, attrs)
        if isinstance(attrs.initial, float) and not args[0].dtype.is_float:
            raise self.error("initial", f"an integer, as x is {args[0].dtype!s}", attrs.initial)
        return Reduce.infer_type(self, args, attrs)

    def compute(self, args: Sequence[Tensor], attrs: ExtremeAttrs, out: TensorType) -> Tensor | list[Tensor]:
        identity = self.combine(const(0, args[0].dtype), ()).identities[0]
        found = super().compute(args, attrs, out)
        if attrs.initial is None or attrs.initial == getattr(identity, "value", None):
            return found
        assert isinstance(found, Tensor)
        initial = const(attrs.initial, out.dtype)
        return te.compute(out.shape, lambda *place: self.pair(found[place], initial), name=f"{self.__name__}_initial")


def _initial(attrs: ExtremeAttrs, dtype: np.dtype[Any]) -> dict[str, Any]:
    return {} if attrs.initial is None else {"initial": dtype.type(attrs.initial)}


@register_operator
class max(Extreme):
    """The greatest value over axes; NaN if any is NaN. Over a symbolic axis without elements: the least value of the
    type."""

    name = "max"

    def pair(self, a: Expr, b: Expr) -> Expr:
        return maximum(a, b)

    def evaluate(self, x: np.ndarray[Any, Any], axes: tuple[int, ...], attrs: ExtremeAttrs) -> Any:
        return np.max(x, axis=axes, keepdims=attrs.keepdims, **_initial(attrs, x.dtype))

    def combine(self, source: Expr, axes: Sequence[Var]) -> te.Reduction:
        return te.max(source, axis=axes)


@register_operator
class min(Extreme):
    """The least value over axes; NaN if any is NaN. Over a symbolic axis without elements: the greatest value of the
    type."""

    name = "min"

    def pair(self, a: Expr, b: Expr) -> Expr:
        return minimum(a, b)

    def evaluate(self, x: np.ndarray[Any, Any], axes: tuple[int, ...], attrs: ExtremeAttrs) -> Any:
        return np.min(x, axis=axes, keepdims=attrs.keepdims, **_initial(attrs, x.dtype))

    def combine(self, source: Expr, axes: Sequence[Var]) -> te.Reduction:
        return te.min(source, axis=axes)


@register_operator
class any(Reduce):
    """Whether a bool holds anywhere over axes; false for none."""

    name = "any"
    dtypes = ("bool",)

    def evaluate(self, x: np.ndarray[Any, Any], axes: tuple[int, ...], attrs: Any) -> Any:
        return np.any(x, axis=axes, keepdims=attrs.keepdims)

    def combine(self, source: Expr, axes: Sequence[Var]) -> te.Reduction:
        return te.any(source, axis=axes)


@register_operator
class all(Reduce):
    """Whether a bool holds everywhere over axes; true for none."""

    name = "all"
    dtypes = ("bool",)

    def evaluate(self, x: np.ndarray[Any, Any], axes: tuple[int, ...], attrs: Any) -> Any:
        return np.all(x, axis=axes, keepdims=attrs.keepdims)

    def combine(self, source: Expr, axes: Sequence[Var]) -> te.Reduction:
        return te.all(source, axis=axes)


def _count(x: Tensor, axes: Sequence[int], correction: int = 0) -> Expr:
    """How many elements each result is made of."""
    count = as_expr(1)
    for axis in axes:
        count = count * x.shape[axis]
    return count - correction


@register_operator
class mean(Reduce):
    """The mean of floats over axes; NaN over none."""

    name = "mean"
    dtypes = FLOATS

    def evaluate(self, x: np.ndarray[Any, Any], axes: tuple[int, ...], attrs: Any) -> Any:
        count = np.prod([x.shape[axis] for axis in axes], dtype=np.int64)
        return np.sum(x, axis=axes, keepdims=attrs.keepdims) / x.dtype.type(count)

    def compute(self, args: Sequence[Tensor], attrs: ReduceAttrs, out: TensorType) -> Tensor:
        (x,) = args
        wide = compute_type(x.dtype)
        axes = self.axes(x.ndim, attrs)
        total = self.stage(x, axes, attrs, out, "mean_sum", lambda place, value: cast(wide, value), te.sum)
        count = cast(wide, _count(x, axes))
        return te.compute(out.shape, lambda *place: cast(out.dtype, total[place] / count), name="mean")


@dataclasses.dataclass(frozen=True)
class VarianceAttrs(ReduceAttrs):
    """As :class:`ReduceAttrs`; ``unbiased`` divides by the number of elements less one."""

    unbiased: bool = False


def _variance(x: np.ndarray[Any, Any], axes: tuple[int, ...], attrs: VarianceAttrs) -> Any:
    count = np.prod([x.shape[axis] for axis in axes], dtype=np.int64)
    centre = np.sum(x, axis=axes, keepdims=True) / x.dtype.type(count)
    squares = np.sum(np.square(x - centre), axis=axes, keepdims=attrs.keepdims)
    return squares / x.dtype.type(count - attrs.unbiased)


@register_operator
class variance(Reduce):
    """The mean squared distance of floats from their mean over axes, computed from the distances, so that a large
    mean costs no accuracy."""

    name = "variance"
    dtypes = FLOATS
    Attrs = VarianceAttrs

    def evaluate(self, x: np.ndarray[Any, Any], axes: tuple[int, ...], attrs: Any) -> Any:
        return _variance(x, axes, attrs)

    def compute(self, args: Sequence[Tensor], attrs: VarianceAttrs, out: TensorType) -> Tensor:
        (x,) = args
        wide = compute_type(x.dtype)
        axes = self.axes(x.ndim, attrs)
        total = self.stage(x, axes, attrs, out, "variance_sum", lambda place, value: cast(wide, value), te.sum)
        count = cast(wide, _count(x, axes))
        centre = te.compute(out.shape, lambda *place: total[place] / count, name="variance_mean")

        def squared(place: Sequence[Expr], value: Expr) -> Expr:
            distance = cast(wide, value) - centre[tuple(place)]
            return distance * distance

        squares = self.stage(x, axes, attrs, out, "variance_squares", squared, te.sum)
        divisor = cast(wide, _count(x, axes, int(attrs.unbiased)))
        return te.compute(out.shape, lambda *place: cast(out.dtype, squares[place] / divisor), name="variance")


@register_operator
class std(Reduce):
    """The square root of ``variance``."""

    name = "std"
    dtypes = FLOATS
    Attrs = VarianceAttrs
    compute = None  # type: ignore[assignment]  # what it is made of is written in decompose

    def evaluate(self, x: np.ndarray[Any, Any], axes: tuple[int, ...], attrs: Any) -> Any:
        return np.sqrt(_variance(x, axes, attrs))

    def decompose(self, args: Sequence[GraphExpr], attrs: VarianceAttrs) -> GraphExpr:
        (x,) = args
        dtype = x.dtype
        wide = calls.cast(x, dtype="float32") if is_half(dtype) else x
        result = calls.sqrt(calls.variance(wide, axis=attrs.axis, keepdims=attrs.keepdims, unbiased=attrs.unbiased))
        return calls.cast(result, dtype=dtype) if is_half(dtype) else result


@register_operator
class logsumexp(Reduce):
    """``log(sum(exp(x)))`` over axes, shifted by the greatest value so that nothing overflows; minus infinity over
    none."""

    name = "logsumexp"
    dtypes = FLOATS
    compute = None  # type: ignore[assignment]  # what it is made of is written in decompose

    def evaluate(self, x: np.ndarray[Any, Any], axes: tuple[int, ...], attrs: Any) -> Any:
        greatest = np.max(x, axis=axes, keepdims=True, initial=-np.inf)
        greatest = np.where(np.isinf(greatest), np.zeros((), x.dtype), greatest)
        result = np.log(np.sum(np.exp(x - greatest), axis=axes, keepdims=True)) + greatest
        return result if attrs.keepdims else np.squeeze(result, axes)

    def decompose(self, args: Sequence[GraphExpr], attrs: ReduceAttrs) -> GraphExpr:
        (x,) = args
        dtype, axes = x.dtype, self.axes(x.ndim, attrs)
        wide = calls.cast(x, dtype="float32") if is_half(dtype) else x
        greatest = calls.max(wide, axis=axes, keepdims=True, initial=-math.inf)
        greatest = calls.where(calls.isinf(greatest), 0.0, greatest)  # infinity less infinity is no number
        result = calls.add(
            calls.log(calls.sum(calls.exp(calls.subtract(wide, greatest)), axis=axes, keepdims=True)), greatest
        )
        if not attrs.keepdims:
            result = calls.squeeze(result, axis=axes)
        return calls.cast(result, dtype=dtype) if is_half(dtype) else result


@register_operator
class sum_squares(Reduce):
    """The sum of squares over axes; 0 for none. Integers keep their type and wrap."""

    name = "sum_squares"

    def evaluate(self, x: np.ndarray[Any, Any], axes: tuple[int, ...], attrs: Any) -> Any:
        return np.sum(np.square(x), axis=axes, keepdims=attrs.keepdims, dtype=x.dtype)

    def compute(self, args: Sequence[Tensor], attrs: ReduceAttrs, out: TensorType) -> Tensor | list[Tensor]:
        (x,) = args
        wide = compute_type(x.dtype)

        def squared(place: Sequence[Expr], value: Expr) -> Expr:
            return cast(wide, value) * cast(wide, value)

        total = self.stage(x, self.axes(x.ndim, attrs), attrs, out, "sum_squares", squared, te.sum)
        if wide is out.dtype:
            return total
        return te.compute(out.shape, lambda *place: cast(out.dtype, total[place]), name="sum_squares_cast")


@dataclasses.dataclass(frozen=True)
class NormAttrs(ReduceAttrs):
    """As :class:`ReduceAttrs`; ``ord``: 1 for the sum of absolute values, 2 for the root of the sum of squares."""

    ord: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ord not in (1, 2):
            raise ValueError(f"ord: expected 1 or 2, found {self.ord!r}")


@register_operator
class norm(Reduce):
    """The length of the vector of all elements over axes; 0 for none. The root of integers is rounded toward zero."""

    name = "norm"
    Attrs = NormAttrs
    compute = None  # type: ignore[assignment]  # what it is made of is written in decompose

    def evaluate(self, x: np.ndarray[Any, Any], axes: tuple[int, ...], attrs: NormAttrs) -> Any:
        if attrs.ord == 1:
            return np.sum(np.abs(x), axis=axes, keepdims=attrs.keepdims, dtype=x.dtype)
        wide = x.astype(np.float64) if x.dtype.kind in "iu" else x
        return np.sqrt(np.sum(np.square(wide), axis=axes, keepdims=attrs.keepdims))

    def decompose(self, args: Sequence[GraphExpr], attrs: NormAttrs) -> GraphExpr:
        (x,) = args
        dtype, over = x.dtype, {"axis": attrs.axis, "keepdims": attrs.keepdims}
        wide = FLOAT64 if dtype.is_integer and attrs.ord == 2 else compute_type(dtype)
        values = x if wide is dtype else calls.cast(x, dtype=wide)
        if attrs.ord == 1:
            result = calls.sum(call_operator("abs", values), **over)
        else:
            result = calls.sqrt(call_operator("sum_squares", values, **over))
        return result if wide is dtype else calls.cast(result, dtype=dtype)


@dataclasses.dataclass(frozen=True)
class ArgReduceAttrs:
    """Where to look.

    Attributes:
        axis: an axis; None: all, counted in row-major order.
        keepdims: whether reduced axes stay with extent 1.
        select_last_index: whether the last of equal values is meant, not the first.
    """

    axis: Any = None
    keepdims: bool = False
    select_last_index: bool = False


class ArgReduce(Operator):
    """Base of the two: places are int64; the first NaN wins."""

    arguments = ("x",)
    kind = "reduction"
    Attrs = ArgReduceAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: ArgReduceAttrs) -> TensorType:
        (x,) = args
        check_dtype(self, 0, x, NUMBERS)
        axes = self._axes(x.ndim, attrs)
        check_not_empty(self, x, axes)
        kept = [1 if n in axes else dim for n, dim in enumerate(x.shape) if attrs.keepdims or n not in axes]
        return TensorType(kept, INT64)

    def _axes(self, ndim: int, attrs: ArgReduceAttrs) -> list[int]:
        return list(range(ndim)) if attrs.axis is None else [axis_index(self, attrs.axis, ndim)]

    def find(self, x: np.ndarray[Any, Any], axis: int | None) -> Any:
        """The place of the first such value."""
        raise NotImplementedError(f"operator {self.name} states no NumPy reference")

    def reference(self, args: Sequence[Any], attrs: ArgReduceAttrs) -> Any:
        x = widened(args[0])
        if attrs.axis is None:
            flat = x.reshape(-1)
            place = np.asarray(
                flat.size - 1 - self.find(flat[::-1], 0) if attrs.select_last_index else self.find(x, None)
            )
            place = place.reshape((1,) * x.ndim) if attrs.keepdims else place
        elif attrs.select_last_index:
            place = x.shape[attrs.axis] - 1 - self.find(np.flip(x, attrs.axis), attrs.axis)
        else:
            place = self.find(x, attrs.axis)
        if attrs.keepdims and attrs.axis is not None:
            place = np.expand_dims(place, attrs.axis)
        return np.asarray(place, np.int64)

    def arg(self, source: Expr, axes: Sequence[Var], index: Expr, last: bool) -> te.Reduction:
        """The reduction."""
        raise NotImplementedError(f"operator {self.name} states no reduction")

    def compute(self, args: Sequence[Tensor], attrs: ArgReduceAttrs, out: TensorType) -> Tensor:
        (x,) = args
        reduced = self._axes(x.ndim, attrs)
        wide = compute_type(x.dtype)
        if not reduced:
            return te.compute(out.shape, lambda *place: as_expr(0), name=self.__name__)
        over = {axis: te.reduce_axis(x.shape[axis], f"k{axis}") for axis in reduced}
        flat = as_expr(0)
        for axis, var in over.items():
            flat = flat * x.shape[axis] + var

        def element(*place: Var) -> te.Reduction:
            rest = list(place)
            indices: list[Expr] = []
            for axis in range(x.ndim):
                if axis in over:
                    indices.append(over[axis])
                    if attrs.keepdims:
                        rest.pop(0)
                else:
                    indices.append(rest.pop(0))
            value = cast(wide, x[tuple(indices)])
            return self.arg(value, list(over.values()), flat, attrs.select_last_index)

        return te.compute(out.shape, element, name=self.__name__)


@register_operator
class argmax(ArgReduce):
    """Where the greatest value along an axis is."""

    name = "argmax"

    def find(self, x: np.ndarray[Any, Any], axis: int | None) -> Any:
        return np.argmax(x, axis)

    def arg(self, source: Expr, axes: Sequence[Var], index: Expr, last: bool) -> te.Reduction:
        return te.argmax(source, axes, index, last)  # type: ignore[arg-type]


@register_operator
class argmin(ArgReduce):
    """Where the least value along an axis is."""

    name = "argmin"

    def find(self, x: np.ndarray[Any, Any], axis: int | None) -> Any:
        return np.argmin(x, axis)

    def arg(self, source: Expr, axes: Sequence[Var], index: Expr, last: bool) -> te.Reduction:
        return te.argmin(source, axes, index, last)  # type: ignore[arg-type]
