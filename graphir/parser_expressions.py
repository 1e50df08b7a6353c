"""Build expressions of the graph-level IR from trees of the grammar, and check the types that the text states."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.graphir.expr import Call, Constant, Expr, Function, GlobalVar, If, Let, Loop, Tuple, TupleGetItem, Var
from tilewright.graphir.op import get_operator
from tilewright.graphir.parser_types import TypeParser
from tilewright.graphir.types import Type
from tilewright.tensorir.dtype import TENSOR_DTYPES, as_dtype
from tilewright.tensorir.errors import ArgumentValueError, TypeInferenceError


class ExpressionParser(TypeParser):
    """Build expressions."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.globals: dict[str, GlobalVar] = {}
        self.constants: dict[str, Constant] = {}

    def block(self, tree: Any) -> Expr:
        mark = len(self.shadowed)
        lets: list[tuple[Any, Var, Expr]] = []
        *statements, last = tree.children
        for statement in statements:
            if statement.data == "bind":
                name, value, declared = statement.children
                self.define(name, self.typed(value, declared))
            else:
                name, declared, value, inferred = statement.children
                node = self.typed(value, inferred)
                var = Var(self.name_of(name), node.type if declared is None else self.type(declared))
                lets.append((statement, var, node))
                self.define(name, var)
        result = self.expr(last)
        self.restore(mark)
        for statement, var, node in reversed(lets):
            result = self.make(statement, Let, var, node, result)
        return result

    def typed(self, tree: Any, declared: Any) -> Expr:
        """Return the expression of ``tree``, whose type must be the declared one, if any."""
        node = self.expr(tree)
        if declared is None:
            return node
        expected = self.type(declared)
        if node.type is None and isinstance(node, Call):
            return Call(node.op, node.args, node.attrs, expected, node.span)
        if node.type is not None and node.type is not expected and node.type != expected:
            raise self.error(declared, f"declared as {expected}, but the type is {node.type}", TypeInferenceError)
        return node

    def expr(self, tree: Any) -> Expr:
        return _EXPRS[tree.data](self, tree)

    def local(self, tree: Any) -> Expr:
        return self.lookup(tree.children[0])

    def global_name(self, tree: Any) -> Expr:
        return self.global_var(tree.children[0])

    def named(self, tree: Any) -> Expr:
        token = tree.children[0]
        found = self.constants.get(str(token))
        if found is None:
            raise self.error(token, f"constant {token} is not described; expected a line `{token}: Tensor[...] ...`")
        return found

    def scalar(self, tree: Any) -> Expr:
        token, value = tree.children
        made: Constant = self.make(tree, _constant, self.data(value), str(token))
        return made

    def array(self, tree: Any) -> Expr:
        _, token, nested = tree.children
        if token not in TENSOR_DTYPES:
            raise self.error(token, f"unknown data type {token}; expected one of {', '.join(TENSOR_DTYPES)}")
        made: Constant = self.make(tree, _constant, self.nested(nested), str(token))
        return made

    def nested(self, tree: Any) -> Any:
        if tree.data != "nested":
            return self.data(tree)
        return [self.nested(child) for child in tree.children if child is not None]

    def call(self, tree: Any) -> Expr:
        callee, *rest = tree.children
        args: list[Expr] = []
        attrs: dict[str, Any] = {}
        for item in rest:
            if item is None:
                continue
            if item.data == "attribute":
                name = str(item.children[0])
                if name in attrs:
                    raise self.error(item, f"attribute {name} is given twice")
                attrs[name] = self.data(item.children[1])
            else:
                args.append(self.expr(item))
        if callee.type == "NAME":
            op: Any = self.make(callee, get_operator, str(callee))
            made: Expr = self.make(tree, Call, op, args, attrs)
            return made
        if attrs:
            raise self.error(tree, "a call of a function takes no attributes")
        op = self.lookup(callee) if callee.type == "LOCAL" else self.global_var(callee)
        made = self.make(tree, Call, op, args)
        return made

    def field(self, tree: Any) -> Expr:
        token, index = tree.children
        made: Expr = self.make(tree, TupleGetItem, self.lookup(token), self.make(index, int, index[1:]))
        return made

    def tuple(self, tree: Any) -> Expr:
        return Tuple([self.expr(child) for child in tree.children if child is not None])

    def if_then_else(self, tree: Any) -> Expr:
        condition, then_branch, else_branch = tree.children
        parts = self.expr(condition), self.block(then_branch), self.block(else_branch)
        made: Expr = self.make(tree, If, *parts)
        return made

    def function(self, tree: Any) -> Expr:
        names, result, *rest = tree.children
        params = [self.param(item) for item in names.children if item is not None]
        return self.function_of(tree, names, params, None if result is None else self.type(result), rest)

    def loop(self, tree: Any) -> Expr:
        _, trip_count, condition, *parts_of_body, collect = tree.children
        body, *initial = parts_of_body or [None]
        if body is None:
            raise self.error(tree, "loop: expected a trip count, a condition or None, and a body")
        asked = None if condition.data == "none" else self.expr(condition)
        state = [self.expr(item) for item in initial if item is not None]
        collected = [] if collect is None else [self.expr(item) for item in collect.children[1:]]
        parts = self.expr(trip_count), asked, self.expr(body), state
        made: Expr = self.make(tree, functools.partial(Loop, collect=collected), *parts)
        return made

    # Functions and their names.

    def param(self, tree: Any) -> Var:
        token, found = tree.children
        return Var(self.name_of(token), None if found is None else self.type(found))

    def function_of(self, tree: Any, names: Any, params: list[Var], result: Type | None, rest: list[Any]) -> Function:
        attrs, block = rest
        mark = len(self.shadowed)
        for param, item in zip(params, [item for item in names.children if item is not None], strict=True):
            self.define(item.children[0], param)
        body = self.block(block)
        self.restore(mark)
        attributes = None if attrs is None else self.data(attrs)
        made: Function = self.make(block.children[-1], Function, params, body, result, attributes)
        return made

    def global_var(self, token: Any) -> GlobalVar:
        name = self.name_of(token)
        return self.globals.setdefault(name, GlobalVar(name))


_EXPRS: dict[str, Callable[[ExpressionParser, Any], Expr]] = {
    "local": ExpressionParser.local,
    "global": ExpressionParser.global_name,
    "named": ExpressionParser.named,
    "scalar": ExpressionParser.scalar,
    "array": ExpressionParser.array,
    "call": ExpressionParser.call,
    "field": ExpressionParser.field,
    "tuple": ExpressionParser.tuple,
    "if_then_else": ExpressionParser.if_then_else,
    "function": ExpressionParser.function,
    "loop": ExpressionParser.loop,
    "block": ExpressionParser.block,
}


def _constant(value: Any, dtype: str) -> Constant:
    found = as_dtype(dtype)
    flat = np.asarray(value, dtype=object).reshape(-1)
    for item in flat:
        if isinstance(item, bool) != found.is_bool or (isinstance(item, float) and not found.is_float):
            raise ArgumentValueError(f"expected a value of type {dtype}, found {item!r}")
    if found.is_bool:
        return Constant(np.asarray(value, np.bool_))
    if not found.is_float:
        limits = np.iinfo(found.numpy)
        for item in flat:  # NumPy 1 would wrap it
            if not limits.min <= item <= limits.max:
                raise ArgumentValueError(f"{item} is out of bounds for {dtype}")
        return Constant(np.asarray(value, found.numpy))
    wide = np.asarray(value, np.float64)
    with np.errstate(over="ignore"):
        made = wide.astype(found.numpy)
    lost = np.isfinite(wide) & ~np.isfinite(made.astype(np.float64))
    if lost.any():
        raise ArgumentValueError(f"{wide[lost].flat[0]!r} does not fit into {dtype}")
    return Constant(made)
