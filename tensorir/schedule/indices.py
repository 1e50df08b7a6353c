"""Index expressions as schedules look at them: their variables and their structure."""

from __future__ import annotations

from tilewright.tensorir.expr import BinaryOp, Expr, IntImm, Var
from tilewright.tensorir.functor import leaves, uses_var


def variables_of(expr: Expr) -> set[Var]:
    """The variables in an expression."""
    return {leaf for leaf in leaves(expr) if isinstance(leaf, Var)}


def structure(expr: Expr) -> object:
    """A hashable value that is equal for integer expressions of one structure."""
    if isinstance(expr, IntImm):
        return expr.value
    if isinstance(expr, BinaryOp):
        return (expr.op, structure(expr.a), structure(expr.b))
    return expr


def constant_value(expr: Expr) -> int | None:
    """The value of an integer constant; None for any other expression."""
    return expr.value if isinstance(expr, IntImm) else None


def coefficient(expr: Expr, var: Var) -> int | None:
    """The factor of ``var`` in an index expression: 0 where it does not occur, None if it is not a constant."""
    if expr is var:
        return 1
    if not uses_var(expr, {var}):
        return 0
    if isinstance(expr, BinaryOp):
        a, b = coefficient(expr.a, var), coefficient(expr.b, var)
        if a is None or b is None:
            return None
        if expr.op in ("add", "sub"):
            return a + b if expr.op == "add" else a - b
        if expr.op == "mul":
            factor = constant_value(expr.b) if b == 0 else constant_value(expr.a)
            return None if factor is None else (a or b) * factor
    return None
