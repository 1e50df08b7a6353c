"""Read and write files of plain data (as in JSON) and arrays: each part has a checksum, and arrays are aligned to cache
lines.

::

    magic      the kind of the file, a line of text
    header     bytes of the description, its checksum (CRC-32)
    description  JSON: the data, and for each array its size in bytes and its checksum
    arrays     each padded in front with zeros to a multiple of 64 bytes
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from tilewright.tensorir.errors import ArgumentValueError, TilewrightError

Array = np.ndarray[Any, Any]

#: The most bytes of a description: that of a model of a hundred thousand operators has a hundredth of it.
_MOST_DESCRIBED = 1 << 28

_HEADER = struct.Struct("<QI")  # bytes of the description, its checksum
#: Alignment of arrays in the file, and so in memory, in bytes: a cache line.
_ALIGNMENT = 64
#: The bytes of an array that are read or written in one call: some milliseconds' work.
_PIECE = 1 << 23
#: The suffix of a file that is being written.
UNFINISHED = ".unfinished"


class DamagedFileError(TilewrightError, ValueError):
    """The content of a file differs from what was written; the message names the expected and found data and the
    position."""


class Unpacked(NamedTuple):
    """The content of a file: plain data, and arrays of bytes."""

    data: Any
    arrays: list[Array]


def pack(
    write: Callable[[Any], Any],
    magic: bytes,
    data: Any,
    arrays: Sequence[Array],
    pause: Callable[[], None] = lambda: None,
) -> int:
    """Write a file's content piece by piece, after a call of ``pause`` each; return its size in bytes."""
    plain = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays]
    described = {"data": data, "arrays": [[array.nbytes, _checksum(array, pause)] for array in plain]}
    description = json.dumps(described).encode()
    write(magic + _HEADER.pack(len(description), zlib.crc32(description)) + description)
    position = len(magic) + _HEADER.size + len(description)
    for array in plain:
        padding = -position % _ALIGNMENT
        write(bytes(padding))
        for piece in _pieces(array, pause):
            write(piece)
        position += padding + array.nbytes
    return position


def _checksum(array: Array, pause: Callable[[], None]) -> int:
    checksum = 0
    for piece in _pieces(array, pause):
        checksum = zlib.crc32(piece, checksum)
    return checksum


def _pieces(array: Array, pause: Callable[[], None]) -> Iterator[memoryview]:
    for start in range(0, array.nbytes, _PIECE):
        pause()
        yield array[start : start + _PIECE].data


def unpack(content: Array, magic: bytes) -> Unpacked:
    """Read what :func:`pack` has written. The arrays are views of ``content``, an array of bytes.

    Raises:
        DamagedFileError: the content differs from what was written.
    """
    start = content[: len(magic)].tobytes()
    if start != magic:
        raise DamagedFileError(f"expected a file that begins with {magic!r}, found {start!r}")
    position = len(magic) + _HEADER.size
    if len(content) < position:
        raise DamagedFileError(f"expected at least {position} bytes, found {len(content)}")
    length, checksum = _HEADER.unpack(content[len(magic) : position].tobytes())
    description = _part(content, "the description", position, length, checksum)
    described, sizes = _described(description.tobytes())
    position += length
    arrays: list[Array] = []
    for number, (size, expected) in enumerate(sizes):
        name = f"part {number + 1} of {len(sizes)}"
        padding = -position % _ALIGNMENT
        if content[position : position + padding].any():
            raise DamagedFileError(f"expected zeros before {name}, at byte {position}")
        position += padding
        arrays.append(_part(content, name, position, size, expected))
        position += size
    if len(content) != position:
        raise DamagedFileError(f"expected {position} bytes, found {len(content)}")
    return Unpacked(described, arrays)


def described_size(file: BinaryIO, magic: bytes) -> int:
    """Return how many bytes a file has by its own description, of which it reads nothing else.

    Raises:
        DamagedFileError: the beginning differs from what was written.
    """
    position = len(magic) + _HEADER.size
    start = file.read(position)
    if len(start) < position or not start.startswith(magic):
        raise DamagedFileError(f"expected a file that begins with {magic!r}, found {start[: len(magic)]!r}")
    length, checksum = _HEADER.unpack(start[len(magic) :])
    if length > _MOST_DESCRIBED:
        raise DamagedFileError(f"the description: expected at most {_MOST_DESCRIBED} bytes, found {length}")
    description = np.frombuffer(file.read(length), np.uint8)
    _, sizes = _described(_part(description, "the description", 0, length, checksum).tobytes())
    position += int(length)
    for size, _ in sizes:
        position += -position % _ALIGNMENT + size
    return position


def _described(description: bytes) -> tuple[Any, list[tuple[int, int]]]:
    """Return the data of a description, and the sizes and checksums of the arrays behind it."""
    try:
        read = json.loads(description)
        sizes = [(size, checksum) for size, checksum in read["arrays"]]
        if not all(type(number) is int and number >= 0 for each in sizes for number in each):
            raise ArgumentValueError(f"sizes and checksums {read['arrays']!r:.60}")
        return read["data"], sizes
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DamagedFileError(
            "the description: expected JSON with data, and with sizes and checksums of arrays, found something else "
            f"({type(error).__name__}: {error})"
        ) from None


def _part(content: Array, name: str, position: int, size: int, expected: int) -> Array:
    array = content[position : position + size]
    if len(array) != size:
        raise DamagedFileError(
            f"{name}: expected {size} bytes from byte {position} on, but the file ends after {len(content)}"
        )
    found = zlib.crc32(array.data)
    if found != expected:
        raise DamagedFileError(
            f"{name}: the {size} bytes from byte {position} on were changed (expected the checksum {expected:08x}, "
            f"found {found:08x})"
        )
    return array


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a new file that replaces ``path`` when it is complete: readers see all of the old one or all of the new one.
    After an error in the block the old one stays.

    Raises:
        OSError: the file cannot be written.
    """
    # Do not use tempfile, whose files other users cannot read.
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(8)}{UNFINISHED}")
    try:
        with open(unfinished, "xb") as file:
            yield file
        os.replace(unfinished, path)
    except BaseException:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise
