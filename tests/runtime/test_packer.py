"""Test the packing of an entry point's values into bytes."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from tilewright.runtime.address import data_address
from tilewright.runtime.runners import packer


@pytest.mark.parametrize("num_sizes", [0, 2])
@pytest.mark.parametrize("num_constants", [0, 1, 300])
@pytest.mark.parametrize(("num_inputs", "num_outputs"), [(0, 1), (1, 0), (1, 1), (3, 2)])
def test_values_are_packed_in_the_order_of_the_entry_point(
    num_inputs: int, num_constants: int, num_outputs: int, num_sizes: int
) -> None:
    arrays = [np.zeros(n + 1) for n in range(num_inputs + num_outputs)]
    inputs, outputs = arrays[:num_inputs], arrays[num_inputs:]
    constants, sizes = [64 * n for n in range(num_constants)], [7, 9][:num_sizes]
    packed = packer(num_inputs, constants, num_outputs, num_sizes)(inputs, outputs, 4096, sizes)
    addresses = [[array.__array_interface__["data"][0] for array in part] for part in (inputs, outputs)]
    expected = [*addresses[0], *constants, *addresses[1], 4096, *sizes]
    assert list(struct.unpack(f"{len(expected)}q", packed)) == expected


@pytest.mark.parametrize("view", [np.s_[:], np.s_[3:], np.s_[::2], np.s_[:0]])
def test_address_is_that_of_the_first_element(view: slice) -> None:
    array = np.arange(10, dtype=np.int16)[view]
    assert data_address(array) == array.__array_interface__["data"][0]
