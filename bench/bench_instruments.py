"""Measure the cost of watching a build: ResNet-50 with the timing instrument, interleaved with builds without it."""

from __future__ import annotations

import gc
import statistics
import time
from typing import Any

import pytest

import tilewright as tw
from tilewright.runtime.process_caches import fresh_caches

pytest.importorskip("onnx")
from bench.peers.networks import light

ROUNDS = 15
OVERHEAD_WITHIN = 0.02


def build_seconds(module: tw.IRModule, *instruments: tw.passes.PassInstrument) -> tuple[float, float]:
    """Return the wall time of a build that finds no compiled code, and the CPU time of all threads."""
    gc.collect()
    start, work = time.perf_counter(), time.process_time()
    with fresh_caches(), tw.PassContext(instruments=instruments):
        tw.build(module, target="llvm")
    return time.perf_counter() - start, time.process_time() - work


def test_timing_overhead(benchmark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure ``overhead``: the median over the rounds of a watched build's time relative to the unwatched build beside
    it; the order of the two changes from round to round. ``overhead_work``: the same for processor time, which other
    programs disturb less."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", "off")
    module = tw.from_onnx(light("resnet50").onnx)
    build_seconds(module)
    plain: list[tuple[float, float]] = []
    watched: list[tuple[float, float]] = []

    def measure_plain() -> None:
        plain.append(build_seconds(module))

    def turn() -> None:
        if len(watched) % 2 == 0:
            measure_plain()

    def measure() -> None:
        timing = tw.PassTimingInstrument()
        watched.append(build_seconds(module, timing))
        assert timing.total() < watched[-1][0]

    def run() -> None:
        measure()
        if len(plain) < len(watched):
            measure_plain()

    benchmark.pedantic(run, setup=turn, rounds=ROUNDS)
    ratios = [[a / b for a, b in zip(*pair, strict=True)] for pair in zip(watched, plain, strict=True)]
    overhead, overhead_work = map(statistics.median, zip(*ratios, strict=True))
    benchmark.extra_info.update(
        title="build of ResNet-50 with the timing instrument",
        threads=tw.Target("llvm").num_threads,
        median=statistics.median(wall for wall, _ in watched),
        without=statistics.median(wall for wall, _ in plain),
        overhead=overhead,
        overhead_work=overhead_work,
        goals={"overhead": 1 + OVERHEAD_WITHIN, "overhead_work": 1 + OVERHEAD_WITHIN},
    )
