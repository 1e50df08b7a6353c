"""Emit the statements of one function, and the functions that its parallel loops become."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilewright.codegen.analysis import defined_variables, uses
from tilewright.codegen.llvm import arithmetic
from tilewright.codegen.llvm.addresses import Slot, row_major_strides, span_of
from tilewright.codegen.llvm.clock import PROFILE_FUNCTIONS
from tilewright.codegen.llvm.expressions import ExpressionEmitter
from tilewright.codegen.llvm.innermost import Counted, finish_around, finish_innermost
from tilewright.codegen.llvm.memory import STACK_ALIGNMENT, pointer_attributes
from tilewright.codegen.llvm.outlined import emit_outlined_loop
from tilewright.codegen.llvm.parallel import emit_parallel_loop
from tilewright.codegen.llvm.registers import plan_registers
from tilewright.codegen.llvm.text import Builder, constant, memory_type, value_type
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import Buffer, Call, Expr, IntImm, Var, binary
from tilewright.tensorir.keys import LLVM_VECTORIZE, OUTLINE
from tilewright.tensorir.node import Node
from tilewright.tensorir.profiling import PROFILE_INTRINSICS
from tilewright.tensorir.stmt import Allocate, BufferStore, Evaluate, For, IfThenElse, LetStmt, PrimFunc, SeqStmt, Stmt
from tilewright.tensorir.tensor_intrins import LLVM_SYMBOL, TensorIntrin, called_intrin

if TYPE_CHECKING:
    from tilewright.codegen.llvm.module import ModuleEmitter

#: The greatest size of an arena buffer on the stack if it was not planned into a workspace; larger ones belong into the
#: arena.
STACK_BUFFER_BYTES = 64 << 10
#: The greatest size of all stack buffers of one function: a thread's stack has 2 MiB or more, and calls nest.
STACK_FRAME_BYTES = 512 << 10
#: A loop that encloses at most so many others steps the addresses that these begin with: the loops over the channels,
#: rows and columns of a window, where the start of the inner loops counts.
_LOOPS_AROUND = 2


class FunctionEmitter(ExpressionEmitter):
    """Emits the body of one LLVM function.

    Attributes:
        module: the module that contains it.
        symbol: its name there.
        serial: whether parallel loops run serially: the caller is one of several threads, or there is one thread.
        team: the operand that holds the team whose threads run parallel loops.
        children: the number of its loops that have become functions so far.
        loops: the number of loops emitted so far, without unrolled ones.
        computes: whether it does more than to call functions: it has a loop of its own, a store or an instruction.
    """

    def __init__(self, module: ModuleEmitter, root: PrimFunc, symbol: str, serial: bool) -> None:
        super().__init__(root, Builder(module.text), module.target)
        self.module = module
        self.symbol = symbol
        self.serial = serial
        self.team = "null"
        self.children = 0
        self.loops = 0
        self.computes = False
        self._frame_bytes = 0
        self._depth = 0

    def statement(self, stmt: Stmt) -> None:
        """Emit ``stmt``."""
        emitter = _STATEMENTS.get(type(stmt))
        if emitter is None:
            self.error(
                stmt, f"cannot generate code for statements of class {type(stmt).__name__}; LowerBlocks removes blocks"
            )
        self._emitted.clear()  # memory may have changed since the previous statement
        builder = self.builder
        if builder.makers is None:
            emitter(self, stmt)
            return
        place = len(builder.lines)
        emitter(self, stmt)
        builder.record(place, stmt)

    def bind_buffer(self, buffer: Buffer, pointer: str, local: bool = False) -> None:
        """Bind ``buffer`` to the memory at ``pointer``."""
        self.slots[buffer] = Slot.of(buffer, pointer, local)

    def _sequence(self, stmt: SeqStmt) -> None:
        for part in stmt.stmts:
            self.statement(part)

    def _store(self, stmt: BufferStore) -> None:
        self.computes = True
        self.memory.store(stmt)

    def _let(self, stmt: LetStmt) -> None:
        self.bounds.bind_value(stmt.var, stmt.value)
        self._bind(stmt.var, self.folded(stmt.value), stmt.body)

    def _evaluate(self, stmt: Evaluate) -> None:
        call = stmt.value
        if isinstance(call, Call) and call.name.startswith("@"):
            self._call_function(call)
        elif isinstance(call, Call) and call.name in PROFILE_INTRINSICS:
            clock = self.builder.module.declare(PROFILE_FUNCTIONS[call.name], "void", ["ptr", "ptr", "i64"])
            record, stride = self.expr(call.args[0]), self.int64(call.args[1])
            self.builder.emit(f"call void {clock}(ptr {self.team}, ptr {record}, i64 {stride})")
        elif (intrin := called_intrin(call)) is not None:
            self._instruction(call, intrin, None)
        else:
            self.computes = True
            self.expr(call)
            if not isinstance(call, Call) or call.name != "prefetch":
                self.memory.forget()

    def _call_function(self, call: Call) -> None:
        args = []
        for arg in call.args:
            if arg.dtype == "handle":
                args.append(f"ptr {self.expr(arg)}")
            elif arg.dtype.is_integer and arg.dtype.lanes == 1:
                args.append(f"i64 {self.int64(arg)}")
            else:
                self.error(call, f"argument {arg!s}: expected an address or an integer, found {arg.dtype!s}")
        kinds = [arg.split()[0] for arg in args]
        callee = self.module.callee(call, kinds, self)
        if self.module.has_teams:
            args.append(f"ptr {self.team}")
        self.builder.emit(f"call void {callee}({', '.join(args)})")
        self.memory.forget()

    def _instruction(self, call: Expr, intrin: TensorIntrin, loops: Stmt | None) -> None:
        """Emit a call of a user's instruction, or the loops that describe it if there is no implementation."""
        assert isinstance(call, Call)
        self.computes = True
        if intrin.llvm is None and intrin.cfunc is None:
            if loops is not None:
                self.statement(loops)
            return
        symbol = intrin.c_symbol if intrin.llvm is None else LLVM_SYMBOL + intrin.name
        callee = self.builder.module.declare(symbol, "void", list(intrin.kinds))
        args = [
            f"ptr {self.expr(arg)}" if kind == "ptr" else f"i64 {self.int64(arg)}"
            for kind, arg in zip(intrin.kinds, call.args, strict=True)
        ]
        self.builder.emit(f"call void {callee}({', '.join(args)})")
        self.memory.forget()

    def _if(self, stmt: IfThenElse) -> None:
        b = self.builder
        intrin = called_intrin(stmt.condition)
        if intrin is not None:
            self._instruction(stmt.condition, intrin, stmt.else_body)
            return
        truth = self.folded(stmt.condition)
        if self.known.values and isinstance(truth, IntImm):
            chosen = stmt.then_body if truth.value else stmt.else_body
            if chosen is not None:
                self.statement(chosen)
            return
        condition = self.expr(truth)
        if stmt.condition.dtype.lanes != 1:
            self.error(stmt, "if: expected a scalar condition; branches in vectorized code must be lowered to masks")
        then, after = b.fresh("then"), b.fresh("endif")
        otherwise = b.fresh("else") if stmt.else_body is not None else after
        branches: list[tuple[str, dict[Buffer, dict[int, str]]]] = []
        if stmt.else_body is None:
            branches.append((b.block, {}))
        b.branch_if(condition, then, otherwise)
        for label, body in ((then, stmt.then_body), (otherwise, stmt.else_body)):
            if body is not None:
                b.label(label)
                self.registers.enter_branch()
                scope = b.enter_scope()
                self.statement(body)
                b.leave_scope(scope)
                branches.append((b.block, self.registers.leave_branch()))
                b.branch(after)
        b.label(after)
        self.registers.join(branches)

    def _allocate(self, stmt: Allocate) -> None:
        buffer = stmt.buffer
        if not all(isinstance(extent, IntImm) for extent in buffer.shape):
            self.error(stmt, f"buffer {buffer.name}: a {buffer.scope} buffer needs constant extents")
        if not all(isinstance(stride, IntImm) for stride in row_major_strides(buffer)):
            self.error(stmt, f"buffer {buffer.name}: a {buffer.scope} buffer needs constant strides")
        size = span_of(buffer)
        total = size * buffer.dtype.bytes
        if buffer.scope in ("global", "arena") and total > STACK_BUFFER_BYTES:
            self.error(
                stmt,
                f"buffer {buffer.name}: {total} bytes of scope {buffer.scope} do not fit on the stack (limit "
                f"{STACK_BUFFER_BYTES}); PlanMemory makes such a buffer a workspace parameter",
            )
        plan = plan_registers(self.root.body)
        if buffer in plan.widths:
            self.registers.allocate(buffer, plan)
            self.statement(stmt.body)
            self.registers.release(buffer)
            return
        # A masked access touches all of its lanes (and selects), so there is padding for them behind the last element.
        size += uses(self.root.body).masked.get(buffer, 1) - 1
        self._frame_bytes += size * buffer.dtype.bytes
        if self._frame_bytes > STACK_FRAME_BYTES:
            self.error(stmt, f"stack buffers of {self._frame_bytes} bytes in one function (limit {STACK_FRAME_BYTES})")
        kind = f"[{size} x {memory_type(buffer.dtype)}]"
        slot = self.builder.slot(kind, STACK_ALIGNMENT, buffer.name, buffer in plan.divisible)
        self.bind_buffer(buffer, slot, local=True)
        self.statement(stmt.body)

    # Loops.

    def _for(self, loop: For) -> None:
        if loop.kind == "parallel" and not self.serial:
            emit_parallel_loop(self, loop)
            return
        if loop.annotations.get(OUTLINE):
            emit_outlined_loop(self, loop)
            return
        # The interval covers all copies of an enclosing unrolled body: it is found once for each variable.
        self.bounds.bind_loop(loop.var, loop.min, loop.extent)
        low, extent = self.folded(loop.min), self.folded(loop.extent)
        if loop.kind == "unrolled" and isinstance(low, IntImm) and isinstance(extent, IntImm):
            self._unroll(loop, low.value, extent.value)
            return
        if isinstance(extent, IntImm) and extent.value <= 1:
            if extent.value == 1:
                self._bind(loop.var, low, loop.body)
            return
        first = self.expr(low)
        end = self.expr(binary("add", low, extent))
        runs = isinstance(extent, IntImm)
        self.loop(loop.var, first, end, runs, loop.body)

    def _unroll(self, loop: For, low: int, extent: int) -> None:
        """Emit the body for each value of the loop's variable. Passes decide how much is unrolled."""
        changing = self.changing
        if not self.known.values:
            self.changing = defined_variables(loop.body)
        for value in range(low, low + extent):
            self.known.bind(loop.var, value)
            copy = self.builder.enter_scope()
            self.statement(loop.body)
            self.builder.leave_copy(copy)
        if extent > 0:
            self.known.forget(loop.var)
        self.changing = changing

    def _bind(self, var: Var, value: Expr, body: Stmt) -> None:
        """Emit ``body``, in which ``var`` has ``value``; a constant value in a copy of an unrolled body needs no
        operand."""
        known = bool(self.known.values) and isinstance(value, IntImm)
        if known:
            assert isinstance(value, IntImm)
            self.known.bind(var, value.value)
        else:
            self.values[var] = self.expr(value)
            self.sums.define(var, value)
        self.statement(body)
        if known:
            self.known.forget(var)

    def loop(self, var: Var, first: str, end: str, runs: bool, body: Stmt) -> None:
        """Emit a loop over ``[first, end)`` that tests at its end; ``runs``: there is at least one iteration."""
        b, kind = self.builder, value_type(var.dtype)
        less = f"icmp {'ult' if var.dtype.is_uint else 'slt'} {kind}"
        head, after = b.fresh(f"loop_{var.name}"), b.fresh(f"end_{var.name}")
        outside = b.block
        if not runs:
            enters, before = b.pure(f"{less} {first}, {end}"), b.fresh(f"begin_{var.name}")
            b.branch_if(enters, before, after)
            b.label(before)
            self.registers.enter_branch()
        before = b.block
        preheader = b.mark()
        b.branch(head)
        b.label(head)
        self.computes = True
        self.loops += 1
        number = self.loops
        index, following = f"%{b.fresh(var.name)}", f"%{b.fresh(var.name)}"
        place = len(b.lines)
        b.lines.append("")
        self.values[var] = index
        self._depth += 1
        self.sums.enter_loop(var, self._depth)
        registers = self.registers
        stored = plan_registers(self.root.body).stored[body] if registers.tiles else frozenset()
        changing = registers.enter_loop(stored)
        scope = b.enter_scope()
        self.statement(body)
        b.leave_scope(scope)
        phis, ahead = registers.leave_loop(changing, before, b.block)
        self._depth -= 1
        wrap = "" if var.dtype.is_uint else " nsw"
        count = len(b.lines)
        b.emit(f"{following} = add{wrap} {kind} {index}, {constant(1, var.dtype)}")
        again = b.value(f"{less} {following}, {end}")
        carried = len(phis)
        phis.append(f"  {index} = phi {kind} [ {first}, %{before} ], [ {following}, %{b.block} ]")
        b.lines[place] = "\n".join(phis)
        if ahead:
            b.lines[preheader.line] = "\n".join([*ahead, b.lines[preheader.line]])
        leave_to_llvm = bool(self.root.attrs.get(LLVM_VECTORIZE))
        innermost = self.loops == number
        if self.loops - number <= _LOOPS_AROUND and not leave_to_llvm:
            counted = Counted(preheader, index, kind, first, following, before, place, count, b.block, carried)
            (finish_innermost if innermost else finish_around)(b.lines, counted)
        metadata = "" if leave_to_llvm else self.module.text.loop_metadata(innermost)
        latch = b.block
        b.branch_if(again, head, after, metadata)
        b.label(after)
        if not runs:
            registers.join(((outside, {}), (latch, registers.leave_branch())))

    # Whole functions.

    def child(self, kind: str) -> FunctionEmitter:
        """Return an emitter for the function that a loop of this one becomes; inside, all loops are serial."""
        symbol = f"{self.symbol}.{kind}{self.children}"
        self.children += 1
        made = FunctionEmitter(self.module, self.root, symbol, serial=True)
        made.bounds = self.bounds.copy()
        made.known = self.known.copy()
        made.changing = self.changing
        return made

    def finish(self, header: str) -> str:
        """Return the text of the function."""
        self.builder.emit("ret void")
        return self.builder.function(header)


_STATEMENTS: dict[type[Node], Callable[[FunctionEmitter, Any], None]] = {
    SeqStmt: FunctionEmitter._sequence,
    BufferStore: FunctionEmitter._store,
    LetStmt: FunctionEmitter._let,
    Evaluate: FunctionEmitter._evaluate,
    IfThenElse: FunctionEmitter._if,
    Allocate: FunctionEmitter._allocate,
    For: FunctionEmitter._for,
}


def bind_parameters(emitter: FunctionEmitter, func: PrimFunc) -> list[str]:
    """Bind the parameters of ``func`` to operands; return their declarations."""
    written = uses(func.body).written
    declarations: list[str] = []
    for param in func.params:
        name = f"%{emitter.builder.fresh(param.name)}"
        if isinstance(param, Buffer):
            declarations.append(f"{pointer_attributes(func, param, written)} {name}")
            emitter.bind_buffer(param, name)
        else:
            declarations.append(f"i64 {name}")
            emitter.values[param] = arithmetic.cast(emitter.builder, INT64, param.dtype, name)
            if param.dtype.is_int:
                emitter.bounds.bind_size(param)
    return declarations
