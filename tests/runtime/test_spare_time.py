"""Test that work which can wait leaves the cores to the other threads of the program."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from tilewright.runtime import spare_time
from tilewright.runtime.disk_cache import DiskCache
from tilewright.runtime.spare_time import SpareTime

#: An array whose checksum takes longer than work between two looks.
LARGE = np.zeros(1 << 27, np.uint8)


class Others:
    """The processor time of other threads, which keep a core busy until they rest. (Real ones would not while other
    programs use it.)"""

    def __init__(self) -> None:
        self.rests = False
        self._used, self._asked = 0.0, time.perf_counter()

    def __call__(self) -> float:
        now = time.perf_counter()
        if not self.rests:
            self._used += now - self._asked
        self._asked = now
        return self._used


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> Others:
    found = Others()
    monkeypatch.setattr(spare_time, "_others", found)
    monkeypatch.setattr(spare_time, "available_cores", lambda: 1)
    return found


def work() -> None:
    """Work for longer than without a look at the others."""
    end = time.thread_time() + 2 * spare_time._WORK
    while time.thread_time() < end:
        pass


def test_work_waits_until_the_other_threads_leave_a_core(others: Others) -> None:
    work()
    timer = threading.Timer(0.2, lambda: setattr(others, "rests", True))
    timer.start()
    SpareTime(lambda: False).wait()
    assert others.rests


def test_there_is_a_core_left_where_one_thread_of_two_works(others: Others, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spare_time, "available_cores", lambda: 2)
    patient = SpareTime(lambda: False)
    work()
    patient.wait()
    assert patient._patience > spare_time._PATIENCE - 1  # one look, however long a busy machine makes it


def test_urgent_work_does_not_wait(others: Others) -> None:
    patient = SpareTime(lambda: True)
    work()
    patient.wait()
    assert patient._patience == spare_time._PATIENCE


def test_work_waits_no_longer_than_its_patience(others: Others) -> None:
    patient = SpareTime(lambda: False, patience=0.1)
    start = time.perf_counter()
    for _ in range(2):
        work()
        patient.wait()
    assert time.perf_counter() - start >= 0.1 and not others.rests


def test_an_entry_is_written_when_the_other_threads_rest(others: Others, tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 1 << 30)
    cache.later(lambda: cache.store("a", None, [LARGE]))
    time.sleep(0.3)
    assert not (tmp_path / "a.entry").exists()
    others.rests = True
    writer = cache._writer
    assert writer is not None
    writer.join()
    entry = cache.load("a")
    assert entry is not None and np.array_equal(entry.arrays[0], LARGE)


def test_an_entry_that_is_waited_for_is_written_at_once(others: Others, tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 1 << 30)
    cache.later(lambda: cache.store("a", None, [LARGE]))
    cache.wait()
    assert (tmp_path / "a.entry").exists() and cache._spare_time._patience > 0


def test_an_entry_is_written_at_once_when_the_program_ends(tmp_path: Path) -> None:
    text = """
import sys, time
from pathlib import Path
import numpy as np
from tilewright.runtime import spare_time
from tilewright.runtime.disk_cache import DiskCache
spare_time.available_cores, spare_time._others = lambda: 1, time.perf_counter  # another thread is always busy
cache = DiskCache(Path(sys.argv[1]), 1 << 30)
cache.later(lambda: cache.store("a", None, [np.zeros(1 << 27, np.uint8)]))
cache._spare_time._patience = 1e9
time.sleep(0.2)
assert not (cache.directory / "a.entry").exists()
"""
    subprocess.run([sys.executable, "-c", text, str(tmp_path)], check=True, timeout=60)
    assert (tmp_path / "a.entry").exists()
