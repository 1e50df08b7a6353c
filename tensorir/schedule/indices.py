"""Index expressions as schedules look at them: their variables, their structure, and their shorter form."""

from __future__ import annotations

from tilewright.tensorir.arith import Analyzer
from tilewright.tensorir.expr import BinaryOp, Expr, IntImm, Var
from tilewright.tensorir.functor import walk


def variables_of(expr: Expr) -> set[Var]:
    """The variables in an expression."""
    if isinstance(expr, Var):
        return {expr}
    return {node for node in walk(expr) if isinstance(node, Var)}


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


def shorter(expr: Expr, analyzer: Analyzer) -> Expr:
    """``expr`` simplified, if that makes it shorter. The canonical form of quotients and remainders may be longer, and
    hides how loops were split and fused: ``(i * 32 + j) // 21`` becomes ``i + (i * 11 + j) // 21``."""
    simple = analyzer.simplify(expr)
    return simple if sum(1 for _ in walk(simple)) < sum(1 for _ in walk(expr)) else expr
