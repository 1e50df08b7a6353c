"""Define gated recurrent units."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.dims import simplify
from tilewright.graphir.op import register_operator
from tilewright.graphir.ops import calls
from tilewright.graphir.ops.nn.recurrent import ARGUMENTS, Kit, Recurrent, RecurrentAttrs


@dataclasses.dataclass(frozen=True)
class GruAttrs(RecurrentAttrs):
    """As ``RecurrentAttrs``; ``linear_before_reset``: whether the reset gate scales the state's product (with its bias)
    instead of the state."""

    linear_before_reset: bool = False


@register_operator
class gru(Recurrent):
    """Run a layer of gated recurrent units, Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder",
    EMNLP 2014. The gates are in the order update, reset, candidate; the state is
    ``(1 - update) * candidate + update * h``. :class:`Recurrent` has the shapes."""

    name = "nn.gru"
    arguments = (*ARGUMENTS, "lengths?")
    Attrs = GruAttrs
    num_outputs = 2
    gates = 3
    usual = ("Sigmoid", "Tanh")

    def step(
        self, kit: Kit, x: GraphExpr, state: Sequence[GraphExpr], weights: dict[str, Any], attrs: Any
    ) -> Sequence[GraphExpr]:
        (h,) = state
        f, g = weights["functions"]
        rows, hidden = weights["recurrent"], kit.hidden
        if attrs.linear_before_reset:
            product = kit.recur(h, rows) + weights["bias"]
            update, reset = [kit.activate(f, kit.gate(x, n) + kit.gate(product, n)) for n in (0, 1)]
            candidate = kit.activate(g, kit.gate(x, 2) + reset * kit.gate(product, 2))
        else:
            split = simplify(hidden * 2)
            first = calls.slice(rows, begin=(0,), end=(split,))
            last = calls.slice(rows, begin=(split,), end=(rows.shape[0],))
            product = kit.recur(h, first)
            x = x + weights["bias"]
            update, reset = [kit.activate(f, kit.gate(x, n) + kit.gate(product, n)) for n in (0, 1)]
            candidate = kit.activate(g, kit.gate(x, 2) + kit.recur(reset * h, last))
        return [candidate + update * (h - candidate)]
