"""The text of every stage of a build parses back to the program of that stage."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright import tensorir
from tilewright.tensorir.structural import structural_equal

WEIGHT = np.random.default_rng(4).standard_normal((33, 20)).astype("f4")


def network() -> gi.IRModule:
    x = gi.var("x", shape=("n", 20))
    hidden = gi.nn.relu(gi.nn.dense(x, gi.const(WEIGHT)))
    return tw.IRModule.from_expr(gi.Function([x], gi.nn.softmax(hidden)))


def built(target: tw.Target | str) -> tw.Executable:
    with tw.PassContext(opt_level=3):  # the weights are packed into panels
        return tw.build(network(), target=target)


def test_stages_are_named_in_order_of_compilation(kind: str) -> None:
    model = built(kind)
    last = {"llvm": ("llvm", "assembly"), "numba": ("numba",)}[kind]
    assert model.stages == ("graph", "optimized", "tensor", "scheduled", "lowered", *last)
    assert model.source == model.ir(last[0])


@pytest.mark.parametrize("stage", ["graph", "optimized"])
def test_text_of_a_graph_stage_computes_the_same(target: tw.Target, stage: str) -> None:
    text = built(target).ir(stage, constants="inline")
    values = np.random.default_rng(0).standard_normal((6, 20)).astype("f4")
    expected = gi.evaluate(network()["main"], values, dtype="float64")
    np.testing.assert_allclose(tw.build(gi.parse(text), target=target)(values), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("stage", ["tensor", "scheduled"])
def test_text_of_a_mixed_stage_parses_back(kind: str, stage: str) -> None:
    text = built(kind).ir(stage, constants="inline")
    again = gi.parse(text)
    assert gi.to_text(again, constants="inline") == text


def test_text_of_the_lowered_stage_parses_back(kind: str) -> None:
    text = built(kind).ir("lowered")
    functions = tensorir.parse_all(text)
    assert [function.name for function in functions][-1] == "main"
    for function in functions:
        assert structural_equal(tensorir.parse(str(function)), function)
    assert all(str(function) in text for function in functions)


def test_a_stage_that_there_is_not(kind: str) -> None:
    with pytest.raises(ValueError, match=r"unknown stage 'scheduling'.*scheduled, lowered"):
        built(kind).ir("scheduling")
