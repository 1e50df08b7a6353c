"""Measure the cost of the run-time profile for a model of small kernels.

    python bench/profile_overhead.py [--builds 9] [--rounds 12] [--threads 1 2]

A chain of matrix products of about ten microseconds each is called plainly, with the clock in it, and plainly once more
(the noise), each some times in a row and with memory of its own. The mean time of a block is divided by that of its
round's first; the median over the rounds is the factor by which the clock lengthens a call. The layout of values and
code in memory moves that by some percent either way: the report is the median over several builds, with the least and
the greatest, the time of a kernel, and the time that the clock takes for each.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections.abc import Callable

import numpy as np

import tilewright as tw
from tilewright import graphir as gi
from tilewright.runtime.observe.profile.recording import Recording
from tilewright.runtime.steps import Array

LAYERS = 40
#: Columns of each product, one block for each thread; the number of rows makes a product take about ten microseconds.
WIDTH, ROWS = 80, 64
#: The number of calls measured in a row, and of the untimed ones before them.
BLOCK, WARM_UP = 25, 4


def chain(rows: int) -> tw.IRModule:
    """Build products with a weight each, with ReLU between them, so that none can be eliminated."""
    rng = np.random.default_rng(0)
    x = gi.var("x", shape=(rows, WIDTH))
    value: gi.Expr = x
    for _ in range(LAYERS):
        value = gi.nn.relu(gi.matmul(value, gi.const((rng.standard_normal((WIDTH, WIDTH)) / 9).astype("f4"))))
    return tw.IRModule.from_expr(gi.Function([x], value))


def seconds(run: Callable[[], object]) -> float:
    """Return the time of a call: the mean over a block of calls in a row."""
    for _ in range(WARM_UP):
        run()
    start = time.perf_counter()
    for _ in range(BLOCK):
        run()
    return (time.perf_counter() - start) / BLOCK


def ratios(model: tw.Executable, x: Array, rounds: int) -> tuple[float, float, float]:
    """Return the seconds of a call of a model, and the relative time of a call with the clock, and of another one
    without."""
    recording = Recording(model._built)
    steps = [model._built.step() for _ in range(2)]  # the code of a call after the checks of its inputs
    runs: list[Callable[[], object]] = [*(functools.partial(step, [x], ()) for step in steps)]
    runs.append(lambda: recording([x], ()))
    times: list[list[float]] = []
    for number in range(rounds):
        took = [0.0] * len(runs)
        for turn in range(len(runs)):
            place = (number + turn) % len(runs)
            took[place] = seconds(runs[place])
        times.append(took)
    again, profiled = (statistics.median(took[place] / took[0] for took in times) for place in (1, 2))
    return statistics.median(took[0] for took in times), profiled, again


def measure(threads: int, builds: int, rounds: int) -> str:
    """Return a line of the table for that many threads."""
    mod, target = chain(ROWS * threads), tw.Target("llvm", num_threads=threads)
    x = np.random.default_rng(1).standard_normal((ROWS * threads, WIDTH)).astype("f4")
    models = [tw.build(mod, target) for _ in range(builds)]
    kernel = statistics.median(call.median for model in models for call in model.profile(x, repeat=20).calls)
    found = [ratios(model, x, rounds) for model in models]
    call, profiled, again = (statistics.median(column) for column in zip(*found, strict=True))
    each = (profiled - 1) * call / LAYERS * 1e9
    spread = [f"{100 * (bound([row[place] for row in found]) - 1):+.1f}" for place in (1, 2) for bound in (min, max)]
    return (
        f"{threads:7}  {kernel * 1e6:6.1f} us  {call * 1e6:6.1f} us  "
        f"{100 * (profiled - 1):+6.2f} % ({spread[0]} to {spread[1]})  {each:6.0f} ns  "
        f"{100 * (again - 1):+6.2f} % ({spread[2]} to {spread[3]})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--builds", type=int, default=9)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    options = parser.parse_args()
    print(f"{LAYERS} kernels, {options.builds} builds with {options.rounds} rounds each: median (least to greatest)\n")
    print("threads     kernel       call  with profile              a kernel  once more")
    for threads in options.threads:
        print(measure(threads, options.builds, options.rounds), flush=True)


if __name__ == "__main__":
    main()
