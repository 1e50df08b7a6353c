"""Print statements and functions of the loop-level IR, with what they declare: buffers, iteration variables, regions.

Braces are scopes of names. Chains of lets, allocations and ``else if`` are printed without recursion over their length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import Buffer, Call, Expr, IntImm, Var
from tilewright.tensorir.functor import walk
from tilewright.tensorir.node import Node
from tilewright.tensorir.printer_expressions import ExpressionPrinter
from tilewright.tensorir.spelling import quote_name
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

_LOOP_WORDS = {"serial": "range", "parallel": "parallel", "vectorized": "vectorized", "unrolled": "unrolled"}

#: Most parameters of a function, or iteration variables of a block, that are written on one line.
_ON_ONE_LINE = 4


class StatementPrinter(ExpressionPrinter):
    """Writes any node."""

    def root(self, node: Node) -> None:
        """Write ``node``; variables and buffers that it does not define keep their names if possible."""
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
        """Return ``body`` as the statements to write in a row, and the let or allocation that follows them."""
        items = body.stmts if isinstance(body, SeqStmt) and len(body.stmts) != 1 else (body,)
        if items and isinstance(items[-1], (LetStmt, Allocate)):
            return items[:-1], items[-1]
        return items, None

    def opening(self, stmt: LetStmt | Allocate) -> Stmt:
        """Write the line of a let or an allocation, bind its name, and return the statement's body."""
        if isinstance(stmt, LetStmt):
            self.let(stmt)
        else:
            self.write("allocate ")
            self.bind(stmt.buffer)
            self.buffer(stmt.buffer)
        return stmt.body

    def let(self, stmt: LetStmt) -> None:
        # The value is written after the name but is outside of its scope.
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
        """Write one statement that can be followed by others: lets, allocations and sequences stand in braces."""
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
        # Bind before the bounds are written: the name to their left must differ from theirs.
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
        if block.needed is not None:
            self.write(" needed ")
            self.expr(block.needed)
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

    # What statements and functions declare.

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


_STMTS: dict[type, Callable[[StatementPrinter, Any], None]] = {
    For: StatementPrinter.for_loop,
    BufferStore: StatementPrinter.store,
    IfThenElse: StatementPrinter.if_then_else,
    Evaluate: StatementPrinter.evaluate,
    Block: StatementPrinter.block,
}
_OTHERS: dict[type, Callable[[StatementPrinter, Any], None]] = {
    PrimFunc: StatementPrinter.prim_func,
    Buffer: StatementPrinter.buffer,
    Range: StatementPrinter.range,
    BufferRegion: StatementPrinter.region,
    IterVar: StatementPrinter.iter_var,
}
