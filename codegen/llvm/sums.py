"""The order in which the terms of an offset are added up.

Offsets are written where they are used, in the innermost loop often. Added up from what changes least often, all but
the last terms of a sum are one number there that the loop does not change, and accesses share the beginnings of sums.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import BinaryOp, Expr, IntImm, Var
from tilewright.tensorir.functor import leaves


class Term(NamedTuple):
    """A term of a sum.

    Attributes:
        depth: the number of loops around what it changes in.
        negative: whether it is subtracted.
        position: its place in the sum, which no other term has.
        value: what is added.
    """

    depth: int
    negative: bool
    position: int
    value: Expr


#: More loops than there are: of what memory holds, which may change anywhere, and behind that of constants.
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
        """``var`` counts in a loop that stands in ``depth - 1`` others."""
        self._depths[var] = depth

    def define(self, var: Var, value: Expr) -> None:
        """``var`` has the value of an expression."""
        if var.dtype is INT64:
            self._depths[var] = self._depth(value)

    def terms(self, total: BinaryOp) -> list[Term]:
        """The terms of a sum, those that change least often first."""
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
        """The number of loops that ``expr`` changes in."""
        depth = 0
        for leaf in leaves(expr):
            found = self._depths.get(leaf, 0) if isinstance(leaf, Var) else _ANYWHERE
            if found > depth:
                depth = found
        return depth
