"""Parts of copied expressions (:mod:`.copies`): numbers in place of variables, choices that they decide, constants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.tensorir.arith.folds import fold, is_false, is_true
from tilewright.tensorir.expr import BinaryOp, Expr, IntImm, Select, Var, const
from tilewright.tensorir.functor import Mutator


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
