"""Split conditions into conjuncts and join them."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.tensorir.expr import BinaryOp, Expr, IntImm

#: The negation of each comparison of integers.
OPPOSITES = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}


def conjuncts(condition: Expr | None) -> list[Expr]:
    """Return the conditions that ``condition`` joins by ``and`` (none for None)."""
    if condition is None:
        return []
    if isinstance(condition, BinaryOp) and condition.op == "and":
        return conjuncts(condition.a) + conjuncts(condition.b)
    return [condition]


def conjunction(conditions: Iterable[Expr]) -> Expr | None:
    """The conditions as one, or None if there are none."""
    result: Expr | None = None
    for condition in conditions:
        if isinstance(condition, IntImm) and condition.value:
            continue
        result = condition if result is None else BinaryOp("and", result, condition)
    return result
