"""The names of an instrument's methods: what is misspelt is an error."""

from __future__ import annotations

import pytest

from tilewright.passes import PassInstrument, pass_instrument


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("run_before", "run_before_pass"),
        ("runAfterPass", "run_after_pass"),
        ("should_run_pass", "should_run"),
        ("enter_pass_context", "enter_pass_ctx"),
        ("exit_ctx", "exit_pass_ctx"),
        ("pass_fail", "pass_failed"),
        ("remarked", "remark"),
    ],
)
def test_a_misspelt_method_is_an_error_that_names_what_was_meant(wrong: str, meant: str) -> None:
    body = {wrong: lambda self, *args: None}
    message = f"nothing calls a method {wrong}; did you mean {meant}"
    with pytest.raises(TypeError, match=message):
        type("Mine", (PassInstrument,), dict(body))
    with pytest.raises(TypeError, match=message):
        pass_instrument(type("Mine", (), dict(body)))
    with pytest.raises(TypeError, match=message):
        pass_instrument(type("Mine", (type("Base", (), dict(body)),), {}))


def test_an_instrument_may_have_other_methods() -> None:
    names = ("_run_before", "count", "run", "reset", "remarks", "render", "skipped")
    type("Mine", (PassInstrument,), {name: lambda self: None for name in names})
