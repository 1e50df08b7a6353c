"""Test the folder of entries: entries are read as written, damage is detected, and the limit holds."""

from __future__ import annotations

import os
import stat
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tilewright.runtime import disk_cache
from tilewright.runtime.disk_cache import DiskCache
from tilewright.runtime.spare_time import SpareTime

ARRAYS = [np.arange(7, dtype="f4").reshape(7, 1), np.zeros((0, 3), "i8"), np.array(True), np.arange(1000, dtype="u1")]


def cache(folder: Path, max_bytes: int = 1 << 20) -> DiskCache:
    return DiskCache(folder / "entries", max_bytes)


def kept(folder: Path, key: str = "a", max_bytes: int = 1 << 20) -> Path:
    """Write an entry and return its file."""
    written = cache(folder, max_bytes)
    written.store(key, {"name": key}, ARRAYS)
    return written.directory / f"{key}.entry"


def test_an_entry_comes_back(tmp_path: Path) -> None:
    kept(tmp_path)
    entry = cache(tmp_path).load("a")
    assert entry is not None and entry.data == {"name": "a"}
    for array, found in zip(ARRAYS, entry.arrays, strict=True):
        np.testing.assert_array_equal(found.view(array.dtype).reshape(array.shape), array)
        assert found.nbytes == 0 or (found.ctypes.data % 64 == 0 and not found.flags.writeable)
    assert cache(tmp_path).load("b") is None


def test_only_its_user_may_look_into_the_folder(tmp_path: Path) -> None:
    folder = kept(tmp_path).parent
    assert os.name != "posix" or stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("place", [0, 21, 30, 60, -500, -1])
def test_a_byte_that_changed_makes_it_none_and_removes_it(tmp_path: Path, place: int) -> None:
    path = kept(tmp_path)
    content = bytearray(path.read_bytes())
    content[place] ^= 0x40
    path.write_bytes(content)
    assert cache(tmp_path).load("a") is None
    assert not path.exists()


@pytest.mark.parametrize("length", [0, 10, 25, 100, -1])
def test_a_part_of_an_entry_is_none(tmp_path: Path, length: int) -> None:
    path = kept(tmp_path)
    path.write_bytes(path.read_bytes()[:length])
    assert cache(tmp_path).load("a") is None
    kept(tmp_path)
    assert cache(tmp_path).load("a") is not None


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    paths = [kept(tmp_path, key) for key in "abc"]
    for age, path in enumerate(paths):
        os.utime(path, (1000 + age, 1000 + age))
    size = paths[0].stat().st_size
    assert cache(tmp_path).load("a") is not None  # used now
    kept(tmp_path, "d", max_bytes=4 * size - 1)
    assert [path.exists() for path in paths] == [True, False, True]


def test_what_dead_processes_left_goes(tmp_path: Path) -> None:
    folder = kept(tmp_path).parent
    old, new = folder / "x.unfinished", folder / "y.unfinished"
    for path in (old, new):
        path.write_bytes(b"part")
    os.utime(old, (1000, 1000))
    kept(tmp_path, "b", max_bytes=1 << 15)
    assert not old.exists() and new.exists()


def test_the_folder_is_checked_when_all_processes_have_written_a_part_of_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: list[int] = []
    evict = DiskCache._evict

    def counted(self: DiskCache) -> None:
        checks.append(stored)
        evict(self)

    monkeypatch.setattr(DiskCache, "_evict", counted)
    size, limit = 10_000, 32 * 10 * 1024 * 5
    for stored in range(13):  # each by an object of its own, as by another process
        cache(tmp_path, limit).store(f"{stored}", {}, [np.zeros(size, "u1")])
    assert checks == [0, 5, 10]  # the first one, and after 50 kilobytes each
    assert len(list((tmp_path / "entries").glob("*.entry"))) == 13
    (tmp_path / "entries" / "written").unlink()  # as by a user who clears the folder
    cache(tmp_path, limit).store("again", {}, [np.zeros(size, "u1")])
    assert checks == [0, 5, 10, 12]


def test_a_check_leaves_the_cores_to_other_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in "abc":
        kept(tmp_path, key)
    looks: list[None] = []
    written = cache(tmp_path)
    monkeypatch.setattr(SpareTime, "wait", lambda self: looks.append(None))
    written.later(written._evict)
    written.wait()
    assert len(looks) == len(list(written.directory.iterdir())) == 4


def test_work_is_done_by_a_thread_in_order_and_what_fails_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda failed: told.append(str(failed.exc_value)))
    written, done, go = cache(tmp_path), list[str](), threading.Event()

    def fail() -> None:
        raise ValueError("no entry")

    written.later(lambda: (go.wait(), done.append(threading.current_thread().name))[0])  # type: ignore[func-returns-value]
    written.later(fail)
    written.later(lambda: done.append("second"))
    assert done == []
    go.set()
    written.wait()
    assert done == ["tilewright-cache", "second"] and told == ["no entry"]


def test_an_entry_that_is_too_large_is_not_kept(tmp_path: Path) -> None:
    assert not kept(tmp_path, max_bytes=3 * sum(array.nbytes for array in ARRAYS)).exists()


def test_writers_of_one_key_leave_a_whole_entry(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: kept(tmp_path), range(32)))
    entry = cache(tmp_path).load("a")
    assert entry is not None and len(entry.arrays) == len(ARRAYS)
    assert sorted(path.name for path in (tmp_path / "entries").iterdir()) == ["a.entry", "written"]


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk_cache, "pack", full)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        kept(tmp_path)
    assert "No space left" in str(told[0].message)
    assert list((tmp_path / "entries").iterdir()) == []
