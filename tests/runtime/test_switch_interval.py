"""The switch interval is short while kernels are compiled in the background, and restored afterwards."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.runtime import switch_interval
from tilewright.runtime.switch_interval import INTERVAL, short_switch_interval


def test_turns_are_short_inside_and_as_before_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switch_interval, "available_cores", lambda: 2)
    before = sys.getswitchinterval()
    with short_switch_interval():
        with pytest.raises(KeyError), short_switch_interval():
            raise KeyError
        assert sys.getswitchinterval() == pytest.approx(INTERVAL), "another one is not through"
    assert sys.getswitchinterval() == before


def test_one_core_has_nothing_to_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switch_interval, "available_cores", lambda: 1)
    before = sys.getswitchinterval()
    with short_switch_interval():
        assert sys.getswitchinterval() == before


def test_passes_of_a_build_take_short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switch_interval, "available_cores", lambda: 2)
    seen: list[float] = []
    x = gi.var("x", shape=(4,))
    before = sys.getswitchinterval()

    @tw.passes.module_pass(opt_level=0)
    def look(mod: tw.IRModule, ctx: Any) -> tw.IRModule:
        seen.append(sys.getswitchinterval())
        return mod

    tw.build(gi.Function([x], gi.exp(x)), passes={"scheduled": look})
    assert seen == [pytest.approx(INTERVAL)] and sys.getswitchinterval() == before
