"""Measure the steps of docs/scheduling.md: ``python examples/scheduling/run.py [SIZE]``.

Every step is built, compared with NumPy and timed on one thread, beside what the processor's multiply-adds allow: a
probe that adds products in registers, in the same rounds. ``--loops`` prints the loops of each step;
``--mattr=-avx512f`` measures as on a processor without AVX-512.

Times are processor times of the thread, so that the turns of other programs do not count; the fastest round does.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

import tilewright as tw
from tilewright.runtime.observe.machine import machine

Array = npt.NDArray[Any]

#: The least and the most operations of a call of the probe, which are those of the step in between.
PROBED = 1e7, 1e9
#: Rounds of a step, and the seconds after which there are no more of them.
ROUNDS, SECONDS = 200, 3.0


@dataclasses.dataclass(frozen=True)
class Result:
    """The rate of a step in GFlop/s, and that of the probe in the same rounds."""

    name: str
    rate: float
    peak: float


def seconds(call: Callable[[], object]) -> float:
    """Return the processor time of a call."""
    start = time.thread_time()
    call()
    return time.thread_time() - start


def measure(name: str, call: Callable[[], object], operations: float, target: tw.Target) -> Result:
    """Time a call, and the probe in between."""
    least, most = PROBED
    probe, probed = machine(1, target.mcpu, target.mattr).fma(min(max(operations, least), most))
    probe()
    times: list[float] = []
    limits: list[float] = []
    while len(times) < ROUNDS and sum(times) < SECONDS:
        times.append(seconds(call))
        limits.append(seconds(probe))
    return Result(name, operations / min(times) / 1e9, probed / min(limits) / 1e9)


def compiled(func: tw.tensorir.PrimFunc, a: Array, b: Array, target: tw.Target) -> Callable[[], object]:
    """Build a product for a target and compare it with NumPy.

    Raises:
        AssertionError: the results differ by more than rounding.
    """
    model = tw.build(func, target=target)
    scale = np.abs(a) @ np.abs(b)
    np.testing.assert_array_less(np.abs(model(a, b) - a.astype("float64") @ b), 1e-5 * scale)
    return lambda: model(a, b)


def run(n: int, steps: Any) -> list[Result]:
    """Build, check and measure all steps, then the automatic schedule, on one thread."""
    target = tw.Target(steps.TARGET, num_threads=1)
    a, b = np.random.default_rng(0).standard_normal((2, n, n), "float32")
    funcs = {step.__name__: step(n).func for step in steps.STEPS}
    funcs["automatic"] = steps.product(n).with_attr("schedule", "auto")
    return [measure(name, compiled(func, a, b, target), 2.0 * n**3, target) for name, func in funcs.items()]


def main() -> int:
    """Print the table; return the exit status."""
    parser = argparse.ArgumentParser(description="Measure the steps of docs/scheduling.md.")
    parser.add_argument("size", nargs="?", type=int, default=1024, help="rows and columns of the matrices (1024)")
    parser.add_argument("--loops", action="store_true", help="print the loops of each step")
    parser.add_argument("--mattr", help="change the processor's features, as a target does: -avx512f")
    args = parser.parse_args()
    if args.size < 1:
        parser.error(f"size: expected a positive number, found {args.size}")
    with tw.Target("llvm", mattr=args.mattr):
        steps = importlib.import_module("steps")  # whose tiles are those of the current target
    console = Console(highlight=False)
    if args.loops:
        for step in steps.STEPS:
            console.print(f"{step.__name__}\n\n{steps.loops(step(args.size))}\n", markup=False, soft_wrap=True)
    table = Table("step", title=f"size {args.size}, one thread")
    for heading in "GFlop/s", "of peak":
        table.add_column(heading, justify="right")
    results = run(args.size, steps)
    for result in results:
        table.add_row(result.name, f"{result.rate:.1f}", f"{result.rate / result.peak:.1%}")
    console.print(table)
    console.print(f"Peak: {max(result.peak for result in results):.0f} GFlop/s.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
