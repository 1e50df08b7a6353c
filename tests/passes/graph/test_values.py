"""Every graph pass, alone and after all others, leaves the values of a network as they are."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import graphir as gi
from tilewright.graphir.visitor import post_order
from tilewright.passes import PassContext, get_pass, list_passes
from tilewright.passes import graph as graph_passes
from tilewright.passes.pipelines import graph_pipeline

ALL = [cls for name in graph_passes.__all__ if isinstance(cls := getattr(graph_passes, name), type)]
#: ``Gradient`` makes another function.
PASSES = [cls for cls in ALL if cls is not graph_passes.Gradient]


@pytest.mark.parametrize("pass_class", PASSES, ids=lambda cls: cls.__name__)
def test_alone(pass_class, network, keeps_values):
    keeps_values(pass_class(), *network)


def test_one_after_the_other(network, keeps_values):
    mod, x = network
    for pass_class in PASSES:
        mod = keeps_values(pass_class(), mod, x)


@pytest.mark.parametrize("pass_class", PASSES, ids=lambda cls: cls.__name__)
def test_on_what_the_graph_pipeline_made(pass_class, network, keeps_values):
    mod, x = network
    with PassContext(opt_level=3):
        fused = graph_pipeline()(mod)
    assert any("Primitive" in node.attrs for node in post_order(fused["main"]) if isinstance(node, gi.Function))
    keeps_values(pass_class(), fused, x)


@pytest.mark.parametrize("pass_class", PASSES, ids=lambda cls: cls.__name__)
def test_a_second_run_finds_nothing_more_to_do(pass_class, network):
    with PassContext(opt_level=3):
        once = pass_class()(network[0])
        twice = pass_class()(once)
    gi.assert_structural_equal(once, twice)


@pytest.mark.parametrize("pass_class", ALL, ids=lambda cls: cls.__name__)
def test_each_is_registered_by_its_name(pass_class):
    assert pass_class.__name__ in list_passes()
    assert isinstance(get_pass(pass_class.__name__), pass_class)


@pytest.mark.parametrize("pass_class", PASSES, ids=lambda cls: cls.__name__)
def test_none_recurses_over_deep_graphs(pass_class):
    x = y = gi.var("x", shape=("n", 4))
    for step in range(5000):
        y = gi.add(y, y) if step % 2 else gi.tanh(y)
    with PassContext(opt_level=3):
        after = pass_class()(gi.IRModule({"main": gi.Function([x], y)}))
    values = np.zeros((2, 4), np.float32)
    np.testing.assert_array_equal(gi.evaluate(after, values), values)
