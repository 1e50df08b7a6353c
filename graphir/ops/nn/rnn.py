"""Define recurrent layers of a single function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.op import register_operator
from tilewright.graphir.ops.nn.recurrent import ARGUMENTS, Kit, Recurrent


@register_operator
class rnn(Recurrent):
    """Run a recurrent layer: ``h = f(x @ weight.T + h @ recurrent_weight.T + biases)`` (:class:`Recurrent` has the
    shapes)."""

    name = "nn.rnn"
    arguments = (*ARGUMENTS, "lengths?")
    num_outputs = 2

    def step(
        self, kit: Kit, x: GraphExpr, state: Sequence[GraphExpr], weights: dict[str, Any], attrs: Any
    ) -> Sequence[GraphExpr]:
        (h,) = state
        return [kit.activate(weights["functions"][0], x + kit.recur(h, weights["recurrent"]) + weights["bias"])]
