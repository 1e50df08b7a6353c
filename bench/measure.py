"""Measure a callable beside NumPy's version of it and beside the machine's limit, interleaved.

The machine may be shared: its speed changes from one second to the next. So one round calls NumPy, the probe of the
limit and ours one right after another; the report is the median over the rounds of the *ratio* within a round, beside
the plain medians.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import threadpoolctl

from tilewright.runtime.observe.machine import machine

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

Run = Callable[[], object]

#: The seconds that one benchmark measures, and the least and the greatest number of its rounds.
BUDGET = 3.0
MIN_ROUNDS, MAX_ROUNDS = 7, 2000
#: Calls shorter than this (seconds) follow untimed ones: one, as other code has filled the caches, or on several
#: threads ``WARM_UP`` seconds of them, as the threads have to wake up.
SHORT, WARM_UP = 3e-3, 1e-2
#: The seconds to wait after NumPy has used several threads: OpenBLAS lets them spin for a tenth of a second before they
#: sleep, which takes a core from other code.
SPIN = 0.15

FMA, COPY = "FMA peak", "copy"


class Work(NamedTuple):
    """The work of a call: the limit to compare with, and the amount.

    Attributes:
        limit: ``FMA`` or ``COPY``.
        amount: floating-point operations (a multiply-add is two), or bytes read and written.
        mcpu: the processor whose instructions call and probe use; None for this machine's.
    """

    limit: str
    amount: float
    mcpu: str | None = None

    @property
    def unit(self) -> str:
        """The unit of a rate."""
        return "GFLOP/s" if self.limit == FMA else "GB/s"

    def probe(self, threads: int) -> tuple[Run, float]:
        """Return a call that does about as much at the machine's limit, and the exact amount that it does."""
        probes = machine(threads, self.mcpu)
        return probes.fma(self.amount) if self.limit == FMA else probes.copy(self.amount)


def warm_up(run: Run, threads: int) -> None:
    """Make untimed calls of a short ``run``."""
    start = time.perf_counter()
    run()
    while threads > 1 and time.perf_counter() - start < WARM_UP:
        run()


def seconds(run: Run, threads: int = 1) -> float:
    """Return the wall time of one call; short ones follow untimed calls."""
    start = time.perf_counter()
    run()
    elapsed = time.perf_counter() - start
    if elapsed > SHORT:
        return elapsed
    warm_up(run, threads)
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def settled(run: Run) -> float:
    """Return about how long a call takes once everything is loaded: the best of a few."""
    return min(seconds(run) for _ in range(3))


def _rounds(runs: list[Run], threads: int, waiting: float, budget: float) -> int:
    extra = WARM_UP if threads > 1 else 0.0
    per_round = waiting + sum(2 * once + extra if (once := settled(run)) < SHORT else once for run in runs)
    return max(MIN_ROUNDS, min(MAX_ROUNDS, int(budget / max(per_round, 1e-9))))


def compare(
    benchmark: BenchmarkFixture,
    ours: Run,
    *,
    title: str,
    threads: int,
    numpy: Run | None = None,
    work: Work | None = None,
    goals: dict[str, Any] | None = None,
    budget: float = BUDGET,
) -> dict[str, Any]:
    """Benchmark ``ours`` with NumPy and the limit, interleaved; the findings are in ``benchmark.extra_info``.

    Args:
        title: the name of the row.
        threads: the threads that NumPy's linear algebra and the probe may use; ``ours`` is compiled for as many.
        numpy: the same computation in NumPy.
        work: the work of the call, for the rate and the share of the limit.
        goals: the goals of figures: ``vs_numpy``, ``share`` (at least) or ``median`` (seconds, at most).

    Returns:
        ``benchmark.extra_info``: title, threads; ``numpy_median`` (seconds) and ``vs_numpy`` (times faster);
        ``achieved`` in ``unit``, ``limit``, ``limit_rate`` and ``share`` of it (1 is the limit). ``share`` and
        ``vs_numpy`` are medians of the ratios of one round; ``best_share`` compares the fastest calls of both.
    """
    info: dict[str, Any] = benchmark.extra_info
    info.update(title=title, threads=threads, goals=goals or {})
    others: dict[str, Run] = {} if numpy is None else {"numpy": numpy}
    exact = 0.0
    if work is not None:
        others["limit"], exact = work.probe(threads)
    times: dict[str, list[float]] = {name: [] for name in others}

    def turn() -> None:
        for name, run in others.items():
            times[name].append(seconds(run, threads))
            if name == "numpy":
                time.sleep(waiting)
        if short:
            warm_up(ours, threads)

    with threadpoolctl.threadpool_limits(threads, user_api="blas"):
        waiting = SPIN if threads > 1 and numpy is not None else 0.0
        rounds = _rounds([ours, *others.values()], threads, waiting, budget)
        short = settled(ours) < SHORT
        benchmark.pedantic(ours, setup=turn, rounds=rounds, iterations=1)
    if benchmark.disabled:
        return info
    own = benchmark.stats.stats.data
    info["median"] = statistics.median(own)
    if numpy is not None:
        info["numpy_median"] = statistics.median(times["numpy"])
        info["vs_numpy"] = statistics.median(b / a for a, b in zip(own, times["numpy"], strict=True))
    if work is not None:
        rate = [work.amount / exact * probe for probe in times["limit"]]  # seconds for our amount at the limit
        info.update(
            unit=work.unit,
            limit=work.limit,
            achieved=work.amount / statistics.median(own) / 1e9,
            limit_rate=exact / statistics.median(times["limit"]) / 1e9,
            share=statistics.median(b / a for a, b in zip(own, rate, strict=True)),
            best_share=min(rate) / min(own),
        )
    return info
