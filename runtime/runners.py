"""Call the entry point of a model: machine code through one foreign call, or Python."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.codegen.llvm.bounds import reported_accesses
from tilewright.codegen.threads import limited_calls, needs_lock, parallel_lock
from tilewright.runtime.address import data_address
from tilewright.runtime.steps import Array, Runner

if TYPE_CHECKING:
    from tilewright.codegen.llvm.compile import CompiledModule


def contiguous(constant: Array) -> Array:
    """Copy a constant, where needed, to the layout that kernels read: row-major, of native byte order."""
    result: Array = np.ascontiguousarray(constant, constant.dtype.newbyteorder("=")).reshape(constant.shape)
    return result


#: Packs all values that an entry point takes into bytes: inputs, outputs, the address of the arena and the sizes.
Packer = Callable[[Sequence[Any], Sequence[Array], int, Sequence[int]], bytes]


def packer(
    num_inputs: int, constants: Sequence[int], num_outputs: int, num_sizes: int, addresses: bool = False
) -> Packer:
    """Compile a packer for these numbers of values, in the order inputs, constants (given by their addresses), outputs,
    arena, sizes. With ``addresses`` the inputs are given by theirs.

    It is compiled from a line of Python for exactly these numbers, as packing is a large part of the time of a small
    model's call. The constants, of which large models have hundreds, are packed once.
    """
    given = [f"inputs[{number}]" if addresses else f"address(inputs[{number}])" for number in range(num_inputs)]
    made = [f"address(outputs[{number}])" for number in range(num_outputs)]
    made += ["arena", *(f"sizes[{number}]" for number in range(num_sizes))]
    if constants:
        body = f"head({', '.join(given)}) + constants + tail({', '.join(made)})"
    else:
        body = f"all_values({', '.join(given + made)})"
    names = {
        "address": data_address,
        "head": struct.Struct(f"{len(given)}q").pack,
        "constants": struct.pack(f"{len(constants)}q", *constants),
        "tail": struct.Struct(f"{len(made)}q").pack,
        "all_values": struct.Struct(f"{len(given) + len(made)}q").pack,
    }
    made_packer: Packer = eval(f"lambda inputs, outputs, arena, sizes: {body}", names)
    return made_packer


class MachineCodeRunner:
    """Runs machine code that takes the address of one array with all addresses and sizes.

    Args:
        address: address of the packed entry point.
        constants: the constants, which the runner keeps alive.
        num_values: the number of values that the entry point takes in total.
        owner: an object that keeps the machine code alive.
    """

    __slots__ = ("_addresses", "_constants", "_entry", "_num_values", "_owner", "_pack", "_pack_addresses", "_threads")

    def __init__(self, address: int, constants: Sequence[Array], num_values: int, owner: object) -> None:
        self._entry: Callable[[bytes], None] = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(address)
        self._constants = [contiguous(constant) for constant in constants]
        self._addresses = [data_address(constant) for constant in self._constants]
        self._num_values = num_values
        self._pack: Packer | None = None
        self._pack_addresses: Packer | None = None
        self._owner = owner
        self._threads: int | None = None

    def limit_threads(self, threads: int | None) -> None:
        """Run later calls on at most so many threads; None: on those that the code may use."""
        self._threads = threads

    def __call__(
        self,
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        arena: tuple[int, Array],
        arena_bytes: int,
        sizes: Sequence[int],
    ) -> None:
        pack = self._pack
        if pack is None:
            pack = self._pack = self._packer(inputs, outputs, sizes)
        self._enter(pack(inputs, outputs, arena[0], sizes))

    def at_addresses(
        self,
        inputs: Sequence[int],
        outputs: Sequence[Array],
        arena: tuple[int, Array],
        arena_bytes: int,
        sizes: Sequence[int],
    ) -> None:
        """Run the code on inputs that are given by the addresses of their elements."""
        pack = self._pack_addresses
        if pack is None:
            pack = self._pack_addresses = self._packer(inputs, outputs, sizes, addresses=True)
        self._enter(pack(inputs, outputs, arena[0], sizes))

    def _packer(
        self, inputs: Sequence[Any], outputs: Sequence[Array], sizes: Sequence[int], addresses: bool = False
    ) -> Packer:
        assert len(inputs) + len(self._addresses) + len(outputs) + 1 + len(sizes) == self._num_values
        return packer(len(inputs), self._addresses, len(outputs), len(sizes), addresses)

    def _enter(self, packed: bytes) -> None:
        if self._threads is not None:
            with limited_calls(self._threads), parallel_lock():
                self._entry(packed)
        elif needs_lock():
            with parallel_lock():
                self._entry(packed)
        else:  # not a null context: entering one takes a tenth of a small model's call
            self._entry(packed)


class CheckedRunner(MachineCodeRunner):
    """Runs machine code that checks its accesses, and raises an OutOfBoundsError if one was outside."""

    __slots__ = ()

    def _enter(self, packed: bytes) -> None:
        with reported_accesses():
            super()._enter(packed)


def runner_of(modules: Iterable[CompiledModule], *args: Any) -> MachineCodeRunner:
    """Make a runner, with the arguments of :class:`MachineCodeRunner`, of code in these modules. The threads of their
    parallel loops start."""
    modules = list(modules)
    for module in modules:
        module.start_threads()
    checked = any(module.reports_accesses for module in modules)
    return (CheckedRunner if checked else MachineCodeRunner)(*args)


def python_runner(entry: Callable[..., None], constants: Sequence[Array]) -> Runner:
    """Make a runner of a function that takes the arrays themselves."""
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
