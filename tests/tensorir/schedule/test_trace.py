"""Traces of schedules: values that are saved and read back, and functions on which a trace does not apply."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tilewright.tensorir import Schedule
from tilewright.tensorir import tensor as te
from tilewright.tensorir.errors import ScheduleError
from tilewright.tensorir.expr import Var
from tilewright.tensorir.schedule import Trace
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.structural import assert_structural_equal

N = Var("n")


def doubled(dims: int = 1) -> PrimFunc:
    """Return the function that computes ``t = 2 x`` and ``y = t + 1`` on ``n`` elements in each of ``dims``
    dimensions."""
    x = te.placeholder((N,) * dims, "float32", "x")
    t = te.compute((N,) * dims, lambda *place: x[place] * 2.0, name="t")
    return te.create_prim_func("f", [x], [te.compute((N,) * dims, lambda *place: t[place] + 1.0, name="y")])


def replayed(trace: Trace) -> Schedule:
    again = Schedule(doubled())
    Trace.from_json(trace.to_json()).apply(again)
    return again


@pytest.mark.parametrize("value", [3, "text", None, True, 0.5, math.inf, -math.inf, [1, [2, "x"]]])
def test_values_of_annotations_are_saved(value: Any) -> None:
    sch = Schedule(doubled())
    sch.annotate(sch.get_block("t"), "note", value)
    again = replayed(sch.trace)
    assert again.get(again.get_block("t")).annotations["note"] == value
    exec(str(sch.trace), {"sch": (other := Schedule(doubled()))})
    assert_structural_equal(sch.func, other.func)


def test_a_list_is_recorded_as_it_was_given() -> None:
    sch = Schedule(doubled())
    factors = [None, 4]
    sch.split(sch.get_loops(sch.get_block("t"))[0], factors)
    factors[1] = 8
    assert "4]" in str(sch.trace) and "8" not in str(sch.trace)


def test_sizes_and_buffers_are_saved_by_name() -> None:
    sch = Schedule(doubled())
    t = sch.get_block("t")
    n = sch.func.variables[0]
    outer, _ = sch.split(sch.get_loops(sch.get_block("y"))[0], [None, n + 1])
    sch.set_scope(t, sch.get(t).writes[0].buffer, "stack")
    sch.transform_layout(t, "t", lambda i: (n - i - 1,))
    assert_structural_equal(replayed(sch.trace).func, sch.func)
    assert outer.name in str(sch.func)


def test_what_json_does_not_hold_is_not_saved() -> None:
    sch = Schedule(doubled())
    sch.annotate(sch.get_block("t"), "note", {1, 2})
    with pytest.raises(ScheduleError, match=r"a trace cannot save \{1, 2\}"):
        sch.trace.to_json()


def test_handles_come_from_the_schedule_that_they_are_given_to() -> None:
    sch, other = Schedule(doubled()), Schedule(doubled())
    loop = other.get_loops(other.get_block("t"))[0]
    with pytest.raises(ScheduleError, match="was not returned by this schedule"):
        sch.trace.record("parallel", [loop], {}, None)


def test_a_trace_of_fewer_dimensions_gives_another_number_of_handles() -> None:
    sch = Schedule(doubled())
    sch.get_loops(sch.get_block("t"))
    with pytest.raises(ScheduleError, match=r"replaying \[l0\] = sch.get_loops\(b0\): expected 1 handles, found 2"):
        sch.trace.apply(Schedule(doubled(2)))


def test_a_layout_of_fewer_dimensions_does_not_apply() -> None:
    sch = Schedule(doubled())
    sch.transform_layout(sch.get_block("t"), "t", lambda i: (i,))
    with pytest.raises(ScheduleError, match="the index map takes 1 indices; expected 2"):
        sch.trace.apply(Schedule(doubled(2)))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([{"handle": "l7"}], "the trace uses l7 before any instruction returns it"),
        ([{"shape": "4"}], "not a trace: unknown kind of argument 'shape'"),
        ([{"handle": 4}], "not a trace: handle: expected a text, found 4"),
    ],
)
def test_a_trace_written_by_hand_is_checked(args: list[Any], message: str) -> None:
    step = {"name": "parallel", "args": args, "kwargs": {}, "outputs": [], "is_list": False}
    with pytest.raises(ScheduleError, match=message):
        Trace.from_json(json.dumps([step])).apply(Schedule(doubled()))
