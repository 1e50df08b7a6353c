"""Print expressions of the loop-level IR, and the plain data that annotations and attributes hold.

A constant is bare where its place determines its type; parentheses are written where precedence needs them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from tilewright.tensorir.dtype import BOOL, FLOAT32, INT64, VOID, DataType
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
from tilewright.tensorir.intrinsics import find_intrinsic
from tilewright.tensorir.printer_text import TextWriter
from tilewright.tensorir.spelling import INFIX, PREFIX, float_text, peer_hint, quote_name
from tilewright.tensorir.stmt import BufferStore


class ExpressionPrinter(TextWriter):
    """Writes expressions."""

    def expr(self, expr: Expr, precedence: int = 0, hint: DataType | None = None) -> None:
        """Write ``expr``, in parentheses if it binds less than ``precedence``; constants of type ``hint`` are bare."""
        start = self.length
        kind = type(expr)
        if kind is IntImm or kind is FloatImm:
            self.write(_constant(expr, hint))
        elif kind is BinaryOp and expr.op in INFIX:  # type: ignore[attr-defined]
            self.infix(expr, precedence)  # type: ignore[arg-type]
            return
        else:
            _EXPRS[kind](self, expr, precedence)
        self.mark(expr, start)

    def infix(self, expr: BinaryOp, precedence: int) -> None:
        """A left-leaning chain of infix operations, without recursion over its length."""
        spine: list[tuple[BinaryOp, int, bool]] = []
        current: Expr = expr
        while isinstance(current, BinaryOp) and current.op in INFIX:
            own = INFIX[current.op][1]
            spine.append((current, self.length, own < precedence))
            if own < precedence:
                self.write("(")
            precedence = own
            current = current.a
        innermost = spine[-1][0]
        self.expr(current, precedence, self.hint(innermost.a, innermost.b))
        for node, start, parenthesized in reversed(spine):
            symbol, own = INFIX[node.op]
            self.write(f" {symbol} ")
            self.expr(node.b, own + 1, self.hint(node.a, node.b))
            if parenthesized:
                self.write(")")
            self.mark(node, start)

    @staticmethod
    def hint(*operands: Expr) -> DataType | None:
        return peer_hint((isinstance(operand, (IntImm, FloatImm)), operand.dtype) for operand in operands)

    def compare(self, expr: Compare, precedence: int) -> None:
        symbol, own = INFIX[expr.op]
        hint = self.hint(expr.a, expr.b)
        if own < precedence:
            self.write("(")
        self.expr(expr.a, own + 1, hint)
        self.write(f" {symbol} ")
        self.expr(expr.b, own + 1, hint)
        if own < precedence:
            self.write(")")

    def prefix(self, expr: UnaryOp, precedence: int) -> None:
        symbol, own = PREFIX[expr.op]
        if own < precedence:
            self.write("(")
        self.write(symbol)
        if isinstance(expr.a, (IntImm, FloatImm)) and expr.op == "neg":
            self.write("(")  # -3 is a constant, -(3) the negation of one
            self.expr(expr.a)
            self.write(")")
        else:
            self.expr(expr.a, own)
        if own < precedence:
            self.write(")")

    def function(self, name: str, args: Iterable[Expr], *more: str, hint: DataType | None = None) -> None:
        """``name(args, more)``; constants among the arguments of type ``hint`` are bare."""
        self.write(name + "(")
        self.separated(args, lambda arg: self.expr(arg, 0, hint))
        for position, text in enumerate(more):
            self.write(text if position == 0 and self.parts[-1].endswith("(") else ", " + text)
        self.write(")")

    def binary_function(self, expr: BinaryOp, _: int) -> None:
        self.function(expr.op, (expr.a, expr.b), hint=self.hint(expr.a, expr.b))

    def select(self, expr: Select, _: int) -> None:
        self.write("select(")
        self.expr(expr.condition)
        self.write(", ")
        hint = self.hint(expr.true_value, expr.false_value)
        self.expr(expr.true_value, 0, hint)
        self.write(", ")
        self.expr(expr.false_value, 0, hint)
        self.write(")")

    def choose(self, expr: Choose, _: int) -> None:
        self.write("choose(")
        self.expr(expr.index)
        hint = self.hint(*expr.values)
        for value in expr.values:
            self.write(", ")
            self.expr(value, 0, hint)
        self.write(")")

    def cast(self, expr: Cast, _: int) -> None:
        if isinstance(expr.value, (IntImm, FloatImm)):
            self.write("cast(")
            self.write(f"{expr.dtype!s}, ")
            self.expr(expr.value)
            self.write(")")
        else:
            self.function(str(expr.dtype), (expr.value,))

    def load(self, expr: BufferLoad, _: int) -> None:
        self.access(expr)

    def access(self, node: BufferLoad | BufferStore) -> None:
        self.name(node.buffer)
        self.write("[" if node.indices else "[()")
        self.separated(node.indices, self.expr)
        if node.predicate is not None:
            self.write(" where ")
            self.expr(node.predicate)
        self.write("]")

    def call(self, expr: Call, _: int) -> None:
        if expr.name.startswith("@"):
            given = () if expr.dtype is VOID else (f"dtype={expr.dtype!s}",)
            self.function("@" + quote_name(expr.name[1:]), expr.args, *given)
            return
        intrinsic = find_intrinsic(expr.name)
        given = (f"dtype={expr.dtype!s}",) if intrinsic.result == "given" else ()
        hint = None if intrinsic.operands == "any" else self.hint(*expr.args)
        self.function(expr.name, expr.args, *given, hint=hint)

    def var(self, expr: Var, _: int) -> None:
        self.name(expr)

    def ramp(self, expr: Ramp, _: int) -> None:
        self.function("ramp", (expr.base, expr.stride), str(expr.lanes), hint=self.hint(expr.base, expr.stride))

    def broadcast(self, expr: Broadcast, _: int) -> None:
        self.function("broadcast", (expr.value,), str(expr.lanes))

    # Plain data.

    def mapping(self, word: str, values: Mapping[Any, Any]) -> None:
        if values:
            self.write(word)
            self.data(values)

    def data(self, value: Any) -> None:
        """Plain data as Python writes it, strings as JSON does; expressions and buffers as ``expr(...)``."""
        if isinstance(value, (bool, np.bool_)) or value is None:
            self.write(repr(None if value is None else bool(value)))
        elif isinstance(value, str):
            self.write(json.dumps(value, ensure_ascii=False))
        elif isinstance(value, (int, np.integer)):
            self.write(str(int(value)))
        elif isinstance(value, (float, np.floating)):
            self.write(repr(float(value)))
        elif isinstance(value, Mapping):
            self.write("{")
            self.separated(value.items(), self.entry)
            self.write("}")
        elif isinstance(value, (list, tuple)):
            self.write("[" if isinstance(value, list) else "(")
            self.separated(value, self.data)
            self.write("]" if isinstance(value, list) else (",)" if len(value) == 1 else ")"))
        elif isinstance(value, (Expr, Buffer)):
            self.write("expr(")
            if isinstance(value, Buffer):
                self.name(value)
            else:
                self.expr(value)
            self.write(")")
        else:
            self.write(f"<{value!r}>")  # for readers only: the parser cannot restore an arbitrary object

    def entry(self, item: tuple[Any, Any]) -> None:
        self.data(item[0])
        self.write(": ")
        self.data(item[1])


def _constant(expr: Any, hint: DataType | None) -> str:
    dtype: DataType = expr.dtype
    if dtype is BOOL:
        return "True" if expr.value else "False"
    is_int = isinstance(expr, IntImm)
    text = str(expr.value) if is_int else float_text(expr.value, dtype)
    default = INT64 if is_int else FLOAT32
    finite = is_int or math.isfinite(expr.value)
    return text if finite and dtype is (hint or default) else f"{dtype!s}({text})"


_EXPRS: dict[type, Callable[[ExpressionPrinter, Any, int], None]] = {
    Var: ExpressionPrinter.var,
    BinaryOp: ExpressionPrinter.binary_function,
    UnaryOp: ExpressionPrinter.prefix,
    Compare: ExpressionPrinter.compare,
    Select: ExpressionPrinter.select,
    Choose: ExpressionPrinter.choose,
    Cast: ExpressionPrinter.cast,
    BufferLoad: ExpressionPrinter.load,
    Call: ExpressionPrinter.call,
    Ramp: ExpressionPrinter.ramp,
    Broadcast: ExpressionPrinter.broadcast,
}
