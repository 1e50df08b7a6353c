"""Sixteen threads of Python on one model, and on eight: the bits of a serial call, no growing memory, no more threads
of the system than asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs Linux's account of a process")
ROOT = Path(__file__).resolve().parents[2]

#: The arguments: the number of models, the seconds, the threads of each call, and how far the process yields to others.
#: At first all sixteen threads are in a call of each model at once, so that each model has as many arenas as it can
#: need, and each thread its stack and its block of the allocator; memory is measured when a tenth of the time is over.
SOAK = """
import os, sys, threading, time
from tests.runtime.load_model import module, resident_bytes, target, threads_of_process, values
import tilewright as tw
from tilewright.runtime.arena import ArenaPool
count, seconds, threads = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
os.nice(int(sys.argv[4]))
models = [tw.build(module(number), target=target(threads=threads)) for number in range(count)]
inputs = [values(rows) for rows in (1, 7, 64, 200)]
expected = [[model(value) for value in inputs] for model in models]
before = threads_of_process()
over, wrong, calls, most = threading.Event(), [], [0] * 16, 0

together, take = threading.Barrier(16, timeout=300), ArenaPool.take

def take_together(pool, size):
    block = take(pool, size)
    together.wait()
    return block

def call(number):
    for model in models:
        model(inputs[-1])
    if together.wait() == 0:
        ArenaPool.take = take
    together.wait()
    started.release()
    turn = number
    while not over.is_set():
        turn += 1
        place, shape = turn % count, turn // 3 % len(inputs)
        try:
            right = models[place](inputs[shape]).tobytes() == expected[place][shape].tobytes()
        except BaseException as error:
            right = False
            wrong.append(repr(error))
        if not right:
            wrong.append((place, shape))
        calls[number] += 1

ArenaPool.take, started = take_together, threading.Semaphore(0)
callers = [threading.Thread(target=call, args=(number,)) for number in range(16)]
for caller in callers:
    caller.start()
for caller in callers:
    started.acquire()
begin = time.monotonic()
sizes = []
while time.monotonic() - begin < seconds:
    time.sleep(seconds / 100)
    if time.monotonic() - begin > seconds / 10:
        sizes.append(resident_bytes())
        most = max(most, threads_of_process())
over.set()
for caller in callers:
    caller.join()
half = len(sizes) // 2
growth = max(sizes[half:]) / max(sizes[:half]) - 1
print(f"{sum(calls)} calls, {max(sizes) / 2**20:.1f} MiB, growth {growth:.3%}, threads {most - 16} of {before}")
assert not wrong, wrong[:3]
assert min(calls) > 0, calls
assert growth <= 0.01, [size >> 10 for size in sizes]
# A caller that TBB has not met before is a thread of its own, and takes part in its loops; no other thread starts.
assert most - 16 <= before, (most, before)
"""


#: The models and the threads of each call.
LOADS = ((1, 2), (8, 2))


def run(loads: Sequence[tuple[int, int]], seconds: int, niceness: int = 0) -> None:
    """Run the loads side by side, each in its own process."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", SOAK, str(models), str(seconds), str(threads), str(niceness)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for models, threads in loads
    ]
    try:
        found = [process.communicate(timeout=600 + 2 * seconds)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    print(*found)
    assert [process.returncode for process in started] == [0] * len(started), "".join(found)


@pytest.mark.parametrize("load", LOADS)
def test_many_threads_get_the_bits_of_a_serial_call(load: tuple[int, int]) -> None:
    run([load], 2)


@pytest.mark.exhaustive
def test_many_threads_get_the_bits_of_a_serial_call_for_ten_minutes() -> None:
    """The 32 threads leave the cores to tests beside this one that need them: time is what it takes."""
    run(LOADS, 600, 19)
