"""Call operators as typed functions, for decompositions into them.

The decorator that registers an operator's class puts its instance in the place of the class, which a type checker does
not follow; these names have the right types. They are looked up when they are called, so the order in which modules of
operators are imported does not matter.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from tilewright.graphir.base import Expr, call_operator


def _function(name: str) -> Callable[..., Expr]:
    return functools.partial(call_operator, name)


add = _function("add")
broadcast_to = _function("broadcast_to")
cast = _function("cast")
concatenate = _function("concatenate")
divide = _function("divide")
exp = _function("exp")
expand_dims = _function("expand_dims")
isinf = _function("isinf")
log = _function("log")
logical_not = _function("logical_not")
matmul = _function("matmul")
max = _function("max")
mean = _function("mean")
multiply = _function("multiply")
pad = _function("pad")
reshape = _function("reshape")
slice = _function("slice")
sqrt = _function("sqrt")
square = _function("square")
squeeze = _function("squeeze")
subtract = _function("subtract")
sum = _function("sum")
take = _function("take")
transpose = _function("transpose")
variance = _function("variance")
where = _function("where")
