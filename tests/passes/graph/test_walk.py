"""Rewriting graphs keeps the source spans."""

from __future__ import annotations

from tilewright import graphir as gi
from tilewright.passes.graph import rewrite_body, rewrite_graph
from tilewright.passes.graph.walk import always, never


def doubled(node: gi.Expr) -> gi.Expr:
    """``2 * tanh(x)`` for ``tanh(x)``."""
    return gi.multiply(gi.tanh(*node.args), 2.0) if isinstance(node, gi.Call) and node.op is gi.tanh else node


def test_what_takes_a_place_comes_from_there() -> None:
    x = gi.var("x", shape=(4,))
    inner = gi.exp(x)
    after = rewrite_graph(gi.Call(gi.tanh, [inner], span="layer1/tanh"), doubled)
    assert [(call.op.name, call.span) for call in gi.call_nodes(after)] == [
        ("exp", None),
        ("tanh", "layer1/tanh"),
        ("multiply", "layer1/tanh"),
    ]
    assert inner.span is None  # it was there before, and nodes never change


def test_an_expression_that_was_there_keeps_its_own_place() -> None:
    x = gi.var("x", shape=(4,))
    inner = gi.Call(gi.exp, [x], span="layer1/exp")
    outer = gi.Call(gi.copy, [inner], span="layer2/identity")
    after = rewrite_graph(outer, lambda node: node.args[0] if getattr(node, "op", None) is gi.copy else node)
    assert after is inner
    assert inner.span == "layer1/exp"


def test_a_body_without_changes_keeps_its_function() -> None:
    x = gi.var("x", shape=(4,))
    function = gi.Function([x], gi.exp(x))
    assert rewrite_body(function, doubled) is function


def test_a_body_is_rewritten_as_a_graph_is() -> None:
    x, y = gi.var("x", shape=(4,)), gi.var("y", shape=(4,))
    let = gi.Let(y, gi.tanh(x), gi.add(y, x))
    function = gi.Function([x], let)
    for inline in (never, always):
        rewritten = rewrite_body(function, doubled, inline)
        gi.assert_structural_equal(rewritten, gi.Function([x], rewrite_graph(let, doubled, inline)))
        assert [call.op.name for call in gi.call_nodes(rewritten)] == ["tanh", "multiply", "add"]
