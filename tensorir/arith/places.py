"""Where the variables of a function are defined, as the order of terms."""

from __future__ import annotations

from tilewright.tensorir.arith.term_order import TermOrder
from tilewright.tensorir.functor import walk_statements
from tilewright.tensorir.node import Node
from tilewright.tensorir.stmt import Block, For, LetStmt, PrimFunc


def order_of(func: PrimFunc) -> TermOrder:
    """The order of terms in ``func``: sizes first, then variables as they are defined, the outer ones first."""
    variables: list[Node] = [*func.variables]
    for stmt in walk_statements(func.body):
        if type(stmt) is For or type(stmt) is LetStmt:
            variables.append(stmt.var)
        elif type(stmt) is Block:
            variables += [axis.var for axis in stmt.iters]
    return TermOrder(variables)
