"""Run any function of the loop-level IR, at any stage of lowering, with NumPy: slow, and the oracle for all passes.

Each expression and statement is compiled once to a Python closure over a frame, a list with one slot for each variable
and buffer. What compiled code would leave undefined is an error here: an access out of bounds, an integer division by
zero, an iteration variable outside its range. Both sides of ``select``, ``and`` and ``or`` are evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.tensorir.arith import Analyzer
from tilewright.tensorir.errors import ExecutionError, InputError
from tilewright.tensorir.expr import Buffer, IntImm, Var
from tilewright.tensorir.functor import walk
from tilewright.tensorir.interpreter_expressions import Code, Frame, nothing
from tilewright.tensorir.interpreter_memory import Pointer, view
from tilewright.tensorir.interpreter_statements import StatementCompiler
from tilewright.tensorir.nesting import bounded
from tilewright.tensorir.node import Node
from tilewright.tensorir.stmt import BufferStore, PrimFunc


def interpret(func: PrimFunc, *args: Any, functions: Mapping[str, PrimFunc] | None = None) -> None:
    """Run ``func`` on NumPy arrays, and write the results into them.

    Args:
        args: one array for each buffer, in the order of the parameters, then one int for each variable. The variables
            may be left out where the shapes of the arrays give them. A one-dimensional buffer (a flattened one) also
            takes a contiguous array of as many elements.
        functions: the functions that ``func`` calls by name (without the ``@``).

    Raises:
        InputError: the arguments do not fit the parameters.
        OutOfBoundsError: an access outside a buffer.
        UndefinedOperationError: an integer division by zero, or a shift by too many bits.
        NestingError, BudgetError: a function is nested too deeply, or too large.
    """
    machine = Machine(functions or {})
    with np.errstate(all="ignore"), bounded("interpreting", func, *machine.functions.values(), always=True):
        machine.program(func).call_with_arrays(args)


class Machine:
    """The compiled functions of one run."""

    def __init__(self, functions: Mapping[str, PrimFunc]) -> None:
        self.functions = {name.removeprefix("@"): func for name, func in functions.items()}
        self._programs: dict[PrimFunc, Program] = {}

    def program(self, func: PrimFunc) -> Program:
        """``func``, compiled."""
        found = self._programs.get(func)
        if found is None:
            found = self._programs[func] = Program(func, self)
            found.compile()
        return found


class Program:
    """One compiled function."""

    def __init__(self, func: PrimFunc, machine: Machine) -> None:
        self.func = func
        self.machine = machine
        self.slots: dict[Node, int] = {}
        self.shapes: dict[Buffer, list[Code]] = {}
        self.strides: dict[Buffer, list[Code]] = {}
        self.written: set[Buffer] = set()
        self.params = [self.slot(param) for param in func.params]
        self.body: Code = nothing

    def compile(self) -> None:
        """Make the closures. Separate from the constructor, because a function may call itself."""
        compiler = StatementCompiler(self)
        self.shapes = {buffer: [compiler.expr(extent) for extent in buffer.shape] for buffer in self.func.buffers}
        self.strides = {buffer: [compiler.expr(stride) for stride in buffer.strides] for buffer in self.func.buffers}
        self.written = {node.buffer for node in walk(self.func.body) if isinstance(node, BufferStore)}
        self.body = compiler.stmt(self.func.body)

    def slot(self, node: Node) -> int:
        """The place of a variable or buffer in the frame."""
        return self.slots.setdefault(node, len(self.slots))

    def call_with_arrays(self, args: Sequence[Any]) -> None:
        """Check the caller's arguments and run."""
        func, buffers, variables = self.func, self.func.buffers, self.func.variables
        if len(args) not in (len(buffers), len(func.params)):
            raise InputError(
                f"{func.name}: expected {len(buffers)} arrays for {', '.join(b.name for b in buffers)} and "
                f"{len(variables)} integers (or none), found {len(args)} arguments"
            )
        bound: dict[Var, tuple[int, str]] = {}
        for var, value in zip(variables, args[len(buffers) :], strict=False):
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                raise InputError(f"{func.name}: {var.name}: expected an integer, found {type(value).__name__}")
            bound[var] = (int(value), "the argument")
        arrays = [_check_array(func, b, a) for b, a in zip(buffers, args, strict=False)]
        for buffer, array in zip(buffers, arrays, strict=True):
            _bind_dimensions(func, buffer, array, bound)
        missing = [var.name for var in variables if var not in bound]
        if missing:
            raise InputError(
                f"{func.name}: no shape determines the size of {', '.join(missing)}; pass it as an integer"
            )
        frame: Frame = [None] * len(self.slots)
        for var in variables:
            frame[self.slots[var]] = bound[var][0]
        for buffer, array in zip(buffers, arrays, strict=True):
            frame[self.slots[buffer]] = self._fit(buffer, array, frame)
            self._check_writable(buffer, array)
        self.body(frame)

    def _fit(self, buffer: Buffer, array: Any, frame: Frame) -> Any:
        shape = tuple(extent(frame) for extent in self.shapes[buffer])
        if array.shape == shape:
            return array
        if len(shape) == 1 and array.size == shape[0] and array.flags.c_contiguous:
            return array.reshape(-1)
        raise InputError(f"{self.func.name}: {buffer.name}: expected shape {shape}, found {array.shape}")

    def _check_writable(self, buffer: Buffer, array: Any) -> None:
        if buffer in self.written and not array.flags.writeable:
            raise InputError(f"{self.func.name}: {buffer.name} is written, but its array is read-only")

    def call_with_pointers(self, args: Sequence[Any]) -> None:
        """Run with addresses for the buffers, as a call from another function does."""
        func = self.func
        if len(args) != len(func.params):
            raise ExecutionError(f"@{func.name}: expected {len(func.params)} arguments, found {len(args)}")
        frame: Frame = [None] * len(self.slots)
        for param, slot, arg in zip(func.params, self.params, args, strict=True):
            if isinstance(arg, Pointer) != isinstance(param, Buffer):
                raise ExecutionError(
                    f"@{func.name}: {param.name}: expected an address for a buffer and an integer for a variable"
                )
            frame[slot] = arg
        for buffer in func.buffers:
            slot = self.slots[buffer]
            shape = [extent(frame) for extent in self.shapes[buffer]]
            strides = [stride(frame) for stride in self.strides[buffer]]
            frame[slot] = view(func, buffer, frame[slot], shape, strides)
            self._check_writable(buffer, frame[slot])
        self.body(frame)


def _check_array(func: PrimFunc, buffer: Buffer, array: Any) -> Any:
    if not isinstance(array, np.ndarray):
        raise InputError(f"{func.name}: {buffer.name}: expected a NumPy array, found {type(array).__name__}")
    if array.dtype != buffer.dtype.numpy:
        raise InputError(f"{func.name}: {buffer.name}: expected {buffer.dtype!s}, found {array.dtype}")
    if array.ndim != buffer.ndim and not (buffer.ndim == 1 and array.flags.c_contiguous):
        raise InputError(f"{func.name}: {buffer.name}: expected {buffer.ndim} dimensions, found shape {array.shape}")
    return array


def _bind_dimensions(func: PrimFunc, buffer: Buffer, array: Any, bound: dict[Var, tuple[int, str]]) -> None:
    """Find the symbolic dimensions that the shape of ``array`` gives."""
    sizes = array.shape if array.ndim == buffer.ndim else (array.size,)
    for axis, (extent, size) in enumerate(zip(buffer.shape, sizes, strict=True)):
        if isinstance(extent, IntImm):
            continue  # compared with the whole shape later
        form = Analyzer().linear(extent)
        if len(form.terms) != 1:
            continue
        ((var, coefficient),) = form.terms.items()
        if not isinstance(var, Var) or (size - form.const) % coefficient:
            continue
        value, place = (size - form.const) // coefficient, f"dimension {axis} of {buffer.name}"
        known, first = bound.setdefault(var, (value, place))
        if known != value:
            raise InputError(f"{func.name}: dimension {var.name} is {known} by {first}, but {value} by {place}")
