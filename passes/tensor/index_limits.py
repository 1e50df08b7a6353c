"""Compare the indices of accesses with the extents of dimensions, as scalars and as vectors."""

from __future__ import annotations

from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import Broadcast, Expr, const, maximum, minimum

#: The scopes of buffers of one iteration, which are on the stack or in registers. Code generators touch all lanes of
#: such a buffer, and choose: a predicate alone does not keep an access inside of it.
LOCAL_SCOPES = frozenset({"stack", "register"})

ZERO = const(0, INT64)


def as_int64(index: Expr) -> Expr:
    """Return ``index`` as 64-bit integers."""
    lanes = index.dtype.lanes
    return index.astype(INT64 if lanes == 1 else INT64.with_lanes(lanes))


def over(value: Expr, lanes: int) -> Expr:
    """Return a scalar as a vector of ``lanes``; a vector as it is."""
    return value if lanes == 1 or value.dtype.lanes != 1 else Broadcast(value, lanes)


def clamped(index: Expr, extent: Expr) -> Expr:
    """Return ``index``, or the nearest one that is inside of ``extent``."""
    lanes = index.dtype.lanes
    return maximum(minimum(as_int64(index), over(extent.astype(INT64) - 1, lanes)), over(ZERO, lanes))
