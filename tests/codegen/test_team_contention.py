"""Test teams whose threads arrive late, are stopped, or have no core: every loop of every call is right, and all calls
end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

LOAD = Path(__file__).with_name("team_load.py")
#: The seconds for which each test keeps calling.
LONG = 1.0
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def busy_neighbours(count: int) -> Iterator[None]:
    """Run other processes that compute all the time."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def calls_of_process(threads: int, niceness: int = 0, meanwhile: Callable[[int], None] | None = None) -> int:
    """Count the calls of a process, all with the right results, while ``meanwhile`` disturbs it. (A separate process,
    as a team that miscounts hangs.)"""
    environment = {**os.environ, "NUMBA_NUM_THREADS": str(threads)}
    command = [sys.executable, str(LOAD), str(niceness)]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            first = process.stdout.readline()
            if meanwhile is None:
                time.sleep(LONG)
            elif first:
                meanwhile(process.pid)
            output, errors = process.communicate(timeout=300)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    assert first == "ready\n"
    return int(output)


def test_callers_that_start_and_end_get_right_results() -> None:
    assert calls_of_process(threads=CORES)


def test_more_threads_than_cores_do_each_item_once() -> None:
    assert calls_of_process(threads=4 * CORES)


def stop_and_go(process: int) -> None:
    """Stop a process again and again, each time somewhere else in its loops."""
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        os.kill(process, signal.SIGSTOP)
        time.sleep(0.02)
        os.kill(process, signal.SIGCONT)
        time.sleep(0.031)


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs a system that stops processes")
def test_process_that_is_stopped_goes_on_where_it_was() -> None:
    assert calls_of_process(threads=2 * CORES, meanwhile=stop_and_go)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs priorities of threads")
def test_threads_that_get_hardly_any_time_do_no_harm() -> None:
    with busy_neighbours(CORES):
        assert calls_of_process(threads=2 * CORES, niceness=19)
