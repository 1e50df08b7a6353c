"""How the entry point of a model is called, for each kind of target."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence

import numpy as np

from tilewright.codegen.threads import needs_lock, parallel_lock
from tilewright.runtime.address import data_address
from tilewright.runtime.steps import Array, Runner


def contiguous(constant: Array) -> Array:
    """A constant as the kernels read it: row-major, of native byte order."""
    result: Array = np.ascontiguousarray(constant, constant.dtype.newbyteorder("=")).reshape(constant.shape)
    return result


class MachineCodeRunner:
    """Runs machine code that takes the address of one array with all addresses and sizes.

    Args:
        address: of the packed entry point.
        constants: kept alive by the runner.
        num_values: how many values the entry point takes in all.
        owner: what keeps the machine code alive.
    """

    __slots__ = ("_addresses", "_constants", "_entry", "_owner", "_pack")

    def __init__(self, address: int, constants: Sequence[Array], num_values: int, owner: object) -> None:
        self._entry: Callable[[bytes], None] = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(address)
        self._pack = struct.Struct(f"{num_values}q").pack
        self._constants = [contiguous(constant) for constant in constants]
        self._addresses = [data_address(constant) for constant in self._constants]
        self._owner = owner

    def __call__(
        self,
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        arena: tuple[int, Array],
        arena_bytes: int,
        sizes: Sequence[int],
    ) -> None:
        packed = self._pack(*map(data_address, inputs), *self._addresses, *map(data_address, outputs), arena[0], *sizes)
        if needs_lock():
            with parallel_lock():
                self._entry(packed)
        else:  # not a context that does nothing: entering one costs a small model a tenth of its call
            self._entry(packed)


def python_runner(entry: Callable[..., None], constants: Sequence[Array]) -> Runner:
    """A runner of a function that takes the arrays themselves."""
    held = [contiguous(constant) for constant in constants]

    def run(
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        arena: tuple[int, Array],
        arena_bytes: int,
        sizes: Sequence[int],
    ) -> None:
        entry(*inputs, *held, *outputs, arena[1][:arena_bytes], *sizes)

    return run
