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
    operation: Callable[[str, Expr, Expr], Expr] = binary,
) -> tuple[Expr, str] | None:
    """Return the number of which ``outer`` is the quotient by ``extent`` and ``inner`` the remainder.

    ``outer`` may be a sum of which the quotient is a term: ``j + i // 64, i % 64`` is ``j * 64 + i``.

    Args:
        outer: an index of a dimension of ``size`` elements.
        inner: the index of the next dimension, which has ``extent`` elements.
        divisor_of: gives the scalar that a divisor stands for; None if it stands for several.
        operation: makes an operation on numbers.

    Returns:
        the number, and the name of the remainder to take of it by ``size * extent``; no name if the number is less.
        None if they are not parts of one number.
    """

    if not (isinstance(inner, BinaryOp) and inner.op in QUOTIENTS):
        return None
    divisor = divisor_of(inner.b)
    if divisor is None or not analyzer.prove_equal(divisor, extent):
        return None
    number, remainder = inner.a, inner.op

    def quotient(index: Expr) -> IterSplit | None:
        split = _split_of(number, index, remainder, divisor_of)
        return split if split is not None and analyzer.prove_equal(split.lower, extent) else None

    def is_whole_quotient(index: Expr) -> bool:
        split = quotient(index)
        return split is not None and split.extent is None

    split = quotient(outer)
    if split is None:
        rest = _rest(outer, is_whole_quotient, operation)
        return None if rest is None else (operation("add", number, operation("mul", rest, extent)), "")
    if split.extent is None:
        return number, ""
    return (number, remainder) if analyzer.prove_equal(split.extent, size) else None


def _rest(sum_: Expr, is_taken: Callable[[Expr], bool], operation: Callable[[str, Expr, Expr], Expr]) -> Expr | None:
    """Return a sum without the first term that is taken; None if none is."""
    if not isinstance(sum_, BinaryOp) or sum_.op not in ("add", "sub"):
        return None
    if is_taken(sum_.a):
        return sum_.b if sum_.op == "add" else operation("sub", as_expr(0, sum_.b.dtype.element), sum_.b)
    if sum_.op == "add" and is_taken(sum_.b):
        return sum_.a
    rest = _rest(sum_.a, is_taken, operation)
    if rest is not None:
        return operation(sum_.op, rest, sum_.b)
    if sum_.op == "add":
        rest = _rest(sum_.b, is_taken, operation)
        return None if rest is None else operation("add", sum_.a, rest)
    return None


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
