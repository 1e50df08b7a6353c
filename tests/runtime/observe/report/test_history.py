"""Test the history of functions after each pass, as a report stores it."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.graphir.printer import to_text
from tilewright.passes import Pass, PassContext, PassTimingInstrument, Sequential, module_pass
from tilewright.runtime.observe.report import history as module
from tilewright.runtime.observe.report.history import PassHistory, function_text


def adding(name: str, **made: Any) -> Pass:
    """Make a pass that adds or replaces functions, or removes those given as None."""

    def transform(mod: IRModule, ctx: Any) -> IRModule:
        mod = mod.without([key for key, function in made.items() if function is None])
        updates = {key: function for key, function in made.items() if function is not None}
        return mod.with_functions(
            {mod.get_global_var(k) if k in mod else gi.GlobalVar(k): f for k, f in updates.items()}
        )

    return module_pass(transform, opt_level=0, name=name)


def function(number: int) -> gi.Function:
    x = gi.var("x", shape=(4,))
    value: gi.Expr = x
    for _ in range(number):
        value = gi.exp(value)
    return gi.Function([x], value)


def ran(*passes: Pass, timing: PassTimingInstrument | None = None) -> PassHistory:
    history = PassHistory(timing)
    instruments = [history] if timing is None else [timing, history]
    with PassContext(instruments=instruments):
        Sequential(list(passes), name="all")(IRModule({"main": function(1)}))
    return history


def text(history: PassHistory, name: str, version: int) -> str:
    """Return a version's text, unpacked as the page does it."""
    found = history.as_dict()["functions"][name]
    runs = found["versions"][version]
    lines = [
        found["lines"][first + k] for first, count in zip(runs[::2], runs[1::2], strict=True) for k in range(count)
    ]
    return "\n".join(lines)


def test_a_step_names_the_functions_that_the_pass_changed() -> None:
    history = ran(adding("Nothing"), adding("Change", main=function(2)), adding("Add", other=function(0)))
    assert [(step.name, step.changed) for step in history.steps] == [
        ("input", {"main": 0}),
        ("Change", {"main": 1}),
        ("Add", {"other": 0}),
    ]


def test_a_removed_function_is_none() -> None:
    history = ran(adding("Add", other=function(0)), adding("Remove", other=None))
    assert history.steps[-1].changed == {"other": None}


def test_a_new_object_with_the_same_text_is_no_change() -> None:
    history = ran(adding("Copy", main=function(1)))
    assert [step.name for step in history.steps] == ["input"]
    assert history.passes == 2  # the pass, and the pipeline


def test_each_version_is_the_text_of_the_function() -> None:
    history = ran(adding("Change", main=function(3)), adding("Back", main=function(1)))
    for version, number in enumerate((1, 3, 1)):
        assert text(history, "main", version) == to_text(IRModule({"main": function(number)})).strip("\n")


def test_a_long_function_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_LINES", 3)
    assert text(ran(), "main", 0).splitlines()[-1] == "... 1 lines more"


def test_its_own_time_is_no_time_of_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def slow(*args: Any) -> str:
        now[0] += 100
        return function_text(*args)

    timing = PassTimingInstrument()
    monkeypatch.setattr(timing._recorder, "_clock", lambda: now[0])
    timing.reset()  # from 0 on: sums of other starts are rounded
    monkeypatch.setattr(module, "function_text", slow)
    ran(adding("Change", main=function(2)), timing=timing)
    assert now[0] == 200
    assert timing.total() == 0
