"""``PlanMemory``: lower the graph's ``main`` to a loop-level function that calls the kernels on planned memory.

Before::

    def @main(%x) { %0 = @add_relu(%x); %1 = @softmax(%0); %1 }

After::

    primfunc @main(x, output, arena, n) {
      @add_relu(address_of(x[0]), address_of(arena[0]), n)
      @softmax(address_of(arena[0]), address_of(output[0]), n)
    }

The parameters of the new ``main`` are the inputs, the constants (in the order of ``linearize.model_constants``), the
outputs, the arena (bytes) and the symbolic dimensions (those of the attribute ``Symbols`` first, then those of the
inputs). Kernels write results directly to the outputs; intermediate values and the kernels' workspaces share the arena
by liveness. A kernel's result takes the memory of an argument that dies there, if it may overwrite it
(:mod:`.overwrites`); a value that is part of a larger one lies in the memory of that one (:mod:`.parts`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from tilewright.graphir.dims import Dim, analyzer_for, product, symbol, symbols_of
from tilewright.graphir.expr import Function, GlobalVar
from tilewright.graphir.keys import SYMBOLS
from tilewright.graphir.module import IRModule
from tilewright.graphir.parts import excess
from tilewright.passes.base import ModulePass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import module_pass
from tilewright.passes.lower.ended_loops import loop_while
from tilewright.passes.lower.instructions import Branch, Copy, CountedLoop, Instruction, KernelCall, Program, Value
from tilewright.passes.lower.linearize import is_empty, linearize
from tilewright.passes.lower.storage import ALIGNMENT, ArenaAllocator
from tilewright.passes.properties import LOOPS, MAIN, WORKSPACES
from tilewright.passes.registry import register_pass
from tilewright.tensorir.dtype import VOID, DataType
from tilewright.tensorir.errors import CodegenError
from tilewright.tensorir.expr import Buffer, BufferLoad, Call, Expr, Ramp, Var, address_of, as_expr, cast, const
from tilewright.tensorir.functor import free_vars, walk_statements
from tilewright.tensorir.keys import (
    ARENA_BYTES,
    CALLS,
    FORMULAS,
    NUM_CONSTANTS,
    NUM_INPUTS,
    NUM_OUTPUTS,
    NUM_WORKSPACES,
    PARAMETERS,
    VALUES,
)
from tilewright.tensorir.stmt import BufferStore, Evaluate, For, IfThenElse, LetStmt, PrimFunc, Stmt, sequence

#: The kernel that copies bytes; ``main`` calls it where a value is needed in a second place.
COPY_KERNEL = "tilewright_copy"
_COPY_LANES = 64


@register_pass
@module_pass(opt_level=0, name="PlanMemory", requires={LOOPS, WORKSPACES}, provides={MAIN})
class PlanMemory(ModulePass):
    """Assign memory to every value of ``main`` and lower ``main`` to a PrimFunc."""

    essential = True

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Return ``mod`` with a PrimFunc ``main``, without the graph functions that it replaces."""
        function = mod["main"]
        if not isinstance(function, Function):
            return mod
        program = linearize(function, mod)
        symbols = [symbol(name) for name in function.attrs.get(SYMBOLS, ())]
        main = _Emitter(program, plan(program)).function([param.name for param in function.params], symbols)
        calls = [instruction for instruction in _walk(program.body) if isinstance(instruction, KernelCall)]
        over = sum(call.results[0].place in [arg.place for arg in call.args if arg.place] for call in calls)
        size = f"an arena of {main.attrs[ARENA_BYTES]!s} bytes"
        ctx.remark(f"{len(calls)} kernel calls use {size}; {over} overwrite an argument", function="main")
        kernels = {key: kernel for key, kernel in mod.functions.items() if isinstance(kernel, PrimFunc)}
        functions = {key: kernel for key, kernel in kernels.items() if not is_empty(kernel)}
        if any(isinstance(instruction, (Copy, CountedLoop)) for instruction in _walk(program.body)):
            functions[GlobalVar(COPY_KERNEL)] = copy_kernel()
        functions[mod.get_global_var("main")] = main
        return IRModule(functions)


_ZERO = as_expr(0)


def _walk(body: Sequence[Instruction]) -> Iterator[Instruction]:
    for instruction in body:
        yield instruction
        for inner in _bodies(instruction):
            yield from _walk(inner)


def _bodies(instruction: Instruction) -> tuple[list[Instruction], ...]:
    if isinstance(instruction, Branch):
        return (instruction.then_body, instruction.else_body)
    if isinstance(instruction, CountedLoop):
        return (instruction.check, instruction.body)
    return ()


def _used(instruction: Instruction) -> list[Value]:
    """Return the values whose memory an instruction itself (not its bodies) accesses."""
    return [value.owner for value in _accessed(instruction)]


def _accessed(instruction: Instruction) -> list[Value]:
    if isinstance(instruction, KernelCall):
        return [*instruction.args, *instruction.results, *instruction.workspaces]
    if isinstance(instruction, Copy):
        return [instruction.source, instruction.target, *([instruction.row] if instruction.row else [])]
    if isinstance(instruction, Branch):
        return [instruction.condition]
    return [instruction.trip_count, instruction.counter, *([instruction.alive] if instruction.alive else [])]


@dataclasses.dataclass(eq=False)
class Life:
    """The live range of a value: the instructions during which it has its place in the arena.

    Attributes:
        size: the bytes of memory, with the padding of rows.
        first: the instruction at whose beginning the place is allocated.
        last: the instruction after which it is free.
        handed_over: the result of ``last`` takes the place over.
        workspace: the value is a workspace of one kernel.
    """

    value: Value
    size: Dim
    first: Instruction
    last: Instruction
    handed_over: bool = False
    workspace: bool = False


@dataclasses.dataclass
class Plan:
    """The memory plan of a program: the arena, and the live ranges of the values in it, in order of their start."""

    arena: ArenaAllocator
    lives: list[Life]


def plan(program: Program) -> Plan:
    """Allocate every temporary value of ``program`` in an arena by liveness, in time linear in the program's length."""
    last: dict[Value, Instruction] = {}
    for instruction in program.body:
        _record_uses(instruction, last)
    planner = _Planner(last)
    planner.place(program.body)
    return Plan(planner.arena, list(planner.lives.values()))


def _record_uses(instruction: Instruction, last: dict[Value, Instruction]) -> list[Value]:
    """Record ``instruction`` as the last user so far of the values that it and its bodies use; return these values."""
    used = list(_used(instruction))
    if isinstance(instruction, (Branch, CountedLoop)):
        inner = [value for body in _bodies(instruction) for child in body for value in _record_uses(child, last)]
        defined = {value for body in _bodies(instruction) for value in _defined(body)}
        # A value from outside is live until the end of the whole branch or loop: the other branch or the next
        # iteration may use it.
        used += [value for value in inner if value not in defined]
    for value in used:
        last[value] = instruction
    return used


def _defined(body: Sequence[Instruction]) -> list[Value]:
    """Return the values whose live range begins in ``body``: the results and workspaces of its kernel calls. (A
    branch's result and a loop's state are written by copies, and live outside.)"""
    calls = [instruction for instruction in body if isinstance(instruction, KernelCall)]
    return [value.owner for call in calls for value in (*call.results, *call.workspaces)]


class _Planner:
    """Allocate the values of a program in order; ``last`` holds the last user of each value."""

    def __init__(self, last: dict[Value, Instruction]) -> None:
        self.last = last
        self.arena = ArenaAllocator()
        self.lives: dict[Value, Life] = {}

    def place(self, body: Sequence[Instruction]) -> None:
        """Allocate the values of ``body``."""
        last = self.last
        for instruction in body:
            used = [value for value in _used(instruction) if value.role == "temporary"]
            inner = [value for part in _bodies(instruction) for child in _walk(part) for value in _used(child)]
            carried = [value for value in inner if value.role == "temporary" and last[value] is instruction]
            taken = _overwritten(instruction, last) if isinstance(instruction, KernelCall) else None
            if taken is not None:
                assert isinstance(instruction, KernelCall)
                instruction.results[0].place = taken.place
                self.lives[taken].handed_over = True
            for value in (*used, *carried):
                if value not in self.lives:
                    size = _bytes(value)
                    if value.place is None:
                        value.place = self.arena.allocate(size)
                    self.lives[value] = Life(value, size, instruction, last[value])
            if isinstance(instruction, KernelCall):
                for value in instruction.workspaces:
                    self.lives[value].workspace = True
            for part in _bodies(instruction):
                self.place(part)
            for value in dict.fromkeys((*used, *carried)):
                if last[value] is instruction and value.place is not None and value is not taken:
                    self.arena.free(value.place)


def _overwritten(call: KernelCall, last: dict[Value, Instruction]) -> Value | None:
    """Return the argument whose memory the result of ``call`` takes: one that dies there; None if there is none."""
    if not call.overwrites or call.results[0].role != "temporary" or call.results[0].whole is not None:
        return None
    if call.results[0].place is not None:
        return None
    for number in call.overwrites:
        value = call.args[number]
        own = value.role == "temporary" and value.whole is None and value.place is not None
        if own and last[value] is call and sum(arg.owner is value for arg in call.args) == 1:
            return value
    return None


def _bytes(value: Value) -> Dim:
    """Return the bytes of memory of a value, with its row padding."""
    *outer, last = value.type.shape or (1,)
    return product([*outer, last + value.row_padding, value.type.dtype.bytes])


class _Emitter:
    """Emit the statements of ``main`` for a planned program."""

    def __init__(self, program: Program, planned: Plan) -> None:
        self.program = program
        self.lives = planned.lives
        self.inputs = [_parameter(value, f"input_{value.index}") for value in program.inputs]
        self.constants = [
            Buffer(f"constant_{index}", tuple(map(as_expr, constant.tensor_type.shape)), constant.tensor_type.dtype)
            for index, constant in enumerate(program.constants)
        ]
        self.outputs = [_parameter(value, f"output_{value.index}") for value in program.outputs]
        total: Expr = as_expr(planned.arena.static_bytes)
        begin = total
        self.slots: list[tuple[Var, Expr]] = []
        for slot in planned.arena.slots:
            var = Var(f"slot_{slot.number}")
            self.slots.append((var, begin))
            padded = (as_expr(slot.size) + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT
            total, begin = total + padded, var + padded  # each slot begins where the one before ends
        # Not the simplify() of dims: it limits the length of formulas, and the sum of all slots may be longer.
        self.arena_bytes = analyzer_for(total).simplify(total)
        self.arena = Buffer("arena", (self.arena_bytes,), DataType("uint8"), alignment=ALIGNMENT)
        #: The calls of kernels made so far, with the kernel's name and the labels of its operators.
        self.calls: dict[Evaluate, tuple[str, tuple[str | None, ...]]] = {}
        #: The names of those kernels before they were merged with others, for those that were.
        self.formulas: dict[Evaluate, str] = {}
        #: The half-open range of the calls of each instruction, numbered in the order of emission.
        self.made: dict[Instruction, tuple[int, int]] = {}

    def function(self, names: Sequence[str], symbols: Sequence[Var]) -> PrimFunc:
        body = self._sequence(self.program.body)
        for var, offset in reversed(self.slots):
            body = LetStmt(var, offset, body)
        calls = [stmt for stmt in walk_statements(body) if isinstance(stmt, Evaluate)]
        dims = symbols_of([*symbols, *(dim for value in self.program.inputs for dim in value.type.shape)])
        for call in self.calls:
            _check_sizes(call, dims)
        params = (*self.inputs, *self.constants, *self.outputs, self.arena, *dims)
        attrs = {
            NUM_INPUTS: len(self.inputs),
            NUM_CONSTANTS: len(self.constants),
            NUM_OUTPUTS: len(self.outputs),
            NUM_WORKSPACES: 1,
            ARENA_BYTES: self.arena_bytes,
            PARAMETERS: tuple(names),
            CALLS: tuple(self.calls[stmt] for stmt in calls),
            **({FORMULAS: tuple(map(self.formulas.get, calls))} if self.formulas else {}),
            VALUES: self._values(calls),
        }
        return PrimFunc("main", params, body, attrs)

    def _sequence(self, body: Sequence[Instruction]) -> Stmt:
        return sequence(*[self._statement(instruction) for instruction in body])

    def _values(self, calls: Sequence[Evaluate]) -> tuple[tuple[int, int, Dim, int, int, bool], ...]:
        """Return the values in the arena in the form of the attribute ``VALUES``."""
        number = {stmt: place for place, stmt in enumerate(calls)}
        placed = [number[stmt] for stmt in self.calls]  # a loop's check is emitted after its body, but precedes it
        found = []
        for life in self.lives:
            (begin, end), (last_begin, last_end) = self.made[life.first], self.made[life.last]
            if begin == len(placed):
                continue  # no call in its live range
            first = min(placed[begin:end], default=placed[begin])
            last = max(first, max(placed[last_begin:last_end], default=first) - life.handed_over)
            place = life.value.place
            assert place is not None
            where = (0, place.offset) if place.slot is None else (place.slot.number + 1, 0)
            found.append((*where, life.size, first, last, life.workspace))
        return tuple(found)

    def _statement(self, instruction: Instruction) -> Stmt:
        begin = len(self.calls)
        stmt = self._written(instruction)
        self.made[instruction] = (begin, len(self.calls))
        return stmt

    def _written(self, instruction: Instruction) -> Stmt:
        if isinstance(instruction, KernelCall):
            values = (*instruction.args, *instruction.results, *instruction.workspaces)
            args = [*map(self._address, values), *map(as_expr, instruction.variables)]
            made = self._call(instruction.kernel, args, [origin.label for origin in instruction.origins])
            if instruction.formula is not None:
                self.formulas[made] = instruction.formula
            return made
        if isinstance(instruction, Copy):
            source = instruction.source.viewed
            if source.row_padding or (
                source.whole is not None and any(excess(source.type.shape, source.owner.type.shape))
            ):
                raise CodegenError(f"a value of {source.type} cannot be copied: it is not contiguous in memory")
            size = as_expr(_bytes(source))
            target = instruction.target
            row = None if instruction.row is None else self._load(instruction.row)
            addresses = (self._address(source), self._address(target, row))
            copy = self._call(COPY_KERNEL, (*addresses, size))
            return copy if row is None else IfThenElse(row < as_expr(target.type.shape[0]), copy)
        if isinstance(instruction, Branch):
            condition = self._load(instruction.condition).not_equal(0)
            else_body = self._sequence(instruction.else_body) if instruction.else_body else None
            return IfThenElse(condition, self._sequence(instruction.then_body), else_body)
        return self._loop(instruction)

    def _call(self, kernel: str, args: Sequence[Expr], labels: Sequence[str | None] = ()) -> Evaluate:
        made = Evaluate(Call(f"@{kernel}", tuple(args), VOID))
        self.calls[made] = (kernel, tuple(labels))
        return made

    def _loop(self, loop: CountedLoop) -> Stmt:
        body, count = self._sequence(loop.body), self._load(loop.trip_count)
        if loop.alive is None:
            var = Var("iteration")
            return For(var, as_expr(0), count, "serial", sequence(self._store(loop.counter, var), body))
        alive = self._load(loop.alive).not_equal(0)
        asked = sequence(self._sequence(loop.check), IfThenElse(alive, body))
        run = loop_while(alive, count, lambda number: sequence(self._store(loop.counter, number), asked))
        return sequence(self._store(loop.alive, const(1, "int64")), run)

    def _buffer(self, value: Value) -> Buffer:
        buffers = {"input": self.inputs, "constant": self.constants, "output": self.outputs}
        return buffers[value.role][value.index]

    def _offset(self, value: Value) -> Expr:
        assert value.place is not None
        if value.place.slot is not None:
            return self.slots[value.place.slot.number][0]
        return as_expr(value.place.offset)

    def _address(self, value: Value, row: Expr | None = None) -> Expr:
        """Return the address of a value, or of its row ``row``."""
        value = value.viewed
        begin: list[Expr] = [_ZERO] * value.type.ndim
        owner = value
        while owner.whole is not None:
            begin = [index + first for index, first in zip(begin, owner.begin, strict=True)]
            owner = owner.whole
        if row is not None:
            begin[0] = begin[0] + row
        if owner.role != "temporary":
            return address_of(self._buffer(owner), *begin)
        offset = self._offset(owner)
        for axis, index in enumerate(begin):
            if index is not _ZERO:
                stride = product(owner.type.shape[axis + 1 :]) * owner.type.dtype.bytes
                offset = offset + index * stride
        return address_of(self.arena, offset)

    def _load(self, value: Value) -> Expr:
        """Load a scalar integer or bool value as int64."""
        value = value.viewed
        if value.role != "temporary":
            return cast("int64", BufferLoad(self._buffer(value), tuple([as_expr(0)] * value.type.ndim)))
        if value.type.dtype.is_bool:
            return cast("int64", self.arena[self._offset(value)])
        result: Expr = as_expr(0)  # the arena holds bytes: assemble the integer
        for position in range(value.type.dtype.bytes):
            byte = cast("int64", self.arena[self._offset(value) + position])
            result = result | (byte << (8 * position))
        return result

    def _store(self, value: Value, number: Expr) -> Stmt:
        """Store an int64 as a scalar integer or bool value, byte by byte."""
        return sequence(
            *[
                BufferStore(
                    self.arena, cast("uint8", (number >> (8 * position)) & 255), (self._offset(value) + position,)
                )
                for position in range(value.type.dtype.bytes)
            ]
        )


def _check_sizes(call: Evaluate, known: Sequence[Var]) -> None:
    """Refuse a call that passes sizes that no caller of the model gives.

    Raises:
        CodegenError: there is one.
    """
    assert isinstance(call.value, Call)
    for arg in call.value.args:
        if arg.dtype.is_integer:
            for var in free_vars(arg):
                if var not in known:
                    raise CodegenError(
                        f"a call of {call.value.name} needs the size {var.name}, which is no dimension of the model's "
                        f"inputs (these are: {', '.join(dim.name for dim in known) or 'none'}); the results depend "
                        "on no operator that computes it (bind_size makes them)"
                    )


def _parameter(value: Value, name: str) -> Buffer:
    return Buffer(name, tuple(map(as_expr, value.type.shape)), value.type.dtype)


def copy_kernel() -> PrimFunc:
    """Return the kernel that copies ``n`` bytes, in vectors and then one by one."""
    n, i, j = Var("n"), Var("i"), Var("j")
    source, target = Buffer("source", (n,), DataType("uint8")), Buffer("target", (n,), DataType("uint8"))
    lanes = Ramp(i * _COPY_LANES, as_expr(1), _COPY_LANES)
    vectors = For(i, as_expr(0), n // _COPY_LANES, "serial", BufferStore(target, source[lanes], (lanes,)))
    rest = n // _COPY_LANES * _COPY_LANES
    tail = For(j, rest, n - rest, "serial", BufferStore(target, source[j], (j,)))
    return PrimFunc(COPY_KERNEL, (source, target, n), sequence(vectors, tail), {NUM_INPUTS: 1, NUM_OUTPUTS: 1})
