"""Invariants of loops: values that are the same in all iterations."""

from __future__ import annotations

from tilewright import graphir as gi
from tilewright.graphir.visitor import post_order
from tilewright.passes.graph.scopes import Unchanging


def test_a_value_of_the_state_changes_in_a_loop_and_one_from_outside_does_not() -> None:
    x, weight = gi.var("x", shape=(4, 4)), gi.var("weight", shape=(4, 4))
    i, state = gi.var("i", shape=(), dtype="int64"), gi.var("state", shape=(4, 4))
    outside = gi.tanh(weight)
    product = gi.matmul(state, outside)
    loop = gi.Loop(gi.const(4, "int64"), None, gi.Function([i, state], gi.Tuple([product])), [x])
    body = gi.matmul(loop[0], outside)
    unchanging = Unchanging(post_order(body), body)
    assert unchanging.around(product, outside)
    assert unchanging.around(product, weight)
    assert not unchanging.around(product, state)
    assert not unchanging.around(body, outside)  # which is in no loop


def test_nothing_is_in_a_loop_where_there_is_none() -> None:
    x = gi.var("x", shape=(4,))
    body = gi.tanh(gi.exp(x))
    assert not Unchanging(post_order(body), body).around(body, x)
