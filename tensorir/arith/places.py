"""Where the variables of a function are defined, as the order of terms."""

from __future__ import annotations

from tilewright.tensorir.arith.term_order import TermOrder
from tilewright.tensorir.functor import walk_statements
from tilewright.tensorir.stmt import Block, For, LetStmt, PrimFunc


def order_of(func: PrimFunc) -> TermOrder:
    """The order of terms in ``func``: sizes first, then variables as they are defined, the outer ones first."""
    order = TermOrder()
    for size in func.variables:
        order.append(size)
    for stmt in walk_statements(func.body):
        if isinstance(stmt, (For, LetStmt)):
            order.append(stmt.var)
        elif isinstance(stmt, Block):
            for axis in stmt.iters:
                order.append(axis.var)
    return order
