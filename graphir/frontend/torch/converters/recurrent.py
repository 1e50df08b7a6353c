"""Convert recurrent layers that PyTorch's decompositions leave whole: those of long short-term memory without
gradients."""

from __future__ import annotations

from typing import Any

from tilewright.graphir.expr import Expr, TupleGetItem
from tilewright.graphir.frontend.torch.node import Node, shape_of
from tilewright.graphir.frontend.torch.registry import converter
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import concatenate, reshape, transpose

#: The number that oneDNN's kinds of recurrent layers have for long short-term memory.
_LSTM = 2


@converter("aten.mkldnn_rnn_layer.default")
def lstm_layer(
    node: Node, x: Expr, weight: Expr, recurrent: Expr, bias: Expr, recurrent_bias: Expr, h: Expr, c: Expr, *rest: Any
) -> list[Expr]:
    """Run one layer in one direction over ``x [steps, batch, width]``; return the states of all steps, and the last
    ones. The fourth result is oneDNN's own memory, empty without gradients."""
    reverse, lengths, mode, _, layers, _, bidirectional, batch_first, trains = rest
    if mode != _LSTM or layers != 1 or lengths or bidirectional or batch_first or trains:
        raise node.unsupported("a layer of oneDNN that is not one of long short-term memory in one direction")
    made = get_operator("nn.lstm")(
        x,
        _row(_reordered(weight)),
        _row(_reordered(recurrent)),
        _row(concatenate([_reordered(bias), _reordered(recurrent_bias)], axis=0)),
        h,
        c,
        direction="reverse" if reverse else "forward",
    )
    steps, batch, _ = shape_of(x)
    hidden = shape_of(recurrent)[1]
    states = reshape(transpose(TupleGetItem(made, 0), axes=(0, 2, 1, 3)), newshape=(steps, batch, hidden))
    empty = node.result(3)
    memory = get_operator("zeros")(shape=empty.shape, dtype=empty.dtype)
    return [states, TupleGetItem(made, 1), TupleGetItem(made, 2), memory]


def _reordered(x: Expr) -> Expr:
    """Bring the gates, which are input, forget, cell, output, to the order of ``nn.lstm``: input, output, forget, cell.

    ``x`` is ``[4 * hidden, ...]``.
    """
    gates = get_operator("split")(x, indices_or_sections=4, axis=0)
    return concatenate([TupleGetItem(gates, number) for number in (0, 3, 1, 2)], axis=0)


def _row(x: Expr) -> Expr:
    """Insert the axis of directions."""
    return reshape(x, newshape=(1, *shape_of(x)))
