"""Run a model kernel by kernel, and record the values that each kernel reads and writes.

``PlanMemory`` turns such a model into one function whose values share an arena. Here every value has memory of its own,
which is not reused, so that the values can be compared afterwards. Guards around it detect a kernel that writes outside
of its memory. Fresh memory is filled with NaNs, which reveal a kernel that does not write all of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.graphir.dims import Dim, bind_dims
from tilewright.graphir.expr import Function
from tilewright.graphir.module import IRModule
from tilewright.graphir.origins import Origin
from tilewright.passes.lower.instructions import Branch, Copy, CountedLoop, Instruction, KernelCall, Value
from tilewright.passes.lower.instructions import Program as ProgramCode
from tilewright.passes.lower.linearize import linearize
from tilewright.passes.lower.storage import ALIGNMENT
from tilewright.runtime.observe.numeric.kernels import KernelRunner
from tilewright.runtime.runners import contiguous
from tilewright.tensorir.errors import ExecutionError
from tilewright.tensorir.expr import Expr as ScalarExpr
from tilewright.tensorir.stmt import PrimFunc

Array = np.ndarray[Any, Any]

#: Bytes on each side of a value's memory that no kernel may write.
_GUARD = 4096
_FRESH = 0xFF


class GuardError(ExecutionError):
    """A kernel wrote outside of the memory of its results."""


@dataclasses.dataclass(frozen=True)
class Step:
    """One call of a kernel in a run of a model.

    Attributes:
        kernel: name of the kernel.
        inputs: the values that it read.
        outputs: the values that it wrote.
        origins: the operators of the graph that it computed.
    """

    kernel: str
    inputs: list[Array]
    outputs: list[Array]
    origins: tuple[Origin, ...] = ()


class Program:
    """A module of lowered kernels, ready to run.

    Args:
        mod: a module whose ``main`` is a graph function that calls loop-level functions only.
        runner: runs these functions.

    Raises:
        CodegenError: a call was not lowered.
    """

    def __init__(self, mod: IRModule, runner: KernelRunner) -> None:
        main = mod["main"]
        assert isinstance(main, Function)
        functions = {key.name: func for key, func in mod.functions.items() if isinstance(func, PrimFunc)}
        self._kernels = runner.prepare(functions)
        self._runner = runner
        finished = mod.with_functions({mod.get_global_var(name): func for name, func in self._kernels.items()})
        self._program = linearize(main, finished)

    def run(
        self,
        inputs: Sequence[Array],
        sizes: Mapping[ScalarExpr, int],
        forced: Sequence[Step] | None = None,
    ) -> tuple[list[Array], list[Step]]:
        """Return the results on ``inputs``, and a step for each kernel.

        Args:
            inputs: an array for each tensor of the parameters.
            sizes: sizes of the symbolic dimensions.
            forced: the steps of another run of the same graph, whose inputs each call gets in place of its own.

        Raises:
            GuardError: a kernel wrote outside of its memory.
        """
        return _Run(self._kernels, self._runner, sizes, forced).run(self._program, inputs)


class _Run:
    """One run: the memory of each value."""

    def __init__(
        self,
        kernels: Mapping[str, PrimFunc],
        runner: KernelRunner,
        sizes: Mapping[ScalarExpr, int],
        forced: Sequence[Step] | None,
    ) -> None:
        self.kernels = kernels
        self.runner = runner
        self.sizes = sizes
        self.forced = forced
        #: For each value with memory of its own: the memory with its guards, and the value.
        self.memory: dict[Value, tuple[Array, Array]] = {}
        self.constants: list[Array] = []
        self.steps: list[Step] = []
        #: Nonzero inside of a loop, where values are overwritten.
        self.repeated = 0

    def run(self, program: ProgramCode, inputs: Sequence[Array]) -> tuple[list[Array], list[Step]]:
        self.constants = [constant.data for constant in program.constants]
        for value, array in zip(program.inputs, inputs, strict=True):
            self.view(value)[...] = array
        self.body(program.body)
        return [self.view(value).copy() for value in program.outputs], self.steps

    def size(self, dim: Dim) -> int:
        found = bind_dims(dim, self.sizes)
        if not isinstance(found, int):
            raise ExecutionError(f"no input determines the size {dim!s}")
        return found

    def view(self, value: Value) -> Array:
        """Return the memory of a value, as an array of its type."""
        if value.whole is not None:
            around = self.view(value.whole)
            shape = [self.size(dim) for dim in value.type.shape]
            if value.is_view:
                return around.reshape(shape)  # contiguous, so the memory stays the same
            places = zip(map(self.size, value.begin), shape, strict=True)
            return around[tuple(slice(begin, begin + size) for begin, size in places)]
        found = self.memory.get(value)
        if found is None:
            found = self.memory[value] = self._allocate(value)
        return found[1]

    def _allocate(self, value: Value) -> tuple[Array, Array]:
        if value.role == "constant":
            given = contiguous(self.constants[value.index])
            return given, given
        shape = [self.size(dim) for dim in value.type.shape]
        rows = [*shape[:-1], shape[-1] + value.row_padding] if shape else []
        dtype = value.type.dtype.numpy
        size = int(np.prod(rows, dtype=np.int64)) * dtype.itemsize
        memory = np.full(size + 2 * _GUARD + ALIGNMENT, _FRESH, np.uint8)
        start = _first(memory)
        array = memory[start : start + size].view(dtype).reshape(rows)
        if shape and value.row_padding:
            array = array[..., : shape[-1]]
        if value.type.dtype.is_bool:
            array[...] = False  # other bytes are not valid bools
        return memory, array

    def check_guards(self, value: Value, kernel: str) -> None:
        memory, _ = self.memory[value.owner]
        size = memory.size - 2 * _GUARD - ALIGNMENT
        start = _first(memory)
        if (memory[:start] != _FRESH).any() or (memory[start + size :] != _FRESH).any():
            raise GuardError(f"kernel {kernel} writes outside of the memory of its results")

    # Instructions.

    def body(self, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            _INSTRUCTIONS[type(instruction)](self, instruction)

    def kernel(self, call: KernelCall) -> None:
        if self.forced is not None and len(self.steps) < len(self.forced):
            for value, array in zip(call.args, self.forced[len(self.steps)].inputs, strict=True):
                if value.owner.role != "constant":
                    self.view(value)[...] = array
        values = [*call.args, *call.results, *call.workspaces]
        func = self.kernels[call.kernel]
        views = [self.view(value) for value in values]
        self.runner.run(func, views, [self.size(dim) for dim in call.variables])
        for value in (*call.results, *call.workspaces):
            self.check_guards(value, call.kernel)
        parts = [self.view(value) for value in (*call.args, *call.results)]
        if self.repeated or self.forced is not None:  # the memory is overwritten later
            parts = [part.copy() for part in parts]
        self.steps.append(Step(call.kernel, parts[: len(call.args)], parts[len(call.args) :], call.origins))

    def copy(self, copy: Copy) -> None:
        target = self.view(copy.target)
        if copy.row is None:
            target[...] = self.view(copy.source)
        elif (row := int(self.view(copy.row))) < len(target):
            target[row] = self.view(copy.source)

    def branch(self, branch: Branch) -> None:
        self.body(branch.then_body if self.view(branch.condition) else branch.else_body)

    def loop(self, loop: CountedLoop) -> None:
        self.repeated += 1
        for number in range(int(self.view(loop.trip_count))):
            self.view(loop.counter)[...] = number
            if loop.alive is not None:
                self.body(loop.check)
                if not self.view(loop.alive):
                    break
            self.body(loop.body)
        self.repeated -= 1


def _first(memory: Array) -> int:
    """Return the index of the first byte after the guard whose address has the alignment of values."""
    return _GUARD + -(memory.ctypes.data + _GUARD) % ALIGNMENT


_INSTRUCTIONS: dict[type, Callable[[_Run, Any], None]] = {
    KernelCall: _Run.kernel,
    Copy: _Run.copy,
    Branch: _Run.branch,
    CountedLoop: _Run.loop,
}
