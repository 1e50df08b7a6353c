"""Timing and memory of passes: readable during, after, and after a failure; and the spans they are made of."""

from __future__ import annotations

import json
import threading
import time
import tracemalloc
from typing import Any

import pytest

from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.passes import (
    Pass,
    PassContext,
    PassInstrument,
    PassMemoryInstrument,
    PassTimingInstrument,
    Sequential,
    SpanRecorder,
    module_pass,
    primfunc_pass,
)
from tilewright.passes.instruments.memory import resident_bytes
from tilewright.passes.tables import format_bytes, format_seconds
from tilewright.passes.tensor import RemoveNoOp, Simplify
from tilewright.passes.tensor.part_by_part import PartByPart
from tilewright.tensorir import PrimFunc, parse


def sleeping(name: str, seconds: float = 0.0, fails: bool = False) -> Pass:
    def transform(mod: Any, ctx: Any) -> Any:
        time.sleep(seconds)
        if fails:
            raise ZeroDivisionError(name)
        return mod

    return module_pass(transform, opt_level=0, name=name)


def test_the_report_is_a_tree_with_time_inside_and_outside_of_inner_passes(mod: IRModule) -> None:
    timing = PassTimingInstrument()
    with PassContext(instruments=[timing]):
        Sequential([sleeping("A", 0.02), sleeping("B", 0.03)], name="S")(mod)
    (root,) = timing.as_dict()["spans"]
    assert root["name"] == "S"
    assert [child["name"] for child in root["children"]] == ["A", "B"]
    a, b = root["children"]
    assert a["duration"] >= 0.02
    assert b["duration"] >= 0.03
    assert b["start"] >= a["start"] + a["duration"]
    assert root["duration"] >= a["duration"] + b["duration"]
    assert root["self"] == pytest.approx(root["duration"] - a["duration"] - b["duration"])
    assert root["share"] == pytest.approx(1.0)
    assert a["share"] == pytest.approx(a["duration"] / root["duration"])
    assert timing.as_dict()["total"] == pytest.approx(root["duration"])


def test_render_shows_each_pass_indented_under_its_pipeline(mod: IRModule) -> None:
    timing = PassTimingInstrument()
    with PassContext(instruments=[timing]):
        Sequential([sleeping("A", 0.002)], name="S")(mod)
    lines = timing.render().splitlines()
    assert lines[0].split() == ["pass", "total", "self", "share", "size", "before", "after"]
    assert lines[2].startswith("S ")
    assert lines[3].startswith("  A ")
    assert lines[2].split()[5:] == ["100.0", "%", "0", "0"]
    assert lines[-1].startswith("all ")
    assert " ms" in lines[3]


def test_the_flat_list_sums_the_runs_of_a_pass_and_begins_with_the_most_time_of_its_own(
    mod: IRModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(SpanRecorder.__init__, "__defaults__", (lambda: sum(slept),))  # time passes in sleeps alone
    timing = PassTimingInstrument()
    with PassContext(instruments=[timing]):
        Sequential([sleeping("A", 0.002), sleeping("B", 0.02), sleeping("A", 0.002)], name="S")(mod)
    b, a, s = timing.flat()
    assert [(total.name, total.runs) for total in (b, a, s)] == [("B", 1), ("A", 2), ("S", 1)]
    assert a.total == a.self_time == pytest.approx(0.004)
    assert b.total == b.self_time == pytest.approx(0.02)
    assert (s.total, s.self_time) == (pytest.approx(0.024), pytest.approx(0.0))
    assert s.total == pytest.approx(timing.total())
    assert sum(total.share for total in (b, a, s)) == pytest.approx(1)
    lines = timing.render("flat").splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["B", "A", "S", "all"]


def test_a_pipeline_in_one_of_its_name_counts_its_time_once(mod: IRModule) -> None:
    timing = PassTimingInstrument()
    with PassContext(instruments=[timing]):
        Sequential([Sequential([sleeping("A", 0.002)], name="S")], name="S")(mod)
    totals = {total.name: total for total in timing.flat()}
    assert totals["S"].runs == 2
    assert totals["S"].total == pytest.approx(timing.total())


def test_the_size_is_that_of_graphs_and_loop_nests_before_and_after(mixed_mod: IRModule) -> None:
    @module_pass(opt_level=0, name="Grow")
    def grow(mod: IRModule, ctx: Any) -> IRModule:
        x = gi.var("x", shape=(4,), dtype="float32")
        return mod.with_functions({mod.get_global_var("main"): gi.Function([x], gi.nn.relu(x) + x)})

    timing = PassTimingInstrument()
    with PassContext(instruments=[timing]):
        grow(mixed_mod)
    (span,) = timing.spans
    # One statement of the loop nest; then relu and add as well.
    assert (span.attributes["size_before"], span.attributes["size_after"]) == (1, 3)
    assert timing.flat()[0].growth == 2


def test_it_is_readable_while_a_pass_is_running(mod: IRModule) -> None:
    timing = PassTimingInstrument()
    seen: list[dict[str, Any]] = []

    @module_pass(opt_level=0)
    def reads(mod: Any, ctx: Any) -> Any:
        time.sleep(0.01)
        seen.append(timing.as_dict())
        assert "reads  (running)" in timing.render()
        return mod

    with PassContext(instruments=[timing]):
        Sequential([sleeping("A"), reads], name="S")(mod)
        (root,) = seen[0]["spans"]
        assert root["status"] == "running"
        assert [child["status"] for child in root["children"]] == ["ok", "running"]
        assert 0.01 <= root["children"][1]["duration"] <= root["duration"]
        assert timing.as_dict()["spans"][0]["status"] == "ok"  # inside the context, after the passes


def test_it_is_readable_after_the_context(mod: IRModule) -> None:
    timing = PassTimingInstrument()
    with PassContext(instruments=[timing]):
        sleeping("A")(mod)
    first = timing.as_dict()
    time.sleep(0.002)
    assert timing.as_dict() == first
    assert first["spans"][0]["status"] == "ok"


def test_after_a_failure_what_was_open_is_closed_as_failed(mod: IRModule) -> None:
    timing = PassTimingInstrument()
    pipeline = Sequential([sleeping("A"), sleeping("B", fails=True), sleeping("C")], name="S")
    with pytest.raises(ZeroDivisionError), PassContext(instruments=[timing]):
        pipeline(mod)
    first = timing.as_dict()
    (root,) = first["spans"]
    assert root["status"] == "failed"
    assert [(child["name"], child["status"]) for child in root["children"]] == [("A", "ok"), ("B", "failed")]
    assert root["children"][1]["attributes"]["error"] == "ZeroDivisionError: B"
    assert "B  (failed)" in timing.render()
    time.sleep(0.002)
    assert timing.as_dict() == first


def test_a_failed_pass_has_no_size_after_it(mod: IRModule) -> None:
    timing = PassTimingInstrument()
    with pytest.raises(ZeroDivisionError), PassContext(instruments=[timing]):
        Sequential([sleeping("Works"), sleeping("Breaks", fails=True)], name="S")(mod)
    tree = {line.split()[0]: line.split()[-2:] for line in timing.render().splitlines()[1:]}
    size = str(timing.spans[0].attributes["size_before"])
    assert (tree["S"], tree["Works"], tree["Breaks"]) == ([size, "-"], [size, size], [size, "-"])
    flat = {line.split()[0]: line.split()[-1] for line in timing.render("flat").splitlines()[1:]}
    assert (flat["S"], flat["Works"], flat["Breaks"]) == ("-", "+0", "-")
    assert {total.name: total.growth for total in timing.flat()} == {"S": None, "Works": 0, "Breaks": None}


def test_a_pass_that_failed_in_one_of_its_parts_has_no_size_after_it() -> None:
    def fail_later(func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        if PassContext.part() == 1:
            raise ZeroDivisionError
        return func

    timing = PassTimingInstrument()
    with pytest.raises(ZeroDivisionError):
        in_parts(timing, passes=(primfunc_pass(fail_later, opt_level=0, name="FailsLater"),))
    line = next(line for line in timing.render().splitlines() if "FailsLater" in line)
    assert "(failed)" in line and line.split()[-1] == "-"


def test_a_pass_after_a_failed_one_is_not_inside_it(mod: IRModule) -> None:
    timing = PassTimingInstrument()
    with PassContext(instruments=[timing]):
        with pytest.raises(ZeroDivisionError):
            sleeping("A", fails=True)(mod)
        sleeping("B")(mod)
    assert [(span.name, span.status) for span in timing.spans] == [("A", "failed"), ("B", "ok")]


def test_it_measures_in_the_default_context_too(mod: IRModule) -> None:
    timing = PassTimingInstrument()
    ctx = PassContext.current()
    ctx.override_instruments([timing])
    try:
        sleeping("A")(mod)
    finally:
        ctx.override_instruments([])
    assert [span.name for span in timing.spans] == ["A"]


def test_it_keeps_what_it_measured_until_reset(mod: IRModule) -> None:
    timing = PassTimingInstrument()
    for _ in range(2):
        with PassContext(instruments=[timing]):
            sleeping("A")(mod)
    assert len(timing.spans) == 2
    timing.reset()
    assert (timing.as_dict()["total"], timing.as_dict()["spans"]) == (0, [])
    assert "all" in timing.render()


def test_json_is_the_dictionary(mod: IRModule) -> None:
    timing = PassTimingInstrument()
    with PassContext(instruments=[timing]):
        sleeping("A")(mod)
    assert json.loads(timing.to_json()) == timing.as_dict()


def test_the_chrome_trace_has_one_complete_event_for_each_pass_in_microseconds(mod: IRModule) -> None:
    timing = PassTimingInstrument()
    with PassContext(instruments=[timing]):
        Sequential([sleeping("A", 0.01)], name="S")(mod)
    outer, inner = json.loads(timing.to_chrome_trace())["traceEvents"]
    assert (outer["name"], inner["name"], inner["ph"], inner["cat"]) == ("S", "A", "X", "passes")
    assert 1e4 <= inner["dur"] <= outer["dur"] < 5e6
    assert outer["ts"] <= inner["ts"]
    assert outer["ts"] + outer["dur"] >= inner["ts"] + inner["dur"]
    assert inner["args"]["status"] == "ok"
    assert inner["tid"] == outer["tid"]


def test_two_threads_with_a_context_each_may_share_it(mod: IRModule) -> None:
    timing = PassTimingInstrument()
    barrier = threading.Barrier(2)

    def work(name: str) -> None:
        with PassContext(instruments=[timing]):
            barrier.wait(120)
            Sequential([sleeping(f"{name}{i}", 0.001) for i in range(5)], name=name)(mod)

    threads = [threading.Thread(target=work, args=(name,)) for name in ("x", "y")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    roots = {span.name: [child.name for child in span.children] for span in timing.spans}
    assert roots == {name: [f"{name}{i}" for i in range(5)] for name in ("x", "y")}
    assert len({event["tid"] for event in json.loads(timing.to_chrome_trace())["traceEvents"]}) == 2


def test_spans_measure_with_the_given_clock() -> None:
    times = iter([10.0, 11.0, 12.0, 15.0, 20.0])
    recorder = SpanRecorder(clock=lambda: next(times))
    outer = recorder.open("outer")
    inner = recorder.open("inner", size=3)
    recorder.close()
    recorder.close()
    assert (outer.start, outer.duration) == (1.0, 9.0)
    assert (inner.start, inner.duration, inner.attributes) == (2.0, 3.0, {"size": 3})
    assert outer.self_time(now=0.0) == 6.0
    assert [(depth, span.name) for depth, span in outer.walk()] == [(0, "outer"), (1, "inner")]


def test_closing_more_than_was_opened_is_harmless_and_close_all_closes_the_rest() -> None:
    recorder = SpanRecorder()
    assert recorder.close() is None
    spans = [recorder.open("a"), recorder.open("b")]
    recorder.close_all("failed")
    assert [span.status for span in spans] == ["failed", "failed"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(2.0, "2.000 s"), (0.0123, "12.300 ms"), (1.5e-6, "1.5 us"), (0.0, "0.0 us")]
)
def test_durations_have_a_fitting_unit(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(None, "-"), (12, "+12 B"), (-2048, "-2.0 KiB"), (3 << 20, "+3.0 MiB"), (5 << 30, "+5.0 GiB")]
)
def test_sizes_have_a_fitting_unit(count: int | None, text: str) -> None:
    assert format_bytes(count) == text


MEGABYTE = 1 << 20


def test_memory_tells_what_a_pass_keeps_from_its_peak(mod: IRModule) -> None:
    kept: list[bytearray] = []

    @module_pass(opt_level=0)
    def keeps(mod: Any, ctx: Any) -> Any:
        kept.append(bytearray(2 * MEGABYTE))
        return mod

    @module_pass(opt_level=0)
    def borrows(mod: Any, ctx: Any) -> Any:
        len(bytearray(8 * MEGABYTE))
        return mod

    memory = PassMemoryInstrument()
    with PassContext(instruments=[memory]):
        Sequential([keeps, borrows, keeps], name="S")(mod)
    (root,) = memory.spans
    first, second, _ = root.children
    small = 0.2 * MEGABYTE
    assert first.attributes["allocated"] == pytest.approx(2 * MEGABYTE, abs=small)
    assert first.attributes["peak"] == pytest.approx(2 * MEGABYTE, abs=small)
    assert second.attributes["allocated"] == pytest.approx(0, abs=small)
    assert second.attributes["peak"] == pytest.approx(8 * MEGABYTE, abs=small)
    assert root.attributes["allocated"] == pytest.approx(4 * MEGABYTE, abs=small)
    assert root.attributes["peak"] == pytest.approx(10 * MEGABYTE, abs=small)  # its child's peak is its own too


def test_memory_of_a_pass_counts_for_all_around_it_also_if_it_was_free_before_another_began(mod: IRModule) -> None:
    @module_pass(opt_level=0)
    def middle(mod: Any, ctx: Any) -> Any:
        len(bytearray(8 * MEGABYTE))
        return sleeping("inner")(mod, ctx)

    memory = PassMemoryInstrument()
    with PassContext(instruments=[memory]):
        Sequential([middle], name="S")(mod)
    peaks = {span.name: span.attributes["peak"] for _, span in memory.spans[0].walk()}
    small = 0.2 * MEGABYTE
    assert peaks["inner"] == pytest.approx(0, abs=small)
    assert peaks["middle"] == pytest.approx(8 * MEGABYTE, abs=small)
    assert peaks["S"] == pytest.approx(8 * MEGABYTE, abs=small)


def test_memory_stops_tracing_only_if_it_started_it(mod: IRModule) -> None:
    assert not tracemalloc.is_tracing()
    with PassContext(instruments=[PassMemoryInstrument()]):
        sleeping("A")(mod)
        assert tracemalloc.is_tracing()
    assert not tracemalloc.is_tracing()
    tracemalloc.start()
    try:
        with PassContext(instruments=[PassMemoryInstrument()]):
            sleeping("A")(mod)
        assert tracemalloc.is_tracing()
    finally:
        tracemalloc.stop()


def test_memory_is_readable_after_a_failure(mod: IRModule) -> None:
    memory = PassMemoryInstrument()
    with pytest.raises(ZeroDivisionError), PassContext(instruments=[memory]):
        Sequential([sleeping("A"), sleeping("B", fails=True)], name="S")(mod)
    (root,) = memory.spans
    assert [(span.name, span.status) for _, span in root.walk()] == [("S", "failed"), ("A", "ok"), ("B", "failed")]
    assert "B  (failed)" in memory.render()
    assert json.loads(memory.to_json()) == memory.as_dict()
    assert len(json.loads(memory.to_chrome_trace())["traceEvents"]) == 3
    assert not tracemalloc.is_tracing()


def test_the_resident_size_is_that_of_the_process() -> None:
    before = resident_bytes()
    if before is None:
        pytest.skip("this system does not tell")
    block = bytearray(b"x" * (64 * MEGABYTE))
    after = resident_bytes()
    assert after is not None
    assert after - before > 32 * MEGABYTE
    del block


def kernels(count: int) -> IRModule:
    text = "primfunc @k{} (A: Buffer[(4,), float32]) {{ A[0] = float32(1.0) }}"
    return IRModule({f"k{number}": parse(text.format(number)) for number in range(count)})


def in_parts(*instruments: PassInstrument, passes: tuple[Pass, ...] = ()) -> list[int]:
    """Return the numbers of kernels that were ready at a time, with these instruments, and ``passes`` at the end."""
    ready: list[int] = []
    pipeline = Sequential([Simplify(), RemoveNoOp(), Simplify(), *passes], name="kernels")
    with PassContext(instruments=instruments):
        PartByPart(pipeline, lambda functions: ready.append(len(functions)))(kernels(9))
    return ready


def test_timing_leaves_it_to_the_build_to_take_kernels_in_parts() -> None:
    timing = PassTimingInstrument()
    assert in_parts(timing) == in_parts() == [4, 4, 1]
    (root,) = timing.spans
    assert [(child.name, child.attributes["part"]) for child in root.children] == [
        (name, part) for part in range(3) for name in ("Simplify", "RemoveNoOp", "Simplify")
    ]
    assert "part" not in root.attributes


def test_an_instrument_that_does_not_say_so_gets_whole_modules() -> None:
    timing = PassTimingInstrument()
    assert in_parts(timing, PassMemoryInstrument()) == []
    assert [child.attributes.get("part") for child in timing.spans[0].children] == [None] * 3


def test_the_tree_shows_the_parts_of_a_pass_as_one() -> None:
    timing = PassTimingInstrument()
    in_parts(timing)
    lines = timing.render().splitlines()[2:]
    assert [line.split()[0] for line in lines] == ["kernels", "Simplify", "RemoveNoOp", "Simplify", "all"]
    assert [line.split()[-2:] for line in lines[:4]] == [["9", "9"]] * 4
    assert {total.name: total.runs for total in timing.flat()} == {"kernels": 1, "Simplify": 6, "RemoveNoOp": 3}
    # Reading it changes nothing.
    assert timing.render().splitlines()[2:] == lines
    assert len(timing.spans[0].children) == 9
