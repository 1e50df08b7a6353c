"""Order the terms of an offset for addition.

Offsets are emitted at their use, often in the innermost loop. Summed from the term that changes least often, all but
the last terms of a sum are one loop-invariant number there, and accesses share prefixes of sums.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import BinaryOp, Expr, IntImm, Var
from tilewright.tensorir.functor import leaves


class Term(NamedTuple):
    """A term of a sum.

    Attributes:
        depth: the depth of the innermost loop that it varies in.
        negative: whether the term is subtracted.
        position: its unique place in the sum.
        value: the expression to add.
    """

    depth: int
    negative: bool
    position: int
    value: Expr


#: Depths beyond those of loops: of loads, as memory may change anywhere, and of constants, which come last.
_ANYWHERE, _LAST = 1 << 16, 1 << 17


def _order(term: Term) -> tuple[int, bool, int]:
    return term.depth, term.negative, term.position


class SumOrder:
    """Orders the sums of one function."""

    def __init__(self) -> None:
        #: The numbers of loops that variables of loops and lets change in; the others, parameters, change in none.
        self._depths: dict[Var, int] = {}
        self._terms: dict[Expr, list[Term]] = {}

    def enter_loop(self, var: Var, depth: int) -> None:
        """Note that ``var`` counts in a loop that is nested in ``depth - 1`` others."""
        self._depths[var] = depth

    def define(self, var: Var, value: Expr) -> None:
        """Note that ``var`` has the value of an expression."""
        if var.dtype is INT64:
            self._depths[var] = self._depth(value)

    def terms(self, total: BinaryOp) -> list[Term]:
        """Return the terms of a sum, those that change least often first."""
        found = self._terms.get(total)
        if found is not None:
            return found
        found = self._terms[total] = []
        stack: list[tuple[Expr, bool]] = [(total, False)]
        while stack:
            value, negative = stack.pop()
            if isinstance(value, BinaryOp) and value.op in ("add", "sub"):
                stack.append((value.b, negative != (value.op == "sub")))
                stack.append((value.a, negative))
            else:
                depth = _LAST if isinstance(value, IntImm) else self._depth(value)
                found.append(Term(depth, negative, len(found), value))
        found.sort(key=_order)
        return found

    def _depth(self, expr: Expr) -> int:
        """Return the depth of the innermost loop that ``expr`` varies in."""
        depth = 0
        for leaf in leaves(expr):
            found = self._depths.get(leaf, 0) if isinstance(leaf, Var) else _ANYWHERE
            if found > depth:
                depth = found
        return depth
