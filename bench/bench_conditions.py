"""Measure the same model under other conditions: for any size of its inputs, and while another program keeps a core
busy."""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from measure import seconds, warm_up
from mobile_network import mobile_network

import tilewright as tw

THREADS = tw.Target("llvm").num_threads
CALLS = 200
ROUNDS = 100

#: Runs on one core until it is killed.
SPINNER = "import os\nif hasattr(os, 'sched_setaffinity'): os.sched_setaffinity(0, {%d})\nwhile True: pass"


def _build(module: tw.IRModule, threads: int = THREADS) -> Callable[..., Any]:
    with tw.PassContext(opt_level=3):
        return tw.build(module, target=tw.Target("llvm", num_threads=threads))


@pytest.mark.parametrize("threads", sorted({1, THREADS}))
def test_any_size(benchmark: Any, threads: int) -> None:
    """Compare a build for any height and width with one for the size of the call, interleaved."""
    image = np.random.default_rng(1).standard_normal((1, 3, 192, 192)).astype(np.float32)
    static = _build(mobile_network(192, 192), threads)
    symbolic = _build(mobile_network("h", "w"), threads)
    np.testing.assert_allclose(symbolic(image), static(image), rtol=1e-4, atol=1e-4)
    times: list[float] = []

    def turn() -> None:
        times.append(seconds(lambda: static(image), threads))
        warm_up(lambda: symbolic(image), threads)

    benchmark.pedantic(lambda: symbolic(image), setup=turn, rounds=ROUNDS)
    own = benchmark.stats.stats.data
    benchmark.extra_info.update(
        title="a convolutional network for any size, called with 192x192",
        threads=threads,
        median=statistics.median(own),
        vs_static=statistics.median(a / b for a, b in zip(own, times, strict=True)),
        goals={"vs_static": 1.10},
    )


@contextlib.contextmanager
def _busy_core() -> Iterator[None]:
    core = min(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    process = subprocess.Popen([sys.executable, "-c", SPINNER % core])
    try:
        time.sleep(0.5)
        yield
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(THREADS < 2, reason="a thread has to share its core with the other program, and another not")
def test_busy_core(benchmark: Any) -> None:
    """Measure ResNet-50 while another process spins on one core: the median and the 99th percentile of its calls,
    relative to the median on the quiet machine."""
    onnx = pytest.importorskip("onnx")
    model = _build(tw.from_onnx(Path(onnx.__file__).parent / "backend/test/data/light/light_resnet50.onnx"))
    image = np.random.default_rng(1).random((1, 3, 224, 224), np.float32)
    expected = model(image)
    quiet = statistics.median(seconds(lambda: model(image)) for _ in range(CALLS))
    with _busy_core():
        benchmark.pedantic(lambda: model(image), rounds=CALLS, warmup_rounds=5)
        np.testing.assert_array_equal(model(image), expected)  # the bits do not depend on which thread takes a task
    own = sorted(benchmark.stats.stats.data)
    benchmark.extra_info.update(
        title="ResNet-50 while another process spins on one core",
        threads=THREADS,
        median=statistics.median(own),
        slowdown=statistics.median(own) / quiet,
        slowdown_99=own[len(own) * 99 // 100] / quiet,
        goals={"slowdown": 2.2, "slowdown_99": 3.0},
    )
