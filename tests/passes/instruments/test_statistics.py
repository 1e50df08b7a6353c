"""``IRStatistics`` counts the nodes of modules before and after every pass."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.passes import IRStatistics, PassContext, Sequential, module_pass
from tilewright.passes.graph import EliminateCommonSubexpr, InferType
from tilewright.passes.instruments import statistics as counted
from tilewright.passes.instruments.statistics import histogram
from tilewright.tensorir import parse

KERNEL = """primfunc @k(A: Buffer[(4,), float32], B: Buffer[(4,), float32]) {
  for i in parallel(2) {
    for j in vectorized(2) {
      B[i * 2 + j] = exp(A[i * 2 + j]) + exp(float32(1.0))
    }
  }
  @other(address_of(A[0]))
}"""


@pytest.fixture
def graph() -> IRModule:
    x = gi.var("x", shape=(4,))
    return IRModule.from_expr(gi.Function([x], gi.tanh(x) + gi.tanh(x)))


def test_a_graph_is_counted_by_classes_of_nodes_and_by_operators(graph: IRModule) -> None:
    assert histogram(graph["main"]) == {
        ("functions", "graph"): 1,
        ("graph nodes", "Function"): 1,
        ("graph nodes", "Var"): 1,
        ("graph nodes", "Call"): 3,
        ("operators", "tanh"): 2,
        ("operators", "add"): 1,
    }


def test_loop_nests_are_counted_by_classes_of_nodes_kinds_of_loops_and_intrinsics() -> None:
    found = histogram(parse(KERNEL))
    assert found["functions", "loop nest"] == 1
    assert found["loop nodes", "BufferStore"] == 1
    assert found["loop nodes", "BufferLoad"] == 2
    assert {key[1]: count for key, count in found.items() if key[0] == "loops"} == {"parallel": 1, "vectorized": 1}
    intrinsics = {key[1]: count for key, count in found.items() if key[0] == "intrinsics"}
    assert intrinsics == {"exp": 2, "kernel": 1, "address_of": 1}


def test_only_what_a_pass_changed_is_shown(graph: IRModule) -> None:
    statistics = IRStatistics()
    with PassContext(instruments=[statistics]):
        Sequential([InferType(), EliminateCommonSubexpr()], name="pipeline")(graph)
    assert statistics.render().splitlines() == [
        "EliminateCommonSubexpr",
        "  graph nodes: Call 3 -> 2 (-1)",
        "  operators:   tanh 2 -> 1 (-1)",
        "1 of 2 passes changed none of these counts",
    ]


def test_data_has_every_pass_with_all_groups(graph: IRModule) -> None:
    statistics = IRStatistics()
    with PassContext(instruments=[statistics]):
        EliminateCommonSubexpr()(graph)
    (run,) = statistics.as_dict()["passes"]
    assert run["name"] == "EliminateCommonSubexpr"
    assert run["before"]["operators"] == {"add": 1, "tanh": 2}
    assert run["after"]["operators"] == {"add": 1, "tanh": 1}
    assert list(run["after"]) == ["functions", "graph nodes", "operators", "loop nodes", "loops", "intrinsics"]
    assert json.loads(statistics.to_json()) == statistics.as_dict()
    statistics.reset()
    assert statistics.as_dict() == {"passes": []}


def test_a_pass_that_failed_has_no_numbers_after_it(graph: IRModule) -> None:
    statistics = IRStatistics()
    fail = module_pass(lambda mod, ctx: 1 / 0, opt_level=0, name="Fail")
    with PassContext(instruments=[statistics]):
        with pytest.raises(ZeroDivisionError):
            Sequential([fail])(graph)
        EliminateCommonSubexpr()(graph)
    assert [run.after is None for run in statistics.passes] == [True, False]
    assert statistics.render().startswith("Fail  (not finished)\nEliminateCommonSubexpr\n")


def test_what_a_pass_left_as_it_was_is_counted_once(mixed_mod: IRModule, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    count = counted.histogram
    monkeypatch.setattr(counted, "histogram", lambda function: seen.append(function) or count(function))
    again = module_pass(lambda mod, ctx: IRModule(mod.functions), opt_level=0, name="Again")
    with PassContext(instruments=[IRStatistics()]):
        Sequential([again, again, again])(mixed_mod)
    assert len(seen) == len(mixed_mod)


def test_a_build_ends_in_loop_nests_only() -> None:
    x = gi.var("x", shape=(64, 32))
    mod = IRModule.from_expr(gi.Function([x], gi.nn.relu(gi.nn.dense(x, gi.const(np.ones((16, 32), "f4"))))))
    statistics = IRStatistics()
    with PassContext(instruments=[statistics]):
        tw.build(mod)
    first, last = statistics.as_dict()["passes"][0], statistics.as_dict()["passes"][-1]
    assert (first["name"], last["name"]) == ("InferType", "PlanMemory")
    assert first["before"]["operators"] == {"nn.dense": 1, "nn.relu": 1}
    assert last["after"]["operators"] == last["after"]["graph nodes"] == {}
    assert last["after"]["intrinsics"]["kernel"] >= 1
    assert "LowerToTensorIR" in statistics.render()
