"""Files of data and arrays are read as they were written, or rejected."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.runtime.packed_file import DamagedFileError, pack, unpack

MAGIC = b"a test 1\n"
DATA = {"names": ["a", "ü"], "sizes": [1, None, 2.5]}
ARRAYS = [np.arange(5, dtype="i2"), np.empty((0, 3), "f4"), np.arange(12, dtype="f8").reshape(3, 4)[:, ::2]]


def packed() -> np.ndarray:
    pieces: list[bytes] = []
    size = pack(lambda piece: pieces.append(bytes(piece)), MAGIC, DATA, ARRAYS)
    content = np.frombuffer(b"".join(pieces), np.uint8)
    assert len(content) == size
    return content


def test_data_and_arrays_come_back() -> None:
    data, arrays = unpack(packed(), MAGIC)
    assert data == DATA
    for found, array in zip(arrays, ARRAYS, strict=True):
        np.testing.assert_array_equal(found.view(array.dtype).reshape(array.shape), array)


def test_arrays_begin_at_cache_lines() -> None:
    content = packed()
    for array in unpack(content, MAGIC).arrays:
        assert (array.ctypes.data - content.ctypes.data) % 64 == 0


def test_a_change_of_any_byte_is_noticed() -> None:
    for place in range(len(packed())):
        content = packed().copy()
        content[place] ^= 0x10
        with pytest.raises(DamagedFileError):
            unpack(content, MAGIC)


def test_every_other_length_is_noticed() -> None:
    content = packed()
    for end in range(len(content)):
        with pytest.raises(DamagedFileError):
            unpack(content[:end], MAGIC)
    with pytest.raises(DamagedFileError, match=f"expected {len(content)} bytes, found {len(content) + 1}"):
        unpack(np.append(content, np.uint8(0)), MAGIC)
