"""Test profiles as tables, as HTML and as traces."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from profiled_models import looping, perceptron

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.origins import Origin
from tilewright.passes.spans import OK, Span
from tilewright.runtime.observe.profile.arena import Allocation
from tilewright.runtime.observe.profile.profile import CallProfile, Profile


def call(number: int, kernel: str, median: float, **changes: Any) -> CallProfile:
    fields: dict[str, Any] = {
        "number": number, "kernel": kernel, "origins": (Origin("nn.relu", f"layer{number}"),), "runs": 1,
        "minimum": median / 2, "median": median, "share": median / 7e-6, "operations": 7000, "dtype": "float32",
        "bytes": 14000, "roof": median / 4, "bound": "memory", "level": "L1", "vector_bits": 256, "threads": 2,
        "imbalance": 1.25,
    }  # fmt: skip
    return CallProfile(**{**fields, **changes})


def made(calls: Sequence[CallProfile], allocations: Sequence[Allocation] = ()) -> Profile:
    spans = [Span(each.kernel, 1e-6 * n, 5e-7, OK, each.as_dict()) for n, each in enumerate(calls)]
    facts = {"target": "llvm", "signature": "()", "sizes": {}, "machine": {}}
    root = Span("main", 0.0, 1e-6 * len(calls), OK, {}, spans)
    return Profile([root], calls, (8e-6, 9e-6), 0.04, 3, 1024, allocations, len(calls), facts)


CALLS = [call(0, "a", 1e-6), call(1, "b", 4e-6), call(2, "a", 2e-6, imbalance=1.5, threads=None, vector_bits=0)]


@pytest.mark.parametrize(
    ("order", "kernels"), [("time", ["b", "a", "a"]), ("run", ["a", "b", "a"]), ("kernel", ["b", "a (x2)"])]
)
def test_orders(order: str, kernels: list[str]) -> None:
    assert [row[0] for row in made(CALLS).rows(order)] == kernels


def test_calls_of_a_kernel_add_up_in_one_line() -> None:
    (row,) = [row for row in made(CALLS).rows("kernel") if row[0] == "a (x2)"]
    cells = dict(zip(Profile.header, row, strict=True))
    assert (cells["min"], cells["median"], cells["share"]) == ("1.5 us", "3.0 us", "42.9 %")
    assert cells["Gop/s"] == f"{2 * 7000 / 3e-6 / 1e9:.1f}" and cells["GB/s"] == f"{2 * 14000 / 3e-6 / 1e9:.1f}"
    assert cells["imbalance"] == "1.50" and cells["of"] == "nn.relu" and cells["of roof"] == "25 % memory"


def test_what_is_unknown_is_a_dash() -> None:
    row = made(CALLS).rows("run")[2]
    cells = dict(zip(Profile.header, row, strict=True))
    assert (cells["vector"], cells["threads"]) == ("-", "-")


def test_a_limit_leaves_lines_out_and_says_how_many() -> None:
    text = made(CALLS).render(limit=1)
    assert "(2 more)" in text and "layer1" in text and "layer0" not in text
    assert "more)" not in made(CALLS).render(limit=3)
    assert "(3 more)" in made(CALLS).render(limit=0)


LONG = [call(0, "a" * 50, 1e-6), call(1, "b", 4e-6, origins=(Origin("nn.conv2d", "layer" * 20),))]


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160])
def test_the_table_fits_the_width(width: int) -> None:
    lines = made(LONG).render(width=width).splitlines()[:4]
    assert max(map(len, lines)) <= width
    assert lines[0].startswith("kernel") and "median" in lines[0] and "of roof" in lines[0]


def test_a_wide_enough_table_is_whole() -> None:
    assert made(CALLS).render(width=300) == made(CALLS).render()


def test_columns_go_before_names_become_unreadable() -> None:
    header, row = made(LONG).render(width=100, limit=1).splitlines()[0::2][:2]
    assert "imbalance" not in header and "of" in header.split()
    assert "nn.conv2d layer" in row


def test_totals_are_by_the_operator_that_is_hardest_to_fuse() -> None:
    layer = (Origin("nn.conv2d", "c"), Origin("nn.relu", "r"))
    calls = [call(0, "a", 1e-6, origins=layer), call(1, "b", 2e-6), call(2, "c", 3e-6, origins=layer)]
    assert made(calls).totals() == [
        ["nn.conv2d", "2", "4.0 us", "57.1 %"],
        ["nn.relu", "1", "2.0 us", "28.6 %"],
    ]


def test_a_call_of_no_operator_counts_as_a_copy() -> None:
    assert made([call(0, "copy_1", 1e-6, origins=())]).totals()[0][0] == "copy"


def test_the_summary_says_what_the_whole_costs() -> None:
    # A quarter of the medians would be half way between two texts: a sum is a little less or not, by the Python.
    calls = [call(0, "a", 1e-6, roof=0.1e-6), *CALLS[1:]]
    found = made(calls, [Allocation("a", 0, 600, 0, 1), Allocation("b", 600, 200, 1, 2)])
    first, second, third = found.summary()
    assert "9.0 us" in first and "8.0 us" in first and "7.0 us are in kernels" in first and "+4.0 %" in first
    assert f"{3 * 7000 / 7e-6 / 1e9:.1f} Gop/s" in second and "would take 1.6 us" in second  # the sum of the roofs
    assert "1.0 KiB" in third and "800 B" in third
    assert found.live_bytes() == [600, 800, 200]


@pytest.mark.parametrize("wrong", [{"order": "size"}, {"limit": -1}])
def test_wrong_orders_and_limits_are_errors(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}: expected .*{next(iter(wrong.values()))}"):
        made(CALLS).render(**wrong)


def test_html_shows_all_calls_with_their_text_escaped() -> None:
    text = made([call(0, "<kernel>", 1e-6)])._repr_html_()
    assert "&lt;kernel&gt;" in text and "<kernel>" not in text
    assert text.count("<tr>") == 2 and "a call takes" in text


def test_lines_of_spans_are_those_of_their_calls() -> None:
    """Views that show spans of any report as a tree get the cells of a call beside its name."""
    found = made(CALLS)
    (root,) = found.spans
    rows = {tuple(row[1:]) for row in found.rows("run")}
    assert {tuple(found.cells(span, found.now(), found.total())) for span in root.children} == rows
    assert found.cells(root, found.now(), found.total()) == [""] * (len(found.header) - 1)


def events(found: Profile, phase: str) -> list[dict[str, Any]]:
    trace = json.loads(found.to_chrome_trace())
    assert trace["displayTimeUnit"] == "ms"
    return [event for event in trace["traceEvents"] if event["ph"] == phase]


@pytest.mark.parametrize("model", [perceptron, looping])
def test_a_trace_has_the_calls_inside_of_the_model_and_the_arena_as_a_counter(model: Any) -> None:
    inputs = [np.ones((4, 64), "f4")] if model is perceptron else [np.ones((4, 16), "f4"), np.array(True)]
    found = tw.build(model(), tw.Target("llvm", num_threads=2)).profile(*inputs, repeat=2)
    root, *inner = events(found, "X")
    calls = [event for event in inner if "number" in event["args"]]
    assert root["name"] == "main" and len(calls) == len(found.calls)
    for event in [root, *calls]:
        assert {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"} == set(event)
        assert event["dur"] >= 0 and event["pid"] == root["pid"] and event["tid"] == root["tid"]
    slack = 1e-3  # a nanosecond
    ends = 0.0
    for event in calls:
        assert event["ts"] >= ends - slack  # a viewer shows the events of one thread only if they do not overlap
        ends = event["ts"] + event["dur"]
    assert ends <= root["ts"] + root["dur"] + slack
    counts = events(found, "C")
    assert [count["ts"] for count in counts[:-1]] == [event["ts"] for event in calls]
    live = found.live_bytes()
    assert [count["args"]["bytes"] for count in counts[:-1]] == [live[event["args"]["number"]] for event in calls]
    assert counts[-1]["args"]["bytes"] == 0 and counts[-1]["ts"] == pytest.approx(root["dur"])
    assert {count["pid"] for count in counts} == {root["pid"]}


def test_a_trace_has_a_lane_for_each_thread() -> None:
    random = np.random.default_rng(0)
    x = gi.var("x", shape=(512, 512))
    weight = gi.const(random.standard_normal((512, 512)).astype("f4"))
    model = tw.build(gi.Function([x], gi.nn.dense(x, weight)), tw.Target("llvm", num_threads=2))
    found = model.profile(random.standard_normal((512, 512)).astype("f4"), repeat=3)
    names = {event["tid"]: event["args"]["name"] for event in events(found, "M")}
    assert next(iter(names.values())) == "kernel calls"
    assert set(names.values()) <= {"kernel calls", "thread 0", "thread 1"}
    _, call, *work = events(found, "X")
    assert names[call["tid"]] == "kernel calls"
    assert sorted({names[event["tid"]] for event in work}) == sorted(set(names.values()) - {"kernel calls"}) != []
    for event in work:
        assert event["name"] == call["name"] and event["args"]["worked"] > 0
        assert event["ts"] == call["ts"] and event["dur"] <= call["dur"]
    assert sum(event["dur"] for event in work) > 0.5 * call["dur"]  # the product is nearly all of the call


def test_a_label_of_the_graph_stands_in_the_table() -> None:
    x = gi.var("x", shape=(8,))
    mod = tw.IRModule.from_expr(gi.Function([x], gi.Call("tanh", [x], span="squash")))
    found = tw.build(mod, "llvm").profile(np.ones(8, "f4"), repeat=1)
    assert "squash" in found.render() and "squash" in found._repr_html_()
