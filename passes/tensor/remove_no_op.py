"""``RemoveNoOp``: drop statements without effect::

    let x: float32 = a[0]                           b[0] = 1.0
    allocate t: Buffer[(4,), float32, stack]
    t[0] = 2.0                               ->
    b[0] = b[0]
    b[0] = 1.0

These are lets and buffers that are never read, stores of an element to its own place, evaluations of pure calls, and
loops and conditions around nothing.
"""

from __future__ import annotations

from typing import Any

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.properties import EFFECTIVE, LOOPS
from tilewright.passes.registry import register_pass
from tilewright.passes.tensor.accesses import reads_target
from tilewright.passes.tensor.simplify import is_empty
from tilewright.tensorir.expr import Buffer, Call, Expr, IntImm, Var
from tilewright.tensorir.functor import CALLS, Mutator, kinds, leaves, walk_to
from tilewright.tensorir.intrinsics import INTRINSICS
from tilewright.tensorir.stmt import (
    Allocate,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    sequence,
)


def has_effect(expr: Expr) -> bool:
    """Return whether evaluating ``expr`` has a side effect."""
    return bool(kinds(expr) & CALLS) and any(
        isinstance(node, Call) and (node.name.startswith("@") or not INTRINSICS[node.name].pure)
        for node in walk_to(expr, CALLS)
    )


class _Remover(Mutator):
    """Remove from the inside out; ``used`` counts the reads in statements after the present one (in text)."""

    def __init__(self) -> None:
        self.used_vars: set[Var] = set()
        self.read_buffers: set[Buffer] = set()

        #: Variables and buffers that are read.
        self._known: set[object] = set()

    def mutate(self, node: Any) -> Any:
        if not isinstance(node, Expr):
            return super().mutate(node)
        self._read(node)
        return node

    def _read(self, expr: Expr) -> None:
        """Note what ``expr``, which stays, reads."""
        if type(expr) is IntImm:
            return
        found = leaves(expr)
        if not found <= self._known:
            new = found - self._known
            self._known |= new
            for leaf in new:
                if isinstance(leaf, Var):
                    self.used_vars.add(leaf)
                elif isinstance(leaf, Buffer):
                    self.read_buffers.add(leaf)
                    self._read_shape(leaf)

    def _read_shape(self, buffer: Buffer) -> None:
        for extent in (*buffer.shape, *buffer.strides):
            self._read(extent)

    def mutate_BufferStore(self, op: BufferStore) -> Stmt:
        if reads_target(op.value, op):
            return sequence()
        self._read_shape(op.buffer)
        self._read(op.value)
        for index in op.indices:
            self._read(index)
        if op.predicate is not None:
            self._read(op.predicate)
        return op

    def mutate_SeqStmt(self, op: SeqStmt) -> Stmt:
        stmts = self.mutate_all(op.stmts)
        kept = [stmt for stmt in stmts if not is_empty(stmt)]
        if len(kept) == len(op.stmts) and stmts is op.stmts and len(kept) != 1:
            return op
        return sequence(*kept)

    def mutate_For(self, op: For) -> Stmt:
        self._read(op.min)
        self._read(op.extent)
        body: Stmt = self.mutate(op.body)
        for value in op.annotations.values():
            if isinstance(value, Expr):
                self._read(value)
        return sequence() if is_empty(body) else op.with_body(body)

    def mutate_IfThenElse(self, op: IfThenElse) -> Stmt:
        new: IfThenElse = self.generic_mutate(op)
        else_body = None if new.else_body is None or is_empty(new.else_body) else new.else_body
        if is_empty(new.then_body) and else_body is None and not has_effect(new.condition):
            return sequence()
        return new if else_body is new.else_body else IfThenElse(new.condition, new.then_body, else_body)

    def mutate_Evaluate(self, op: Evaluate) -> Stmt:
        return self.generic_mutate(op) if has_effect(op.value) else sequence()

    def mutate_LetStmt(self, op: LetStmt) -> Stmt:
        body = self.mutate(op.body)
        if op.var not in self.used_vars and not has_effect(op.value):
            return body  # type: ignore[no-any-return]
        self._read(op.value)
        return op if body is op.body else LetStmt(op.var, op.value, body)

    def mutate_Allocate(self, op: Allocate) -> Stmt:
        body = self.mutate(op.body)
        if op.buffer not in self.read_buffers:
            body = _StoreRemover(op.buffer).mutate(body)
            return body  # type: ignore[no-any-return]
        self._read_shape(op.buffer)
        return op if body is op.body else Allocate(op.buffer, body)


class _StoreRemover(Mutator):
    """Drop all stores to a buffer that is never read."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer

    def mutate_BufferStore(self, op: BufferStore) -> Stmt:
        return sequence() if op.buffer is self.buffer else op


def remove_no_ops(func: PrimFunc) -> PrimFunc:
    """Return ``func`` without statements that have no effect, to a fixed point."""
    body = func.body
    while True:
        new = _Remover().mutate(body)
        if new is body:
            return func.with_body(body)
        body = new


@register_pass
@primfunc_pass(opt_level=1, name="RemoveNoOp", requires={LOOPS}, provides={EFFECTIVE})
class RemoveNoOp(PrimFuncPass):
    """See the module."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """Return ``func`` without statements that have no effect."""
        return remove_no_ops(func)
