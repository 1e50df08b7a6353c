"""Multiply a cotangent by the Jacobian of an expression (a *vector-Jacobian product*), by the rules of its operators.

For frontends whose programs have calls of backward passes: the backward pass of an operator is what the rule of the
operator makes. The pass ``Gradient`` differentiates whole functions, with branches and loops; here are calls alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.graphir.expr import Call, Expr
from tilewright.graphir.gradient import COMPOSITIONS, GRADIENTS
from tilewright.graphir.op import Operator, get_operator
from tilewright.graphir.types import TensorType
from tilewright.graphir.visitor import post_order
from tilewright.tensorir.errors import UnsupportedOperatorError


def vjp(result: Expr, parts: Sequence[Expr], cotangent: Expr) -> list[Expr]:
    """Return the cotangents of ``parts``, given that of ``result``, which is computed from them by calls of operators.

    Raises:
        UnsupportedOperatorError: an operator between them has no gradient.
    """
    wanted = set(parts)
    order = post_order(result, known=wanted)
    active = set(wanted)
    for node in order:
        if isinstance(node, Call) and not active.isdisjoint(node.args) and _is_smooth(node):
            active.add(node)
    given: dict[Expr, Expr] = {result: cotangent}
    for node in reversed(order):
        if node in wanted or node not in active or node not in given:
            continue
        assert isinstance(node, Call)
        for arg, share in zip(node.args, _shares(node, given[node]), strict=True):
            if share is not None and arg in active:
                given[arg] = share if arg not in given else get_operator("add")(given[arg], share)
    return [given[part] if part in given else get_operator("zeros_like")(part) for part in parts]


def _is_smooth(node: Expr) -> bool:
    return isinstance(node.type, TensorType) and node.type.dtype.is_float


def _shares(node: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Return the cotangents of a call's arguments."""
    name = node.op.name if isinstance(node.op, Operator) else ""
    rule = GRADIENTS.get(name)
    if rule is not None:
        return rule(node, cotangent)
    form = COMPOSITIONS.get(name)
    if form is not None:
        made = form(node)
    elif isinstance(node.op, Operator) and node.op.decompose is not None:
        made = node.op.decompose(list(node.args), node.attrs)
    else:
        raise UnsupportedOperatorError(f"no gradient of {name or node.op}")
    unique = list(dict.fromkeys(node.args))  # an argument that occurs twice has one cotangent
    found = dict(zip(unique, vjp(made, unique, cotangent), strict=True))
    return [found.pop(arg, None) for arg in node.args]
