"""Join dimensions by NumPy's rule of broadcasting where it is not known whether a symbolic one is 1."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from tilewright.graphir.dims import Dim, analyzer_for, as_dim, bind_dims, dim_equal, symbols_of
from tilewright.tensorir.expr import BinaryOp, Compare, Expr, IntImm, Select, Var, as_expr, minimum, select

#: The largest size of a symbolic dimension that :func:`ones_coincide` tries.
_LARGEST = 512


def is_one(dim: Dim) -> bool:
    """Return whether a dimension is the number 1."""
    return isinstance(dim, int) and dim == 1


def joined(a: Dim, b: Dim) -> Dim | None:
    """Return the dimension to which ``a`` and ``b`` broadcast, by a formula that chooses where either may be 1; None:
    two different numbers.

    The formula is right for all sizes that broadcast; for others it differs from one of the two, which is not 1.
    """
    if is_one(a) or dim_equal(a, b):
        return b
    if is_one(b):
        return a
    if isinstance(a, int):
        return None if isinstance(b, int) else a
    if isinstance(b, int):
        return b
    for one, other in ((a, b), (b, a)):  # the prefix [:1] of a dimension, which is empty only if the dimension is
        if dim_equal(one, as_dim(minimum(other, 1))):
            return other
    if any(dim_equal(a, part) for part in _parts(b)):
        return b
    if any(dim_equal(b, part) for part in _parts(a)):
        return a
    return chosen_size(b, a)


def _parts(dim: Dim) -> list[Dim]:
    """Return the dimensions that :func:`joined` made one of."""
    if isinstance(dim, Select) and isinstance(dim.condition, Compare) and dim.condition.op == "eq":
        a, b = dim.condition.a, dim.condition.b
        if isinstance(b, IntImm) and b.value == 1 and dim_equal(a, dim.false_value):
            return [*_parts(dim.true_value), *_parts(dim.false_value)]
    return [dim]


def never_one(dim: Dim) -> bool:
    """Return whether a dimension is provably not 1."""
    if isinstance(dim, int):
        return dim != 1
    return analyzer_for(dim).prove(as_expr(dim).not_equal(1))


def ones_coincide(a: Dim, b: Dim) -> bool:
    """Return whether it is proved that neither dimension is 1 where the other is greater, so that they broadcast only
    if they are equal, but for empty ones.

    The proof works for formulas of one variable that do not decrease: all values for which one of them is 1 are tried.
    """
    if isinstance(a, int) or isinstance(b, int):
        return never_one(a) and never_one(b)
    symbols = symbols_of((a, b))
    return len(symbols) == 1 and _only_with(a, b, symbols[0]) and _only_with(b, a, symbols[0])


@functools.lru_cache(maxsize=1024)
def _only_with(a: Expr, b: Expr, symbol: Var) -> bool:
    """Return whether ``b`` is at most 1 for all values of ``symbol`` for which ``a`` is 1."""
    if never_one(a):
        return True
    if not (_grows(a) and _grows(b)):
        return False
    for value in range(_LARGEST):
        size = bind_dims(a, {symbol: value})
        if size > 1:
            return True
        if size == 1 and bind_dims(b, {symbol: value}) > 1:
            return False
    return False


def _grows(dim: Expr) -> bool:
    """Return whether a formula never decreases when its variables grow."""
    if isinstance(dim, (Var, IntImm)):
        return True
    if not isinstance(dim, BinaryOp):
        return False
    a, b = dim.a, dim.b
    if dim.op in ("add", "min", "max"):
        return _grows(a) and _grows(b)
    if dim.op in ("mul", "floordiv", "truncdiv"):
        return _grows(a) and isinstance(b, IntImm) and b.value > 0
    return dim.op == "sub" and _grows(a) and isinstance(b, IntImm)


def chosen_size(wanted: Dim, size: Dim) -> Dim:
    """Return ``wanted``, but ``size`` where it is 1."""
    if is_one(size):
        return wanted
    return as_dim(select(as_expr(wanted).equal(1), size, wanted))


def spread_over(shape: Sequence[Dim], wanted: Sequence[Dim]) -> list[tuple[int, Dim, Dim]]:
    """List the dimensions of ``shape`` for which it is not proved that they are 1 or those of ``wanted``, a shape of at
    least as many dimensions: axis, size and size that is wanted."""
    offset = len(wanted) - len(shape)
    return [
        (axis, dim, wanted[offset + axis])
        for axis, dim in enumerate(shape)
        if not is_one(dim) and not dim_equal(dim, wanted[offset + axis])
    ]
