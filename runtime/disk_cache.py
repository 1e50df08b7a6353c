"""A folder of what was computed before: entries by key, each one file of plain data and arrays.

An entry is written beside its place and then moved there, so that whoever reads sees all of it or nothing; several
processes may use one folder. Reading maps the file into memory, which costs no copy and is shared by the processes that
do so. An entry that is damaged (checksums are looked at) counts as none and is removed. When the folder has grown
beyond its limit, the entries that were used longest ago go.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import struct
import tempfile
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_MAGIC = b"tilewright entry 1\n"
_HEADER = struct.Struct("<QI")  # bytes of the description, its checksum
_SUFFIX = ".entry"
_UNFINISHED = ".unfinished"
#: Arrays begin at multiples of this many bytes in the file, and so in memory: a cache line.
_ALIGNMENT = 64
#: One entry takes at most this part of the limit, so that no model drives all others out.
_LARGEST_PART = 4
#: What a process has written between two looks at the size of the folder, as a part of the limit.
_LOOK_AFTER_PART = 32
#: Whoever writes an entry is done, or dead, after this many seconds.
_WRITING_SECONDS = 3600.0


@dataclass(frozen=True)
class Entry:
    """What is kept under one key: plain data (as JSON has it), and arrays of bytes, which cannot be written to."""

    data: Any
    arrays: list[Array]


class DiskCache:
    """Entries in ``directory``, ``max_bytes`` in all.

    Raises:
        OSError: the folder cannot be made, or belongs to another user: what lies in it would be run.
    """

    def __init__(self, directory: Path, max_bytes: int) -> None:
        self.directory, self.max_bytes = directory, max_bytes
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if hasattr(os, "getuid") and directory.stat().st_uid != os.getuid():
            raise PermissionError(f"{directory} belongs to another user")
        if not os.access(directory, os.W_OK):
            raise PermissionError(f"{directory} cannot be written to")
        self._written: int | None = None  # since the last look at the size of the folder; None: before the first one
        self._writers: list[threading.Thread] = []

    def load(self, key: str) -> Entry | None:
        """The entry of ``key``, None if there is none, or none that is whole."""
        path = self._path(key)
        try:
            with open(path, "rb") as file:
                content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError):  # ValueError: an empty file
            return None
        entry = _read(np.frombuffer(content, np.uint8))
        with contextlib.suppress(OSError):  # another process may have removed it meanwhile
            if entry is None:
                path.unlink()
            else:
                os.utime(path)
        return entry

    def store(self, key: str, data: Any, arrays: Sequence[Array]) -> None:
        """Keep an entry, unless it is too large. The file is written by a thread, which the end of the program waits
        for; the arrays must not change until then."""
        size = sum(array.nbytes for array in arrays)
        if size > self.max_bytes // _LARGEST_PART:
            return
        writer = threading.Thread(target=self._write, args=(key, data, arrays), name="tilewright-cache")
        self._writers = [*(known for known in self._writers if known.is_alive()), writer]
        writer.start()

    def wait(self) -> None:
        """Wait until all entries are written."""
        for writer in self._writers:
            writer.join()

    def _path(self, key: str) -> Path:
        return self.directory / (key + _SUFFIX)

    def _write(self, key: str, data: Any, arrays: Sequence[Array]) -> None:
        try:
            handle, name = tempfile.mkstemp(_UNFINISHED, dir=self.directory)
            try:
                with open(handle, "wb") as file:
                    size = _write(file.write, data, arrays)
                os.replace(name, self._path(key))
            except BaseException:
                os.unlink(name)
                raise
            if self._written is not None:
                self._written += size
            if self._written is None or self._written > self.max_bytes // _LOOK_AFTER_PART:
                self._written = 0
                self._evict()
        except OSError as error:
            warnings.warn(f"what was compiled is not kept for the next time: {error}", RuntimeWarning, stacklevel=2)

    def _evict(self) -> None:
        """Remove what was used longest ago until the rest fits, and what a process left that died while it wrote."""
        found: list[tuple[float, int, str]] = []
        with os.scandir(self.directory) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # removed by another process
                    status = entry.stat()
                    if entry.name.endswith(_SUFFIX):
                        found.append((status.st_mtime, status.st_size, entry.path))
                    elif entry.name.endswith(_UNFINISHED) and status.st_mtime < time.time() - _WRITING_SECONDS:
                        os.unlink(entry.path)
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= self.max_bytes:
                break
            with contextlib.suppress(OSError):
                os.unlink(path)
                total -= size


def _write(write: Callable[[Any], Any], data: Any, arrays: Sequence[Array]) -> int:
    """Write an entry; its size."""
    plain = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays]
    described = {"data": data, "arrays": [[array.nbytes, zlib.crc32(array.data)] for array in plain]}
    description = json.dumps(described).encode()
    write(_MAGIC + _HEADER.pack(len(description), zlib.crc32(description)) + description)
    position = len(_MAGIC) + _HEADER.size + len(description)
    for array in plain:
        padding = -position % _ALIGNMENT
        write(bytes(padding))
        write(array.data)
        position += padding + array.nbytes
    return position


def _read(content: Array) -> Entry | None:
    """The entry that ``content`` is, None if it is damaged."""
    position = len(_MAGIC) + _HEADER.size
    if content[: len(_MAGIC)].tobytes() != _MAGIC or len(content) < position:
        return None
    length, checksum = _HEADER.unpack(content[len(_MAGIC) : position].tobytes())
    description = content[position : position + length].tobytes()
    if len(description) != length or zlib.crc32(description) != checksum:
        return None
    described: Mapping[str, Any] = json.loads(description)
    position += length
    arrays: list[Array] = []
    for size, expected in described["arrays"]:
        position += -position % _ALIGNMENT
        array = content[position : position + size]
        if len(array) != size or zlib.crc32(array.data) != expected:
            return None
        arrays.append(array)
        position += size
    return Entry(described["data"], arrays)
