"""Compile statements of the loop-level IR to closures: loops, blocks, stores, allocations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.tensorir import interpreter_values as values
from tilewright.tensorir.errors import ExecutionError, OutOfBoundsError
from tilewright.tensorir.interpreter_expressions import Code, ExpressionCompiler, Frame, nothing
from tilewright.tensorir.interpreter_forms import all_first, all_inside, all_of
from tilewright.tensorir.interpreter_memory import dense_size, shaped
from tilewright.tensorir.node import Node
from tilewright.tensorir.stmt import Allocate, Block, BufferStore, Evaluate, For, IfThenElse, LetStmt, SeqStmt, Stmt


class StatementCompiler(ExpressionCompiler):
    """Turns the statements of one function into closures."""

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
            frame[slot] = shaped(flat, extents, steps)

        return make

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
        else_body = nothing if stmt.else_body is None else self.stmt(stmt.else_body)

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


_STATEMENTS: dict[type[Node], Callable[[StatementCompiler, Any], Code]] = {
    For: StatementCompiler.loop,
    BufferStore: StatementCompiler.store,
    SeqStmt: StatementCompiler.sequence,
    IfThenElse: StatementCompiler.branch,
    Evaluate: StatementCompiler.evaluate,
    Block: StatementCompiler.block,
}
