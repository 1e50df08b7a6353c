"""Measure the machine's own limits, to which the shares of the other rows refer."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
import pytest
from measure import BUDGET, Run, seconds, settled

import tilewright as tw
from tilewright.runtime.observe.machine import aligned, machine

THREADS = sorted({1, tw.Target("llvm").num_threads})
MEMORY = 512 << 20  # two arrays of 256 MiB, or one of 512: far beyond the caches


def _record(benchmark: Any, run: Run, amount: float, title: str, unit: str, threads: int) -> None:
    """Time many calls of one probe: the limit is the rate of the fastest."""
    rounds = max(5, min(2000, int(BUDGET / settled(run))))
    benchmark.pedantic(run, rounds=rounds, warmup_rounds=1)
    benchmark.extra_info.update(title=title, threads=threads, unit=unit)
    if not benchmark.disabled:
        median = statistics.median(benchmark.stats.stats.data)
        best = amount / min(benchmark.stats.stats.data) / 1e9
        benchmark.extra_info.update(median=median, achieved=amount / median / 1e9, best=best)


@pytest.mark.parametrize("threads", THREADS)
def test_fma_peak(benchmark: Any, threads: int) -> None:
    run, flops = machine(threads).fma(2e8 * threads)
    _record(benchmark, run, flops, "limit: float32 multiply-add", "GFLOP/s", threads)


@pytest.mark.parametrize("threads", THREADS)
def test_copy_bandwidth(benchmark: Any, threads: int) -> None:
    """Measure our copy; ``numpy_rate`` in the extra information is the rate of numpy.copyto, which uses one thread."""
    run, moved = machine(threads).copy(MEMORY)
    size = int(moved) // 8
    x, y = aligned(size, 1.0), aligned(size)
    benchmark.extra_info["numpy_rate"] = moved / min(seconds(lambda: np.copyto(y, x)) for _ in range(10)) / 1e9
    _record(benchmark, run, moved, "limit: copy (read + written)", "GB/s", threads)


@pytest.mark.parametrize("threads", THREADS)
def test_read_bandwidth(benchmark: Any, threads: int) -> None:
    run, moved = machine(threads).read(MEMORY)
    _record(benchmark, run, moved, "limit: read", "GB/s", threads)
