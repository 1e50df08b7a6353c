"""Convert recurrent layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.graphir.dims import Dim, simplify
from tilewright.graphir.expr import Expr, TupleGetItem
from tilewright.graphir.frontend.onnx.node import Node
from tilewright.graphir.frontend.onnx.registry import converter
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops import calls
from tilewright.graphir.ops.nn.recurrent_activations import activation

#: Functions for which the standard's lists of parameters contain a value.
_WITH_ALPHA = ("affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu")
_WITH_BETA = ("affine", "scaledtanh", "hardsigmoid")


@converter("RNN", since=7)
def _rnn(node: Node) -> list[Expr]:
    return _convert(node, "nn.rnn", 1)


@converter("GRU", since=7)
def _gru(node: Node) -> list[Expr]:
    return _convert(node, "nn.gru", 3, linear_before_reset=bool(node.attribute("linear_before_reset", 0)))


@converter("LSTM", since=7)
def _lstm(node: Node) -> list[Expr]:
    return _convert(node, "nn.lstm", 4, input_forget=bool(node.attribute("input_forget", 0)))


def _convert(node: Node, name: str, gates: int, **attrs: Any) -> list[Expr]:
    x, weight, recurrent = node[0], node[1], node[2]
    states = [node.optional(5), node.optional(6)][: 2 if name == "nn.lstm" else 1]
    lengths = node.optional(4)
    batchwise = node.attribute("layout", 0) == 1
    first, second, _ = node.shape(0, rank=3)
    steps, batch = (second, first) if batchwise else (first, second)
    directions, _, hidden = node.shape(2, rank=3)
    if batchwise:
        x = calls.transpose(x, axes=(1, 0, 2))
        states = [None if state is None else calls.transpose(state, axes=(1, 0, 2)) for state in states]
    bias = node.optional(3)
    if bias is None:
        bias = _full(x, (directions, simplify(hidden * 2 * gates)), 0)
    states = [_full(x, (directions, batch, hidden), 0) if state is None else state for state in states]
    peepholes = node.optional(7) if name == "nn.lstm" else None
    if peepholes is not None and lengths is None:  # only trailing arguments may be omitted
        lengths = calls.take(
            get_operator("sizes")(values=(steps,)), get_operator("zeros")(shape=(batch,), dtype="int64")
        )
    last = [value for value in (lengths, peepholes) if value is not None]
    direction = node.attribute("direction", "forward")
    made = get_operator(name)(
        x, weight, recurrent, bias, *states, *last, direction=direction,
        activations=_activations(node), clip=node.attribute("clip"), **attrs,
    )  # fmt: skip
    results: list[Expr] = [TupleGetItem(made, number) for number in range(1 + len(states))]
    if batchwise:
        results = [
            calls.transpose(results[0], axes=(2, 0, 1, 3)),
            *[calls.transpose(r, axes=(1, 0, 2)) for r in results[1:]],
        ]
    return results


def _full(x: Expr, shape: Sequence[Dim], value: int) -> Expr:
    return get_operator("full")(shape=tuple(shape), fill=value, dtype=x.dtype)


def _activations(node: Node) -> list[Any]:
    """Return the functions with their parameters, which two lists hold in order for the functions that have some."""
    alphas, betas = iter(node.attribute("activation_alpha", ())), iter(node.attribute("activation_beta", ()))
    found = []
    for name in node.attribute("activations", ()):
        alpha = next(alphas, None) if name.lower() in _WITH_ALPHA else None
        beta = next(betas, None) if name.lower() in _WITH_BETA else None
        found.append(activation(name, alpha, beta))
    return found
