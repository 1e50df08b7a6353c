"""Make sizes that depend on data: the number of nonzero elements, the number of selected boxes.

Such a size is a symbolic dimension like any other; ``bind_size`` states which number of the graph it has. So one
compiled model serves all sizes, and a call reads the number when it gets there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from tilewright.graphir.base import Expr, call_operator
from tilewright.graphir.dims import symbol
from tilewright.graphir.expr import Tuple, TupleGetItem
from tilewright.graphir.types import TupleType
from tilewright.tensorir.expr import Var

_numbers = itertools.count(1)


def fresh_symbol(name: str = "size") -> Var:
    """Return a symbolic dimension with a name that is unique in the process."""
    return symbol(f"{name}_{next(_numbers)}")


def bind_size(value: Expr, size: Expr, dim: Var) -> Expr:
    """Bind ``dim`` to the number ``size`` (int64, no dimensions) in ``value``, which may be a tuple."""
    if isinstance(value.type, TupleType):
        parts = [TupleGetItem(value, number) for number in range(len(value.type.fields))]
        return Tuple([bind_size(part, size, dim) for part in parts])
    return call_operator("bind_size", value, size, dim=dim)


def with_runtime_size(size: Expr, make: Callable[[Var], Expr], name: str = "size") -> Expr:
    """Return ``make(n)``, where the symbolic dimension ``n`` is the number ``size`` (int64, no dimensions, not
    negative).

    >>> count = sum(cast(mask, dtype="int64"))
    >>> with_runtime_size(count, lambda n: gi.get_operator("nonzero")(mask, size=n))  # doctest: +SKIP
    """
    dim = fresh_symbol(name)
    return bind_size(make(dim), size, dim)
