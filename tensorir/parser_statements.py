"""Build statements and functions of the loop-level IR from trees of the grammar, with what they declare: buffers,
iteration variables, regions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.expr import Buffer, Expr, IntImm, Var
from tilewright.tensorir.parser_expressions import ExpressionParser
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

_LOOP_KINDS = {"range": "serial", "parallel": "parallel", "vectorized": "vectorized", "unrolled": "unrolled"}


class StatementParser(ExpressionParser):
    """Builds statements and functions."""

    def buffer(self, name_tree: Any, tree: Any) -> Buffer:
        shape, dtype, scope, strides, align = tree.children
        made: Buffer = self.make(
            tree,
            Buffer,
            self.name(name_tree),
            self.extents(shape),
            self.dtype(dtype),
            str(scope or "global"),
            () if strides is None else self.extents(strides),
            0 if align is None else self.make(tree, int, str(align)),
        )
        return made

    def primfunc(self, tree: Any) -> PrimFunc:
        name, params_tree, attrs, body = tree.children
        mark = len(self.shadowed)
        trees = [param.children for param in params_tree.children if param is not None]
        params: dict[int, Var | Buffer] = {}
        names: set[str] = set()
        # Variables first: the shapes of the buffers before them mention them.
        for wanted in ("type", "buffer_type"):
            for position, (name_tree, type_tree) in enumerate(trees):
                if type_tree.data != wanted:
                    continue
                if wanted == "type":
                    param: Var | Buffer = Var(self.name(name_tree), self.dtype(type_tree))
                else:
                    param = self.buffer(name_tree, type_tree)
                if param.name in names:
                    raise self.error(name_tree, f"two parameters are named {param.name}")
                names.add(param.name)
                params[position] = param
                self.define(name_tree, param)
        values = {} if attrs is None else self.data(attrs)
        made = PrimFunc(
            self.global_name(name), tuple(params[position] for position in range(len(trees))), self.braces(body), values
        )
        self.restore(mark)
        return made

    def braces(self, tree: Any) -> Stmt:
        return self.statements(tree.children)

    def statements(self, trees: list[Any]) -> Stmt:
        """Statements in braces: a let or an allocation takes those after it as its body."""
        mark = len(self.shadowed)
        opened: list[tuple[list[Stmt], Callable[[Stmt], Stmt]]] = []
        items: list[Stmt] = []
        for tree in trees:
            if tree.data in ("let", "allocate"):
                opened.append((items, self.let(tree) if tree.data == "let" else self.allocate(tree)))
                items = []
            else:
                items.append(_STMTS[tree.data](self, tree))
        self.restore(mark)
        body = _collect(items)
        for before, wrap in reversed(opened):
            body = _collect([*before, wrap(body)])
        return body

    def let(self, tree: Any) -> Callable[[Stmt], Stmt]:
        name, type_tree, value_tree = tree.children
        var = Var(self.name(name), self.dtype(type_tree))
        value = self.expr(value_tree, var.dtype)
        self.define(name, var)
        return lambda body: self.make(tree, LetStmt, var, value, body)

    def allocate(self, tree: Any) -> Callable[[Stmt], Stmt]:
        name, type_tree = tree.children
        buffer = self.buffer(name, type_tree)
        self.define(name, buffer)
        return lambda body: Allocate(buffer, body)

    def bounds(self, tree: Any, dtype: DataType) -> tuple[Expr, Expr]:
        first, extent = tree.children
        if extent is None:
            return self.make(tree, IntImm, 0, dtype), self.expr(first, dtype)
        return self.expr(first, dtype), self.expr(extent, dtype)

    def for_loop(self, tree: Any) -> Stmt:
        name, type_tree, kind, bounds, annotations, body = tree.children
        var = Var(self.name(name), self.optional_dtype(type_tree))
        if not var.dtype.is_integer or var.dtype.lanes != 1:
            raise self.error(type_tree, f"expected an integer type, found {var.dtype!s}")
        minimum, extent = self.bounds(bounds, var.dtype)
        mark = len(self.shadowed)
        self.define(name, var)
        values = {} if annotations is None else self.data(annotations)
        inner = self.braces(body)
        self.restore(mark)
        made: Stmt = self.make(bounds, For, var, minimum, extent, _LOOP_KINDS[kind], inner, values)
        return made

    def if_then_else(self, tree: Any) -> Stmt:
        chain = []
        current = tree
        while current is not None and current.data == "if_then_else":
            condition, then_body, otherwise = current.children
            chain.append((condition, self.expr(condition), self.braces(then_body)))
            current = otherwise
        result: Stmt | None = None if current is None else self.braces(current)
        for condition_tree, condition, then in reversed(chain):
            result = self.make(condition_tree, IfThenElse, condition, then, result)
        assert result is not None  # the chain holds at least ``tree``
        return result

    def store(self, tree: Any) -> Stmt:
        target, value = tree.children
        buffer, indices, predicate = self.access_parts(target)
        made: Stmt = self.make(tree, BufferStore, buffer, self.expr(value, buffer.dtype), indices, predicate)
        return made

    def evaluate(self, tree: Any) -> Stmt:
        return Evaluate(self.expr(tree.children[0]))

    def group(self, tree: Any) -> Stmt:
        return self.braces(tree.children[0])

    def seq(self, tree: Any) -> Stmt:
        return SeqStmt((self.braces(tree.children[0]),))

    def block(self, tree: Any) -> Stmt:
        name, iters_tree, predicate, needed, annotations, reads, writes, init, body = tree.children
        mark = len(self.shadowed)
        trees = [item for item in iters_tree.children if item is not None]
        iters = tuple(self.iter_var(item) for item in trees)
        for item_tree, item in zip(trees, iters, strict=True):
            self.define(item_tree.children[0], item.var)
        made = Block(
            self.name(name),
            iters,
            None if predicate is None else self.expr(predicate),
            self.regions(reads),
            self.regions(writes),
            None if init is None else self.braces(init.children[0]),
            self.braces(body),
            {} if annotations is None else self.data(annotations),
            None if needed is None else self.expr(needed),
        )
        self.restore(mark)
        return made

    def iter_var(self, tree: Any) -> IterVar:
        name, type_tree, kind, bounds, value = tree.children
        var = Var(self.name(name), self.optional_dtype(type_tree))
        minimum, extent = self.bounds(bounds, var.dtype)
        made: IterVar = self.make(tree, IterVar, var, minimum, extent, str(kind), self.expr(value, var.dtype))
        return made

    def regions(self, tree: Any) -> tuple[BufferRegion, ...]:
        return () if tree is None else tuple(self.region(region) for region in tree.children)

    def region(self, tree: Any) -> BufferRegion:
        name, *ranges = tree.children
        made: BufferRegion = self.make(
            tree, BufferRegion, self.lookup_buffer(name), tuple(self.range(item) for item in ranges if item is not None)
        )
        return made

    def range(self, tree: Any) -> Range:
        minimum, extent = tree.children
        return Range(self.expr(minimum), IntImm(1) if extent is None else self.expr(extent))


def _collect(items: list[Stmt]) -> Stmt:
    return items[0] if len(items) == 1 else SeqStmt(tuple(items))


_STMTS: dict[str, Callable[[StatementParser, Any], Stmt]] = {
    "for_loop": StatementParser.for_loop,
    "if_then_else": StatementParser.if_then_else,
    "block": StatementParser.block,
    "store": StatementParser.store,
    "evaluate": StatementParser.evaluate,
    "group": StatementParser.group,
    "seq": StatementParser.seq,
}
