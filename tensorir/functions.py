"""Scalar functions under the names that NumPy has for them: calls of the declared intrinsics, for formulas and loops.

Arguments are expressions or Python numbers, which take the type of the other arguments. Types are strict: a function of
floats takes no integers (``cast`` converts), and the result has the type of the arguments unless it says otherwise.
What each computes is declared in ``intrinsics.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.tensorir.dtype import FLOAT32, VOID, as_dtype
from tilewright.tensorir.errors import ArgumentValueError
from tilewright.tensorir.expr import BufferLoad, Call, Expr, ExprLike, as_expr, binary, const
from tilewright.tensorir.intrinsics import INTERLEAVED, find_intrinsic


def _call(name: str, *args: ExprLike) -> Expr:
    """A call of an intrinsic; numbers among the arguments take the type of the first expression, alone they are
    float32.

    Raises:
        TypeError: the arguments have types that the intrinsic does not take.
    """
    known = next((arg.dtype for arg in args if isinstance(arg, Expr)), None)
    if known is None and find_intrinsic(name).operands == "float":
        known = FLOAT32
    values = tuple([as_expr(arg, known) for arg in args])
    return Call(name, values, find_intrinsic(name).result_type(values))


def exp(x: ExprLike) -> Expr:
    """Return the exponential of a float."""
    return _call("exp", x)


def exp2(x: ExprLike) -> Expr:
    """Return two to the power of a float."""
    return _call("exp2", x)


def expm1(x: ExprLike) -> Expr:
    """Return ``exp(x) - 1``, exact where ``x`` is small."""
    return _call("expm1", x)


def log(x: ExprLike) -> Expr:
    """Return the natural logarithm of a float; NaN if it is negative."""
    return _call("log", x)


def log2(x: ExprLike) -> Expr:
    """Return the logarithm of a float to base two."""
    return _call("log2", x)


def log10(x: ExprLike) -> Expr:
    """Return the logarithm of a float to base ten."""
    return _call("log10", x)


def log1p(x: ExprLike) -> Expr:
    """Return ``log(1 + x)``, exact where ``x`` is small."""
    return _call("log1p", x)


def sqrt(x: ExprLike) -> Expr:
    """Return the square root of a float; NaN if it is negative."""
    return _call("sqrt", x)


def rsqrt(x: ExprLike) -> Expr:
    """Return ``1 / sqrt(x)`` of a float."""
    return _call("rsqrt", x)


def sigmoid(x: ExprLike) -> Expr:
    """Return ``1 / (1 + exp(-x))`` of a float."""
    return _call("sigmoid", x)


def erf(x: ExprLike) -> Expr:
    """Return the error function of a float."""
    return _call("erf", x)


def sin(x: ExprLike) -> Expr:
    """Return the sine of an angle in radians."""
    return _call("sin", x)


def cos(x: ExprLike) -> Expr:
    """Return the cosine of an angle in radians."""
    return _call("cos", x)


def tan(x: ExprLike) -> Expr:
    """Return the tangent of an angle in radians."""
    return _call("tan", x)


def asin(x: ExprLike) -> Expr:
    """Return the angle in radians whose sine is ``x``."""
    return _call("asin", x)


def acos(x: ExprLike) -> Expr:
    """Return the angle in radians whose cosine is ``x``."""
    return _call("acos", x)


def atan(x: ExprLike) -> Expr:
    """Return the angle in radians whose tangent is ``x``."""
    return _call("atan", x)


def sinh(x: ExprLike) -> Expr:
    """Return the hyperbolic sine of a float."""
    return _call("sinh", x)


def cosh(x: ExprLike) -> Expr:
    """Return the hyperbolic cosine of a float."""
    return _call("cosh", x)


def tanh(x: ExprLike) -> Expr:
    """Return the hyperbolic tangent of a float."""
    return _call("tanh", x)


def asinh(x: ExprLike) -> Expr:
    """Return the inverse hyperbolic sine of a float."""
    return _call("asinh", x)


def acosh(x: ExprLike) -> Expr:
    """Return the inverse hyperbolic cosine of a float."""
    return _call("acosh", x)


def atanh(x: ExprLike) -> Expr:
    """Return the inverse hyperbolic tangent of a float."""
    return _call("atanh", x)


def floor(x: ExprLike) -> Expr:
    """Return the greatest whole number that is not above a float, as a float."""
    return _call("floor", x)


def ceil(x: ExprLike) -> Expr:
    """Return the least whole number that is not below a float, as a float."""
    return _call("ceil", x)


def trunc(x: ExprLike) -> Expr:
    """Return a float without its fraction."""
    return _call("trunc", x)


def round(x: ExprLike) -> Expr:
    """Return the nearest whole number as a float, the even one of two."""
    return _call("round", x)


def abs(x: ExprLike) -> Expr:
    """Return the absolute value of a number; that of the least integer is itself."""
    return _call("abs", x)


def isnan(x: ExprLike) -> Expr:
    """Return whether a float is NaN, as a bool."""
    return _call("isnan", x)


def isinf(x: ExprLike) -> Expr:
    """Return whether a float is infinite, as a bool."""
    return _call("isinf", x)


def isfinite(x: ExprLike) -> Expr:
    """Return whether a float is neither infinite nor NaN, as a bool."""
    return _call("isfinite", x)


def popcount(x: ExprLike) -> Expr:
    """Return the number of one bits of an integer, in its type."""
    return _call("popcount", x)


def count_leading_zeros(x: ExprLike) -> Expr:
    """Return the number of zero bits above the highest one bit of an integer, in its type."""
    return _call("count_leading_zeros", x)


def reduce_add(x: ExprLike) -> Expr:
    """Return the sum of a vector's lanes, added in pairs."""
    return _call("reduce_add", x)


def reduce_mul(x: ExprLike) -> Expr:
    """Return the product of a vector's lanes, multiplied in pairs."""
    return _call("reduce_mul", x)


def reduce_min(x: ExprLike) -> Expr:
    """Return the least of a vector's lanes; NaN if any is NaN."""
    return _call("reduce_min", x)


def reduce_max(x: ExprLike) -> Expr:
    """Return the greatest of a vector's lanes; NaN if any is NaN."""
    return _call("reduce_max", x)


def pow(x: ExprLike, y: ExprLike) -> Expr:
    """Return ``x`` to the power of ``y``, both floats."""
    return _call("pow", x, y)


def fmod(x: ExprLike, y: ExprLike) -> Expr:
    """Return the remainder of ``x / y`` with the sign of ``x``, of floats; integers have ``truncmod``."""
    return _call("fmod", x, y)


def atan2(y: ExprLike, x: ExprLike) -> Expr:
    """Return the angle in radians of the point ``(x, y)``, from -pi to pi."""
    return _call("atan2", y, x)


def copysign(x: ExprLike, y: ExprLike) -> Expr:
    """Return the magnitude of ``x`` with the sign of ``y``."""
    return _call("copysign", x, y)


def interleave_low(a: ExprLike, b: ExprLike) -> Expr:
    """Return ``a[0], b[0], a[1], b[1], ...`` of the first halves of two vectors."""
    return _call("interleave_low", a, b)


def interleave_high(a: ExprLike, b: ExprLike) -> Expr:
    """Return the elements of the second halves of two vectors, in turn."""
    return _call("interleave_high", a, b)


def interleave(vectors: Sequence[Expr], part: int) -> Expr:
    """Return a part of the lanes of ``vectors`` in turn: ``v[0][0], v[1][0], ..., v[0][1], v[1][1], ...``. There are as
    many parts as vectors, each as long as one of them; part 0 is the first.

    Args:
        vectors: two, or an odd number of them up to 15, of one type.

    Raises:
        ArgumentValueError: no intrinsic interleaves so many vectors, or ``part`` is none of their parts.
    """
    if len(vectors) != 2 and len(vectors) not in INTERLEAVED:
        counts = ", ".join(map(str, (2, *INTERLEAVED)))
        raise ArgumentValueError(f"interleave: expected one of {counts} vectors, found {len(vectors)}")
    if not 0 <= part < len(vectors):
        raise ArgumentValueError(f"interleave: expected a part from 0 to {len(vectors) - 1}, found {part}")
    if len(vectors) == 2:
        return interleave_high(*vectors) if part else interleave_low(*vectors)
    return _call(f"interleave_{len(vectors)}", *vectors, const(part, "int64"))


def fma(a: ExprLike, b: ExprLike, c: ExprLike) -> Expr:
    """Return ``a * b + c`` of floats, rounded once."""
    return _call("fma", a, b, c)


def dot(total: Expr, a: Expr, b: Expr) -> Expr:
    """Return vector ``total`` with the products of neighbouring lanes of ``a`` and ``b`` added, as many to each of its
    lanes as those have more; they are narrower numbers."""
    return Call("dot", (total, a, b), total.dtype)


def reinterpret(dtype: Any, x: ExprLike) -> Expr:
    """Return the bits of ``x`` as another type of the same width."""
    return Call("reinterpret", (as_expr(x),), as_dtype(dtype))


def prefetch(element: BufferLoad) -> Call:
    """Return the hint that an element of a buffer will be wanted; it may lie outside of the buffer."""
    return Call("prefetch", (element,), VOID)


def truncdiv(x: ExprLike, y: ExprLike) -> Expr:
    """Return the quotient of integers, rounded toward zero as C rounds it; ``//`` rounds down."""
    return binary("truncdiv", x, y)


def truncmod(x: ExprLike, y: ExprLike) -> Expr:
    """Return what :func:`truncdiv` leaves, with the sign of ``x``; that of ``%`` has the sign of ``y``."""
    return binary("truncmod", x, y)
