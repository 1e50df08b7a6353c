"""Two indices that are parts of one number: ``i // 64, i % 64`` in a row-major box is ``i`` in one dimension."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.tensorir.arith.analyzer import Analyzer
from tilewright.tensorir.expr import BinaryOp, Expr

#: The division that goes with a remainder.
QUOTIENTS = {"floormod": "floordiv", "truncmod": "truncdiv"}


def whole_number(
    analyzer: Analyzer,
    outer: Expr,
    size: Expr,
    inner: Expr,
    extent: Expr,
    divisor_of: Callable[[Expr], Expr | None] = lambda divisor: divisor,
) -> tuple[Expr, str] | None:
    """The number that ``outer`` counts in units of ``extent`` and ``inner`` is the rest of.

    Args:
        outer: an index of a dimension of ``size`` elements.
        inner: the index of the next dimension, which has ``extent`` elements.
        divisor_of: the scalar that a divisor stands for; None: it stands for several.

    Returns:
        the number, and the name of the remainder to take of it by ``size * extent``; no name where it is less.
        None if they are no parts of one number.
    """

    def divides(found: Expr, expected: Expr) -> bool:
        scalar = divisor_of(found)
        return scalar is not None and analyzer.prove_equal(scalar, expected)

    if not (isinstance(inner, BinaryOp) and inner.op in QUOTIENTS):
        return None
    number, remainder, quotient = inner.a, inner.op, QUOTIENTS[inner.op]
    if not divides(inner.b, extent):
        return None
    counted, rest = outer, ""
    if isinstance(outer, BinaryOp) and outer.op == remainder and divides(outer.b, size):
        counted, rest = outer.a, remainder  # number // extent % size
    elif isinstance(outer, BinaryOp) and outer.op == quotient and isinstance(outer.a, BinaryOp):
        part = outer.a  # number % (size * extent) // extent
        if part.op == remainder and part.a is number and divides(part.b, size * extent):
            return (part, "") if divides(outer.b, extent) else None
    divisor: Expr | None = None
    while isinstance(counted, BinaryOp) and counted.op == quotient and counted is not number:
        factor = divisor_of(counted.b)
        if factor is None:
            return None
        divisor = factor if divisor is None else factor * divisor
        counted = counted.a
    if divisor is None or counted is not number or not analyzer.prove_equal(divisor, extent):
        return None
    return number, rest
