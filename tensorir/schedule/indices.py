"""Variables and structure of index expressions, for schedules."""

from __future__ import annotations

from tilewright.tensorir.expr import BinaryOp, Expr, IntImm, Var
from tilewright.tensorir.functor import leaves


def variables_of(expr: Expr) -> set[Var]:
    """The variables in an expression."""
    return {leaf for leaf in leaves(expr) if isinstance(leaf, Var)}


def structure(expr: Expr) -> object:
    """Return a hashable value that is equal for integer expressions of equal structure."""
    if type(expr) is IntImm:
        return expr.value
    if type(expr) is BinaryOp:
        return (expr.op, structure(expr.a), structure(expr.b))
    return expr
