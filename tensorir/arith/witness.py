"""Witnesses: values of the variables under which all facts of an analyzer hold.

A form that is negative for a witness cannot be proved to be >= 0; a search would find that out only by trying all
bounds. Most questions about tiles and tails are of that kind: in its first iteration a loop is not over. So a few
witnesses are kept beside the facts, and tried first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tilewright.tensorir.arith.lane_numbers import LANES
from tilewright.tensorir.expr import BinaryOp, Compare, Expr, IntImm, Select, UnaryOp, Var
from tilewright.tensorir.folding import trunc_div

#: The value of unbound sizes for each witness: the first ones are small, where bounds are tightest.
_SIZES = (1, 2, 5, 37, 1001, 14, 64, 211)
#: From which end of its range a witness takes the value of a bound variable: the first witnesses always from the upper
#: end (1) or always from the lower end (0), the others in turns.
_ENDS = ((1,), (0,), (1,), (0,), (1,), (0, 1), (1, 0), (0, 0, 1))

#: A witness does not inherit the values of more expressions than this.
_MOST_KNOWN = 100

_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "min": min,
    "max": max,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
}
_DIVISIONS: dict[str, Callable[[int, int], int]] = {
    "floordiv": lambda a, b: a // b,
    "floormod": lambda a, b: a % b,
    "truncdiv": trunc_div,
    "truncmod": lambda a, b: a - trunc_div(a, b) * b,
}


class Witness:
    """Values of variables; variables that were not bound have a default that depends on the witness.

    Args:
        number: which of the witnesses it is.
    """

    __slots__ = ("_known", "_number", "_values")

    def __init__(self, number: int, values: dict[Expr, int], known: dict[Expr, int | None]) -> None:
        self._number = number
        self._values = values
        #: Values of the expressions evaluated so far; None for those that cannot be evaluated.
        self._known = known

    def value(self, expr: Expr) -> int | None:
        """The value of an integer or boolean expression; None if it depends on more than variables."""
        if type(expr) is IntImm:
            return expr.value
        known = self._known
        found = known.get(expr)
        if found is None and expr not in known:
            found = known[expr] = self._evaluate(expr)
        return found

    def _evaluate(self, expr: Expr) -> int | None:
        if type(expr) is BinaryOp or type(expr) is Compare:
            a = self.value(expr.a)
            b = None if a is None else self.value(expr.b)
            if a is None or b is None:
                return None
            if expr.op == "mul":
                return a * b
            if expr.op == "add":
                return a + b
            if expr.op == "sub":
                return a - b
            operation = _OPERATIONS.get(expr.op)
            if operation is not None:
                return operation(a, b)
            division = _DIVISIONS.get(expr.op)
            return None if division is None or b == 0 else division(a, b)
        if type(expr) is Var:
            found = self._values.get(expr)
            if found is None:
                lanes = LANES.get(expr)
                found = _SIZES[self._number] if lanes is None else lanes - 1 if _ENDS[self._number][0] else 0
            return found
        if isinstance(expr, Select):
            condition = self.value(expr.condition)
            if condition is None:
                return None
            return self.value(expr.true_value if condition else expr.false_value)
        if isinstance(expr, UnaryOp):
            a = self.value(expr.a)
            return None if a is None or expr.op == "bitnot" else (-a if expr.op == "neg" else not a)
        return None

    def bound(self, var: Var, low: Expr, extent: Expr | None, *, kept: bool) -> Witness | None:
        """Return a witness for which ``low <= var < low + extent``; None if there is no such number, or if ``var`` has
        another value that must be kept because other facts rely on it."""
        first = self.value(low)
        count = 1 if extent is None else self.value(extent)
        if first is None or count is None or count < 1:
            return None
        last = first + count - 1
        if kept:
            value = self.value(var)
            inside = value is not None and first <= value and (extent is None or value <= last)
            return self if inside else None
        ends = _ENDS[self._number]
        chosen = last if ends[len(self._values) % len(ends)] else first
        # If ``var`` has not been evaluated, no value known so far depends on it.
        known = {} if var in self._known or len(self._known) > _MOST_KNOWN else self._known.copy()
        values = self._values.copy()
        values[var] = chosen
        return Witness(self._number, values, known)

    def agrees(self, condition: Expr) -> bool:
        """Return whether ``condition`` holds for it."""
        return bool(self.value(condition))


#: The number of witnesses.
NUM_WITNESSES: Final = len(_SIZES)


def witness(number: int) -> Witness:
    """Return a witness of an analyzer without facts."""
    return Witness(number, {}, {})
