"""Emit scalar and vector expressions: turn nodes into operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from tilewright.codegen.llvm import arithmetic
from tilewright.codegen.llvm.addresses import Slot
from tilewright.codegen.llvm.arithmetic import Operand
from tilewright.codegen.llvm.known import KnownIntegers
from tilewright.codegen.llvm.memory import Memory
from tilewright.codegen.llvm.registers import Registers
from tilewright.codegen.llvm.sums import SumOrder
from tilewright.codegen.llvm.text import Builder, constant, constant_vector, value_type
from tilewright.tensorir.arith.folds import is_false, is_true
from tilewright.tensorir.arith.lanes import uniform_conjuncts
from tilewright.tensorir.arith.pattern import constant_of
from tilewright.tensorir.arith.transfer import IntervalAnalysis
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.errors import CodegenError
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
from tilewright.tensorir.functor import leaves
from tilewright.tensorir.intrinsics import find_intrinsic
from tilewright.tensorir.node import Node
from tilewright.tensorir.printer import underline
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.target import Target

#: The name of this code generator in the declarations of intrinsics; :mod:`.intrinsics` registers an emitter for each.
GENERATOR = "llvm"


class ExpressionEmitter:
    """Emits expressions into a builder.

    Attributes:
        root: the function that contains the expressions, for messages.
        values: the operand of each variable in scope.
        slots: the places of the buffers in scope that lie in memory.
        registers: the other buffers, which are values.
        known: the variables of enclosing unrolled loops, which are constants here and have no operand.
        changing: the variables that each copy of an enclosing unrolled body defines anew.
    """

    def __init__(self, root: PrimFunc, builder: Builder, target: Target) -> None:
        self.root = root
        self.builder = builder
        self.target = target
        self.bounds = IntervalAnalysis()
        self.known = KnownIntegers()
        self.changing: frozenset[Var] = frozenset()
        self.sums = SumOrder()
        self.values: dict[Var, str] = {}
        self.slots: dict[Buffer, Slot] = {}
        self.registers = Registers(builder)
        self.memory = Memory(self)
        #: The operands of the present statement's expressions.
        self._emitted: dict[Expr, str] = {}

    def error(self, node: Node, message: str) -> NoReturn:
        """Raise an error about ``node`` that shows its place."""
        raise CodegenError(f"{self.root.name}: {message}\n{underline(self.root, node)}")

    def expr(self, expr: Expr) -> str:
        """Return the operand that holds the value of ``expr``. An operand shared within a statement is emitted once,
        and index arithmetic once for all statements that its instruction dominates."""
        kind = type(expr)
        if kind is IntImm:
            return self._immediate(expr)
        found = self._emitted.get(expr)
        if found is not None:
            return found
        if self.known.values:
            folded = self.known.fold_index(expr)
            if folded is not expr:
                found = self._emitted[expr] = self.expr(folded)
                return found
        if kind not in _EMITTERS:
            self.error(expr, f"cannot generate code for expressions of class {kind.__name__}")
        if kind not in _KEPT or expr.dtype.is_float:
            found = self._emitted[expr] = _EMITTERS[kind](self, expr)
            return found
        found = self.builder.known.get(expr)
        if found is None:
            found = self._emitted[expr] = _EMITTERS[kind](self, expr)
            self._keep(expr, expr, expr.parts(), found)
        return found

    def _keep(self, key: object, expr: Expr, parts: Iterable[Expr], operand: str) -> None:
        """Remember the operand of ``expr`` under ``key`` for the next statement, if all of its parts have the same
        values there."""
        known = self.builder.known
        for part in parts:
            if part not in known and type(part) not in _LEAVES:
                return
        if self.changing and not leaves(expr).isdisjoint(self.changing):
            self.builder.keep_in_copy(key, operand)
        else:
            known[key] = operand

    def offset(self, expr: Expr) -> str:
        """Return the operand that holds an offset (int64), summed from the term that changes least often."""
        if not isinstance(expr, BinaryOp) or expr.op not in ("add", "sub"):
            return self.expr(expr)
        key = ("offset", expr)  # as a value the sum is another operand: its terms are added in their own order
        known = self.builder.known
        found = self._emitted.get(expr) or known.get(expr) or known.get(key)
        if found is not None:
            return found
        total = ""
        terms = self.sums.terms(expr)
        for term in terms:
            value = self.expr(term.value)
            if total or term.negative:
                total = self.builder.pure(f"{'sub' if term.negative else 'add'} i64 {total or '0'}, {value}")
            else:
                total = value
        self._emitted[expr] = total
        if not self.known.values:
            self._keep(key, expr, [term.value for term in terms], total)
        return total

    def is_kept(self, offset: Expr) -> bool:
        """Return whether an offset that was emitted has the same value in the next statement."""
        known = self.builder.known
        return not self.known.values and (offset in known or ("offset", offset) in known)

    def operand(self, expr: Expr) -> Operand:
        """Return ``expr`` as an operand with the known facts about its value."""
        expr = self.folded(expr)
        return self._with_facts(expr, self.expr(expr))

    def _with_facts(self, expr: Expr, text: str) -> Operand:
        """Return the operand of ``expr``, which is folded, with the known facts about its value."""
        scalar = expr.value if isinstance(expr, Broadcast) else expr
        if isinstance(scalar, (IntImm, FloatImm)):
            value = scalar.value
            return Operand(text, value, value, value)
        if not expr.dtype.is_integer:
            return Operand(text)
        interval = self.bounds.of(expr)
        return Operand(text, None, interval.lower, interval.upper)

    def folded(self, expr: Expr) -> Expr:
        """Replace the variables of unrolled loops in ``expr`` by their values, if it reads no memory."""
        return self.known.fold_index(expr) if self.known.values else expr

    def int64(self, expr: Expr) -> str:
        """Convert an integer to i64, the type of addresses and arguments."""
        return arithmetic.cast(self.builder, expr.dtype, INT64, self.expr(expr))

    def variable(self, var: Var) -> str:
        found = self.values.get(var)
        if found is None:
            self.error(var, f"variable {var.name} is not defined here")
        return found

    def slot(self, buffer: Buffer, node: Node) -> Slot:
        """Return the place of ``buffer``, which ``node`` uses."""
        found = self.slots.get(buffer)
        if found is None:
            self.error(node, f"buffer {buffer.name} is neither a parameter nor allocated here")
        return found

    def _immediate(self, expr: Any) -> str:
        return str(expr.value) if expr.dtype is INT64 else constant(expr.value, expr.dtype)

    def _binary(self, expr: BinaryOp) -> str:
        op, dtype = expr.op, expr.dtype
        x, y = self.expr(expr.a), self.expr(expr.b)
        if not dtype.is_int:
            start = arithmetic.plain_instruction(op, dtype)
            if start is not None:
                return self.builder.pure(f"{start} {x}, {y}")
            if op in arithmetic.PLAIN_OPS:
                return arithmetic.plain_binary(self.builder, op, dtype, x, y)
            return self._with_bounds(expr, x, y)
        # Equal index arithmetic recurs in other nodes, whose bounds need not be found again.
        key = (op, dtype, x, y)
        known = self.builder.known
        found = known.get(key)
        if found is None:
            if op in arithmetic.PLAIN_OPS:
                found = arithmetic.plain_binary(self.builder, op, dtype, x, y, not self.bounds.may_wrap(expr))
            else:
                found = self._with_bounds(expr, x, y)
            known[key] = found
        return found

    def _with_bounds(self, expr: BinaryOp, x: str, y: str) -> str:
        """Emit an operation on the operands ``x`` and ``y`` whose code depends on facts about their values."""
        a, b = self._with_facts(self.folded(expr.a), x), self._with_facts(self.folded(expr.b), y)
        return arithmetic.binary(self.builder, expr.op, expr.dtype, a, b)

    def _unary(self, expr: UnaryOp) -> str:
        x = self.expr(expr.a)
        if expr.op == "neg":
            return arithmetic.negate(self.builder, expr.dtype, x)
        ones = constant(1 if expr.op == "not" else -1, expr.dtype)
        return self.builder.pure(f"xor {value_type(expr.dtype)} {x}, {ones}")

    def _compare(self, expr: Compare) -> str:
        return arithmetic.compare(self.builder, expr.op, expr.a.dtype, self.expr(expr.a), self.expr(expr.b))

    def _select(self, expr: Select) -> str:
        truth = self.folded(expr.condition) if self.known.values else expr.condition
        if self.known.values and (is_true(truth) or is_false(truth)):
            return self.expr(expr.true_value if is_true(truth) else expr.false_value)
        guarded = self._guarded_load(expr, truth)
        if guarded is not None:
            return guarded
        condition, true, false = self.expr(truth), self.expr(expr.true_value), self.expr(expr.false_value)
        return self.builder.select(condition, expr.dtype, true, false, expr.condition.dtype.lanes)

    def _guarded_load(self, expr: Select, truth: Expr) -> str | None:
        """Return the value of a selection between a load and a constant, if it is what the load alone gives: memory is
        read only where the condition holds."""
        load = expr.true_value
        if type(load) is not BufferLoad or load.predicate is None:
            return None
        other = constant_of(expr.false_value)
        if other is None or expr.dtype.is_bool:
            return None
        guards, needed = (
            {part for parts in uniform_conjuncts(condition) for part in parts}
            for condition in (self.folded(load.predicate), truth)
        )
        if not guards >= needed:
            return None
        if other == 0 and math.copysign(1.0, other) > 0:
            return self.expr(load)
        return self.memory.load_or(load, other) if guards == needed else None

    def _cast(self, expr: Cast) -> str:
        return arithmetic.cast(self.builder, expr.value.dtype, expr.dtype, self.expr(expr.value))

    def _ramp(self, expr: Ramp) -> str:
        kind, element = value_type(expr.dtype), value_type(expr.dtype.element)
        base = self.builder.splat(self.expr(expr.base), expr.dtype)
        stride = self.expr(expr.stride)
        if isinstance(expr.stride, IntImm):
            steps = constant_vector([str(expr.stride.value * lane) for lane in range(expr.lanes)], element)
        else:
            lanes = constant_vector([str(lane) for lane in range(expr.lanes)], element)
            steps = self.builder.pure(f"mul {kind} {self.builder.splat(stride, expr.dtype)}, {lanes}")
        if isinstance(expr.base, IntImm) and expr.base.value == 0:
            return steps
        return self.builder.pure(f"add {kind} {base}, {steps}")

    def _broadcast(self, expr: Broadcast) -> str:
        value = expr.value
        if isinstance(value, (FloatImm, IntImm)):
            return constant(value.value, expr.dtype)
        return self.builder.splat(self.expr(expr.value), expr.dtype)

    def _load(self, expr: BufferLoad) -> str:
        return self.memory.load(expr)

    def _call(self, expr: Call) -> str:
        if expr.name.startswith("@"):
            self.error(expr, "a PrimFunc returns no value; it must be called as a statement")
        write = find_intrinsic(expr.name).lowerings.get(GENERATOR)
        if write is None:
            self.error(expr, f"cannot generate code for the intrinsic {expr.name}")
        text: str = write(self, expr)
        return text


#: Integer expressions that have the same value in all statements if their operands do, as those of indices.
_KEPT = frozenset({BinaryOp, Ramp, Broadcast})
_LEAVES = frozenset({Var, IntImm})

_EMITTERS: dict[type[Node], Callable[[ExpressionEmitter, Any], str]] = {
    Var: ExpressionEmitter.variable,
    IntImm: ExpressionEmitter._immediate,
    FloatImm: ExpressionEmitter._immediate,
    BinaryOp: ExpressionEmitter._binary,
    UnaryOp: ExpressionEmitter._unary,
    Compare: ExpressionEmitter._compare,
    Select: ExpressionEmitter._select,
    Cast: ExpressionEmitter._cast,
    Ramp: ExpressionEmitter._ramp,
    Broadcast: ExpressionEmitter._broadcast,
    BufferLoad: ExpressionEmitter._load,
    Call: ExpressionEmitter._call,
}
