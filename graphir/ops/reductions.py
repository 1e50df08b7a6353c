"""Reduce a tensor over axes: sums, products, extremes, truth, norms. ``statistics.py`` has means and variances,
``arg_reductions.py`` the indices of extremes."""

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
from tilewright.graphir.ops.common import FLOATS, Reduce, ReduceAttrs, compute_type, is_half
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.dtype import FLOAT64
from tilewright.tensorir.errors import ArgumentValueError
from tilewright.tensorir.expr import Expr, Var, cast, const, maximum, minimum
from tilewright.tensorir.tensor import Tensor


@register_operator
class sum(Reduce):
    """Sum over axes; 0 for none. Integers keep their type and wrap."""

    name = "sum"

    def evaluate(self, x: np.ndarray[Any, Any], axes: tuple[int, ...], attrs: Any) -> Any:
        return np.sum(x, axis=axes, keepdims=attrs.keepdims, dtype=x.dtype)

    def combine(self, source: Expr, axes: Sequence[Var]) -> te.Reduction:
        return te.sum(source, axis=axes)


@register_operator
class prod(Reduce):
    """Multiply the elements over axes; 1 for none. Integers keep their type and wrap."""

    name = "prod"

    def evaluate(self, x: np.ndarray[Any, Any], axes: tuple[int, ...], attrs: Any) -> Any:
        return np.prod(x, axis=axes, keepdims=attrs.keepdims, dtype=x.dtype)

    def combine(self, source: Expr, axes: Sequence[Var]) -> te.Reduction:
        return te.prod(source, axis=axes)

    def symbolic_value(self, args: Sequence[np.ndarray[Any, Any]], attrs: Any, out: TensorType) -> Any:
        return np.prod(args[0].reshape(-1), initial=1) if out.ndim == 0 else None


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
    """As :class:`ReduceAttrs`; ``initial`` is reduced together with the elements, so that there need be none."""

    initial: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.initial, np.generic):
            object.__setattr__(self, "initial", self.initial.item())


class Extreme(NonEmptyReduce):
    """Base of max and min. A subclass states ``pair`` (of two values on expressions) and its NumPy reference."""

    Attrs = ExtremeAttrs

    def pair(self, a: Expr, b: Expr) -> Expr:
        """Return the greater or the lesser of two values."""
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
    """Compute the greatest value over axes; NaN if any is NaN. Over a symbolic axis without elements: the least value
    of the type."""

    name = "max"

    def pair(self, a: Expr, b: Expr) -> Expr:
        return maximum(a, b)

    def evaluate(self, x: np.ndarray[Any, Any], axes: tuple[int, ...], attrs: ExtremeAttrs) -> Any:
        return np.max(x, axis=axes, keepdims=attrs.keepdims, **_initial(attrs, x.dtype))

    def combine(self, source: Expr, axes: Sequence[Var]) -> te.Reduction:
        return te.max(source, axis=axes)


@register_operator
class min(Extreme):
    """Compute the least value over axes; NaN if any is NaN. Over a symbolic axis without elements: the greatest value
    of the type."""

    name = "min"

    def pair(self, a: Expr, b: Expr) -> Expr:
        return minimum(a, b)

    def evaluate(self, x: np.ndarray[Any, Any], axes: tuple[int, ...], attrs: ExtremeAttrs) -> Any:
        return np.min(x, axis=axes, keepdims=attrs.keepdims, **_initial(attrs, x.dtype))

    def combine(self, source: Expr, axes: Sequence[Var]) -> te.Reduction:
        return te.min(source, axis=axes)


@register_operator
class any(Reduce):
    """Test whether any bool over axes is true; false for none."""

    name = "any"
    dtypes = ("bool",)

    def evaluate(self, x: np.ndarray[Any, Any], axes: tuple[int, ...], attrs: Any) -> Any:
        return np.any(x, axis=axes, keepdims=attrs.keepdims)

    def combine(self, source: Expr, axes: Sequence[Var]) -> te.Reduction:
        return te.any(source, axis=axes)


@register_operator
class all(Reduce):
    """Test whether all bools over axes are true; true for none."""

    name = "all"
    dtypes = ("bool",)

    def evaluate(self, x: np.ndarray[Any, Any], axes: tuple[int, ...], attrs: Any) -> Any:
        return np.all(x, axis=axes, keepdims=attrs.keepdims)

    def combine(self, source: Expr, axes: Sequence[Var]) -> te.Reduction:
        return te.all(source, axis=axes)


@register_operator
class logsumexp(Reduce):
    """Compute ``log(sum(exp(x)))`` over axes, shifted by the greatest value so that nothing overflows; minus infinity
    over none."""

    name = "logsumexp"
    dtypes = FLOATS
    # The decomposition defines it.
    compute = None  # type: ignore[assignment]
    reference = Operator.reference

    def decompose(self, args: Sequence[GraphExpr], attrs: ReduceAttrs) -> GraphExpr:
        (x,) = args
        dtype, axes = x.dtype, self.axes(x.ndim, attrs)
        wide = calls.cast(x, dtype="float32") if is_half(dtype) else x
        greatest = calls.max(wide, axis=axes, keepdims=True, initial=-math.inf)
        greatest = calls.where(calls.isinf(greatest), 0.0, greatest)  # infinity - infinity is NaN
        result = calls.add(
            calls.log(calls.sum(calls.exp(calls.subtract(wide, greatest)), axis=axes, keepdims=True)), greatest
        )
        if not attrs.keepdims:
            result = calls.squeeze(result, axis=axes)
        return calls.cast(result, dtype=dtype) if is_half(dtype) else result


@register_operator
class sum_squares(Reduce):
    """Sum the squares over axes; 0 for none. Integers keep their type and wrap."""

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
            raise ArgumentValueError(f"ord: expected 1 or 2, found {self.ord!r}")


@register_operator
class norm(Reduce):
    """Compute the norm of the vector of all elements over axes; 0 for none. The root of integers is rounded toward
    zero (undefined where it does not fit their type)."""

    name = "norm"
    Attrs = NormAttrs
    # The decomposition defines it.
    compute = None  # type: ignore[assignment]
    reference = Operator.reference

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
