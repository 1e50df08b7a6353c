"""Ctrl-C and a lack of memory, at any moment of a build or a call, are Python exceptions; the next call works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs timers and limits of a process")
ROOT = Path(__file__).resolve().parents[2]

#: Interrupts builds or calls at random moments: once for each of so many numbers.
INTERRUPT = """
import collections, faulthandler, random, signal, sys, time
import numpy as np
from tests.runtime.load_model import built, values
kind, work, times, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
random.seed(seed)
model, big = built(0, kind=kind), values(4000)
expected, large = model(values()), model(big)
begin = time.perf_counter()
built(1000, 90, kind) if work == "build" else model(big)
took = time.perf_counter() - begin
seen = collections.Counter()
signal.signal(signal.SIGALRM, signal.default_int_handler)
for number in range(times):
    made = None
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(0.02, 0.98) * took)
            if work == "build":
                built(number, 64 + number % 32, kind)
            else:
                made = model(big)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        seen["finished"] += 1
    except KeyboardInterrupt:
        seen["interrupted"] += 1
    faulthandler.dump_traceback_later(300, exit=True)
    assert made is None or np.array_equal(made, large)
    assert np.array_equal(model(values()), expected)
    if work == "build":
        assert np.isfinite(built(number, 64 + number % 32, kind)(values(50, 64 + number % 32))).all()
    faulthandler.cancel_dump_traceback_later()
assert seen["interrupted"] >= times // 4, seen
"""

#: Builds or calls in forked processes with little address space left, each with a little more than the one before. The
#: pool of threads runs in the parent: its library cannot be loaded without memory.
MEMORY = """
import collections, os, resource, signal, sys
import numpy as np
import tilewright as tw
from tests.runtime.load_model import address_space, built, small, values
kind, work, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
step = ((40 if work == "build" else 400) << 20) // times
model, big = built(0, kind=kind), values(60000)
expected = model(values())
seen = collections.Counter()
for number in range(times):
    process = os.fork()
    if process == 0:
        code = 3
        try:
            signal.alarm(300)
            unlimited = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (address_space() + number * step, unlimited[1]))
            try:
                built(1, 97, kind)(values(50, 97)) if work == "build" else model(big)
                code = 0
            except (MemoryError, tw.TilewrightError):
                code = 1
            finally:
                resource.setrlimit(resource.RLIMIT_AS, unlimited)
            right = np.array_equal(model(values()), expected) and small(kind)(np.ones(3, "f4")).tolist() == [2, 2, 2]
            code = code if right else 2
        finally:
            os._exit(code)
    status = os.waitpid(process, 0)[1]
    assert status in (0, 1 << 8), f"wait status {status} with {number * step >> 10} KiB left"
    seen[status] += 1
assert len(seen) == 2, seen
"""


def run(script: str, *args: object) -> None:
    command = [sys.executable, "-X", "faulthandler", "-c", script, *map(str, args)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=6000)
    assert done.returncode == 0, done.stderr


def cases(times: int) -> pytest.MarkDecorator:
    """A few times for LLVM; many times, and a few for numba, which takes seconds for a build, in exhaustive runs."""
    more = [pytest.param(*case, marks=pytest.mark.exhaustive) for case in (("llvm", 200), ("numba", 6))]
    return pytest.mark.parametrize(("kind", "times"), [("llvm", times), *more])


@cases(10)
@pytest.mark.parametrize("work", ["build", "call"])
def test_an_interrupt_leaves_builds_and_calls_working(kind: str, work: str, times: int) -> None:
    run(INTERRUPT, kind, work, times, times)


@cases(20)
@pytest.mark.parametrize("work", ["build", "call"])
def test_a_lack_of_memory_leaves_builds_and_calls_working(kind: str, work: str, times: int) -> None:
    run(MEMORY, kind, work, times)
