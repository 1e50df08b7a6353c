"""The order in which an analyzer meets expressions, by which its canonical forms list what is otherwise equal."""

from __future__ import annotations

from tilewright.tensorir.dtype import INT64, DataType
from tilewright.tensorir.expr import BinaryOp, Expr, IntImm


class MeetingOrder:
    """The expressions that were met, each with its number."""

    def __init__(self) -> None:
        self._numbers: dict[Expr, int] = {}

    def order(self, expr: Expr) -> int:
        """When ``expr`` was first met."""
        found = self._numbers.get(expr)
        if found is None:
            found = self._numbers[expr] = len(self._numbers)
        return found

    def knows(self, expr: Expr) -> bool:
        """Whether ``expr`` was met before."""
        return expr in self._numbers

    def node(self, expr: Expr) -> Expr:
        """``expr``, which has been met now."""
        numbers = self._numbers
        if expr not in numbers:
            numbers[expr] = len(numbers)
        return expr

    def binary(self, op: str, a: Expr, b: Expr) -> Expr:
        """``a op b``, which has been met now."""
        return self.node(BinaryOp(op, a, b))

    def integer(self, value: int, dtype: DataType = INT64) -> Expr:
        """An integer or boolean constant, which has been met now."""
        return self.node(IntImm(value, dtype))
