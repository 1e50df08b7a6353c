"""What the run-time profile costs a model of small kernels, and what it costs a model that nobody profiles.

    python bench/profile_overhead.py [--rounds 300] [--threads 1 2]

A chain of matrix products of about ten microseconds each is called as it is, as it is once more (the noise: a second
build of it, after profiles were made), and with the clock in it, right after one another. What is reported is the
median over the rounds of the ratio within a round, with the time of a kernel and what the clock takes for each.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

import tilewright as tw
from tilewright import graphir as gi
from tilewright.runtime.profile.recording import Recording

LAYERS = 40
#: Columns of each product, a thread each; rows are as many as make about ten microseconds.
WIDTH, ROWS = 80, 64


def chain(rows: int) -> tw.IRModule:
    """Products with a weight each, between which negative numbers become zero: nothing is done away with."""
    rng = np.random.default_rng(0)
    x = gi.var("x", shape=(rows, WIDTH))
    value: gi.Expr = x
    for _ in range(LAYERS):
        value = gi.nn.relu(gi.matmul(value, gi.const((rng.standard_normal((WIDTH, WIDTH)) / 9).astype("f4"))))
    return tw.IRModule.from_expr(gi.Function([x], value))


def seconds(run: Callable[[], object]) -> float:
    """What a call takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def measure(threads: int, rounds: int) -> str:
    """A line of the table for that many threads."""
    mod, target = chain(ROWS * threads), tw.Target("llvm", num_threads=threads)
    x = np.random.default_rng(1).standard_normal((ROWS * threads, WIDTH)).astype("f4")
    plain = tw.build(mod, target)
    kernel = statistics.median(call.median for call in plain.profile(x, repeat=50).calls)
    other = tw.build(mod, target)
    recording = Recording(other._built)
    step, second = plain._built.step(), other._built.step()  # what a call runs, behind the checks of its inputs
    runs: list[Callable[[], object]] = [lambda: step([x], ()), lambda: recording([x], ()), lambda: second([x], ())]
    times: list[list[float]] = []
    for number in range(rounds):
        took = [0.0] * len(runs)
        for turn in range(len(runs)):  # whoever comes first in a round meets colder caches than the others
            place = (number + turn) % len(runs)
            took[place] = seconds(runs[place])
        times.append(took)
    recording.forget()
    call = statistics.median(took[0] for took in times)
    ratio, noise = (statistics.median(took[place] / took[0] for took in times) for place in (1, 2))
    each = (ratio - 1) * call / LAYERS * 1e9
    return (
        f"{threads:7}  {kernel * 1e6:8.1f} us  {call * 1e6:8.1f} us  {100 * (ratio - 1):+10.2f} %  {each:8.0f} ns  "
        f"{100 * (noise - 1):+9.2f} %"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    options = parser.parse_args()
    print(f"{LAYERS} kernels, {options.rounds} rounds\n")
    print("threads       kernel         call  with profile   a kernel  without it")
    for threads in options.threads:
        print(measure(threads, options.rounds), flush=True)


if __name__ == "__main__":
    main()
