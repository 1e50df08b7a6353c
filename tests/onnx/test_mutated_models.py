"""Thousands of random bad models: each has an error, without a crash, a hang or memory beyond bounds."""

from __future__ import annotations

import collections
import json
import signal
from collections.abc import Callable, Iterable, Iterator

import pytest

from tests.onnx.mutants import End, examining
from tests.onnx.process import LineProcess, ProcessError


def test_a_process_that_ends_is_noticed_and_replaced() -> None:
    worker = LineProcess(["tests.onnx.mutants", "--worker"], time_limit=60)
    with pytest.raises(ProcessError, match="the process ended with 1") as caught:
        worker.ask("no number")
    assert caught.value.status == "crashed"
    assert json.loads(worker.ask("1"))[1] in ("refused", "imported")
    assert worker.process is not None
    worker.process.send_signal(signal.SIGSTOP)  # else it may answer before anybody waits for it
    with pytest.raises(ProcessError) as caught:
        worker.ask("2", time_limit=0)
    assert caught.value.status == "hung"


@pytest.fixture(scope="module")
def examined() -> Iterator[Callable[[Iterable[int]], Iterator[End]]]:
    """Finds the ends of mutants in a process that all tests share."""
    with examining(seed=0) as ends:
        yield ends


@pytest.mark.parametrize("part", range(5))
def test_mutated_models(examined: Callable[[Iterable[int]], Iterator[End]], part: int) -> None:
    ends = list(examined(range(part * 1000, (part + 1) * 1000)))
    bugs = [f"--seed 0 --show {end.number} ({end.name}): {end.status}: {end.reason}" for end in ends if end.is_bug]
    assert not bugs, "\n".join(bugs)
    counts = collections.Counter(end.status for end in ends)
    assert counts["refused"] > 500, counts
    assert counts["imported"] > 150, counts
    assert counts["ran"] > 5, counts
    assert max(end.peak for end in ends) < 1 << 30
