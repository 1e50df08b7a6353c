"""Parts of copied expressions (:mod:`.copies`): numbers in place of variables, choices that they decide, constants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.tensorir.arith.folds import fold, is_false, is_true
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import BinaryOp, Expr, IntImm, Select, Var, binary, const
from tilewright.tensorir.functor import Mutator, leaves

#: An index as a part that is the same in all copies (None: zero), plus a constant, plus multiples of variables that
#: numbers replace.
Steps = tuple[Expr | None, int, tuple[tuple[Var, int], ...]]

#: The least int64, which has no opposite.
_LEAST = -(1 << 63)


class Parts(Mutator):
    """Replaces each part of a node by another expression."""

    def __init__(self, replaced: Mapping[Any, Expr]) -> None:
        self.replaced = replaced

    def mutate(self, node: Any) -> Any:
        return self.replaced[node]


def value_of(var: Var, value: Expr | int) -> Expr:
    """Return a value of ``var``, which may be given as a number, as an expression of its type."""
    return value if isinstance(value, Expr) else const(value, var.dtype)


def selected(condition: Expr, true_value: Expr, false_value: Expr) -> Expr:
    """Build a selection, or what a constant condition selects."""
    if is_true(condition):
        return true_value
    return false_value if is_false(condition) else fold(Select(condition, true_value, false_value))


def split_number(expr: Expr) -> tuple[Expr | None, int]:
    """Split an int64 into a non-constant part (None: zero) and a constant."""
    if isinstance(expr, IntImm):
        return None, expr.value
    if isinstance(expr, BinaryOp) and isinstance(expr.b, IntImm):
        if expr.op == "add":
            return expr.a, expr.b.value
        if expr.op == "sub":
            return expr.a, -expr.b.value
    return expr, 0


def shifted(whole: Expr, numbers: list[int]) -> list[Expr]:
    """Build ``whole + number`` for each of ``numbers``, which are int64."""
    return [
        BinaryOp("add", whole, const(number, INT64))
        if number > 0 or number == _LEAST
        else BinaryOp("sub", whole, const(-number, INT64))
        if number
        else whole
        for number in numbers
    ]


def operation(op: str, a: Expr, b: Expr) -> Expr:
    """Build ``a op b``, folded at the top."""
    if op in ("and", "or") and a.dtype.is_bool:
        for side, other in ((a, b), (b, a)):
            if is_true(side) or is_false(side):
                return other if is_true(side) == (op == "and") else side
    if op in ("add", "sub") and a.dtype is INT64:
        return _sum(op, a, b)
    return fold(binary(op, a, b))


def _sum(op: str, a: Expr, b: Expr) -> Expr:
    """Build ``a + b`` or ``a - b`` with the constant part last."""
    x, fixed = split_number(a)
    y, part = split_number(b)
    fixed += part if op == "add" else -part
    if y is None:
        whole = x
    elif x is None:
        if op == "sub":
            return binary("sub", const(fixed, INT64), y)
        whole = y
    else:
        whole = BinaryOp(op, x, y)
    return const(fixed, INT64) if whole is None else shifted(whole, [fixed])[0]


def find_steps(expr: Expr, values: Mapping[Any, Any]) -> Steps | None:
    """Return the steps of an index in which ``values`` replace variables; None if it is no such sum."""
    if type(expr) is IntImm:
        return None, expr.value, ()
    if type(expr) is Var:
        number = values.get(expr)
        return (expr, 0, ()) if number is None else (None, 0, ((expr, 1),)) if type(number) is IntImm else None
    if values.keys().isdisjoint(leaves(expr)):
        rest, fixed = split_number(expr)
        return (rest, fixed, ()) if rest is None or split_number(rest)[0] is rest else None
    if type(expr) is not BinaryOp:
        return None
    op = expr.op
    if op == "mul":
        return _multiplied(expr.a, expr.b, values)
    if op != "add" and op != "sub":
        return None
    b = find_steps(expr.b, values)
    if b is None:
        return None
    a = find_steps(expr.a, values)
    if a is None:
        return None
    whole, fixed, steps = a
    added, number, more = b
    if op == "sub":
        if whole is None and added is not None:
            return None
        number, more = -number, tuple([(var, -step) for var, step in more])
    if whole is None:
        whole = added
    elif added is not None:
        whole = BinaryOp(op, whole, added)
    return whole, fixed + number, steps + more


def _multiplied(a: Expr, b: Expr, values: Mapping[Any, Any]) -> Steps | None:
    """Return the steps of a product of a number, or of what numbers replace, and a number."""
    if type(a) is Var and type(b) is IntImm:  # as most are
        return (None, 0, ((a, b.value),)) if type(values.get(a)) is IntImm else None
    right = find_steps(b, values)
    if right is None or right[0] is not None:
        return None
    left = find_steps(a, values)
    if left is None or left[0] is not None or (left[2] and right[2]):
        return None
    varying, factor = (left, right[1]) if left[2] else (right, left[1])
    return None, varying[1] * factor, tuple([(var, step * factor) for var, step in varying[2]])
