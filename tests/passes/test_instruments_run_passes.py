"""Instruments whose methods run passes: they do not recurse without end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tilewright.graphir.module import IRModule
from tilewright.passes import PassContext, PassInfo, PassInstrument, module_pass

Recorders = Callable[..., Any]


@pytest.mark.parametrize("method", ["should_run", "run_before_pass", "run_after_pass"])
def test_passes_that_an_instrument_runs_meet_the_others_but_not_itself(
    mod: IRModule, events: list[str], recorder: Recorders, make_pass: Any, method: str
) -> None:
    inner = make_pass("Inner")

    def run(self: Any, mod: IRModule, info: PassInfo) -> bool:
        inner(mod)
        return True

    runs_passes = type("RunsPasses", (PassInstrument,), {method: run})
    with PassContext(instruments=[runs_passes(), runs_passes(), recorder("other")]):
        make_pass("P")(mod)
    # Each instrument runs Inner for P, and each for the Inner of the other one.
    assert events.count("run Inner") == 4
    assert events.count("other.before Inner") == 4
    assert events.count("other.before P") == 1


def test_passes_run_when_a_pass_failed_and_for_a_remark_meet_an_instrument_once(mod: IRModule, make_pass: Any) -> None:
    seen: list[str] = []

    @module_pass(opt_level=0, name="Talks")
    def talks(mod: IRModule, ctx: PassContext) -> IRModule:
        ctx.remark("something")
        return mod

    class Reacts(PassInstrument):
        def remark(self, remark: Any) -> None:
            seen.append("remark")
            talks(mod)

        def pass_failed(self, mod: IRModule, info: PassInfo, error: BaseException) -> None:
            seen.append("failed")
            with pytest.raises(ZeroDivisionError):
                make_pass("Fails", fails=True)(mod)

    with PassContext(instruments=[Reacts()]):
        talks(mod)
        with pytest.raises(ZeroDivisionError):
            make_pass("Fails", fails=True)(mod)
    assert seen == ["remark", "failed"]


def test_a_trace_function_may_run_passes(mod: IRModule, events: list[str], make_pass: Any) -> None:
    inner = make_pass("Inner")
    with PassContext(trace=lambda mod, info, is_before: inner(mod)):
        make_pass("P")(mod)
    assert events == ["run Inner", "run P", "run Inner"]


def test_a_watched_pass_is_known_again_after_passes_inside_a_method(mod: IRModule, make_pass: Any) -> None:
    names: list[str] = []

    class First(PassInstrument):
        def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
            make_pass("Inner")(mod)

    class Second(PassInstrument):
        def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
            watched = PassContext.watched_pass()
            assert watched is not None
            names.append(watched.info.name)

    with PassContext(instruments=[First(), Second()]):
        make_pass("P")(mod)
    assert names == ["Inner", "P"]
