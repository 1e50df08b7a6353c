"""The text of the loop-level IR: what ``str(node)`` gives, what errors show, and what the parser reads back.

The text reads like Python with braces. Its rules, in full, are the grammar in ``grammar.lark``; in short::

    primfunc @sum(A: Buffer[(n, 64), float32], C: Buffer[(n,), float32, align=64], n: int64) attrs {"num_outputs": 1} {
      for i in parallel(n) {                        # For(i, 0, n, "parallel"); a first bound: range(lo, extent=n)
        for k in range(64) annotations {"unroll": True} {
          block sum(vi: spatial(n) = i, vk: reduction(64) = k) where i < n {
            reads A[vi, 0:+64]                      # Range(0, 64); an extent of one is left out
            writes C[vi]
            init {
              C[vi] = 0.0
            }
            let x: float32 = A[vi, vk]              # holds in the rest of these braces, as does allocate
            C[vi] = C[vi] + x
          }
        }
      }
    }

* A bare ``1`` is an int64 and a bare ``2.0`` a float32, unless an operand beside it or the place where it stands has
  another type, which it then takes; everywhere else a constant names its type: ``int32(3)``, ``float32(inf)``. A type
  around anything but a bare constant is a cast; the cast of a bare constant is ``cast(int32, 3)``.
* Two different variables or buffers that are visible at one place have different names: ``i``, ``i_1``.
* A name that is no identifier, or a keyword, stands in backquotes, with JSON's escapes: `` `conv/1 weight` ``.
"""

from __future__ import annotations

import json
import math
import re
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
from tilewright.tensorir.intrinsics import find_intrinsic
from tilewright.tensorir.node import Node
from tilewright.tensorir.stmt import (
    Allocate,
    Block,
    BufferRegion,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    IterVar,
    LetStmt,
    PrimFunc,
    Range,
    SeqStmt,
    Stmt,
)

#: Words that cannot be a name without backquotes.
KEYWORDS = frozenset(
    (
        "primfunc",
        "attrs",
        "allocate",
        "let",
        "for",
        "in",
        "if",
        "else",
        "block",
        "where",
        "reads",
        "writes",
        "init",
        "annotations",
        "evaluate",
        "seq",
        "and",
        "or",
        "not",
        "True",
        "False",
        "None",
        "inf",
        "nan",
        "Buffer",
    )
)

#: Infix operators of BinaryOp and Compare: spelling and precedence (higher binds tighter).
INFIX: dict[str, tuple[str, int]] = {
    "or": ("or", 1),
    "and": ("and", 2),
    "eq": ("==", 4),
    "ne": ("!=", 4),
    "lt": ("<", 4),
    "le": ("<=", 4),
    "gt": (">", 4),
    "ge": (">=", 4),
    "bitor": ("|", 5),
    "bitxor": ("^", 6),
    "bitand": ("&", 7),
    "shl": ("<<", 8),
    "shr": (">>", 8),
    "add": ("+", 9),
    "sub": ("-", 9),
    "mul": ("*", 10),
    "div": ("/", 10),
    "floordiv": ("//", 10),
    "floormod": ("%", 10),
}
PREFIX: dict[str, tuple[str, int]] = {"not": ("not ", 3), "neg": ("-", 11), "bitnot": ("~", 11)}

_LOOP_WORDS = {"serial": "range", "parallel": "parallel", "vectorized": "vectorized", "unrolled": "unrolled"}
_IDENTIFIER = re.compile(r"[^\W\d][\w.]*")
_INDENT = "  "

#: Parameters of a function, or iteration variables of a block, that still go on one line.
_ON_ONE_LINE = 4


def to_text(node: Node) -> str:
    """The text of any node. That of a function parses back to a structurally equal one."""
    printer = _Printer()
    printer.root(node)
    return printer.text()


def underline(root: Node, node: Node, message: str = "", context: int = 3, within: Node | None = None) -> str:
    """The lines of ``root``'s text around ``node`` (the object itself, where it stands first), which is underlined,
    with ``message`` after the line. Where ``root`` does not hold ``node``, the text of both is shown.

    Args:
        context: how many lines before the place and after it are shown.
        within: show the place inside this node, for a ``node`` such as a variable that stands at several.
    """
    printer = _Printer(marked=(node,) if within is None else (node, within))
    printer.root(root)
    text = printer.text()
    note = f" {message}" if message else ""
    spans = printer.spans[node]
    if not spans:
        return f"{text}\nat: {to_text(node)}{note}"
    inside = [
        span
        for span in spans
        if within is not None and any(first <= span[0] and span[1] <= last for first, last in printer.spans[within])
    ]
    start, end = min(inside or spans)
    start += len(text[start:end]) - len(text[start:end].lstrip())
    first = text.rfind("\n", 0, start) + 1
    stop = text.find("\n", start)
    line_end = len(text) if stop < 0 else stop
    column = start - first
    carets = " " * column + "^" * max(1, min(end, line_end) - start) + note
    lines = text.split("\n")
    number = text.count("\n", 0, start)
    above, below = lines[max(0, number - context) : number + 1], lines[number + 1 : number + 1 + context]
    head = [] if number <= context else [lines[0]] if number == context + 1 else [lines[0], "  ..."]
    shown = [*head, *above, carets, *below]
    if number + 1 + context < len(lines):
        shown.append("  ...")
    return "\n".join(shown)


def quote_name(name: str) -> str:
    """``name`` as the text writes it: itself, or in backquotes where it is no identifier or is a keyword."""
    if _IDENTIFIER.fullmatch(name) and name not in KEYWORDS:
        return name
    return "`" + json.dumps(name)[1:-1].replace("`", "\\u0060") + "`"


def float_text(value: float, dtype: DataType) -> str:
    """The shortest text that gives ``value`` again once rounded to ``dtype``."""
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    text = repr(value)
    short = str(dtype.numpy.type(value))
    if len(short) < len(text) and _same_float(float(dtype.numpy.type(float(short))), value):
        text = short
    return text if any(mark in text for mark in ".en") else text + ".0"


def _same_float(a: float, b: float) -> bool:
    return a == b and math.copysign(1.0, a) == math.copysign(1.0, b)


def peer_hint(operands: Iterable[tuple[bool, DataType]]) -> DataType | None:
    """The type that bare constants among operands of one type take: that of the first which is no bare constant.

    Args:
        operands: for each whether it is a bare constant, and its type. The parser asks by the same rule.
    """
    return next((dtype for bare, dtype in operands if not bare), None)


class _Printer:
    """Writes one node's text; remembers where the ``marked`` nodes stand."""

    def __init__(self, marked: tuple[Node, ...] = ()) -> None:
        self.spans: dict[Node, list[tuple[int, int]]] = {node: [] for node in marked}
        self.parts: list[str] = []
        self.length = 0
        self.depth = 0
        self.names: dict[Node, str] = {}
        self.taken: set[str] = set()
        self.uses: dict[str, int] = {}
        self.bound: list[tuple[Node, str, str]] = []

    # Text.

    def text(self) -> str:
        return "".join(self.parts)

    def write(self, text: str) -> None:
        self.parts.append(text)
        self.length += len(text)

    def newline(self) -> None:
        self.write("\n" + _INDENT * self.depth)

    def mark(self, node: Node, start: int) -> None:
        if node in self.spans:
            self.spans[node].append((start, self.length))

    def separated(self, items: Iterable[Any], write_item: Callable[[Any], None]) -> None:
        for position, item in enumerate(items):
            if position:
                self.write(", ")
            write_item(item)

    # Names. A definition takes a name that nothing visible has; free ones keep theirs until the end.

    def fresh(self, wanted: str) -> str:
        count = self.uses.get(wanted, 0)
        self.uses[wanted] = count + 1
        name = f"{wanted}_{count}" if count else wanted
        while name in self.taken:
            count += 1
            name = f"{wanted}_{count}"
        self.taken.add(name)
        return name

    def bind(self, node: Var | Buffer) -> None:
        if node not in self.names:
            name = self.names[node] = self.fresh(node.name)
            self.bound.append((node, node.name, name))

    def release(self, mark: int) -> None:
        while len(self.bound) > mark:
            node, wanted, name = self.bound.pop()
            del self.names[node]
            self.taken.discard(name)
            self.uses[wanted] -= 1

    def name(self, node: Var | Buffer) -> None:
        name = self.names.get(node)
        if name is None:
            name = self.names[node] = self.fresh(node.name)
        start = self.length
        self.write(quote_name(name))
        self.mark(node, start)

    # Nodes.

    def root(self, node: Node) -> None:
        """Write ``node`` with what it does not define under its own name, if that can be."""
        if isinstance(node, (Stmt, PrimFunc)):
            for free in _used_only(node):
                self.names[free] = self.fresh(free.name)
        self.node(node)

    def node(self, node: Node) -> None:
        if isinstance(node, Expr):
            self.expr(node)
        elif isinstance(node, SeqStmt) and len(node.stmts) == 1:
            self.stmt(node)
        elif isinstance(node, Stmt):
            self.stmts(node, first=True)
        else:
            _OTHERS[type(node)](self, node)

    def expr(self, expr: Expr, precedence: int = 0, hint: DataType | None = None) -> None:
        """Write ``expr``, in parentheses if it binds less than ``precedence``; a constant of type ``hint`` is bare."""
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

    # Statements.

    def braces(self, body: Stmt) -> None:
        """``body`` in braces, as a scope of names."""
        self.write("{")
        self.depth += 1
        scope = len(self.bound)
        self.stmts(body)
        self.release(scope)
        self.depth -= 1
        self.newline()
        self.write("}")

    def stmts(self, body: Stmt, first: bool = False) -> None:
        """The statements of ``body``, each on its line. The body of a let or an allocation follows at the same depth,
        without recursion over the length of such chains. ``first``: the line is already begun."""
        opened: list[tuple[Stmt, int]] = []
        current: Stmt | None = body
        while current is not None:
            items, rest = self.unchain(current)
            if isinstance(current, SeqStmt) and len(current.stmts) != 1:
                opened.append((current, self.length))
            for item in items:
                if not first:
                    self.newline()
                first = False
                self.stmt(item)
            current = None
            if rest is not None:
                if not first:
                    self.newline()
                first = False
                opened.append((rest, self.length))
                current = self.opening(rest)
        for node, start in opened:
            self.mark(node, start)

    @staticmethod
    def unchain(body: Stmt) -> tuple[tuple[Stmt, ...], LetStmt | Allocate | None]:
        """``body`` as the statements to write in a row, and the let or allocation at their end that goes on after
        them."""
        items = body.stmts if isinstance(body, SeqStmt) and len(body.stmts) != 1 else (body,)
        if items and isinstance(items[-1], (LetStmt, Allocate)):
            return items[:-1], items[-1]
        return items, None

    def opening(self, stmt: LetStmt | Allocate) -> Stmt:
        """The line of a let or an allocation, whose name it binds; gives the statement's body."""
        if isinstance(stmt, LetStmt):
            self.let(stmt)
        else:
            self.write("allocate ")
            self.bind(stmt.buffer)
            self.buffer(stmt.buffer)
        return stmt.body

    def let(self, stmt: LetStmt) -> None:
        # The value is written after the name but does not see it.
        name = self.names.get(stmt.var)
        bound = name is not None
        if name is None:
            name = self.fresh(stmt.var.name)
        self.write("let ")
        start = self.length
        self.write(quote_name(name))
        self.mark(stmt.var, start)
        self.write(f": {stmt.var.dtype!s} = ")
        self.expr(stmt.value, 0, stmt.var.dtype)
        if not bound and stmt.var not in self.names:
            self.names[stmt.var] = name
            self.bound.append((stmt.var, stmt.var.name, name))

    def stmt(self, stmt: Stmt) -> None:
        """One statement that nothing but itself has to follow: lets, allocations and sequences stand in braces."""
        start = self.length
        if isinstance(stmt, (LetStmt, Allocate)):
            self.braces(stmt)
        elif isinstance(stmt, SeqStmt):
            if len(stmt.stmts) == 1:
                self.write("seq ")
                self.braces(stmt.stmts[0])
            else:
                self.braces(stmt)
        else:
            _STMTS[type(stmt)](self, stmt)
        self.mark(stmt, start)

    def bounds(self, word: str, var: Var, minimum: Expr, extent: Expr) -> None:
        self.write(word + "(")
        if isinstance(minimum, IntImm) and minimum.value == 0 and minimum.dtype is var.dtype:
            start = self.length
            self.expr(extent, 0, var.dtype)
            self.mark(minimum, start)
        else:
            self.expr(minimum, 0, var.dtype)
            self.write(", extent=")
            self.expr(extent, 0, var.dtype)
        self.write(")")

    def for_loop(self, loop: For) -> None:
        self.write("for ")
        scope = len(self.bound)
        # Bind before the bounds are written: a name that stands left of them must differ from theirs.
        self.bind(loop.var)
        self.name(loop.var)
        if loop.var.dtype is not INT64:
            self.write(f": {loop.var.dtype!s}")
        self.write(" in ")
        self.bounds(_LOOP_WORDS[loop.kind], loop.var, loop.min, loop.extent)
        self.mapping(" annotations ", loop.annotations)
        self.write(" ")
        self.braces(loop.body)
        self.release(scope)

    def store(self, store: BufferStore) -> None:
        self.access(store)
        self.write(" = ")
        self.expr(store.value, 0, store.buffer.dtype)

    def if_then_else(self, stmt: IfThenElse) -> None:
        chain: list[tuple[Stmt, int]] = []
        current: Stmt | None = stmt
        while isinstance(current, IfThenElse):
            chain.append((current, self.length))
            self.write("if ")
            self.expr(current.condition)
            self.write(" ")
            self.braces(current.then_body)
            current = current.else_body
            if current is not None:
                self.write(" else ")
        if current is not None:
            self.braces(current)
        for node, start in chain[1:]:
            self.mark(node, start)

    def evaluate(self, stmt: Evaluate) -> None:
        if not isinstance(stmt.value, Call):
            self.write("evaluate ")
        self.expr(stmt.value)

    def block(self, block: Block) -> None:
        self.write(f"block {quote_name(block.name)}(")
        scope = len(self.bound)
        for item in block.iters:
            self.bind(item.var)
        self.listed(block.iters, self.iter_var)
        self.write(")")
        if block.predicate is not None:
            self.write(" where ")
            self.expr(block.predicate)
        self.mapping(" annotations ", block.annotations)
        self.write(" {")
        self.depth += 1
        for word, regions in (("reads ", block.reads), ("writes ", block.writes)):
            if regions:
                self.newline()
                self.write(word)
                self.separated(regions, self.region)
        if block.init is not None:
            self.newline()
            self.write("init ")
            self.braces(block.init)
        inner = len(self.bound)
        self.stmts(block.body)
        self.release(inner)
        self.depth -= 1
        self.newline()
        self.write("}")
        self.release(scope)

    def listed(self, items: tuple[Any, ...], write_item: Callable[[Any], None]) -> None:
        """Items between commas: on one line if few, else each on a line of its own."""
        if len(items) <= _ON_ONE_LINE:
            self.separated(items, write_item)
            return
        self.depth += 2
        for position, item in enumerate(items):
            if position:
                self.write(",")
            self.newline()
            write_item(item)
        self.depth -= 2
        self.newline()

    # What is neither expression nor statement.

    def iter_var(self, item: IterVar) -> None:
        start = self.length
        self.name(item.var)
        self.write(": " if item.var.dtype is INT64 else f": {item.var.dtype!s} ")
        self.bounds(item.kind, item.var, item.min, item.extent)
        self.write(" = ")
        self.expr(item.value, 0, item.var.dtype)
        self.mark(item, start)

    def region(self, region: BufferRegion) -> None:
        start = self.length
        self.name(region.buffer)
        self.write("[" if region.ranges else "[()")
        self.separated(region.ranges, self.range)
        self.write("]")
        self.mark(region, start)

    def range(self, item: Range) -> None:
        start = self.length
        self.expr(item.min)
        if not (isinstance(item.extent, IntImm) and item.extent.value == 1 and item.extent.dtype is INT64):
            self.write(":+")
            self.expr(item.extent)
        self.mark(item, start)

    def buffer(self, buffer: Buffer) -> None:
        """The definition of a buffer: its name and its type."""
        start = self.length
        self.name(buffer)
        self.write(": Buffer[")
        self.extents(buffer.shape)
        self.write(f", {buffer.dtype!s}")
        if buffer.scope != "global":
            self.write(f", {buffer.scope}")
        if buffer.strides:
            self.write(", strides=")
            self.extents(buffer.strides)
        if buffer.alignment:
            self.write(f", align={buffer.alignment}")
        self.write("]")
        self.mark(buffer, start)

    def extents(self, extents: tuple[Expr, ...]) -> None:
        self.write("(")
        self.separated(extents, self.expr)
        self.write(",)" if len(extents) == 1 else ")")

    def parameter(self, param: Any) -> None:
        if isinstance(param, Buffer):
            self.buffer(param)
        else:
            self.name(param)
            self.write(f": {param.dtype!s}")

    def prim_func(self, func: PrimFunc) -> None:
        start = self.length
        scope = len(self.bound)
        for param in func.params:
            self.bind(param)
        self.write(f"primfunc @{quote_name(func.name)}(")
        self.listed(func.params, self.parameter)
        self.write(")")
        self.mapping(" attrs ", func.attrs)
        self.write(" ")
        self.braces(func.body)
        self.release(scope)
        self.mark(func, start)

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
            self.write(f"<{value!r}>")  # shown, though no text can be read back as an arbitrary object

    def entry(self, item: tuple[Any, Any]) -> None:
        self.data(item[0])
        self.write(": ")
        self.data(item[1])


def _used_only(root: Node) -> list[Var | Buffer]:
    """The variables and buffers that ``root`` uses and nothing in it defines, in order."""
    used: dict[Var | Buffer, None] = {}
    defined: set[Var | Buffer] = set()
    for node in walk(root):
        if isinstance(node, Var):
            used[node] = None
            continue
        for name, role in node.node_fields:
            if role == "buffer":
                used[getattr(node, name)] = None
            elif role in ("definition", "new_buffer"):
                value = getattr(node, name)
                defined.update(value if isinstance(value, tuple) else (value,))
    return [node for node in used if node not in defined]


def _constant(expr: Any, hint: DataType | None) -> str:
    dtype: DataType = expr.dtype
    if dtype is BOOL:
        return "True" if expr.value else "False"
    is_int = isinstance(expr, IntImm)
    text = str(expr.value) if is_int else float_text(expr.value, dtype)
    default = INT64 if is_int else FLOAT32
    finite = is_int or math.isfinite(expr.value)
    return text if finite and dtype is (hint or default) else f"{dtype!s}({text})"


_EXPRS: dict[type, Callable[[_Printer, Any, int], None]] = {
    Var: _Printer.var,
    BinaryOp: _Printer.binary_function,
    UnaryOp: _Printer.prefix,
    Compare: _Printer.compare,
    Select: _Printer.select,
    Cast: _Printer.cast,
    BufferLoad: _Printer.load,
    Call: _Printer.call,
    Ramp: _Printer.ramp,
    Broadcast: _Printer.broadcast,
}
_STMTS: dict[type, Callable[[_Printer, Any], None]] = {
    For: _Printer.for_loop,
    BufferStore: _Printer.store,
    IfThenElse: _Printer.if_then_else,
    Evaluate: _Printer.evaluate,
    Block: _Printer.block,
}
_OTHERS: dict[type, Callable[[_Printer, Any], None]] = {
    PrimFunc: _Printer.prim_func,
    Buffer: _Printer.buffer,
    Range: _Printer.range,
    BufferRegion: _Printer.region,
    IterVar: _Printer.iter_var,
}
