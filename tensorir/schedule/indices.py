"""Index expressions as schedules look at them: their variables and their structure."""

from __future__ import annotations

from tilewright.tensorir.expr import BinaryOp, Expr, IntImm, Var
from tilewright.tensorir.functor import leaves


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
