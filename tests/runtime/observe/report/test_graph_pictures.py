"""Test pictures of models: the nodes, their texts, and their connections."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import graphir as gi
from tilewright.passes.graph import FuseOps, InferType
from tilewright.passes.lower import LowerToTensorIR
from tilewright.runtime.observe.report import graphs
from tilewright.runtime.observe.report.graphs import picture


def drawn(*params: gi.Var, body: gi.Expr) -> dict[str, Any]:
    return picture(InferType()(gi.IRModule.from_expr(gi.Function(params, body))))


def titles(made: dict[str, Any]) -> list[str]:
    return [node["title"] for node in made["nodes"]]


def connections(made: dict[str, Any]) -> set[tuple[str, str]]:
    names = titles(made)
    return {(names[edge["from"]], names[edge["to"]]) for edge in made["edges"]}


def test_inputs_operators_and_the_result_are_nodes() -> None:
    x, y = gi.var("x", shape=(4,)), gi.var("y", shape=(4,))
    made = drawn(x, y, body=gi.exp(x + y))
    assert titles(made) == ["x", "y", "add", "exp", "result"]
    assert connections(made) == {("x", "add"), ("y", "add"), ("add", "exp"), ("exp", "result")}


def test_a_node_says_its_shape_and_its_label() -> None:
    x = gi.var("x", shape=("n", 3))
    made = drawn(x, body=gi.Call("exp", (x,), span="the exponential"))
    assert made["nodes"][1]["note"] == "n x 3 float32"
    assert made["nodes"][1]["label"] == "the exponential"


def test_a_node_says_its_attributes() -> None:
    x = gi.var("x", shape=("n", 3))
    made = drawn(x, body=gi.nn.softmax(x, axis=0))
    assert made["nodes"][1]["attributes"]["axis"] == "0"


def test_given_sizes_take_the_place_of_symbols() -> None:
    x = gi.var("x", shape=("n", "m"))
    mod = InferType()(gi.IRModule.from_expr(gi.Function([x], gi.concatenate([x, x], axis=0))))
    made = picture(mod, {"n": 5})
    assert made["nodes"][0]["note"] == "5 x m float32"
    assert made["nodes"][1]["note"] == "10 x m float32"
    assert made["nodes"][1]["type"] == "n * 2 x m float32"


def test_constants_and_what_is_computed_of_them_are_no_nodes() -> None:
    x = gi.var("x", shape=(4,))
    made = drawn(x, body=x + gi.exp(gi.const(np.ones(4, "f4"))))
    assert titles(made) == ["x", "add", "result"]
    assert made["nodes"][1]["constants"] == ["4 float32"]


def test_a_tuple_leads_to_what_it_is_made_of() -> None:
    x = gi.var("x", shape=(4,))
    made = drawn(x, body=gi.Tuple([gi.exp(x), gi.tanh(x)]))
    assert connections(made) == {("x", "exp"), ("x", "tanh"), ("exp", "result"), ("tanh", "result")}


def test_an_unused_input_is_there() -> None:
    x, y = gi.var("x", shape=(4,)), gi.var("unused", shape=(4,))
    assert "unused" in titles(drawn(x, y, body=gi.exp(x)))


def test_a_kernel_names_its_operators() -> None:
    x = gi.var("x", shape=(4,))
    mod = gi.IRModule.from_expr(gi.Function([x], gi.Call("tanh", (gi.Call("exp", (x,), span="a"),), span="b")))
    made = picture(LowerToTensorIR()(FuseOps()(InferType()(mod))))
    (kernel,) = [node for node in made["nodes"] if node["kind"] == "kernel"]
    assert kernel["kernel"] == "exp_tanh"
    assert kernel["origins"] == ["exp a", "tanh b"]


def test_a_branch_and_a_loop_are_one_node_each() -> None:
    x, flag = gi.var("x", shape=(4,)), gi.var("flag", shape=(), dtype="bool")
    made = drawn(x, flag, body=gi.If(flag, gi.exp(x), gi.tanh(x)))
    assert "if" in titles(made)
    assert "exp" in titles(made)


def test_a_deep_graph_is_drawn_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "MOST_NODES", 50)
    x = gi.var("x", shape=(4,))
    value: gi.Expr = x
    for _ in range(200):
        value = gi.exp(value)
    made = drawn(x, body=value)
    assert len(made["nodes"]) == 50
    assert made["left_out"] == 201 - 50  # the input is one of them
