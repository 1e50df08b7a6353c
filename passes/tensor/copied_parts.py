"""Parts of copied expressions (:mod:`.copies`): numbers in place of variables, choices that they decide, constants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.tensorir.arith.folds import fold, is_false, is_true
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import BinaryOp, Expr, IntImm, Select, Var, binary, const
from tilewright.tensorir.functor import Mutator

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
