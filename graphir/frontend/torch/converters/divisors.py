"""Convert greatest common divisors and least common multiples, by Euclid's algorithm on all elements at once."""

from __future__ import annotations

import numpy as np

from tilewright.graphir.expr import Expr, Function, Loop, Tuple, TupleGetItem, Var, const
from tilewright.graphir.frontend.torch.node import Node, cast_to
from tilewright.graphir.frontend.torch.registry import converter
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import multiply, where
from tilewright.graphir.types import TensorType
from tilewright.tensorir.dtype import INT32, INT64


def _divisor(node: Node, x: Expr, y: Expr) -> Expr:
    a, b = (get_operator("broadcast_to")(get_operator("abs")(node.tensor(each)), shape=node.shape) for each in (x, y))
    state = [[Var("i", TensorType((), INT64)), Var("a", a.type), Var("b", b.type)] for _ in range(2)]
    (*_, left, right), (*_, divisor) = state
    ends = get_operator("equal")(right, 0)
    rest = get_operator("trunc_mod")(left, where(ends, 1, right))
    step = Function(state[0], Tuple([where(ends, left, right), where(ends, 0, rest)]))
    again = Function(state[1], get_operator("any")(get_operator("not_equal")(divisor, 0)))
    endless = const(np.array(np.iinfo(np.int64).max))
    return TupleGetItem(Loop(endless, again, step, [b, a]), 0)


@converter("aten.gcd.default")
def greatest_common_divisor(node: Node, x: Expr, y: Expr) -> Expr:
    """Return the greatest number that divides both; 0 of zeros."""
    return _divisor(node, x, y)


@converter("aten.lcm.default")
def least_common_multiple(node: Node, x: Expr, y: Expr) -> Expr:
    """Return the least number that both divide, 0 of a zero; it wraps."""
    divisor, (a, b) = _divisor(node, x, y), (node.tensor(each) for each in (x, y))
    if node.dtype.bits < 32:  # as C computes: in 32 bits, of which the lower ones are kept
        a, b, divisor = (cast_to(each, INT32) for each in (a, b, divisor))
    share = get_operator("trunc_divide")(a, where(get_operator("equal")(divisor, 0), 1, divisor))
    return cast_to(get_operator("abs")(multiply(share, b)), node.dtype)
