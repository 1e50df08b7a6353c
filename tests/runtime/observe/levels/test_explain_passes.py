"""Test the effects of passes, measured by building a model without each."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tilewright as tw
from tests.runtime.observe.levels.test_opt_report import network
from tilewright.runtime.observe.levels import explain
from tilewright.runtime.observe.levels.explain import PassEffect, PassEffects
from tilewright.tensorir.errors import UnknownPassError

INPUT = np.ones((8, 16), "f4")


@pytest.fixture(scope="module")
def effects() -> PassEffects:
    with tw.PassContext(opt_level=3):
        return tw.explain_passes(network(), [INPUT], repeat=2)


def effect(effects: PassEffects, name: str) -> PassEffect:
    (found,) = [each for each in effects.effects if each.name == name]
    return found


def test_passes_that_changed_something_are_looked_at(effects: PassEffects) -> None:
    names = {each.name for each in effects.effects}
    assert {"FoldConstant", "FuseOps", "ScheduleKernels"} <= names
    assert "DeadCodeElimination" not in names


def test_passes_that_must_run_are_left_out(effects: PassEffects) -> None:
    assert not {"LowerToTensorIR", "PlanMemory", "LowerBlocks"} & {each.name for each in effects.effects}


def test_the_order_is_that_of_what_calls_gain(effects: PassEffects) -> None:
    gains = [each.slowdown or 0 for each in effects.effects]
    assert gains == sorted(gains, reverse=True)


def test_other_code_is_measured(effects: PassEffects) -> None:
    found = effect(effects, "ScheduleKernels")
    assert not found.same_code
    assert found.slowdown is not None
    assert found.slowdown > 0
    assert found.runs == 1
    assert found.seconds > 0


def test_the_same_code_is_not_measured() -> None:
    with tw.PassContext(opt_level=3):
        found = tw.explain_passes(network(), [INPUT], passes=["DeadCodeElimination"], repeat=1).effects
    assert [(each.name, each.same_code, each.slowdown) for each in found] == [("DeadCodeElimination", True, 1.0)]


def test_the_model_without_a_pass_is_that_of_a_context_that_disables_it(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    original = explain.build_variant

    def noting(mod: object, target: object, settings: object) -> object:
        built.append(settings.disabled_pass)  # type: ignore[attr-defined]
        return original(mod, target, settings)  # type: ignore[arg-type]

    monkeypatch.setattr(explain, "build_variant", noting)
    with tw.PassContext(disabled_pass=["Simplify"]):
        tw.explain_passes(network(), [INPUT], passes=["FuseOps"], repeat=1)
    assert built == [("Simplify",), ("Simplify", "FuseOps")]


@pytest.mark.parametrize("name", ["FuseOp", "PlanMemory", "Winograd"])
def test_a_pass_that_does_not_run_or_must_is_refused(name: str) -> None:
    with tw.PassContext(opt_level=1), pytest.raises(UnknownPassError, match=f"'{name}' is no pass of this build"):
        tw.explain_passes(network(), [INPUT], passes=[name])


def test_progress_is_told_of_each_pass() -> None:
    told: list[tuple[str, int, int]] = []
    names = ["FuseOps", "FoldConstant"]
    tw.explain_passes(network(), [INPUT], passes=names, repeat=1, progress=lambda *args: told.append(args))
    assert told == [("FuseOps", 0, 2), ("FoldConstant", 1, 2)]


def test_text_json_and_notebook(effects: PassEffects) -> None:
    assert effects.render().splitlines()[2].split()[0] == effects.effects[0].name
    assert json.loads(effects.to_json())["opt_level"] == 3
    assert "<table>" in effects._repr_html_()
