"""PassCounter counts the runs of passes, and reports them as a table and as data."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tilewright.graphir.module import IRModule
from tilewright.passes import Pass, PassContext, PassCounter, Sequential, module_pass


def named(name: str, fails: bool = False) -> Pass:
    def transform(mod: Any, ctx: Any) -> Any:
        if fails:
            raise ZeroDivisionError(name)
        return mod

    return module_pass(transform, opt_level=0, name=name)


def test_runs_are_counted_across_contexts_also_those_that_fail(mod: IRModule) -> None:
    counter = PassCounter()
    with PassContext(instruments=[counter]):
        Sequential([named("B"), named("A"), named("A")], name="S")(mod)
    with PassContext(instruments=[counter]), pytest.raises(ZeroDivisionError):
        named("B", fails=True)(mod)
    with PassContext(instruments=[counter]):
        named("A")(mod)
    expected = {"total": 5, "counts": {"B": 2, "A": 3}}
    assert counter.as_dict() == expected
    assert [*counter.as_dict()["counts"]] == ["B", "A"]
    assert json.loads(counter.to_json()) == expected
    assert counter.to_json(indent=None) == json.dumps(expected)
    rows = [line.split() for line in counter.render().splitlines()]
    assert [row for row in rows if row and row[0] in ("A", "B", "all")] == [["A", "3"], ["B", "2"], ["all", "5"]]
    counter.reset()
    assert counter.as_dict() == {"total": 0, "counts": {}}
