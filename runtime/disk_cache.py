"""Cache results in a folder: entries by key, each one file of plain data and arrays.

An entry is written to a temporary file and then renamed, so that readers see all of it or nothing; several processes
may use one folder. Reading maps the file into memory, without a copy, shared by all processes that read it. A damaged
entry (its checksums are verified) is treated as missing and removed. When the folder grows beyond its limit, the least
recently used entries are removed. To find that out takes seconds where there are hundreds of thousands of entries, so
the processes count together what they write (:data:`_WRITTEN`), and look each time that it is a part of the limit.

A thread writes entries after the build that made them. It also does the work that only writing needs (encoding,
checksums, digests), and leaves the cores to the program's other threads (:meth:`DiskCache.pause`); the program waits
for it at exit.
"""

from __future__ import annotations

import collections
import contextlib
import mmap
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.runtime.packed_file import UNFINISHED, Array, DamagedFileError, Unpacked, pack, replacing, unpack
from tilewright.runtime.spare_time import SpareTime
from tilewright.tensorir import forking

_MAGIC = b"tilewright entry 1\n"
_SUFFIX = ".entry"
#: An entry takes at most the limit divided by this, so that no model evicts all others.
_LARGEST_PART = 4
#: The size of the folder is checked each time that all processes together have written the limit divided by this.
_LOOK_AFTER_PART = 32
#: The file whose length is the number of kilobytes that were written since the last check, and one: many processes may
#: append to a file at once. It is empty or missing before the first check.
_WRITTEN = "written"
_KILOBYTE = 1024
#: After this many seconds a writer has finished its entry or died.
_WRITING_SECONDS = 3600.0


class DiskCache:
    """The entries in the folder ``directory``, of ``max_bytes`` in all.

    Raises:
        OSError: the folder cannot be made, or belongs to another user, whose code would run.
    """

    def __init__(self, directory: Path, max_bytes: int) -> None:
        self.directory, self.max_bytes = directory, max_bytes
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if hasattr(os, "getuid") and directory.stat().st_uid != os.getuid():
            raise PermissionError(f"{directory} belongs to another user")
        if not os.access(directory, os.W_OK):
            raise PermissionError(f"{directory} cannot be written to")
        self._is_told = False  # whether a warning said that the last entry could not be written
        self._lock = forking.Lock()
        self._waiting: collections.deque[Callable[[], None]] = collections.deque()
        self._writer: threading.Thread | None = None
        self._spare_time = SpareTime(self._is_urgent)  # of the present writer
        self._awaited = False
        forking.in_forked_process(self._forget_writer)

    def load(self, key: str) -> Unpacked | None:
        """Load the entry of ``key``, whose arrays are read-only; None if it is missing or damaged."""
        path = self._path(key)
        try:
            with open(path, "rb") as file:
                content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError:
            return None
        except ValueError:  # an empty file, as a crash of the machine leaves it
            self.remove(key)
            return None
        try:
            entry = unpack(np.frombuffer(content, np.uint8), _MAGIC)
        except DamagedFileError:
            entry = None
        with contextlib.suppress(OSError):  # another process may have removed it meanwhile
            if entry is None:
                path.unlink()
            else:
                os.utime(path)
        return entry

    def _forget_writer(self) -> None:
        """Leave the entries that wait to the process that this one was forked from, whose thread writes them."""
        self._writer = None
        self._awaited = False
        self._waiting.clear()

    def is_too_large(self, size: int) -> bool:
        """Return whether an entry with arrays of ``size`` bytes is too large to be kept."""
        return size > self.max_bytes // _LARGEST_PART

    def store(self, key: str, data: Any, arrays: Sequence[Array]) -> None:
        """Write an entry, unless it is too large, synchronously (see :meth:`later`)."""
        if self.is_too_large(sum(array.nbytes for array in arrays)):
            return
        try:
            with replacing(self._path(key)) as file:
                size = pack(file.write, _MAGIC, data, arrays, self.pause)
            if self._count(size):
                self._evict()
        except OSError as error:
            if not self._is_told:  # once, not for every kernel of every build
                self._is_told = True
                warnings.warn(f"compiled code is not cached: {error}", RuntimeWarning, stacklevel=2)
        else:
            self._is_told = False

    def later(self, work: Callable[[], None]) -> None:
        """Call ``work``, which stores entries, in a thread that the program waits for at exit. Arrays that it stores
        must not change until it is done."""
        with self._lock:
            self._waiting.append(work)
            if self._writer is None:
                self._start_writer()

    def pause(self) -> None:
        """In work that :meth:`later` calls, wait while the program's other threads use all cores, for ten seconds at
        most: to write hundreds of megabytes takes a second, in which a model's first calls on several threads would
        take as long as on one. A process that is stopped between its calls would be slow for as long as it runs."""
        if threading.current_thread() is self._writer:
            self._spare_time.wait()

    def _is_urgent(self) -> bool:
        return self._awaited or not threading.main_thread().is_alive()

    def remove(self, key: str) -> None:
        """Remove an entry."""
        with contextlib.suppress(OSError):  # another process may have removed it
            self._path(key).unlink()

    def wait(self) -> None:
        """Wait until all entries are written."""
        self._awaited = True
        try:
            while True:
                with self._lock:
                    writer = self._writer
                if writer is None:
                    return
                writer.join()
        finally:
            self._awaited = False

    def _path(self, key: str) -> Path:
        return self.directory / (key + _SUFFIX)

    def _start_writer(self) -> None:
        self._spare_time = SpareTime(self._is_urgent)
        self._writer = threading.Thread(target=self._write_waiting, name="tilewright-cache")
        self._writer.start()

    def _write_waiting(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._writer = None
                    return
                work = self._waiting.popleft()
            try:
                work()
            except BaseException:  # such as a warning that is an error: later work gets a thread of its own
                with self._lock:
                    self._writer = None
                    if self._waiting:
                        self._start_writer()
                raise

    def _count(self, size: int) -> bool:
        """Add an entry of ``size`` bytes to what was written; return whether the folder's size is to be checked now."""
        path = self.directory / _WRITTEN
        with open(path, "ab") as file:
            is_first = file.tell() == 0
            file.write(bytes(-(-size // _KILOBYTE)))
            written = file.tell() * _KILOBYTE
        if not is_first and written <= self.max_bytes // _LOOK_AFTER_PART:
            return False
        os.truncate(path, 1)
        return True

    def _evict(self) -> None:
        """Remove the least recently used entries until the others fit, and unfinished files of processes that died."""
        total = 0
        for entry in self._files():
            with contextlib.suppress(OSError):  # removed by another process
                if entry.name.endswith(_SUFFIX):
                    total += entry.stat().st_size
                elif entry.name.endswith(UNFINISHED) and entry.stat().st_mtime < time.time() - _WRITING_SECONDS:
                    os.unlink(entry.path)
        if total <= self.max_bytes:
            return  # most checks end here; a list of all entries takes a hundred megabytes where these are small
        found: list[tuple[float, int, str]] = []
        for entry in self._files():
            with contextlib.suppress(OSError):
                if entry.name.endswith(_SUFFIX):
                    status = entry.stat()
                    found.append((status.st_mtime, status.st_size, entry.name))
        total = sum(size for _, size, _ in found)
        for _, size, name in sorted(found):
            if total <= self.max_bytes:
                break
            self.pause()
            with contextlib.suppress(OSError):
                os.unlink(self.directory / name)
                total -= size

    def _files(self) -> Iterator[os.DirEntry[str]]:
        """Yield the files in the folder, in the time that the program's other threads leave."""
        with os.scandir(self.directory) as entries:
            for entry in entries:
                self.pause()
                yield entry
