"""Evaluate integer expressions whose variables are known."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.tensorir.expr import BinaryOp, Cast, Choose, Compare, Expr, IntImm, Select, UnaryOp, Var
from tilewright.tensorir.folding import fold_binary, fold_compare, wrap_integer


def integer_value(expr: Expr, known: Mapping[Var, int]) -> int | None:
    """The value of ``expr``, in the arithmetic of its type; None if it needs a variable that is not in ``known``, or
    data, or divides by zero."""
    if isinstance(expr, IntImm):
        return expr.value
    if isinstance(expr, Var):
        return known.get(expr)
    if isinstance(expr, Cast) and expr.dtype.is_integer and expr.value.dtype.is_integer:
        inner = integer_value(expr.value, known)
        return None if inner is None else wrap_integer(inner, expr.dtype)
    if isinstance(expr, Select):
        condition = integer_value(expr.condition, known)
        if condition is None:
            return None
        return integer_value(expr.true_value if condition else expr.false_value, known)
    if isinstance(expr, Choose):
        index = integer_value(expr.index, known)
        return None if index is None else integer_value(expr.chosen(index), known)
    if isinstance(expr, UnaryOp):
        inner = integer_value(expr.a, known)
        if inner is None or not (expr.dtype.is_integer or expr.dtype.is_bool):
            return None
        return wrap_integer({"neg": -inner, "not": not inner, "bitnot": ~inner}[expr.op], expr.dtype)
    if not isinstance(expr, (BinaryOp, Compare)) or expr.a.dtype.is_float:
        return None
    a, b = integer_value(expr.a, known), integer_value(expr.b, known)
    if a is None or b is None:
        return None
    if isinstance(expr, Compare):
        return int(fold_compare(expr.op, a, b))
    value = fold_binary(expr.op, a, b, expr.dtype)
    return None if value is None else int(value)
