"""Make calls of the operators that accumulate, sort and search along an axis."""

from __future__ import annotations

from typing import Any

from tests.fuzz.makers import maker
from tests.fuzz.pool import Pool
from tilewright import graphir as gi
from tilewright.graphir.op import Operator


@maker("cumsum", "cumprod")
def cumulative(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.numbers(least=1)
    return op(x, axis=pool.axis(x), exclusive=pool.chance(30), reverse=pool.chance(30))


@maker("cummax", "cummin")
def running_extreme(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.numbers(least=1)
    return op(x, axis=pool.axis(x))


@maker("searchsorted")
def searchsorted(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.numbers(least=1)
    last = x.tensor_type.ndim - 1
    rows = gi.TupleGetItem(gi.top_k(x, k=x.tensor_type.shape[last], axis=last, largest=False), 0)
    values = pool.exactly(x.tensor_type.shape, str(x.tensor_type.dtype))
    return op(rows, values, right=pool.chance(50))


@maker("top_k")
def top_k(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.numbers(least=1)
    axis = pool.axis(x)
    extent = x.tensor_type.shape[axis]
    k: Any = extent if pool.chance(30) else pool.number(0, min(5, pool.least(extent)))
    return op(x, k=k, axis=axis, largest=not pool.chance(40))
