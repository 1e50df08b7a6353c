"""Take large constants out of a model's bytes before the protobuf package parses the rest.

That package copies the bytes that it parses, and copies them again on each access: a file of 400 MB would fill three
times as much memory. So this module walks the fields of the messages
(https://protobuf.dev/programming-guides/encoding/), reading only their headers, and cuts each large ``raw_data`` of an
initializer out of the bytes to parse. That is then read once, to its final place, at addresses aligned for vectors.

Models whose bytes differ from what exporters write are parsed by the protobuf package as a whole.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from tilewright.tensorir.aligned import Bytes, aligned_bytes
from tilewright.tensorir.errors import InputError
from tilewright.tensorir.target import CACHE_LINE

#: Smaller models are parsed as a whole, and so are smaller constants.
LEAST_MODEL, LEAST_TENSOR = 1 << 20, 1 << 14
#: Adjacent constants share a block of memory of at most so many bytes, if none is larger: large blocks get huge pages,
#: but a block is kept as long as any of its constants is.
_BLOCK = 1 << 26

#: Numbers of fields: ``ModelProto.graph``, ``GraphProto.initializer``, ``TensorProto.raw_data``.
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5


class _OtherFormError(Exception):
    """The bytes need the protobuf package."""


class Large:
    """The places of the large constants.

    Attributes:
        rest: the model without them, for the protobuf package.
        places: offset and length of its ``raw_data``, for the number of an initializer.
    """

    def __init__(self, rest: bytes, places: Mapping[int, tuple[int, int]]) -> None:
        self.rest = rest
        self.places = places

    def read(self, fill: Callable[[int, Bytes], None]) -> dict[int, Bytes]:
        """Return the bytes of each.

        Args:
            fill: fills an array with the bytes from an offset on.
        """
        found: dict[int, Bytes] = {}
        waiting: list[tuple[int, int, int]] = []
        size = 0

        def flush() -> None:
            block, at = aligned_bytes(size), 0
            for number, begin, count in waiting:
                part = found[number] = block[at : at + count]
                fill(begin, part)
                part.flags.writeable = False
                at += count + -count % CACHE_LINE

        for number, (begin, count) in self.places.items():
            if waiting and size + count > _BLOCK:
                flush()
                waiting, size = [], 0
            waiting.append((number, begin, count))
            size += count + -count % CACHE_LINE
        if waiting:
            flush()
        return found


def find_large(data: memoryview | bytes) -> Large | None:
    """Find the large constants of a model; return None if it has none, or should be parsed as a whole."""
    if len(data) < LEAST_MODEL:
        return None
    try:
        return _Walk(memoryview(data)).found()
    except _OtherFormError:
        return None


def from_file(path: Path) -> tuple[bytes, dict[int, Bytes]]:
    """Return the bytes of a model for the protobuf package, and those of its large constants, by the initializers'
    numbers.

    Raises:
        OSError: the file cannot be read.
        InputError: the file changed meanwhile.
    """
    with open(path, "rb", buffering=0) as file:
        if path.stat().st_size < LEAST_MODEL:
            return file.read(), {}
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as data:
            large = find_large(data)

        def fill(begin: int, part: Bytes) -> None:
            file.seek(begin)
            left = memoryview(part.data)
            while left:
                count = file.readinto(left)
                if not count:
                    raise InputError(f"{str(path)!r} became shorter while it was read")
                left = left[count:]

        return (path.read_bytes(), {}) if large is None else (large.rest, large.read(fill))


def from_bytes(data: bytes) -> tuple[bytes, dict[int, Bytes]]:
    """Do the same as :func:`from_file` with a model's bytes."""
    large = find_large(data)
    if large is None:
        return data, {}
    whole = np.frombuffer(data, np.uint8)

    def fill(begin: int, part: Bytes) -> None:
        part[:] = whole[begin : begin + len(part)]

    return large.rest, large.read(fill)


class _Walk:
    """Walks through a model's bytes once."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._places: dict[int, tuple[int, int]] = {}

    def found(self) -> Large | None:
        graphs = [span for number, span in self._fields(0, len(self._data)) if number == _GRAPH]
        if len(graphs) != 1:
            raise _OtherFormError  # several are merged
        ((head, begin, end),) = graphs
        graph = self._graph(begin, end)
        if not self._places:
            return None
        rest = b"".join([self._data[:head], _field(_GRAPH, graph), self._data[end:]])
        return Large(rest, self._places)

    def _graph(self, begin: int, end: int) -> bytes:
        """Return the graph without large constants."""
        parts: list[bytes | memoryview] = []
        copied, number = begin, 0
        for field, (head, first, last) in self._fields(begin, end):
            if field != _INITIALIZER:
                continue
            tensor = self._tensor(first, last, number) if last - first >= LEAST_TENSOR else None
            if tensor is not None:
                parts += [self._data[copied:head], _field(_INITIALIZER, tensor)]
                copied = last
            number += 1
        parts.append(self._data[copied:end])
        return b"".join(parts)

    def _tensor(self, begin: int, end: int, number: int) -> bytes | None:
        """Return a tensor without its data; None if the data is not large or not in one piece."""
        raw = [span for field, span in self._fields(begin, end) if field == _RAW_DATA]
        if len(raw) != 1 or raw[0][2] - raw[0][1] < LEAST_TENSOR:
            return None
        ((head, first, last),) = raw
        self._places[number] = (first, last - first)
        return b"".join([self._data[begin:head], self._data[last:end]])

    def _fields(self, at: int, end: int) -> Iterator[tuple[int, tuple[int, int, int]]]:
        """Yield the fields of a message that have a length: their numbers, their offsets, and begin and end of their
        contents.

        Raises:
            _OtherFormError: it is not a message, or contains groups.
        """
        while at < end:
            head = at
            tag, at = self._varint(at, end)
            number, kind = tag >> 3, tag & 7
            if kind == _LENGTH:
                count, at = self._varint(at, end)
                content, at = at, at + count
            elif kind == _VARINT:
                _, at = self._varint(at, end)
            elif kind in (_EIGHT_BYTES, _FOUR_BYTES):
                at += 8 if kind == _EIGHT_BYTES else 4
            else:
                raise _OtherFormError
            if at > end or number == 0:
                raise _OtherFormError
            if kind == _LENGTH:
                yield number, (head, content, at)

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        """Return a number of variable length, and its end."""
        value = shift = 0
        while at < end and shift < 64:
            byte = self._data[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value, at
            shift += 7
        raise _OtherFormError


def _field(number: int, content: bytes) -> bytes:
    """Encode a field of a message or of bytes."""
    return _encoded(number << 3 | _LENGTH) + _encoded(len(content)) + content


def _encoded(value: int) -> bytes:
    """Encode a number of variable length."""
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    made.append(value)
    return bytes(made)
