"""Compute functions of one tensor elementwise."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.dims import Dim
from tilewright.graphir.meaning import Conversion
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import ANY, NUMBERS, Unary, compute_type, normalize, widened
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.dtype import BOOL, DataType, as_dtype
from tilewright.tensorir.errors import ArgumentTypeError
from tilewright.tensorir.expr import Expr, call, const, select
from tilewright.tensorir.expr import cast as scalar_cast
from tilewright.tensorir.expr import maximum as scalar_maximum
from tilewright.tensorir.expr import minimum as scalar_minimum
from tilewright.tensorir.tensor import Tensor, highest, lowest


def _function(
    name: str,
    function: Callable[[Any], Any],
    meaning: str,
    intrinsic: str | None = None,
    result: DataType | None = None,
    rounds: bool = False,
) -> Operator:
    """Register a function of floats that the loop IR has as an intrinsic; one that ``rounds`` to integers returns these
    unchanged."""

    class Function(Unary):
        def scalar(self, x: Expr) -> Expr:
            return call(name, x)

    Function.name = name
    Function.function = staticmethod(function)
    Function.result_dtype = result
    Function.idempotent = rounds
    Function.__name__ = Function.__qualname__ = name
    Function.__doc__ = meaning
    return register_operator(Function)


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


_erf = np.vectorize(math.erf, otypes=[np.float64])

exp = _function("exp", np.exp, "Compute e to the power ``x`` elementwise.")
exp2 = _function("exp2", np.exp2, "Compute 2 to the power ``x`` elementwise.")
expm1 = _function("expm1", np.expm1, "Compute ``exp(x) - 1`` elementwise, accurate near 0.")
log = _function("log", np.log, "Compute the natural logarithm elementwise.")
log2 = _function("log2", np.log2, "Compute the logarithm to base 2 elementwise.")
log10 = _function("log10", np.log10, "Compute the logarithm to base 10 elementwise.")
log1p = _function("log1p", np.log1p, "Compute ``log(1 + x)`` elementwise, accurate near 0.")
sqrt = _function("sqrt", np.sqrt, "Compute the square root elementwise; NaN below 0.")
rsqrt = _function("rsqrt", lambda x: 1 / np.sqrt(x), "Compute ``1 / sqrt(x)`` elementwise.")
sin = _function("sin", np.sin, "Compute the sine of angles in radians elementwise.")
cos = _function("cos", np.cos, "Compute the cosine of angles in radians elementwise.")
tan = _function("tan", np.tan, "Compute the tangent of angles in radians elementwise.")
asin = _function("asin", np.arcsin, "Find the angle in radians whose sine is ``x``.")
acos = _function("acos", np.arccos, "Find the angle in radians whose cosine is ``x``.")
atan = _function("atan", np.arctan, "Find the angle in radians whose tangent is ``x``.")
sinh = _function("sinh", np.sinh, "Compute the hyperbolic sine elementwise.")
cosh = _function("cosh", np.cosh, "Compute the hyperbolic cosine elementwise.")
tanh = _function("tanh", np.tanh, "Compute the hyperbolic tangent elementwise.")
asinh = _function("asinh", np.arcsinh, "Compute the inverse of ``sinh`` elementwise.")
acosh = _function("acosh", np.arccosh, "Compute the inverse of ``cosh`` elementwise; NaN below 1.")
atanh = _function("atanh", np.arctanh, "Compute the inverse of ``tanh`` elementwise; NaN outside ``[-1, 1]``.")
sigmoid = _function("sigmoid", _sigmoid, "Compute the sigmoid ``1 / (1 + exp(-x))`` elementwise.")
erf = _function("erf", _erf, "Compute the error function elementwise.")
floor = _function("floor", np.floor, "Round down elementwise, to the greatest integer not above ``x``.", rounds=True)
ceil = _function("ceil", np.ceil, "Round up elementwise, to the least integer not below ``x``.", rounds=True)
trunc = _function("trunc", np.trunc, "Round toward zero elementwise: drop the fraction.", rounds=True)
round = _function("round", np.rint, "Round to the nearest integer, halves to even, as in NumPy.", rounds=True)
isnan = _function("isnan", np.isnan, "Test elementwise whether ``x`` is NaN.", result=BOOL)
isinf = _function("isinf", np.isinf, "Test elementwise whether ``x`` is infinite.", result=BOOL)
isfinite = _function("isfinite", np.isfinite, "Test elementwise whether ``x`` is finite and not NaN.", result=BOOL)


@register_operator
class isposinf(Unary):
    """Test elementwise whether ``x`` is positive infinity."""

    name = "isposinf"
    result_dtype = BOOL
    function = np.isposinf

    def scalar(self, x: Expr) -> Expr:
        return x.equal(const(math.inf, x.dtype))


@register_operator
class isneginf(Unary):
    """Test elementwise whether ``x`` is negative infinity."""

    name = "isneginf"
    result_dtype = BOOL
    function = np.isneginf

    def scalar(self, x: Expr) -> Expr:
        return x.equal(const(-math.inf, x.dtype))


@register_operator
class negative(Unary):
    """Negate elementwise; integers wrap."""

    name = "negative"
    involution = True
    commutes_with_scale = "any"
    dtypes = NUMBERS
    function = np.negative

    def scalar(self, x: Expr) -> Expr:
        return -x


@register_operator
class abs(Unary):
    """Compute the absolute value elementwise; that of the least integer wraps to itself."""

    name = "abs"
    idempotent = True
    even = True
    dtypes = NUMBERS
    function = np.abs

    def scalar(self, x: Expr) -> Expr:
        return x if x.dtype.is_uint else call("abs", x)


@register_operator
class sign(Unary):
    """Compute the sign elementwise: -1, 0 or 1 as ``x`` is below, at or above 0; NaN for NaN."""

    name = "sign"
    idempotent = True
    dtypes = NUMBERS
    function = np.sign

    def scalar(self, x: Expr) -> Expr:
        zero, one = const(0, x.dtype), const(1, x.dtype)
        positive = select(x > zero, one, zero)
        if x.dtype.is_uint:
            return positive
        signed = select(x < zero, const(-1, x.dtype), positive)
        return select(x.not_equal(x), x, signed) if x.dtype.is_float else signed


@register_operator
class square(Unary):
    """Square elementwise; integers wrap."""

    name = "square"
    even = True
    dtypes = NUMBERS
    function = np.square

    def scalar(self, x: Expr) -> Expr:
        return x * x


@register_operator
class reciprocal(Unary):
    """Compute the reciprocal ``1 / x`` elementwise."""

    name = "reciprocal"
    function = np.reciprocal

    def scalar(self, x: Expr) -> Expr:
        return const(1, x.dtype) / x


@register_operator
class copy(Unary):
    """Copy the values."""

    name = "copy"
    dtypes = ANY
    function = np.copy

    def scalar(self, x: Expr) -> Expr:
        return x

    def symbolic(self, x: Dim) -> Dim | None:
        return x


@dataclasses.dataclass(frozen=True)
class ClipAttrs:
    """The bounds.

    Attributes:
        a_min: the least value, or None for no bound below.
        a_max: the greatest value, or None for no bound above.
    """

    a_min: float | None
    a_max: float | None

    def __post_init__(self) -> None:
        for name in ("a_min", "a_max"):
            value = getattr(self, name)
            if hasattr(value, "item") and getattr(value, "shape", None) == ():
                value = value.item()
                normalize(self, **{name: value})
            if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
                raise ArgumentTypeError(f"{name}: expected a number or None, found {value!r}")


@register_operator
class clip(Unary):
    """Limit ``x`` to ``[a_min, a_max]`` elementwise (``a_max`` where they cross, as in NumPy); NaN stays NaN."""

    name = "clip"
    idempotent = True
    dtypes = NUMBERS
    Attrs = ClipAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: ClipAttrs) -> TensorType:
        for name in ("a_min", "a_max"):
            value = getattr(attrs, name)
            if args[0].dtype.is_integer and isinstance(value, float):
                raise self.error(name, f"an integer, as x is {args[0].dtype!s}", value)
        return super().infer_type(args, attrs)

    def evaluate(self, arrays: Sequence[np.ndarray[Any, Any]], attrs: ClipAttrs) -> Any:
        x = arrays[0]
        low, high = self._bounds(attrs, DataType(x.dtype.name))
        result = x if low is None else np.maximum(x, np.asarray(low, x.dtype))
        return result if high is None else np.minimum(result, np.asarray(high, x.dtype))

    def _bounds(self, attrs: ClipAttrs, dtype: DataType) -> tuple[float | None, float | None]:
        """Return the bounds as values of the element type."""
        if dtype.is_float:
            return attrs.a_min, attrs.a_max
        least, greatest = int(lowest(dtype)), int(highest(dtype))
        low, high = [
            None if value is None else min(max(int(value), least), greatest) for value in (attrs.a_min, attrs.a_max)
        ]
        return low, high

    def formula(self, values: Sequence[Expr], attrs: ClipAttrs) -> Expr:
        (x,) = values
        low, high = self._bounds(attrs, x.dtype)
        result = x if low is None else scalar_maximum(x, const(low, x.dtype))
        return result if high is None else scalar_minimum(result, const(high, x.dtype))


@dataclasses.dataclass(frozen=True)
class DtypeAttrs:
    """An element type."""

    dtype: DataType

    def __post_init__(self) -> None:
        normalize(self, dtype=as_dtype(self.dtype))


@register_operator
class cast(Unary):
    """Convert ``x`` to ``dtype`` elementwise: floats to integers toward zero (undefined where they do not fit),
    anything to bool by ``!= 0``, integers by wrapping."""

    name = "cast"
    total_reference = True
    dtypes = ANY
    Attrs = DtypeAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: DtypeAttrs) -> TensorType:
        return args[0] if args[0].dtype is attrs.dtype else TensorType(args[0].shape, attrs.dtype)

    def reference(self, args: Sequence[Any], attrs: DtypeAttrs) -> Any:
        with np.errstate(all="ignore"):
            if attrs.dtype.is_bool:
                return widened(args[0]) != 0
            return widened(args[0]).astype(attrs.dtype.numpy)

    def compute(self, args: Sequence[Tensor], attrs: DtypeAttrs, out: TensorType) -> Tensor:
        (x,) = args
        wide = compute_type(x.dtype)
        return te.compute(out.shape, lambda *place: scalar_cast(out.dtype, scalar_cast(wide, x[place])), name="cast")

    def meaning(self, args: Sequence[GraphExpr], attrs: DtypeAttrs) -> Conversion:
        return Conversion(args[0])

    def is_identity(self, args: Sequence[GraphExpr], attrs: DtypeAttrs) -> bool:
        return True

    def symbolic_value(self, args: Sequence[np.ndarray[Any, Any]], attrs: DtypeAttrs, out: TensorType) -> Any:
        if not out.dtype.is_integer:
            return None
        flat = args[0].reshape(-1)
        made: np.ndarray[Any, Any] = np.empty(flat.size, object)
        made[:] = [select(x, 1, 0) if isinstance(x, Expr) and x.dtype.is_bool else x for x in flat.tolist()]
        return made.reshape(args[0].shape)
