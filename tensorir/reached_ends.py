"""Tell whether an integer expression reaches both ends of its interval, so that an index is known to be wrong where one
of the ends is out of bounds."""

from __future__ import annotations

from tilewright.tensorir.arith.transfer import IntervalAnalysis
from tilewright.tensorir.expr import BinaryOp, Broadcast, Cast, Expr, IntImm, Ramp, UnaryOp, Var
from tilewright.tensorir.stmt import For


class ReachedEnds:
    """Intervals of integer expressions, and which of these have ends that are values.

    Attributes:
        intervals: of the variables in scope, and of expressions over them.
    """

    def __init__(self) -> None:
        self.intervals = IntervalAnalysis()
        #: The variables that reach both ends of their intervals, with the loop variables that they depend on.
        self._reached: dict[Var, frozenset[Var]] = {}

    def bind_loop(self, loop: For) -> None:
        """Say that the variable of a loop takes the values of its range."""
        self.intervals.bind_loop(loop.var, loop.min, loop.extent)
        if self.intervals.of(loop.min).is_point and self.intervals.of(loop.extent).is_point:
            self._reached[loop.var] = frozenset((loop.var,))

    def bind(self, var: Var, value: Expr) -> None:
        """Say that ``var`` has the value of an integer expression."""
        self.intervals.bind_value(var, value)
        drivers = self.drivers(value)
        if drivers is not None:
            self._reached[var] = drivers

    def drivers(self, expr: Expr) -> frozenset[Var] | None:
        """The loop variables that an integer expression depends on, if it is known to reach both ends of its interval;
        else None."""
        if isinstance(expr, IntImm):
            return frozenset()
        if isinstance(expr, Var):
            return self._reached.get(expr)
        if isinstance(expr, Broadcast):
            return self.drivers(expr.value)
        if not expr.dtype.is_integer or self.intervals.may_wrap(expr):
            return None
        if isinstance(expr, BinaryOp):
            return self._drivers_of_operation(expr)
        if isinstance(expr, Ramp):
            return self.drivers(expr.base) if self.intervals.of(expr.stride).is_point else None
        if isinstance(expr, Cast) and expr.value.dtype.is_integer:
            return self.drivers(expr.value)
        if isinstance(expr, UnaryOp) and expr.op == "neg":
            return self.drivers(expr.a)
        return None

    def _drivers_of_operation(self, expr: BinaryOp) -> frozenset[Var] | None:
        """:meth:`drivers` of an operation that does not wrap around: both operands reach their ends independently, and
        the operation takes those ends to its own."""
        a, b = self.drivers(expr.a), self.drivers(expr.b)
        if a is None or b is None or a & b:
            return None
        first, second = self.intervals.of(expr.a), self.intervals.of(expr.b)
        if expr.op in ("add", "sub", "min", "max"):
            reached = True
        elif expr.op in ("mul", "floordiv"):
            reached = second.is_point or (expr.op == "mul" and first.is_point)
        else:
            reached = expr.op == "floormod" and second.is_point and self.intervals.of(expr) == first
        return a | b if reached else None
