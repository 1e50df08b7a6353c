"""Many short parallel loops, called from several threads of Python, with every result compared.

As a program (``python team_load.py NICENESS``) it calls until its standard input ends, and prints how often it did. The
threads of the pool have that niceness.
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
import threading
from collections.abc import Callable

import numpy as np

from tilewright.codegen.llvm import CompiledModule, call_primfunc, compile_module
from tilewright.tensorir.expr import Buffer, Var, as_expr
from tilewright.tensorir.stmt import BufferStore, For, PrimFunc, sequence
from tilewright.tensorir.target import Target

#: Loops in a call: three each step.
STEPS = 40
#: Fewer items than threads, about as many, more; the last loop of a step has other numbers of items.
SIZES = (2, 3, 5, 8, 40)
#: Calls of a thread before it ends and another one starts.
CALLS = 10
CALLERS = 4


def three_loops() -> PrimFunc:
    """In each step: y = x reversed times 3 plus the step; x = y turned by one; count += 1, for half of the elements.

    Each loop reads what other threads wrote in the loop before. An item that is done twice, too late or for another
    loop changes the result.
    """
    n, steps, i, step = Var("n"), Var("steps"), Var("i"), Var("step")
    x, y, count = (Buffer(name, (n,), "int64") for name in ("x", "y", "count"))
    one: dict[str, object] = {"grain": 1}
    loops = (
        For(i, as_expr(0), n, "parallel", BufferStore(y, x[n - 1 - i] * 3 + step, (i,)), one),
        For(i, as_expr(0), n, "parallel", BufferStore(x, y[(i + 1) % n], (i,)), one),
        For(i, n // 2, n - n // 2, "parallel", BufferStore(count, count[i] + 1, (i,)), one),
    )
    return PrimFunc("three", (x, y, count, n, steps), For(step, as_expr(0), steps, "serial", sequence(*loops)))


@functools.cache
def compiled_loops() -> tuple[CompiledModule, PrimFunc]:
    """For more threads than any pool has."""
    func = three_loops()
    return compile_module([func], Target("llvm", num_threads=64)), func


@functools.cache
def expected(size: int) -> tuple[np.ndarray, np.ndarray]:
    """``x`` and ``count`` after a call, by NumPy."""
    x = np.arange(size, dtype=np.int64)
    for step in range(STEPS):
        x = np.roll(x[::-1] * 3 + step, -1)
    count = np.where(np.arange(size) >= size // 2, STEPS, 0)
    return x, count


def check_calls(number: int) -> None:
    """Make ``number`` calls, with each size in turn."""
    compiled, func = compiled_loops()
    for size in itertools.islice(itertools.cycle(SIZES), number):
        x, y, count = np.arange(size, dtype=np.int64), np.zeros(size, np.int64), np.zeros(size, np.int64)
        call_primfunc(compiled, func, x, y, count, size, STEPS)
        right, times = expected(size)
        assert (x == right).all(), f"{size} elements: {x}, expected {right}"
        assert (count == times).all(), f"{size} elements, done so often: {count}, expected {times}"


def keep_calling(goes_on: Callable[[], bool]) -> int:
    """Call from :data:`CALLERS` threads at once, each of which ends after :data:`CALLS` calls and is replaced, for as
    long as ``goes_on`` says so. Gives the number of calls."""
    compiled_loops()
    failures: list[BaseException] = []
    calls: list[int] = []

    def work() -> None:
        try:
            check_calls(CALLS)
            calls.append(CALLS)
        except BaseException as error:
            failures.append(error)

    def follow_each_other() -> None:
        while goes_on() and not failures:
            caller = threading.Thread(target=work)
            caller.start()
            caller.join()

    starters = [threading.Thread(target=follow_each_other) for _ in range(CALLERS)]
    for starter in starters:
        starter.start()
    for starter in starters:
        starter.join()
    if failures:
        raise failures[0]
    return sum(calls)


def main(niceness: int) -> None:
    """Run the module as a program."""
    before = set(os.listdir("/proc/self/task")) if niceness else set()
    check_calls(1)
    if niceness:
        for thread in set(os.listdir("/proc/self/task")) - before:
            os.setpriority(os.PRIO_PROCESS, int(thread), niceness)
    print("ready", flush=True)
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    print(keep_calling(lambda: not over.is_set()))


if __name__ == "__main__":
    main(int(sys.argv[1]))
