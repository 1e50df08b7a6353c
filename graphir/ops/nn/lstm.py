"""Define long short-term memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.op import register_operator
from tilewright.graphir.ops.nn.recurrent import ARGUMENTS, Kit, Recurrent, RecurrentAttrs


@dataclasses.dataclass(frozen=True)
class LstmAttrs(RecurrentAttrs):
    """As ``RecurrentAttrs``; ``input_forget``: whether the forget gate is 1 less the input gate."""

    input_forget: bool = False


@register_operator
class lstm(Recurrent):
    """Run a layer of long short-term memory, Hochreiter and Schmidhuber, Neural Computation 1997. With ``peepholes``
    ``[directions, 3 * hidden]`` (of input, output and forget gate) the cell is an input of the gates: Gers and
    Schmidhuber, IJCNN 2000. The gates are in the order input, output, forget, cell. :class:`Recurrent` has the
    shapes."""

    name = "nn.lstm"
    arguments = (*ARGUMENTS, "initial_c", "lengths?", "peepholes?")
    Attrs = LstmAttrs
    num_outputs = 3
    gates = 4
    states = 2
    usual = ("Sigmoid", "Tanh", "Tanh")

    def step(
        self, kit: Kit, x: GraphExpr, state: Sequence[GraphExpr], weights: dict[str, Any], attrs: Any
    ) -> Sequence[GraphExpr]:
        h, c = state
        f, g, k = weights["functions"]
        total = x + kit.recur(h, weights["recurrent"]) + weights["bias"]
        seen, made, lost, cell = [kit.gate(total, number) for number in range(4)]
        peepholes = weights.get("peepholes")
        if peepholes is not None:
            seen, lost = seen + kit.gate(peepholes, 0) * c, lost + kit.gate(peepholes, 2) * c
        seen = kit.activate(f, seen)
        lost = 1.0 - seen if attrs.input_forget else kit.activate(f, lost)
        next_c = lost * c + seen * kit.activate(g, cell)
        if peepholes is not None:
            made = made + kit.gate(peepholes, 1) * next_c
        return [kit.activate(f, made) * kit.activate(k, next_c, clipped=False), next_c]
