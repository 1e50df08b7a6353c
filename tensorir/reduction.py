"""Declare reductions in tensor expressions: ``sum``, ``max``, ``argmax`` and the like, and their axes.

Formulas use them under their names in ``tensor.py``: ``te.sum(a[i, k], axis=k)``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.errors import ArgumentValueError
from tilewright.tensorir.expr import Expr, ExprLike, Var, as_expr, binary, compare, const, select
from tilewright.tensorir.node import notes_on


@dataclasses.dataclass(frozen=True)
class Reduction:
    """The result of ``sum``, ``max``, ``argmax`` and the like: the body of a ``compute``, not an expression.

    Attributes:
        axes: the reduction variables.
        identities: the start value of each accumulator.
        sources: the value that is combined into each accumulator.
        combine: (accumulators, values) -> new accumulators.
        result: the number of the accumulator that is the computed tensor's element.
    """

    axes: tuple[Var, ...]
    identities: tuple[Expr, ...]
    sources: tuple[Expr, ...]
    combine: Callable[[Sequence[Expr], Sequence[Expr]], Sequence[Expr]]
    result: int = 0


_ZERO = as_expr(0)


def reduce_axis(domain: ExprLike | tuple[ExprLike, ExprLike], name: str = "k") -> Var:
    """A reduction variable over ``[0, extent)``, or over ``[min, extent)`` for a pair ``(min, end)``."""
    begin: Expr = _ZERO
    if isinstance(domain, tuple):
        begin, end = map(as_expr, domain)
        extent = binary("sub", end, begin)
    else:
        extent = as_expr(domain)
    var = Var(f"v{name}")
    notes_on(var)[reduce_axis] = (begin, extent)
    return var


def range_of(axis: Var) -> tuple[Expr, Expr]:
    """Least value and extent of a reduction variable."""
    found: tuple[Expr, Expr] = notes_on(axis)[reduce_axis]
    return found


def _axes(axis: Var | Sequence[Var]) -> tuple[Var, ...]:
    axes = (axis,) if isinstance(axis, Expr) or not isinstance(axis, Sequence) else tuple(axis)
    for var in axes:
        if not isinstance(var, Var) or reduce_axis not in notes_on(var):
            raise ArgumentValueError(
                f"{var!s} is not a reduction axis; make it with reduce_axis(). "
                "(The lesser and the greater of two values are minimum() and maximum().)"
            )
    return axes


def _reduction(op: str, source: ExprLike, axis: Var | Sequence[Var], identity: int | float) -> Reduction:
    value = as_expr(source)
    return Reduction(
        _axes(axis),
        (const(identity, value.dtype),),
        (value,),
        lambda accumulators, values: (binary(op, accumulators[0], values[0]),),
    )


def lowest(dtype: DataType) -> int | float:
    """The least value of a type (minus infinity for floats): the identity of ``max``."""
    if dtype.is_float:
        return -math.inf
    return -(1 << (dtype.bits - 1)) if dtype.is_int else 0


def highest(dtype: DataType) -> int | float:
    """The greatest value of a type (infinity for floats): the identity of ``min``."""
    if dtype.is_float:
        return math.inf
    if dtype.is_bool:
        return 1
    return (1 << (dtype.bits - 1)) - 1 if dtype.is_int else (1 << dtype.bits) - 1


_IDENTITIES = {"add": 0, "mul": 1, "and": 1, "or": 0}


def identity_of(op: str, dtype: DataType) -> int | float | None:
    """The neutral element of a binary operation on values of a type; None for operations without one."""
    if op == "max":
        return lowest(dtype)
    return highest(dtype) if op == "min" else _IDENTITIES.get(op)


def sum(source: ExprLike, axis: Var | Sequence[Var]) -> Reduction:
    """The sum of ``source`` over reduction axes, in their order."""
    return _reduction("add", source, axis, 0)


def prod(source: ExprLike, axis: Var | Sequence[Var]) -> Reduction:
    """The product of ``source`` over reduction axes."""
    return _reduction("mul", source, axis, 1)


def max(source: ExprLike, axis: Var | Sequence[Var]) -> Reduction:
    """The greatest ``source`` over reduction axes; NaN if any is NaN."""
    return _reduction("max", source, axis, lowest(as_expr(source).dtype))


def min(source: ExprLike, axis: Var | Sequence[Var]) -> Reduction:
    """The least ``source`` over reduction axes; NaN if any is NaN."""
    return _reduction("min", source, axis, highest(as_expr(source).dtype))


def any(source: ExprLike, axis: Var | Sequence[Var]) -> Reduction:
    """Compute whether the bool ``source`` holds anywhere over reduction axes."""
    return _reduction("or", source, axis, 0)


def all(source: ExprLike, axis: Var | Sequence[Var]) -> Reduction:
    """Compute whether the bool ``source`` holds everywhere over reduction axes."""
    return _reduction("and", source, axis, 1)


def _arg_reduction(op: str, source: ExprLike, axis: Var, index: ExprLike | None, last: bool) -> Reduction:
    value = as_expr(source)
    position = as_expr(axis if index is None else index)

    def combine(accumulators: Sequence[Expr], values: Sequence[Expr]) -> Sequence[Expr]:
        best, best_at = accumulators
        new, new_at = values
        better = compare(op + ("e" if last else "t"), new, best)
        if value.dtype.is_float:  # a NaN is the extreme value, as in NumPy, and NaNs count as equal
            better = binary("or", better, compare("ne", new, new))
            better = better if last else better & compare("eq", best, best)
        # A negative position says that no value has been taken yet: the first value always is.
        better = binary("or", better, compare("lt", best_at, const(0, best_at.dtype)))
        return select(better, new, best), select(better, new_at, best_at)

    start = lowest(value.dtype) if op == "g" else highest(value.dtype)
    identities = (const(start, value.dtype), const(-1, position.dtype))
    return Reduction(_axes(axis), identities, (value, position), combine, result=1)


def argmax(source: ExprLike, axis: Var, index: ExprLike | None = None, select_last: bool = False) -> Reduction:
    """The ``index`` (by default the axis) at which ``source`` is greatest: the first such place, or the last. A
    NaN is greater than all numbers."""
    return _arg_reduction("g", source, axis, index, select_last)


def argmin(source: ExprLike, axis: Var, index: ExprLike | None = None, select_last: bool = False) -> Reduction:
    """The ``index`` (by default the axis) at which ``source`` is least: the first such place, or the last. A
    NaN is less than all numbers."""
    return _arg_reduction("l", source, axis, index, select_last)
