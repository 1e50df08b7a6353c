"""Compile expressions of the loop-level IR to closures: operations, calls, and loads of elements with their bounds
checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from tilewright.tensorir import interpreter_values as values
from tilewright.tensorir.errors import ExecutionError, OutOfBoundsError, UndefinedOperationError
from tilewright.tensorir.expr import (
    BinaryOp,
    Broadcast,
    Buffer,
    BufferLoad,
    Call,
    Cast,
    Choose,
    Compare,
    Expr,
    FloatImm,
    IntImm,
    Ramp,
    Select,
    UnaryOp,
    Var,
)
from tilewright.tensorir.folding import INTEGER_DIVISIONS
from tilewright.tensorir.interpreter_forms import Operand, element, scalar_operation
from tilewright.tensorir.interpreter_memory import Pointer, bytes_of, owner
from tilewright.tensorir.intrinsics import find_intrinsic
from tilewright.tensorir.node import Node
from tilewright.tensorir.printer import underline
from tilewright.tensorir.stmt import BufferStore

if TYPE_CHECKING:
    from tilewright.tensorir.interpreter import Program

#: The values of a function's variables and the arrays of its buffers, each in its slot.
Frame = list[Any]
#: Computes a value in a frame, or runs a statement there.
Code = Callable[[Frame], Any]

#: Operations that are undefined for some operands: division by zero, and shifts by a negative or too large number.
_UNDEFINED_FOR_SOME = (*INTEGER_DIVISIONS, "shl", "shr")


def nothing(frame: Frame) -> None:
    """Do nothing: the code of an empty statement."""


class ExpressionCompiler:
    """Turns the expressions of one function into closures."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.machine = program.machine

    def fail(self, kind: type[ExecutionError], node: Node, message: str) -> ExecutionError:
        """Return an error of ``kind`` that shows ``node`` in the program."""
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
        """Return the operand of ``expr``: a constant, the slot of a variable, or the code that computes it."""
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
        if expr.op not in _UNDEFINED_FOR_SOME:
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

    def choose(self, expr: Choose) -> Code:
        index, values, last = self.expr(expr.index), [self.expr(value) for value in expr.values], len(expr.values) - 1

        def chosen(frame: Frame) -> Any:
            found, number = [value(frame) for value in values], index(frame)
            return found[number if 0 <= number <= last else last]

        return chosen

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
            return nothing
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
            memory = bytes_of(owner(array))
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


_EXPRESSIONS: dict[type[Node], Callable[[ExpressionCompiler, Any], Code]] = {
    Var: ExpressionCompiler.var,
    IntImm: ExpressionCompiler.int_imm,
    FloatImm: ExpressionCompiler.float_imm,
    BinaryOp: ExpressionCompiler.binary,
    UnaryOp: ExpressionCompiler.unary,
    Compare: ExpressionCompiler.compare,
    Select: ExpressionCompiler.select,
    Choose: ExpressionCompiler.choose,
    Cast: ExpressionCompiler.cast,
    BufferLoad: ExpressionCompiler.load,
    Call: ExpressionCompiler.call,
    Ramp: ExpressionCompiler.ramp,
    Broadcast: ExpressionCompiler.broadcast,
}
