"""Merge two indices that are parts of one number: ``i // 64, i % 64`` in a row-major box is ``i`` in one dimension."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.tensorir.arith.analyzer import Analyzer
from tilewright.tensorir.arith.iter_map import IterSplit
from tilewright.tensorir.expr import BinaryOp, Expr, as_expr, binary

#: The quotient operation of each remainder.
QUOTIENTS = {"floormod": "floordiv", "truncmod": "truncdiv"}


def whole_number(
    analyzer: Analyzer,
    outer: Expr,
    size: Expr,
    inner: Expr,
    extent: Expr,
    divisor_of: Callable[[Expr], Expr | None] = lambda divisor: divisor,
) -> tuple[Expr, str] | None:
    """Return the number of which ``outer`` is the quotient by ``extent`` and ``inner`` the remainder.

    Args:
        outer: an index of a dimension of ``size`` elements.
        inner: the index of the next dimension, which has ``extent`` elements.
        divisor_of: gives the scalar that a divisor stands for; None if it stands for several.

    Returns:
        the number, and the name of the remainder to take of it by ``size * extent``; no name if the number is less.
        None if they are not parts of one number.
    """

    if not (isinstance(inner, BinaryOp) and inner.op in QUOTIENTS):
        return None
    divisor = divisor_of(inner.b)
    if divisor is None or not analyzer.prove_equal(divisor, extent):
        return None
    split = _split_of(inner.a, outer, inner.op, divisor_of)
    if split is None or not analyzer.prove_equal(split.lower, extent):
        return None
    if split.extent is None:
        return inner.a, ""
    return (inner.a, inner.op) if analyzer.prove_equal(split.extent, size) else None


def _split_of(number: Expr, index: Expr, remainder: str, divisor_of: Callable[[Expr], Expr | None]) -> IterSplit | None:
    """``index`` as ``number // lower % extent``, where the remainder may be taken first: ``number % size // lower``."""
    quotient, one = QUOTIENTS[remainder], as_expr(1, number.dtype.element)
    extent: Expr | None = None
    lower: Expr | None = None
    if isinstance(index, BinaryOp) and index.op == remainder:
        extent, index = divisor_of(index.b), index.a
        if extent is None:
            return None
    while isinstance(index, BinaryOp) and index.op == quotient and index is not number:
        factor = divisor_of(index.b)
        if factor is None:
            return None
        lower, index = factor if lower is None else factor * lower, index.a
    if index is not number:
        if extent is not None or not (isinstance(index, BinaryOp) and index.op == remainder and index.a is number):
            return None
        whole = divisor_of(index.b)
        if whole is None or lower is None:
            return None
        extent = binary("floordiv", whole, lower)
    return IterSplit(number, one if lower is None else lower, extent, one)
