"""Runs any function of the loop-level IR, at any stage of lowering, with NumPy: slow, and the oracle for all passes.

Each expression and statement is compiled once to a Python closure over a frame, a list with one slot for each variable
and buffer. What compiled code would leave undefined is an error here: an access out of bounds, an integer division by
zero, an iteration variable outside its range. Both sides of ``select``, ``and`` and ``or`` are evaluated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from tilewright.tensorir import interpreter_values as values
from tilewright.tensorir.arith import Analyzer
from tilewright.tensorir.errors import ExecutionError, InputError, OutOfBoundsError, UndefinedOperationError
from tilewright.tensorir.expr import (
    BinaryOp,
    Broadcast,
    Buffer,
    BufferLoad,
    Call,
    Cast,
    Compare,
    Expr,
    FloatImm,
    IntImm,
    Ramp,
    Select,
    UnaryOp,
    Var,
)
from tilewright.tensorir.functor import walk
from tilewright.tensorir.interpreter_forms import Operand, all_first, all_inside, all_of, element, scalar_operation
from tilewright.tensorir.intrinsics import find_intrinsic
from tilewright.tensorir.node import Node
from tilewright.tensorir.printer import underline
from tilewright.tensorir.stmt import (
    Allocate,
    Block,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
)

Frame = list[Any]
Code = Callable[[Frame], Any]


@dataclasses.dataclass(frozen=True)
class Pointer:
    """The address of an element: ``offset`` bytes into ``memory``, a flat array of bytes."""

    memory: Any
    offset: int


def interpret(func: PrimFunc, *args: Any, functions: Mapping[str, PrimFunc] | None = None) -> None:
    """Run ``func`` on NumPy arrays, which results are written into.

    Args:
        args: one array for each buffer, in the order of the parameters, then one int for each variable. The variables
            may be left out where the shapes of the arrays give them. A one-dimensional buffer (a flattened one) also
            takes a contiguous array of as many elements.
        functions: the functions that ``func`` calls by name (without the ``@``).

    Raises:
        InputError: the arguments do not fit the parameters.
        OutOfBoundsError: an access outside a buffer.
        UndefinedOperationError: an integer division by zero, or a shift by too many bits.
    """
    machine = _Machine(functions or {})
    with np.errstate(all="ignore"):
        machine.program(func).call_with_arrays(args)


class _Machine:
    """The compiled functions of one run."""

    def __init__(self, functions: Mapping[str, PrimFunc]) -> None:
        self.functions = {name.removeprefix("@"): func for name, func in functions.items()}
        self._programs: dict[PrimFunc, _Program] = {}

    def program(self, func: PrimFunc) -> _Program:
        """``func``, compiled."""
        found = self._programs.get(func)
        if found is None:
            found = self._programs[func] = _Program(func, self)
            found.compile()
        return found


class _Program:
    """One compiled function."""

    def __init__(self, func: PrimFunc, machine: _Machine) -> None:
        self.func = func
        self.machine = machine
        self.slots: dict[Node, int] = {}
        self.shapes: dict[Buffer, list[Code]] = {}
        self.strides: dict[Buffer, list[Code]] = {}
        self.written: set[Buffer] = set()
        self.params = [self.slot(param) for param in func.params]
        self.body: Code = _nothing

    def compile(self) -> None:
        """Make the closures. Apart from the constructor, because a function may call itself."""
        compiler = _Compiler(self)
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
            raise InputError(f"{func.name}: no shape gives a size for {', '.join(missing)}; pass it as an integer")
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
                raise ExecutionError(f"@{func.name}: {param.name}: an address and an integer are exchanged")
            frame[slot] = arg
        for buffer in func.buffers:
            slot = self.slots[buffer]
            shape = [extent(frame) for extent in self.shapes[buffer]]
            strides = [stride(frame) for stride in self.strides[buffer]]
            frame[slot] = _view(func, buffer, frame[slot], shape, strides)
            self._check_writable(buffer, frame[slot])
        self.body(frame)


def _nothing(frame: Frame) -> None:
    """The code of no statement."""


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


def _bytes_of(array: Any) -> Any:
    """The memory of a contiguous array, as bytes."""
    if not array.flags.c_contiguous:
        raise InputError("the address of an array that is not contiguous cannot be passed on")
    return array.reshape(-1).view(np.uint8)


def _view(func: PrimFunc, buffer: Buffer, pointer: Pointer, shape: list[int], strides: list[int]) -> Any:
    """The memory at ``pointer`` as an array of the buffer's type and shape."""
    size = dense_size(shape, strides)
    stop = pointer.offset + size * buffer.dtype.bytes
    if pointer.offset < 0 or stop > len(pointer.memory):
        raise OutOfBoundsError(
            f"@{func.name}: {buffer.name} of shape {tuple(shape)} needs bytes {pointer.offset} to {stop} "
            f"of a buffer of {len(pointer.memory)}"
        )
    flat = pointer.memory[pointer.offset : stop].view(buffer.dtype.numpy)
    return _shaped(flat, shape, strides)


def dense_size(shape: Sequence[int], strides: Sequence[int]) -> int:
    """How many elements a buffer spans."""
    if min(shape, default=1) <= 0:
        return 0
    if strides:
        return sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)) + 1
    return int(np.prod(shape, dtype=np.int64)) if shape else 1


def _shaped(flat: Any, shape: list[int], strides: list[int]) -> Any:
    shape = [max(extent, 0) for extent in shape]
    if not strides or not flat.size:
        return flat.reshape(shape)
    steps = [stride * flat.itemsize for stride in strides]
    return np.ndarray(shape, flat.dtype, flat, strides=steps)


class _Compiler:
    """Turns the nodes of one function into closures."""

    def __init__(self, program: _Program) -> None:
        self.program = program
        self.machine = program.machine

    def fail(self, kind: type[ExecutionError], node: Node, message: str) -> ExecutionError:
        """The error that shows where in the program it happened."""
        func = self.program.func
        return kind(f"{func.name}: {message}\n{underline(func, node)}")

    # -- expressions ------------------------------------------------------------------------------------------------

    def expr(self, expr: Expr) -> Code:
        """The code that computes ``expr``."""
        return _EXPRESSIONS[type(expr)](self, expr)

    def var(self, var: Var) -> Code:
        slot = self.program.slots.get(var)
        if slot is None:
            raise ExecutionError(f"{self.program.func.name}: variable {var.name} is not defined")
        return lambda frame: frame[slot]

    def int_imm(self, expr: IntImm) -> Code:
        value = bool(expr.value) if expr.dtype.is_bool else expr.value
        return lambda frame: value

    def float_imm(self, expr: FloatImm) -> Code:
        value = values.constant_value(expr.value, expr.dtype)
        return lambda frame: value

    def operand(self, expr: Expr) -> Operand:
        """The code that computes ``expr``, or where it is found without."""
        code = self.expr(expr)
        if isinstance(expr, (IntImm, FloatImm)):
            return "constant", code([])
        if isinstance(expr, Var):
            return "variable", self.program.slots[expr]
        return "code", code

    def binary(self, expr: BinaryOp) -> Code:
        found: Code | None = scalar_operation(expr, self.operand)
        if found is not None:
            return found
        a, b = self.expr(expr.a), self.expr(expr.b)
        compute = values.binary_operation(expr.op, expr.dtype)
        if expr.op not in ("floordiv", "floormod", "truncdiv", "truncmod", "shl", "shr"):
            return lambda frame: compute(a(frame), b(frame))

        def checked(frame: Frame) -> Any:
            x, y = a(frame), b(frame)
            try:
                return compute(x, y)
            except (ZeroDivisionError, ValueError) as error:
                raise self.fail(UndefinedOperationError, expr, f"{expr.op} of {x} and {y}: {error}") from error

        return checked

    def unary(self, expr: UnaryOp) -> Code:
        a, compute = self.expr(expr.a), values.unary_operation(expr.op, expr.dtype)
        return lambda frame: compute(a(frame))

    def compare(self, expr: Compare) -> Code:
        found: Code | None = scalar_operation(expr, self.operand)
        if found is not None:
            return found
        a, b, compute = self.expr(expr.a), self.expr(expr.b), values.COMPARISONS[expr.op]
        return lambda frame: compute(a(frame), b(frame))

    def select(self, expr: Select) -> Code:
        condition, a, b = self.expr(expr.condition), self.expr(expr.true_value), self.expr(expr.false_value)
        if expr.condition.dtype.lanes != 1:
            return lambda frame: np.where(condition(frame), a(frame), b(frame))

        def choose(frame: Frame) -> Any:
            x, y = a(frame), b(frame)
            return x if condition(frame) else y

        return choose

    def cast(self, expr: Cast) -> Code:
        value, convert = self.expr(expr.value), values.cast_operation(expr.value.dtype, expr.dtype)
        return lambda frame: convert(value(frame))

    def ramp(self, expr: Ramp) -> Code:
        base, stride = self.expr(expr.base), self.expr(expr.stride)
        kind = expr.dtype.numpy.type
        steps = np.arange(expr.lanes).astype(expr.dtype.numpy)
        return lambda frame: kind(base(frame)) + kind(stride(frame)) * steps

    def broadcast(self, expr: Broadcast) -> Code:
        value, kind, lanes = self.expr(expr.value), expr.dtype.numpy, expr.lanes
        return lambda frame: np.full(lanes, value(frame), kind)

    def call(self, expr: Call) -> Code:
        if expr.name.startswith("@"):
            return self.function_call(expr)
        if expr.name == "address_of":
            return self.address(expr)
        intrinsic = find_intrinsic(expr.name)
        if intrinsic.result == "void":
            return _nothing
        codes = [self.expr(arg) for arg in expr.args]
        compute = intrinsic.operation([arg.dtype for arg in expr.args], expr.dtype)
        if len(codes) == 1:
            (only,) = codes
            return lambda frame: compute(only(frame))
        return lambda frame: compute(*[code(frame) for code in codes])

    def function_call(self, expr: Call) -> Code:
        callee = self.machine.functions.get(expr.name[1:])
        if callee is None:
            known = ", ".join(self.machine.functions) or "none was given"
            raise ExecutionError(f"{self.program.func.name}: calls {expr.name}; known functions: {known}")
        program = self.machine.program(callee)
        codes = [self.expr(arg) for arg in expr.args]
        return lambda frame: program.call_with_pointers([code(frame) for code in codes])

    def address(self, expr: Call) -> Code:
        load = expr.args[0]
        if not isinstance(load, BufferLoad):
            raise ExecutionError(f"address_of: expected an element of a buffer, found {load!s}")
        buffer = self.buffer(load.buffer)
        indices = [self.expr(index) for index in load.indices]

        def compute(frame: Frame) -> Pointer:
            array = buffer(frame)
            position = [index(frame) for index in indices]
            memory = _bytes_of(_owner(array))
            start = array.__array_interface__["data"][0] - memory.__array_interface__["data"][0]
            steps = zip(position, array.strides, array.shape, strict=True)
            offset = start
            for value, stride, extent in steps:
                if not 0 <= value <= extent:  # the end of a buffer has an address as well
                    raise self.fail(OutOfBoundsError, load, f"address of index {position} in shape {array.shape}")
                offset += value * stride
            return Pointer(memory, offset)

        return compute

    # -- memory -------------------------------------------------------------------------------------------------------

    def buffer(self, buffer: Buffer) -> Code:
        """The code that gives the array of ``buffer``."""
        slot = self.program.slots.get(buffer)
        if slot is None:
            raise ExecutionError(f"{self.program.func.name}: buffer {buffer.name} is not defined")
        return lambda frame: frame[slot]

    def position(self, node: BufferLoad | BufferStore) -> Callable[[Frame, Any, Any], tuple[Any, ...]]:
        """The code that computes the indices of an access, checked against the shape of the array. Its last argument
        masks the lanes that take part (None: all)."""
        indices = [self.expr(index) for index in node.indices]
        vector = [index.dtype.lanes != 1 for index in node.indices]

        def scalar(frame: Frame, array: Any, mask: Any) -> tuple[Any, ...]:
            position = tuple([index(frame) for index in indices])
            for value, extent in zip(position, array.shape, strict=True):
                if not 0 <= value < extent:
                    raise self.out_of_bounds(node, position, array.shape)
            return position

        def lanes(frame: Frame, array: Any, mask: Any) -> tuple[Any, ...]:
            position = tuple([index(frame) for index in indices])
            if mask is not None:
                position = tuple([p[mask] if v else p for p, v in zip(position, vector, strict=True)])
            for value, is_vector, extent in zip(position, vector, array.shape, strict=True):
                if is_vector:
                    outside = value.size and (value.min() < 0 or value.max() >= extent)
                else:
                    outside = not 0 <= value < extent
                if outside:
                    raise self.out_of_bounds(node, position, array.shape)
            return position

        return lanes if any(vector) else scalar

    def out_of_bounds(self, node: BufferLoad | BufferStore, position: tuple[Any, ...], shape: Any) -> ExecutionError:
        """The error of an access outside ``shape``."""
        text = ", ".join(str(p) for p in position)
        return self.fail(OutOfBoundsError, node, f"index [{text}] of {node.buffer.name} is outside of shape {shape}")

    def element(self, node: BufferLoad | BufferStore, result: str) -> Code:
        """The code that finds the element of a scalar access: its place, or its value."""

        def fail(place: tuple[Any, ...], shape: tuple[int, ...]) -> NoReturn:
            raise self.out_of_bounds(node, place, shape)

        indices = [self.operand(index) for index in node.indices]
        code: Code = element(self.program.slots[node.buffer], indices, result, fail)
        return code

    def load(self, expr: BufferLoad) -> Code:
        buffer = self.buffer(expr.buffer)
        if expr.predicate is not None:
            return self.predicated_load(expr, buffer, self.position(expr))
        if expr.dtype.lanes == 1:
            return self.element(expr, "array[place]" if values.is_held_as_array(expr.dtype) else "array.item(place)")
        position = self.position(expr)

        def fetch(frame: Frame) -> Any:
            array = buffer(frame)
            return array[position(frame, array, None)]

        return fetch

    def predicated_load(self, expr: BufferLoad, buffer: Code, position: Any) -> Code:
        assert expr.predicate is not None
        predicate, dtype = self.expr(expr.predicate), expr.dtype
        zero = values.from_array(np.zeros((), dtype.numpy), dtype)
        if dtype.lanes == 1:

            def fetch(frame: Frame) -> Any:
                if not predicate(frame):
                    return zero
                array = buffer(frame)
                return values.from_array(array[position(frame, array, None)], dtype)

            return fetch

        def fetch_lanes(frame: Frame) -> Any:
            array, mask = buffer(frame), np.broadcast_to(predicate(frame), dtype.lanes)
            result = np.zeros(dtype.lanes, dtype.numpy)
            if mask.any():
                result[mask] = array[position(frame, array, mask)]
            return result

        return fetch_lanes

    def store(self, stmt: BufferStore) -> Code:
        buffer, value = self.buffer(stmt.buffer), self.expr(stmt.value)
        if stmt.predicate is None and stmt.value.dtype.lanes == 1:
            place = self.element(stmt, "place")

            def put_item(frame: Frame) -> None:
                result = value(frame)
                buffer(frame)[place(frame)] = result

            return put_item
        position = self.position(stmt)
        if stmt.predicate is None:

            def put(frame: Frame) -> None:
                result = value(frame)
                array = buffer(frame)
                array[position(frame, array, None)] = result

            return put
        predicate, lanes = self.expr(stmt.predicate), stmt.value.dtype.lanes

        def put_predicated(frame: Frame) -> None:
            mask = predicate(frame)
            result = value(frame)
            array = buffer(frame)
            if lanes == 1:
                if mask:
                    array[position(frame, array, None)] = result
                return
            mask = np.broadcast_to(mask, lanes)
            if mask.any():
                array[position(frame, array, mask)] = result[mask]

        return put_predicated

    # -- statements -------------------------------------------------------------------------------------------------

    def stmt(self, stmt: Stmt) -> Code:
        """The code that runs ``stmt``. Chains of bindings become one sequence, so that long ones do not nest."""
        steps: list[Code] = []
        while isinstance(stmt, (LetStmt, Allocate)):
            steps.append(self.let(stmt) if isinstance(stmt, LetStmt) else self.allocate(stmt))
            stmt = stmt.body
        last = _STATEMENTS[type(stmt)](self, stmt)
        return _in_order([*steps, last]) if steps else last

    def let(self, stmt: LetStmt) -> Code:
        value = self.expr(stmt.value)
        slot = self.program.slot(stmt.var)

        def bind(frame: Frame) -> None:
            frame[slot] = value(frame)

        return bind

    def allocate(self, stmt: Allocate) -> Code:
        buffer = stmt.buffer
        shape, strides = [self.expr(e) for e in buffer.shape], [self.expr(s) for s in buffer.strides]
        slot = self.program.slot(buffer)

        def make(frame: Frame) -> None:
            extents, steps = [code(frame) for code in shape], [code(frame) for code in strides]
            flat = values.garbage(dense_size(extents, steps), buffer.dtype)
            frame[slot] = _shaped(flat, extents, steps)

        return make

    def sequence(self, stmt: SeqStmt) -> Code:
        return _in_order([self.stmt(part) for part in stmt.stmts])

    def loop(self, stmt: For) -> Code:
        low, extent = self.expr(stmt.min), self.expr(stmt.extent)
        slot = self.program.slot(stmt.var)
        body = self.stmt(stmt.body)

        def run(frame: Frame) -> None:
            start = low(frame)
            for index in range(start, start + extent(frame)):
                frame[slot] = index
                body(frame)

        return run

    def branch(self, stmt: IfThenElse) -> Code:
        condition, then_body = self.expr(stmt.condition), self.stmt(stmt.then_body)
        else_body = _nothing if stmt.else_body is None else self.stmt(stmt.else_body)

        def run(frame: Frame) -> None:
            if condition(frame):
                then_body(frame)
            else:
                else_body(frame)

        return run

    def evaluate(self, stmt: Evaluate) -> Code:
        return self.expr(stmt.value)

    def block(self, stmt: Block) -> Code:
        bound = all_of([self.operand(item.value) for item in stmt.iters])
        slots = [self.program.slot(item.var) for item in stmt.iters]
        ranges = [
            (item, slot, self.operand(item.min), self.operand(item.extent))
            for item, slot in zip(stmt.iters, slots, strict=True)
        ]
        inside = all_inside([(slot, low, extent) for _, slot, low, extent in ranges])
        at_start = all_first([(slot, low) for item, slot, low, _ in ranges if item.kind == "reduction"])
        predicate = self.expr(stmt.predicate) if stmt.predicate is not None else None
        init = None if stmt.init is None else self.stmt(stmt.init)
        body = self.stmt(stmt.body)

        def run(frame: Frame) -> None:
            for slot, index in zip(slots, bound(frame), strict=True):
                frame[slot] = index
            if predicate is not None and not predicate(frame):
                return
            if not inside(frame):
                raise self.outside_of_block(stmt, slots, frame)
            if init is not None and at_start(frame):
                init(frame)
            body(frame)

        return run

    def outside_of_block(self, stmt: Block, slots: list[int], frame: Frame) -> ExecutionError:
        """The error of an iteration variable outside its range."""
        for item, slot in zip(stmt.iters, slots, strict=True):
            start, extent = self.expr(item.min)(frame), self.expr(item.extent)(frame)
            if not start <= frame[slot] < start + extent:
                text = f"{item.var.name} = {frame[slot]} is outside of [{start}, {start + extent})"
                return self.fail(OutOfBoundsError, item, f"block {stmt.name}: {text}")
        raise AssertionError("all are inside")


def _owner(array: Any) -> Any:
    """``array`` itself if it is contiguous, else (padded rows) the contiguous array that it is a view of."""
    base = array
    while isinstance(base.base, np.ndarray) and not base.flags.c_contiguous:
        base = base.base
    return base


def _in_order(codes: list[Code]) -> Code:
    if len(codes) == 2:
        first, second = codes

        def run_both(frame: Frame) -> None:
            first(frame)
            second(frame)

        return run_both
    sequence = tuple(codes)

    def run(frame: Frame) -> None:
        for code in sequence:
            code(frame)

    return run


_EXPRESSIONS: dict[type[Node], Callable[[_Compiler, Any], Code]] = {
    Var: _Compiler.var,
    IntImm: _Compiler.int_imm,
    FloatImm: _Compiler.float_imm,
    BinaryOp: _Compiler.binary,
    UnaryOp: _Compiler.unary,
    Compare: _Compiler.compare,
    Select: _Compiler.select,
    Cast: _Compiler.cast,
    BufferLoad: _Compiler.load,
    Call: _Compiler.call,
    Ramp: _Compiler.ramp,
    Broadcast: _Compiler.broadcast,
}

_STATEMENTS: dict[type[Node], Callable[[_Compiler, Any], Code]] = {
    For: _Compiler.loop,
    BufferStore: _Compiler.store,
    SeqStmt: _Compiler.sequence,
    IfThenElse: _Compiler.branch,
    Evaluate: _Compiler.evaluate,
    Block: _Compiler.block,
}
