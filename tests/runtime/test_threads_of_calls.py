"""The number of threads is chosen when a model is loaded or called."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.codegen.threads import limited_calls, thread_limit

VALUE = np.linspace(-1, 1, 1 << 20, dtype="f4").reshape(1024, 1024)


def model(threads: int = 4) -> tw.Executable:
    x = gi.var("x", shape=("n", 1024))
    return tw.build(gi.Function([x], gi.nn.softmax(gi.exp(x) * x)), target=tw.Target("llvm", num_threads=threads))


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_results_do_not_depend_on_the_threads_of_a_call(threads: int) -> None:
    found = model()
    expected = found(VALUE)
    found.num_threads = threads
    assert found.num_threads == threads
    np.testing.assert_array_equal(found(VALUE), expected)


def test_a_call_runs_on_as_many_threads_as_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit that generated code reads, seen from the call."""
    found, limits = model(), []
    found(VALUE)  # the pool starts
    usual = thread_limit()
    runner = found._built.segments[0].runner
    entry = runner._entry
    monkeypatch.setattr(runner, "_entry", lambda packed: (limits.append(thread_limit()), entry(packed)))
    for number in (1, 4):
        found.num_threads = number
        found(VALUE)
    assert limits == [1, usual] and thread_limit() == usual


def test_limits_of_calls_at_once_do_not_outlive_them() -> None:
    model()(VALUE)
    usual = thread_limit()
    with limited_calls(1):
        with limited_calls(2):
            assert thread_limit() == 1
        assert thread_limit() == 1
    assert thread_limit() == usual


def test_threads_are_chosen_at_load(tmp_path: Path) -> None:
    found = model()
    found.export(tmp_path / "net.tw")
    loaded = tw.load(tmp_path / "net.tw", num_threads=1)
    assert loaded.num_threads == 1 and tw.load(tmp_path / "net.tw").num_threads == 4
    np.testing.assert_array_equal(loaded(VALUE), found(VALUE))


def test_models_do_not_share_the_number() -> None:
    one, other = model(), model()
    one.num_threads = 1
    assert other.num_threads == 4
    results: list[np.ndarray] = []
    threads = [threading.Thread(target=lambda m=m: results.append(m(VALUE))) for m in (one, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(results[0], results[1])


def test_numbers_that_do_not_suit_are_refused() -> None:
    with pytest.raises(TypeError, match="num_threads must be an integer, found '2'"):
        model().num_threads = "2"  # type: ignore[assignment]
    with pytest.raises(ValueError, match="num_threads must be at least 1, found 0"):
        model().num_threads = 0
    with pytest.raises(ValueError, match="compiled for at most 1: build it for more"):
        model(1).num_threads = 2
