"""Measure whether a process with a team of two threads is as fast as before, soon after it was disturbed.

``python tests/codegen/team_speed.py stop 1000`` prints the figures. As a program with one more argument, a file, it is
the process that is disturbed: it calls until its standard input ends, compares each result, and counts calls in the
file.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

#: The seconds of a disturbance, those in which the speed must come back, and those in which it is measured.
DISTURBED, RECOVERY, MEASURED = 0.01, 0.1, 0.04
CORES = sorted(os.sched_getaffinity(0))[:2] if hasattr(os, "sched_getaffinity") else []


def main(path: str, callers: int) -> None:
    """Call a model of ten parallel loops, each of a few ten microseconds, from several threads of Python."""
    import tilewright as tw
    from tilewright import graphir as gi

    x = gi.var("x", shape=(64, 2048))
    y: gi.Expr = x
    for _ in range(5):
        y = gi.nn.softmax(gi.exp(y) * y)
    model = tw.build(gi.Function([x], y), target=tw.Target("llvm", num_threads=2))
    value = np.random.default_rng(0).standard_normal((64, 2048)).astype("f4")
    expected = model(value)
    over, wrong = threading.Event(), []
    with open(path, "r+b") as file:
        counts = mmap.mmap(file.fileno(), 8 * callers)

        def call(number: int) -> None:
            calls = 0
            while not over.is_set():
                if not np.array_equal(model(value), expected):
                    wrong.append(number)
                calls += 1
                struct.pack_into("q", counts, 8 * number, calls)

        threads = [threading.Thread(target=call, args=(number,)) for number in range(callers)]
        for thread in threads:
            thread.start()
        print("ready", flush=True)
        sys.stdin.read()
        over.set()
        for thread in threads:
            thread.join()
    sys.exit(1 if wrong else 0)


class Process:
    """A process that calls; :meth:`rate` measures how often."""

    def __init__(self, folder: Path, callers: int = 1) -> None:
        path = folder / f"calls-{callers}"
        path.write_bytes(bytes(8 * callers))
        self.callers = callers
        command = [sys.executable, __file__, "run", str(callers), str(path)]
        self.running = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.running.stdout is not None and self.running.stdout.readline() == "ready\n"
        with open(path, "r+b") as file:
            self._counts = mmap.mmap(file.fileno(), 8 * callers)

    def calls(self) -> int:
        return sum(struct.unpack(f"{self.callers}q", self._counts))

    def rate(self, seconds: float) -> float:
        """Return the calls in a second."""
        before, begin = self.calls(), time.perf_counter()
        time.sleep(seconds)
        return (self.calls() - before) / (time.perf_counter() - begin)

    def goes_on(self) -> bool:
        """Return whether it calls within the next seconds."""
        return any(self.rate(0.1) for _ in range(100))

    def send(self, number: int) -> None:
        os.kill(self.running.pid, number)

    def pin(self, cores: list[int]) -> None:
        """Let all threads of the process run on these cores alone."""
        for thread in os.listdir(f"/proc/{self.running.pid}/task"):
            with contextlib.suppress(OSError):  # it has ended
                os.sched_setaffinity(int(thread), cores)

    def end(self) -> int:
        """End the process; return its exit status: zero if all results were right."""
        self.send(signal.SIGCONT)
        assert self.running.stdin is not None
        self.running.stdin.close()
        try:
            return self.running.wait(300)
        finally:
            self.running.kill()


@contextlib.contextmanager
def disturbance(name: str, process: Process, folder: Path) -> Iterator[Callable[[], None]]:
    """Prepare a disturbance of a process, and yield what does it once: ``stop`` it, ``move`` it from core to core,
    ``take`` a core away from it, ``crowd`` the cores with eight teams of another process."""
    if name == "crowd":
        other = Process(folder, callers=8)
        other.send(signal.SIGSTOP)

        def crowd() -> None:
            other.send(signal.SIGCONT)
            time.sleep(DISTURBED)
            other.send(signal.SIGSTOP)

        try:
            yield crowd
        finally:
            assert other.end() == 0
        return

    def once() -> None:
        if name == "stop":
            process.send(signal.SIGSTOP)
            time.sleep(random.uniform(0, DISTURBED))
            process.send(signal.SIGCONT)
            return
        for cores in [CORES[:1], CORES[1:]] * 2 if name == "move" else [CORES[:1]]:
            process.pin(cores)
            time.sleep(DISTURBED / 4)
        process.pin(CORES)

    yield once


def recovered(name: str, times: int) -> list[float]:
    """Disturb a process so many times; return the speeds :data:`RECOVERY` seconds afterwards, as parts of those right
    before: the speed after one disturbance is that before the next.

    Raises:
        AssertionError: the process stood still, or a result was wrong.
    """
    random.seed(0)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        process = Process(Path(folder))
        try:
            with disturbance(name, process, Path(folder)) as disturb:
                process.rate(0.5)
                before = process.rate(MEASURED)
                for _ in range(times):
                    disturb()
                    time.sleep(RECOVERY)
                    after = process.rate(MEASURED)
                    assert after or process.goes_on(), "the process stands still"
                    if before:
                        found.append(after / before)
                    before = after
        finally:
            status = process.end()
    assert status == 0, "a result was wrong"
    return found


DISTURBANCES = ("stop", "move", "take", "crowd")

if __name__ == "__main__":
    if sys.argv[1] == "run":
        main(sys.argv[3], int(sys.argv[2]))
    for wanted in DISTURBANCES if sys.argv[1] == "all" else sys.argv[1:2]:
        ratios = sorted(recovered(wanted, int(sys.argv[2])))
        tenth = ratios[len(ratios) // 10]
        print(f"{wanted:>5} {len(ratios)} times: speed {RECOVERY * 1e3:.0f} ms later, as a part of that before:")
        print(f"      median {statistics.median(ratios):.3f}, tenth percentile {tenth:.3f}, least {ratios[0]:.3f}")
