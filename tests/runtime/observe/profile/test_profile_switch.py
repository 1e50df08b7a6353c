"""``TILEWRIGHT_PROFILE``: profiles are written when a program ends, without a change of its code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from profiled_models import choosing, perceptron

import tilewright as tw
from tilewright.passes.environment import PROFILE
from tilewright.runtime.observe.profile import switch
from tilewright.runtime.observe.profile.recording import KEPT_CALLS, KEPT_SIZES, Recording
from tilewright.tensorir.errors import InputError

SCHEMA = json.loads((Path(__file__).parents[4] / "docs" / "spans.schema.json").read_text(encoding="utf-8"))

PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
import numpy as np
import tilewright as tw
from profiled_models import choosing, perceptron
first = tw.build(perceptron(), tw.Target("llvm", num_threads=2))
second = tw.build(choosing(), tw.Target("llvm", num_threads=2))
for rows in (3, 5, 3, 3, 3):
    first(np.ones((rows, 64), "f4"))
second(np.array([1, -1, 2], "f4"))
print("done")
"""


def run(name: str) -> subprocess.CompletedProcess[str]:
    program = PROGRAM.format(folder=str(Path(__file__).parent))
    environment = {**os.environ, PROFILE: name}
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)


def test_a_program_leaves_a_profile_for_each_model_and_its_sizes(tmp_path: Path) -> None:
    ran = run(str(tmp_path / "profile.json"))
    assert (ran.stdout, ran.stderr) == ("done\n", "")
    found = json.loads((tmp_path / "profile.json").read_text())
    jsonschema.validate(found, SCHEMA)
    facts = [report["attributes"] for report in found["reports"]]
    assert [(each["model"], each["count"]) for each in facts] == [(0, 4), (0, 1), (1, 1)]
    assert [each["sizes"].get("batch") for each in facts] == [3, 5, None]
    assert list(facts[2]["sizes"].values()) == [3, 2]  # of the input, and as computed by the model
    assert facts[0]["repeat"] == 2  # the first two warm up
    assert facts[0]["overhead"] is None and facts[0]["latency"]["min"] > 0
    for each in facts:
        assert each["calls"] and all(call["median"] > 0 for call in each["calls"])


def test_a_trace_has_a_process_for_each_profile(tmp_path: Path) -> None:
    run(str(tmp_path / "net.trace.json"))
    events = json.loads((tmp_path / "net.trace.json").read_text())["traceEvents"]
    titles = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert [title.split(":")[0] for title in titles.values()] == ["model 0", "model 0", "model 1"]
    assert "batch=3" in titles[1] and "batch=5" in titles[2]
    for process in titles:
        own = [event for event in events if event["pid"] == process]
        assert {"X", "C", "M"} == {event["ph"] for event in own}


def test_the_number_of_the_process_may_be_in_the_name(tmp_path: Path) -> None:
    run(str(tmp_path / "p%p.json"))
    (path,) = tmp_path.iterdir()
    assert path.stem[1:].isdigit()


def test_a_file_that_cannot_be_written_is_a_warning_and_nothing_more(tmp_path: Path) -> None:
    name = str(tmp_path / "missing" / "profile.json")
    ran = run(name)
    assert ran.stdout == "done\n"
    assert f"RuntimeWarning: {PROFILE}={name}: no profile is written" in ran.stderr
    assert "No such file" in ran.stderr and "Traceback" not in ran.stderr


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[Recording]]:
    """Collect the recordings that are made while the variable is set. Nothing is written when the tests end."""
    monkeypatch.setattr(switch, "_recordings", {"other": []})  # so that nothing is registered
    name = str(tmp_path / "profile.json")
    monkeypatch.setenv(PROFILE, name)
    yield switch._recordings.setdefault(name, [])


def test_models_are_recorded_only_while_it_is_set(recorded: list[Recording], monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tw.build(perceptron(), "llvm")
    monkeypatch.delenv(PROFILE)
    outside = tw.build(perceptron(), "llvm")
    x = np.random.default_rng(0).standard_normal((4, 64)).astype("f4")
    np.testing.assert_array_equal(inside(x), outside(x))
    monkeypatch.setenv(PROFILE, "")
    tw.build(perceptron(), "llvm")(x)
    assert [recording.counts() for recording in recorded] == [{(4,): 1}]


def test_both_targets_are_recorded(recorded: list[Recording], target: tw.Target) -> None:
    model = tw.build(choosing(), target)
    for count in (1, 2):
        model(np.arange(-3, count, dtype="f4"))
    (recording,) = recorded
    found = list(switch.profiles([recording]))
    assert [list(profile.facts["sizes"].values()) for profile in found] == [[4, 0], [5, 1]]
    for profile in found:
        jsonschema.validate(profile.as_dict(), SCHEMA)


def test_a_call_that_fails_leaves_the_others_apart(recorded: list[Recording]) -> None:
    """In a model of segments, the first segment ran, and the later ones did not."""
    x, y = tw.graphir.var("x", shape=("n",)), tw.graphir.var("y", shape=("m",))
    places = tw.graphir.cast(tw.graphir.get_operator("nonzero")(tw.graphir.greater(x, 0.0)), "float32")
    rows = tw.graphir.reshape(places, (places.shape[1],))
    total = tw.graphir.get_operator("match_shape")(rows, shape=(tw.graphir.dims.symbol("m"),)) + y
    model = tw.build(tw.IRModule.from_expr(tw.graphir.Function([x, y], total)), "llvm")
    good, bad = np.array([1, 2], "f4"), np.array([1, 2, 3], "f4")
    for given in (good, bad, good):
        try:
            model(np.array([1, -1, 1], "f4"), given)
        except InputError:
            assert given is bad
    (recording,) = recorded
    assert sum(recording.counts().values()) == 2
    assert [profile.repeat for profile in switch.profiles([recording])] == [2]


def test_calls_of_several_threads_do_not_mix(recorded: list[Recording]) -> None:
    model = tw.build(choosing(), tw.Target("llvm", num_threads=2))

    def run_often(count: int) -> None:
        for _ in range(50):
            model(np.array([1.0] * count + [-1.0] * (4 - count), "f4"))

    workers = [threading.Thread(target=run_often, args=(count,)) for count in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    (recording,) = recorded
    assert recording.counts() == {(4, count): 50 for count in range(4)}
    for sizes, calls in recording.calls().items():
        for call in calls:
            assert [run.sizes for run in call.runs] == [sizes[: len(run.sizes)] for run in call.runs]
            assert len(call.runs) == len(recording.functions)
            ends = [int(run.records[:, 1].max()) for run in call.runs]
            assert ends == sorted(ends)


def test_memory_for_records_is_limited(recorded: list[Recording]) -> None:
    model = tw.build(perceptron(), tw.Target("llvm", num_threads=1))
    for _ in range(KEPT_CALLS + 5):
        model(np.ones((1, 64), "f4"))
    for rows in range(2, KEPT_SIZES + 5):
        model(np.ones((rows, 64), "f4"))
    (recording,) = recorded
    assert len(recording.calls()[1,]) == KEPT_CALLS and recording.counts()[1,] == KEPT_CALLS + 5
    assert len(recording.calls()) == KEPT_SIZES and len(recording.counts()) == KEPT_SIZES + 4


def test_a_copy_of_the_process_writes_nothing(
    recorded: list[Recording], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tw.build(perceptron(), "llvm")(np.ones((1, 64), "f4"))
    switch._write_all(os.getpid() + 1)
    assert not (tmp_path / "profile.json").exists()
    monkeypatch.delitem(switch._recordings, "other")
    switch._write_all(os.getpid())
    assert (tmp_path / "profile.json").exists()


def test_a_model_that_nobody_called_is_not_in_the_document(recorded: list[Recording], tmp_path: Path) -> None:
    tw.build(perceptron(), "llvm")
    path = tmp_path / "empty.json"
    switch.write(str(path), recorded)
    found: Any = json.loads(path.read_text())
    jsonschema.validate(found, SCHEMA)
    assert found["reports"] == []


def test_a_loaded_artifact_is_recorded_if_its_graph_is_there(recorded: list[Recording], tmp_path: Path) -> None:
    model = tw.build(perceptron(), tw.Target("llvm", num_threads=1))
    for graph in (True, False):
        model.export(tmp_path / "net.tw", graph=graph)
        x = np.ones((2, 64), "f4")
        if graph:
            loaded = tw.load(tmp_path / "net.tw")
        else:
            with pytest.warns(RuntimeWarning, match="are not recorded"):
                loaded = tw.load(tmp_path / "net.tw")
        np.testing.assert_array_equal(loaded(x), model(x))
    assert [sum(recording.counts().values()) for recording in recorded] == [2, 1]
