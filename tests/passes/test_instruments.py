"""Instruments: the order of their calls, vetoes, every exception, replacement, the decorator; and ``trace``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tilewright.graphir.module import IRModule
from tilewright.passes import (
    PassContext,
    PassInfo,
    PassInstrument,
    Sequential,
    module_pass,
    pass_instrument,
)

Recorders = Callable[..., Any]


def test_one_pass_and_two_instruments_in_the_order_of_the_list(
    mod: IRModule, events: list[str], recorder: Recorders, make_pass: Any
) -> None:
    with PassContext(instruments=[recorder("a"), recorder("b")]):
        make_pass("P")(mod)
    assert events == [
        "a.enter",
        "b.enter",
        "a.should P",
        "b.should P",
        "a.before P",
        "b.before P",
        "run P",
        "a.after P",
        "b.after P",
        "a.exit",
        "b.exit",
    ]


def test_a_pipeline_meets_the_instruments_around_its_children(
    mod: IRModule, events: list[str], recorder: Recorders, make_pass: Any
) -> None:
    with PassContext(instruments=[recorder("a")]):
        Sequential([make_pass("P"), make_pass("Q")], name="S")(mod)
    assert events == [
        *["a.enter", "a.should S", "a.before S"],
        *["a.should P", "a.before P", "run P", "a.after P"],
        *["a.should Q", "a.before Q", "run Q", "a.after Q"],
        *["a.after S", "a.exit"],
    ]


def test_before_gets_the_input_and_after_the_result(mod: IRModule, make_pass: Any) -> None:
    seen: list[tuple[str, IRModule, PassInfo]] = []

    class Watch(PassInstrument):
        def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
            seen.append(("before", mod, info))

        def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
            seen.append(("after", mod, info))

    made = make_pass("P")
    with PassContext(instruments=[Watch()]):
        result = made(mod)
    assert seen == [("before", mod, made.info), ("after", result, made.info)]
    assert result is not mod


def test_a_veto_returns_the_input_and_every_instrument_is_still_asked(
    mod: IRModule, events: list[str], recorder: Recorders, make_pass: Any
) -> None:
    with PassContext(instruments=[recorder("a", vetoes=("P",)), recorder("b")]):
        assert make_pass("P")(mod) is mod
    assert events == ["a.enter", "b.enter", "a.should P", "b.should P", "a.exit", "b.exit"]


def test_a_vetoed_pipeline_runs_none_of_its_children(
    mod: IRModule, events: list[str], recorder: Recorders, make_pass: Any
) -> None:
    with PassContext(instruments=[recorder("a", vetoes=("S",))]):
        assert Sequential([make_pass("P")], name="S")(mod) is mod
    assert "run P" not in events


def test_nobody_is_asked_about_a_pass_in_required_pass(
    mod: IRModule, events: list[str], recorder: Recorders, make_pass: Any
) -> None:
    with PassContext(instruments=[recorder("a", vetoes=("P",))], required_pass=["P"]):
        make_pass("P")(mod)
    assert events == ["a.enter", "a.before P", "run P", "a.after P", "a.exit"]


def test_required_passes_of_a_pipeline_meet_the_instruments(
    mod: IRModule, events: list[str], recorder: Recorders, make_pass: Any
) -> None:
    pipeline = Sequential([make_pass("P"), make_pass("Q", required=["P"])], name="S")
    with PassContext(instruments=[recorder("a", vetoes=("P",))]):
        pipeline(mod)
    assert events.count("a.should P") == 2
    assert "run P" not in events
    assert "run Q" in events


def test_enter_raises(mod: IRModule, events: list[str], recorder: Recorders) -> None:
    before = PassContext.current()
    ctx = PassContext(
        instruments=[recorder("a"), recorder("b"), recorder("c", fails_in="enter"), recorder("d")],
    )
    with pytest.raises(ValueError, match=r"^c enter") as error, ctx:
        events.append("inside")
    # Those that had entered exit in reverse; the one that failed does not, the one after it never entered.
    assert events == ["a.enter", "b.enter", "c.enter", "b.exit", "a.exit"]
    assert ctx.instruments == []
    assert PassContext.current() is before
    assert "instrument c failed to enter the pass context" in error.value.__notes__


def test_enter_raises_and_an_exit_after_it_too(events: list[str], recorder: Recorders) -> None:
    ctx = PassContext(
        instruments=[recorder("a"), recorder("b", fails_in="exit"), recorder("c", fails_in="enter")],
    )
    with pytest.raises(ValueError, match=r"^c enter") as error, ctx:
        pass
    assert events[-2:] == ["b.exit", "a.exit"]
    assert "then instrument b failed to exit: ValueError: b exit" in error.value.__notes__


def test_after_a_failed_enter_the_context_works_without_instruments(
    mod: IRModule, events: list[str], recorder: Recorders, make_pass: Any
) -> None:
    ctx = PassContext(instruments=[recorder("a", fails_in="enter")])
    with pytest.raises(ValueError), ctx:
        pass
    events.clear()
    with ctx:
        make_pass("P")(mod)
    assert events == ["run P"]


def test_exit_raises(events: list[str], recorder: Recorders) -> None:
    before = PassContext.current()
    current_in_exit = []

    class Look(PassInstrument):
        def exit_pass_ctx(self) -> None:
            current_in_exit.append(PassContext.current())

    ctx = PassContext(instruments=[Look(), recorder("a"), recorder("b", fails_in="exit"), recorder("c")])
    with pytest.raises(ValueError, match=r"^b exit") as error, ctx:
        events.clear()
    assert events == ["a.exit", "b.exit"]  # later ones do not exit
    assert current_in_exit == [before]  # already popped
    assert PassContext.current() is before
    assert ctx.instruments == []
    assert "instrument b failed to exit the pass context" in error.value.__notes__


def test_exit_raises_while_another_error_leaves_the_block(events: list[str], recorder: Recorders) -> None:
    with (
        pytest.raises(ValueError, match=r"^a exit") as error,
        PassContext(instruments=[recorder("a", fails_in="exit")]),
    ):
        raise KeyError("first")
    assert isinstance(error.value.__context__, KeyError)


@pytest.mark.parametrize(
    ("fails_in", "expected"),
    [
        ("should", ["a.should P", "b.should P"]),
        ("before", ["a.should P", "b.should P", "c.should P", "a.before P", "b.before P"]),
        (
            "after",
            [
                *["a.should P", "b.should P", "c.should P", "a.before P", "b.before P", "c.before P"],
                *["run P", "a.after P", "b.after P"],
            ],
        ),
    ],
)
def test_an_error_around_a_pass_goes_on_at_once_and_every_instrument_exits(
    fails_in: str, expected: list[str], mod: IRModule, events: list[str], recorder: Recorders, make_pass: Any
) -> None:
    ctx = PassContext(instruments=[recorder("a"), recorder("b", fails_in=fails_in), recorder("c")])
    with pytest.raises(ValueError, match=rf"^b {fails_in}") as error, ctx:
        make_pass("P")(mod)
    assert events == [
        *["a.enter", "b.enter", "c.enter"],
        *expected,
        *["a.exit", "b.exit", "c.exit"],
    ]
    assert len(ctx.instruments) == 3
    method = {"should": "should_run", "before": "run_before_pass", "after": "run_after_pass"}[fails_in]
    assert f"in instrument b.{method}, pass P" in error.value.__notes__


def test_an_error_in_a_pass_goes_on_at_once_and_every_instrument_exits(
    mod: IRModule, events: list[str], recorder: Recorders, make_pass: Any
) -> None:
    pipeline = Sequential([make_pass("P", fails=True), make_pass("Q")], name="S")
    with pytest.raises(ZeroDivisionError, match=r"^P"), PassContext(instruments=[recorder("a"), recorder("b")]):
        pipeline(mod)
    assert events == [
        *["a.enter", "b.enter", "a.should S", "b.should S", "a.before S", "b.before S"],
        *["a.should P", "b.should P", "a.before P", "b.before P", "run P"],
        *["a.exit", "b.exit"],
    ]


def test_an_instrument_that_saw_a_pass_begin_is_told_that_it_failed(mod: IRModule, make_pass: Any) -> None:
    told: list[str] = []

    class Told(PassInstrument):
        def __init__(self, name: str, fails_before: bool = False, fails_after: bool = False) -> None:
            self.name, self.fails_before, self.fails_after = name, fails_before, fails_after

        def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
            if self.fails_before:
                raise RuntimeError("no")

        def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
            if self.fails_after:
                raise RuntimeError("no")

        def pass_failed(self, mod: IRModule, info: PassInfo, error: BaseException) -> None:
            told.append(f"{self.name} {info.name} {type(error).__name__}")

    with pytest.raises(ZeroDivisionError), PassContext(instruments=[Told("a"), Told("b")]):
        make_pass("P", fails=True)(mod)
    assert told == ["b P ZeroDivisionError", "a P ZeroDivisionError"]
    told.clear()
    with pytest.raises(RuntimeError), PassContext(instruments=[Told("a"), Told("b", fails_before=True)]):
        make_pass("P")(mod)
    assert told == ["a P RuntimeError"]
    told.clear()
    with pytest.raises(RuntimeError), PassContext(instruments=[Told("a"), Told("b", fails_after=True), Told("c")]):
        make_pass("P")(mod)
    assert told == ["c P RuntimeError", "b P RuntimeError"]  # a has seen the end


def test_an_error_while_an_instrument_is_told_of_a_failure_does_not_hide_it(mod: IRModule, make_pass: Any) -> None:
    class Clumsy(PassInstrument):
        def pass_failed(self, mod: IRModule, info: PassInfo, error: BaseException) -> None:
            raise KeyError("second")

    with pytest.raises(ZeroDivisionError) as error, PassContext(instruments=[Clumsy()]):
        make_pass("P", fails=True)(mod)
    assert "then instrument Clumsy.pass_failed: KeyError: 'second'" in error.value.__notes__


def test_override_exits_the_old_and_then_enters_the_new(
    mod: IRModule, events: list[str], recorder: Recorders, make_pass: Any
) -> None:
    with PassContext(instruments=[recorder("a"), recorder("b")]) as ctx:
        events.clear()
        ctx.override_instruments([recorder("c"), recorder("d")])
        assert events == ["a.exit", "b.exit", "c.enter", "d.enter"]
        events.clear()
        make_pass("P")(mod)
        assert events[0] == "c.should P"
        events.clear()
    assert events == ["c.exit", "d.exit"]


def test_override_where_an_old_one_fails_to_exit_leaves_the_list_empty(events: list[str], recorder: Recorders) -> None:
    with PassContext(instruments=[recorder("a", fails_in="exit"), recorder("b")]) as ctx:
        events.clear()
        with pytest.raises(ValueError, match="a exit"):
            ctx.override_instruments([recorder("c")])
        assert events == ["a.exit"]
        assert ctx.instruments == []
    assert events == ["a.exit"]


def test_override_where_a_new_one_fails_to_enter_leaves_the_list_empty(events: list[str], recorder: Recorders) -> None:
    with PassContext(instruments=[recorder("a")]) as ctx:
        events.clear()
        with pytest.raises(ValueError, match="d enter"):
            ctx.override_instruments([recorder("b"), recorder("c"), recorder("d", fails_in="enter")])
        assert events == ["a.exit", "b.enter", "c.enter", "d.enter", "c.exit", "b.exit"]
        assert ctx.instruments == []
    assert events[-1] == "b.exit"


def test_the_default_context_takes_instruments_by_override(
    mod: IRModule, events: list[str], recorder: Recorders, make_pass: Any
) -> None:
    ctx = PassContext.current()
    ctx.override_instruments([recorder("a")])
    try:
        make_pass("P")(mod)
    finally:
        ctx.override_instruments([])
    assert events == ["a.enter", "a.should P", "a.before P", "run P", "a.after P", "a.exit"]


def test_override_of_a_context_that_is_not_entered_waits_for_its_block(events: list[str], recorder: Recorders) -> None:
    ctx = PassContext(instruments=[recorder("a")])
    ctx.override_instruments([recorder("b")])
    assert events == []
    with ctx:
        assert events == ["b.enter"]


def test_instruments_that_a_pass_replaces_have_exited_and_do_not_see_it_end(
    mod: IRModule, events: list[str], recorder: Recorders
) -> None:
    kept = recorder("kept")

    @module_pass(opt_level=0)
    def replace(mod: Any, ctx: Any) -> Any:
        ctx.override_instruments([kept])
        return mod

    with PassContext(instruments=[recorder("gone"), kept]):
        replace(mod)
    assert "gone.after replace" not in events
    assert "kept.after replace" in events


def test_the_decorator_makes_instruments_of_a_class_and_keeps_its_constructor(mod: IRModule, make_pass: Any) -> None:
    @pass_instrument
    class Skip:
        """Skips one pass."""

        def __init__(self, skipped: str, *, count: int = 0) -> None:
            self.skipped, self.count = skipped, count

        def should_run(self, mod: Any, info: Any) -> bool:
            self.count += 1
            return bool(info.name != self.skipped)

    skip = Skip("P", count=10)
    assert isinstance(skip, PassInstrument)
    assert skip.name == "Skip"
    assert Skip.__doc__ == "Skips one pass."
    with PassContext(instruments=[skip]):
        assert make_pass("P")(mod) is mod
        assert make_pass("Q")(mod) is not mod
    assert skip.count == 12


@pytest.mark.parametrize(
    "method", ["enter_pass_ctx", "exit_pass_ctx", "should_run", "run_before_pass", "run_after_pass"]
)
def test_any_single_method_makes_an_instrument(method: str, mod: IRModule, make_pass: Any) -> None:
    calls: list[tuple[Any, ...]] = []

    def record(self: Any, *args: Any) -> bool:
        calls.append(args)
        return True

    instrument = pass_instrument(type("Single", (), {method: record}))
    with PassContext(instruments=[instrument()]):  # type: ignore[list-item]
        make_pass("P")(mod)
    assert len(calls) == 1


def test_the_decorator_also_works_with_parentheses_and_on_dataclasses(mod: IRModule, make_pass: Any) -> None:
    @pass_instrument()
    @dataclass
    class Count:
        name: str = "counter"
        passes: int = 0

        def run_after_pass(self, mod: Any, info: Any) -> None:
            self.passes += 1

    count = Count()
    assert count.name == "counter"
    with PassContext(instruments=[count]):  # type: ignore[list-item]
        make_pass("P")(mod)
    assert count.passes == 1


def test_the_decorator_refuses_what_is_no_class() -> None:
    with pytest.raises(TypeError, match="decorates a class"):
        pass_instrument(lambda: None)  # type: ignore[arg-type]


def test_a_class_that_is_an_instrument_already_stays_as_it_is() -> None:
    class Direct(PassInstrument):
        pass

    assert pass_instrument(Direct) is Direct


def test_trace_is_called_before_and_after_each_pass_that_runs(
    mod: IRModule, events: list[str], recorder: Recorders, make_pass: Any
) -> None:
    modules = []

    def trace(mod: IRModule, info: PassInfo, is_before: bool) -> None:
        events.append(f"trace {info.name} {'before' if is_before else 'after'}")
        modules.append(mod)

    with PassContext(trace=trace, instruments=[recorder("a", vetoes=("Q",))]):
        result = make_pass("P")(mod)
        make_pass("Q")(mod)
    assert events == [
        *["a.enter", "a.should P", "a.before P", "trace P before", "run P", "a.after P", "trace P after"],
        *["a.should Q", "a.exit"],
    ]
    assert modules == [mod, result]


def test_trace_works_without_instruments(mod: IRModule, make_pass: Any) -> None:
    calls = []
    with PassContext(trace=lambda mod, info, is_before: calls.append((info.name, is_before))):
        Sequential([make_pass("P")], name="S")(mod)
    assert calls == [("S", True), ("P", True), ("P", False), ("S", False)]


@pytest.mark.parametrize(("fails_before", "when"), [(True, "before"), (False, "after")])
def test_an_error_in_trace_goes_on_with_a_note(fails_before: bool, when: str, mod: IRModule, make_pass: Any) -> None:
    def trace(mod: IRModule, info: PassInfo, is_before: bool) -> None:
        if is_before is fails_before:
            raise KeyError("trace")

    with pytest.raises(KeyError) as error, PassContext(trace=trace):
        make_pass("P")(mod)
    assert error.value.__notes__ == [f"in the trace function {when} pass P"]
