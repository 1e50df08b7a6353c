"""Interval analysis of expressions: the interval of a node from those of its operands, and of whole expressions from
those of their variables.

An infinite end says that the value is computed from sizes: it has no constant bound, but it does not overflow 64 bits,
because it counts elements that fit into memory. Data, which may be any number of its type, has the finite interval of
that type, so that arithmetic on it is known to wrap around.

Cousot and Cousot, "Abstract interpretation: a unified lattice model for static analysis of programs by construction or
approximation of fixpoints" (1977).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tilewright.tensorir.arith.interval import (
    EVERYTHING,
    INFINITY,
    NONNEGATIVE,
    OPERATIONS,
    Interval,
    bitnot,
    multiply,
    shift_left,
    type_interval,
)
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.expr import (
    BinaryOp,
    Broadcast,
    Call,
    Cast,
    Choose,
    Expr,
    IntImm,
    Ramp,
    Select,
    UnaryOp,
    Var,
)
from tilewright.tensorir.folding import INTEGER_DIVISIONS
from tilewright.tensorir.intrinsics import INTRINSICS

#: Constants of this value or more do not multiply sizes: they occur in hashes and random numbers, whose products wrap.
_NO_FACTOR_OF_SIZES: Final = 1 << 31

_ZERO: Final = Interval(0, 0)


def transfer(expr: Expr, of: Callable[[Expr], Interval]) -> Interval:
    """Interval of the value (of every lane) of an integer or boolean expression as if its type had no limits, given
    ``of``, the intervals of its operands. An unknown value has the interval of its type, and so has a quotient whose
    divisor is always zero; where a divisor may be zero, the quotient may be zero, as in generated code."""
    if isinstance(expr, BinaryOp):
        operation = OPERATIONS.get(expr.op)
        if operation is None or expr.dtype.is_bool:
            return shift_left(of(expr.a), of(expr.b), expr.dtype) if expr.op == "shl" else type_interval(expr.dtype)
        b = of(expr.b)
        found = operation(of(expr.a), b)
        if expr.op in INTEGER_DIVISIONS and b.contains(0):
            return type_interval(expr.dtype) if b.is_point else found.union(_ZERO)
        return found
    if isinstance(expr, IntImm):
        return Interval(expr.value, expr.value)
    if isinstance(expr, Select):
        return of(expr.true_value).union(of(expr.false_value))
    if isinstance(expr, Choose):
        found = of(expr.values[0])
        for value in expr.values[1:]:
            found = found.union(of(value))
        return found
    if isinstance(expr, Broadcast):
        return of(expr.value)
    if isinstance(expr, Ramp):
        return OPERATIONS["add"](of(expr.base), multiply(of(expr.stride), Interval(0, expr.lanes - 1)))
    if isinstance(expr, Cast) and not expr.dtype.is_bool and (expr.value.dtype.is_integer or expr.value.dtype.is_bool):
        return of(expr.value)
    if isinstance(expr, UnaryOp) and expr.dtype.is_integer:
        inner = of(expr.a)
        if expr.op == "neg":
            return -inner
        found = bitnot(inner)
        return found if expr.dtype.is_int else wrapped(found, expr.dtype)
    if isinstance(expr, Call):
        intrinsic = INTRINSICS.get(expr.name)
        if intrinsic is not None and intrinsic.value_range is not None:
            return Interval(*intrinsic.value_range([arg.dtype for arg in expr.args]))
    return type_interval(expr.dtype)


def wrapped(found: Interval, dtype: DataType) -> Interval:
    """Interval of the numbers of ``found`` wrapped to the type, which keeps their low bits."""
    limits = type_interval(dtype)
    if limits.lower <= found.lower and found.upper <= limits.upper:
        return found
    if not found.is_finite or dtype.is_bool:
        return limits
    lower, upper, turn = int(found.lower), int(found.upper), 1 << dtype.bits
    turns = (lower - int(limits.lower)) // turn
    if turns != (upper - int(limits.lower)) // turn:
        return limits
    return Interval(lower - turns * turn, upper - turns * turn)


class IntervalAnalysis:
    """Intervals of integer expressions, from those of the variables in scope. Each variable is bound once, before any
    question about an expression that uses it."""

    def __init__(self) -> None:
        self.variables: dict[Var, Interval] = {}
        #: Intervals by expression, and the expressions that may wrap around.
        self._known: dict[Expr, Interval] = {}
        self._wrapping: set[Expr] = set()

    def copy(self) -> IntervalAnalysis:
        """An analysis that knows the same variables, for another function that uses them."""
        made = IntervalAnalysis()
        made.variables = dict(self.variables)
        return made

    def bind_size(self, var: Var) -> None:
        """Say that ``var`` is a dimension."""
        self.variables[var] = NONNEGATIVE

    def bind_loop(self, var: Var, minimum: Expr, extent: Expr) -> None:
        """Say that ``var`` runs over a loop's range."""
        low, count = self.of(minimum), self.of(extent)
        last = low.upper + max(1, count.upper) - 1
        limits = type_interval(var.dtype)
        self.variables[var] = Interval(low.lower, min(last, limits.upper) if last != INFINITY else last)

    def bind_value(self, var: Var, value: Expr) -> None:
        """Say that ``var`` has the value of an expression."""
        if value.dtype.is_integer:
            self.variables[var] = self.of(value)

    def of(self, expr: Expr) -> Interval:
        """An interval that holds every value (of every lane) of ``expr``."""
        found = self._known.get(expr)
        if found is None:
            found = self._known[expr] = self._find(expr)
        return found

    def may_wrap(self, expr: Expr) -> bool:
        """Return whether the value of ``expr`` may differ from what its operation gives in numbers without limits."""
        self.of(expr)
        return expr in self._wrapping

    def _find(self, expr: Expr) -> Interval:
        if isinstance(expr, IntImm):
            return Interval(expr.value, expr.value)
        limits = type_interval(expr.dtype)
        if isinstance(expr, Var):
            return self.variables.get(expr, limits)
        if limits is EVERYTHING:  # no integer
            return limits
        found = transfer(expr, self.of)
        if limits.lower <= found.lower and found.upper <= limits.upper:
            return found
        if expr.dtype.bits == 64 and not found.is_finite and not _is_hash(expr):
            return found
        self._wrapping.add(expr)
        return wrapped(found, expr.dtype)


def _is_hash(expr: Expr) -> bool:
    """Return whether ``expr`` is a product by a constant that is too large to multiply a size."""
    if not isinstance(expr, BinaryOp) or expr.op != "mul":
        return False
    factors = [abs(factor.value) for factor in (expr.a, expr.b) if isinstance(factor, IntImm)]
    return any(factor >= _NO_FACTOR_OF_SIZES for factor in factors)
