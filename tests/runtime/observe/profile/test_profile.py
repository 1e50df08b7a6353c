"""Test the profile of a model's calls, on both targets."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from profiled_models import choosing, looping, perceptron

import tilewright as tw
from tilewright import graphir as gi
from tilewright.passes.tensor.profile_calls import ProfileCalls
from tilewright.runtime.observe.profile import recording
from tilewright.runtime.observe.profile.measure import report
from tilewright.runtime.observe.profile.profile import Profile
from tilewright.runtime.observe.profile.recording import Recording
from tilewright.tensorir.errors import InputError
from tilewright.tensorir.profiling import RUNS, TOTAL

pytestmark = pytest.mark.optimized  # profiles say how wide numba's vectors are
SCHEMA = json.loads((Path(__file__).parents[4] / "docs" / "spans.schema.json").read_text(encoding="utf-8"))
ROWS = 24


def built(mod: tw.IRModule, kind: str = "llvm", threads: int | None = None) -> tw.Executable:
    """Build for two threads by default, or for one with numba, which takes long to compile parallel loops."""
    return tw.build(mod, tw.Target(kind, num_threads=threads or (2 if kind == "llvm" else 1)))


@pytest.fixture(scope="module")
def profile(kind: str) -> Profile:
    """Return the profile of a perceptron."""
    return built(perceptron(), kind).profile(np.ones((ROWS, 64), "f4"), repeat=5)


@pytest.fixture(scope="module")
def loop(kind: str) -> Profile:
    """Return the profile of a model with a loop that runs three times, and two branches, the first of which is
    taken."""
    return built(looping(), kind).profile(np.ones((5, 16), "f4"), np.array(True), repeat=3)


def test_kernels_come_in_order_with_the_operators_and_names_of_the_graph(profile: Profile) -> None:
    found = [[(origin.operator, origin.label) for origin in call.origins] for call in profile.calls]
    # A product with constant weights is a dense layer.
    assert found == [[("nn.dense", "fc1"), ("nn.relu", None)], [("nn.dense", "fc2")], [("nn.softmax", None)]]
    assert [call.number for call in profile.calls] == [0, 1, 2]


def test_operations_and_bytes_are_those_of_the_formula(profile: Profile) -> None:
    first, second, _ = profile.calls
    assert first.operations == ROWS * 32 * (2 * 64 + 1)
    assert first.bytes == 4 * (ROWS * 64 + 64 * 32 + ROWS * 32)
    # Ten columns are computed as sixteen, the rows of the packed weights.
    assert 2 * ROWS * 32 * 10 <= second.operations <= 2 * ROWS * 32 * 16
    assert {call.dtype for call in profile.calls} == {"float32"}


def test_times_are_positive_and_shares_sum_to_one(profile: Profile) -> None:
    assert sum(call.share for call in profile.calls) == pytest.approx(1)
    for call in profile.calls:
        assert 0 < call.minimum <= call.median
        assert call.operations_per_second == call.operations / call.median
        assert call.bytes_per_second == call.bytes / call.median
        assert call.of_roof == call.roof / call.median


def test_a_roof_is_what_computing_or_reading_takes_at_the_machines_best(profile: Profile) -> None:
    machine = profile.facts["machine"]
    for call in profile.calls:
        compute = call.operations / machine["float32_operations_per_second"]
        memory = call.bytes / machine["bytes_per_second"][call.level]
        assert call.roof == pytest.approx(max(compute, memory))
        assert call.bound == ("compute" if compute >= memory else "memory")


def test_vectors_are_no_wider_than_the_machines(profile: Profile) -> None:
    assert {call.vector_bits for call in profile.calls} <= {0, 64, 128, 256, 512}
    # The exponentials and quotients of a softmax, at least, are vectors on both targets.
    assert 128 <= profile.calls[-1].vector_bits <= tw.Target("llvm").vector_bits


def test_it_says_what_was_measured(profile: Profile, kind: str) -> None:
    assert profile.facts["target"].startswith(kind)
    assert profile.facts["sizes"] == {"batch": ROWS}
    assert profile.repeat == 5
    assert 0 < profile.latency[0] <= profile.latency[1]
    assert profile.overhead is not None and profile.overhead > -1


def test_a_kernel_in_a_loop_counts_all_its_runs(loop: Profile) -> None:
    (product,) = [call for call in loop.calls if "nn.dense" in str(call.origins) or "matmul" in str(call.origins)]
    assert product.runs == 3
    # A run of the product, its activation and the sum.
    assert product.operations == 3 * 5 * 16 * (2 * 16 + 2)
    assert product.bytes % 3 == 0


def test_a_branch_that_is_not_taken_is_not_in_the_profile(loop: Profile) -> None:
    operators = {origin.operator for call in loop.calls for origin in call.origins}
    assert "nn.softmax" in operators and "cumsum" not in operators
    assert all(span.duration is not None and span.start >= 0 for span in loop.spans[0].children)
    assert len(loop.spans[0].children) == len(loop.calls)


def test_data_is_what_the_schema_says(profile: Profile, loop: Profile) -> None:
    for found in (profile, loop):
        data = json.loads(found.to_json())
        jsonschema.validate(data, SCHEMA)
        assert data == json.loads(json.dumps(found.as_dict()))
        assert len(data["attributes"]["calls"]) == len(data["spans"][0]["children"])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda found: found["attributes"]["calls"][0].update(runs=0),
        lambda found: found["attributes"]["calls"][0].pop("origins"),
        lambda found: found["attributes"]["calls"][0].update(bound="luck"),
        lambda found: found["attributes"]["arena"].update(bytes=-1),
        lambda found: found["attributes"].update(sizes={"batch": "many"}),
        lambda found: found["attributes"]["machine"]["bytes_per_second"].pop("L2"),
    ],
)
def test_what_is_no_profile_is_not_valid(spoil: Any, profile: Profile) -> None:
    found = json.loads(profile.to_json())
    spoil(found)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(found, SCHEMA)


def test_one_and_several_threads() -> None:
    one, two = (built(perceptron(), threads=threads).profile(np.ones((512, 64), "f4"), repeat=5) for threads in (1, 2))
    assert {(call.threads, call.imbalance) for call in one.calls} == {(1, None)}
    assert one.facts["machine"]["threads"] == 1
    for call in two.calls:
        assert call.threads in (1, 2)
        assert call.imbalance is None or 1 <= call.imbalance <= 2


def test_what_numba_does_not_tell_is_unknown() -> None:
    found = built(perceptron(), "numba", threads=2).profile(np.ones((4, 64), "f4"), repeat=1)
    assert {call.threads for call in found.calls} <= {None, 1}
    assert {call.imbalance for call in found.calls} == {None}


def test_a_model_in_segments_is_profiled_with_the_sizes_that_it_computed(kind: str) -> None:
    found = built(choosing(), kind).profile(np.array([1, -1, 2, 3, -4], "f4"), repeat=2)
    sizes = dict(found.facts["sizes"])
    assert sizes.pop("n") == 5
    assert list(sizes.values()) == [3]
    numbers = [call.number for call in found.calls]
    assert numbers == sorted(set(numbers)) and len(numbers) >= 2
    starts = [span.start for span in found.spans[0].children]
    assert starts == sorted(starts) and [span.attributes["number"] for span in found.spans[0].children] == numbers
    last = found.calls[-1]
    assert last.operations == 2 * 3  # tanh and the product, of three places
    jsonschema.validate(found.as_dict(), SCHEMA)


def test_several_threads_profile_one_model_at_once() -> None:
    model = built(perceptron())
    expected = model(np.ones((8, 64), "f4"))
    found: list[Profile] = []
    errors: list[BaseException] = []

    def run(rows: int) -> None:
        try:
            found.append(model.profile(np.ones((rows, 64), "f4"), repeat=10))
            np.testing.assert_array_equal(model(np.ones((8, 64), "f4")), expected)
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=run, args=(rows,)) for rows in (3, 4, 5, 6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not errors, errors[0]
    assert sorted(profile.facts["sizes"]["batch"] for profile in found) == [3, 4, 5, 6]
    for profile in found:
        rows = profile.facts["sizes"]["batch"]
        assert profile.calls[0].operations == rows * 32 * (2 * 64 + 1)
        assert profile.repeat == 10


def test_two_threads_may_prepare_a_profile_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first thread leaves the target while the second is inside."""
    model, turns, errors = built(perceptron()), [0, 1], list[BaseException]()
    second_inside, first_done = threading.Event(), threading.Event()

    class Waiting:
        def __call__(self, mod: tw.IRModule) -> tw.IRModule:
            if turns.pop(0) == 0:
                threads[1].start()
                second_inside.wait(300)
            else:
                second_inside.set()
                first_done.wait(300)
            return ProfileCalls()(mod)

    def run() -> None:
        try:
            Recording(model._built)
        except BaseException as error:
            errors.append(error)
        first_done.set()

    monkeypatch.setattr(recording, "ProfileCalls", Waiting)
    threads = [threading.Thread(target=run) for _ in range(2)]
    threads[0].start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]


def test_the_timeline_is_that_of_a_run_that_does_the_usual() -> None:
    recorded = Recording(built(looping())._built)
    for taken, nanoseconds in ((True, 1000), (False, 10**6), (True, 10**9)):
        recorded([np.ones((5, 16), "f4"), np.array(taken)], (5,))
        records = recorded.calls()[5,][-1].runs[0].records
        records[TOTAL] = np.where(records[RUNS] > 0, nanoseconds, 0)
    found = report(recorded, recorded.calls()[5,])
    usual = {origin.operator for call in found.calls for origin in call.origins}
    assert "nn.softmax" in usual and "cumsum" not in usual  # in two runs of three
    assert [span.attributes["number"] for span in found.spans[0].children] == [call.number for call in found.calls]
    assert all(0 <= span.start <= (found.spans[0].duration or 0) for span in found.spans[0].children)


def test_a_model_without_kernels_has_an_empty_profile(kind: str) -> None:
    x = gi.var("x", shape=(3,))
    found = built(tw.IRModule.from_expr(gi.Function([x], gi.reshape(x, (3,)))), kind).profile(np.ones(3, "f4"))
    assert all(not call.origins for call in found.calls)  # a copy at most
    jsonschema.validate(found.as_dict(), SCHEMA)
    assert found.render() and found.to_chrome_trace()


def test_profiling_leaves_the_model_as_it_is() -> None:
    model = built(perceptron())
    x = np.random.default_rng(0).standard_normal((7, 64)).astype("f4")
    before, text = model(x), model.ir("lowered")
    model.profile(x, repeat=2)
    np.testing.assert_array_equal(model(x), before)
    assert model.ir("lowered") == text and "profile" not in text


def test_inputs_may_be_named_and_converted() -> None:
    model = built(perceptron())
    assert model.profile(x=np.ones((2, 64), "f4"), repeat=1).facts["sizes"] == {"batch": 2}
    assert model.profile(np.ones((2, 64)), repeat=1, convert=True).facts["sizes"] == {"batch": 2}


@pytest.mark.parametrize("repeat", [0, -1])
def test_a_repeat_that_is_not_positive_is_an_error(repeat: int) -> None:
    with pytest.raises(ValueError, match=f"repeat: expected a positive number, found {repeat}"):
        built(perceptron()).profile(np.ones((2, 64), "f4"), repeat=repeat)


def test_wrong_inputs_are_errors_as_in_a_call() -> None:
    model = built(perceptron())
    with pytest.raises(InputError, match="x"):
        model.profile()
    with pytest.raises(InputError, match="64"):
        model.profile(np.ones((2, 63), "f4"))
    with pytest.raises(InputError, match="float64"):
        model.profile(np.ones((2, 64)))


def test_integers_are_measured_against_integers() -> None:
    x = gi.var("x", shape=(64, 64), dtype="int32")
    found = built(tw.IRModule.from_expr(gi.Function([x], x * 3 + 1))).profile(np.ones((64, 64), "i4"), repeat=2)
    assert [(call.dtype, call.operations) for call in found.calls] == [("int32", 2 * 64 * 64)]
