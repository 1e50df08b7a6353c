"""Large constants of a model, taken from its bytes before the protobuf package parses the rest.

That package copies what it parses, and gives bytes as copies again: a file of 400 MB would fill three times as much
memory. Here the fields of the messages are walked (https://protobuf.dev/programming-guides/encoding/), which looks at
their heads alone, and each large ``raw_data`` of an initializer of the graph is left out of what is parsed. It is then
read once, to where it stays, at addresses that suit vectors.

Whatever is not as the exporters of models write it is left to the protobuf package as a whole.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.tensorir.aligned import aligned_bytes
from tilewright.tensorir.errors import InputError
from tilewright.tensorir.target import CACHE_LINE

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

#: Models of fewer bytes are parsed as a whole, and so are smaller constants.
LEAST_MODEL, LEAST_TENSOR = 1 << 20, 1 << 14
#: Neighbours share a block of memory of at most so many bytes, if none is larger: large blocks get large pages, but a
#: block is held as long as any of its constants is.
_BLOCK = 1 << 26

#: Numbers of fields: ``ModelProto.graph``, ``GraphProto.initializer``, ``TensorProto.raw_data``.
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5


class _OtherFormError(Exception):
    """The bytes are left to the protobuf package."""


class Large:
    """Where the large constants are.

    Attributes:
        rest: the model without them, for the protobuf package.
        places: for the number of an initializer the first byte of its ``raw_data``, and their count.
    """

    def __init__(self, rest: bytes, places: Mapping[int, tuple[int, int]]) -> None:
        self.rest = rest
        self.places = places

    def read(self, fill: Callable[[int, Bytes], None]) -> dict[int, Bytes]:
        """The bytes of each.

        Args:
            fill: fills an array with the bytes from a place on.
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
    """The large constants of a model; None if it has none, or should be parsed as a whole."""
    if len(data) < LEAST_MODEL:
        return None
    try:
        return _Walk(memoryview(data)).found()
    except _OtherFormError:
        return None


def from_file(path: Path) -> tuple[bytes, dict[int, Bytes]]:
    """The bytes of a model for the protobuf package, and those of its large constants, by the initializers' numbers.

    Raises:
        OSError: the file cannot be read.
        InputError: it changed meanwhile.
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
    """The same of a model's bytes."""
    large = find_large(data)
    if large is None:
        return data, {}
    whole = np.frombuffer(data, np.uint8)

    def fill(begin: int, part: Bytes) -> None:
        part[:] = whole[begin : begin + len(part)]

    return large.rest, large.read(fill)


class _Walk:
    """One walk through a model's bytes."""

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
        """The graph without large constants."""
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
        """A tensor without its data, which it has once; None if they are not large."""
        raw = [span for field, span in self._fields(begin, end) if field == _RAW_DATA]
        if len(raw) != 1 or raw[0][2] - raw[0][1] < LEAST_TENSOR:
            return None
        ((head, first, last),) = raw
        self._places[number] = (first, last - first)
        return b"".join([self._data[begin:head], self._data[last:end]])

    def _fields(self, at: int, end: int) -> Iterator[tuple[int, tuple[int, int, int]]]:
        """The fields of a message that have a length: their numbers, where they begin, and where their contents begin
        and end.

        Raises:
            _OtherFormError: it is no message, or one that holds groups.
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
        """A number of variable length, and where it ends."""
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
    """A field of a message or of bytes."""
    return _encoded(number << 3 | _LENGTH) + _encoded(len(content)) + content


def _encoded(value: int) -> bytes:
    """A number of variable length."""
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    made.append(value)
    return bytes(made)
