"""Build expressions of the loop-level IR from trees of the grammar, and the plain data of annotations and attributes.

A bare constant takes the type of the place where it stands, by the same rule by which the printer omits types.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.tensorir.dtype import BOOL, FLOAT32, INT64, TENSOR_DTYPES, VOID, DataType
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
)
from tilewright.tensorir.intrinsics import INTRINSICS
from tilewright.tensorir.parser_text import TextReader, nearest
from tilewright.tensorir.spelling import INFIX, peer_hint

_BINARY_FUNCTIONS = ("min", "max", "truncdiv", "truncmod")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


class ExpressionParser(TextReader):
    """Builds expressions."""

    # Types.

    def dtype(self, tree: Any) -> DataType:
        name = str(tree.children[0])
        try:
            return DataType(name)
        except ValueError:
            raise self.error(tree, f"unknown data type {name}{nearest(name, TENSOR_DTYPES)}") from None

    def optional_dtype(self, tree: Any) -> DataType:
        return INT64 if tree is None else self.dtype(tree)

    def extents(self, tree: Any) -> tuple[Expr, ...]:
        return tuple(self.expr(extent) for extent in tree.children if extent is not None)

    # Expressions.

    def expr(self, tree: Any, hint: DataType | None = None) -> Expr:
        """The expression of ``tree``; a bare constant takes the type ``hint``."""
        if _is_bare(tree):
            return self.constant(tree, hint)
        if tree.data in INFIX:
            return self.infix(tree)
        return _EXPRS[tree.data](self, tree)

    def operands(self, *trees: Any) -> list[Expr]:
        """Operands of one type: the bare constants among them take the type of the first other one."""
        built = {position: self.expr(tree) for position, tree in enumerate(trees) if not _is_bare(tree)}
        hint = peer_hint((False, expr.dtype) for expr in built.values())
        return [built[at] if at in built else self.constant(tree, hint) for at, tree in enumerate(trees)]

    def infix(self, tree: Any) -> Expr:
        """A left-leaning chain of operations, without recursion over its length."""
        spine = [tree]
        while spine[-1].children[0].data in INFIX:
            spine.append(spine[-1].children[0])
        left: Expr | None = None
        for current in reversed(spine):
            a_tree, b_tree = current.children
            if left is None:
                left, right = self.operands(a_tree, b_tree)
            else:
                right = self.expr(b_tree, left.dtype)
            kind = Compare if current.data in _COMPARISONS else BinaryOp
            left = self.make(current, kind, str(current.data), left, right)
        assert left is not None  # the spine holds at least ``tree``
        return left

    def constant(self, tree: Any, hint: DataType | None) -> Expr:
        """A number, with its sign, of type ``hint`` or else int64 or float32."""
        negative = tree.data == "neg"
        token = (tree.children[0] if negative else tree).children[0]
        text = f"-{token}" if negative else str(token)
        if hint is not None and (hint.lanes != 1 or hint.is_bool):
            hint = None  # the enclosing operation will report the types that differ
        if token.type == "INT" and not (hint is not None and hint.is_float):
            made: Expr = self.make(tree, IntImm, self.make(tree, int, text), hint or INT64)
            return made
        if hint is not None and not hint.is_float:
            raise self.error(tree, f"expected a constant of type {hint!s}, found {text}")
        with np.errstate(over="ignore"):
            number: FloatImm = self.make(tree, FloatImm, float(text), hint or FLOAT32)
        if not math.isfinite(number.value):
            raise self.error(tree, f"{text} does not fit into {number.dtype!s}")
        return number

    def prefix(self, tree: Any) -> Expr:
        made: Expr = self.make(tree, UnaryOp, str(tree.data), self.expr(tree.children[0]))
        return made

    def boolean(self, tree: Any) -> Expr:
        return IntImm(int(tree.data == "true"), BOOL)

    def special(self, tree: Any) -> Expr:
        raise self.error(tree, f"expected a typed constant such as float32({tree.data})")

    def parenthesized(self, tree: Any) -> Expr:
        return self.expr(tree.children[0])

    def variable(self, tree: Any) -> Expr:
        found = self.lookup(tree.children[0])
        if isinstance(found, Buffer):
            raise self.error(tree, f"expected a value, found the buffer {found.name}; an element is {found.name}[...]")
        return found

    def access_parts(self, tree: Any) -> tuple[Buffer, tuple[Expr, ...], Expr | None]:
        name, indices, predicate = tree.children
        buffer = self.lookup_buffer(name)
        return (
            buffer,
            tuple(self.expr(index) for index in indices.children),
            None if predicate is None else self.expr(predicate),
        )

    def access(self, tree: Any) -> Expr:
        made: Expr = self.make(tree, BufferLoad, *self.access_parts(tree))
        return made

    def call(self, tree: Any) -> Expr:
        token = tree.children[0]
        args = [arg for arg in tree.children[1:] if arg is not None and arg.data != "given"]
        given = {str(arg.children[0]): arg for arg in tree.children[1:] if arg is not None and arg.data == "given"}
        dtype = self.dtype(given.pop("dtype").children[1]) if "dtype" in given else None
        for name, arg in given.items():
            raise self.error(arg, f"unknown argument {name}; expected dtype")
        name = str(token)
        if name.startswith("@"):
            values = tuple(self.expr(arg) for arg in args)
            return Call("@" + self.global_name(token), values, VOID if dtype is None else dtype)
        special = _FUNCTIONS.get(name)
        if special is not None:
            arity, build = special
            enough = len(args) >= -arity if arity < 0 else len(args) == arity
            if not enough or dtype is not None:
                expected = f"at least {-arity}" if arity < 0 else arity
                raise self.error(
                    tree, f"{name}: expected {expected} arguments, found {len(args) + (dtype is not None)}"
                )
            return build(self, tree, args)
        if name in INTRINSICS:
            return self.intrinsic(tree, name, args, dtype)
        try:
            target = DataType(name)
        except ValueError:
            known = (*INTRINSICS, *_FUNCTIONS, *TENSOR_DTYPES)
            raise self.error(token, f"unknown function {name}{nearest(name, known)}") from None
        if len(args) != 1 or dtype is not None:
            raise self.error(tree, f"{name}: expected 1 argument, found {len(args)}")
        return self.typed(tree, args[0], target)

    def intrinsic(self, tree: Any, name: str, args: list[Any], dtype: DataType | None) -> Expr:
        intrinsic = INTRINSICS[name]
        if len(args) != intrinsic.arity:
            raise self.error(tree, f"{name}: expected {intrinsic.arity} arguments, found {len(args)}")
        values = [self.expr(arg) for arg in args] if intrinsic.operands == "any" else self.operands(*args)
        result = dtype if dtype is not None else self.make(tree, intrinsic.result_type, values)
        made: Expr = self.make(tree, Call, name, tuple(values), result)
        return made

    def typed(self, tree: Any, arg: Any, dtype: DataType) -> Expr:
        """``int32(3)``: a constant; ``int32(x)``: a cast."""
        negative = arg.data == "neg" and arg.children[0].data in ("inf", "nan")
        word = arg.children[0].data if negative else arg.data
        if word in ("inf", "nan"):
            value = {"inf": -math.inf if negative else math.inf, "nan": math.nan}[word]
            made: Expr = self.make(tree, FloatImm, value, dtype)
        elif _is_bare(arg):
            if dtype.is_bool or dtype.lanes != 1:
                raise self.error(tree, f"expected a constant of a scalar number type, found {dtype!s}")
            made = self.constant(arg, dtype)
        else:
            made = self.make(tree, Cast, dtype, self.expr(arg))
        return made

    def binary_function(self, tree: Any, args: list[Any]) -> Expr:
        made: Expr = self.make(tree, BinaryOp, str(tree.children[0]), *self.operands(*args))
        return made

    def select(self, tree: Any, args: list[Any]) -> Expr:
        made: Expr = self.make(tree, Select, self.expr(args[0]), *self.operands(*args[1:]))
        return made

    def choose(self, tree: Any, args: list[Any]) -> Expr:
        made: Expr = self.make(tree, Choose, self.expr(args[0]), tuple(self.operands(*args[1:])))
        return made

    def cast(self, tree: Any, args: list[Any]) -> Expr:
        if args[0].data != "variable":
            raise self.error(args[0], "cast: expected a data type first")
        dtype = self.dtype(args[0].children[0])
        made: Expr = self.make(tree, Cast, dtype, self.expr(args[1]))
        return made

    def ramp(self, tree: Any, args: list[Any]) -> Expr:
        made: Expr = self.make(tree, Ramp, *self.operands(*args[:2]), self.lanes(args[2]))
        return made

    def broadcast(self, tree: Any, args: list[Any]) -> Expr:
        made: Expr = self.make(tree, Broadcast, self.expr(args[0]), self.lanes(args[1]))
        return made

    def lanes(self, tree: Any) -> int:
        if tree.data != "number" or tree.children[0].type != "INT":
            raise self.error(tree, "expected a number of lanes")
        lanes: int = self.make(tree, int, str(tree.children[0]))
        return lanes

    # Plain data.

    def data(self, tree: Any) -> Any:
        children = [child for child in tree.children if child is not None]
        kind = tree.data
        if kind == "mapping":
            return self.make(tree, dict, [[self.data(part) for part in entry.children] for entry in children])
        if kind in ("list", "tuple"):
            values = [self.data(child) for child in children]
            return values if kind == "list" else tuple(values)
        if kind == "embedded":
            inner = children[0]
            return self.lookup(inner.children[0]) if inner.data == "variable" else self.expr(inner)
        if kind == "text":
            return self.make(tree, json.loads, str(children[0]))
        if kind in ("positive", "negative"):
            number = self.make(tree, int if children[0].type == "INT" else float, str(children[0]))
            return number if kind == "positive" else -number
        return {"none": None, "true": True, "false": False}[kind]


def _is_bare(tree: Any) -> bool:
    """Return whether ``tree`` is a number without a type of its own, such as ``3`` or ``-2.5``."""
    return bool(tree.data == "number" or (tree.data == "neg" and tree.children[0].data == "number"))


_EXPRS: dict[str, Callable[[ExpressionParser, Any], Expr]] = {
    "not": ExpressionParser.prefix,
    "neg": ExpressionParser.prefix,
    "bitnot": ExpressionParser.prefix,
    "true": ExpressionParser.boolean,
    "false": ExpressionParser.boolean,
    "inf": ExpressionParser.special,
    "nan": ExpressionParser.special,
    "parenthesized": ExpressionParser.parenthesized,
    "variable": ExpressionParser.variable,
    "access": ExpressionParser.access,
    "call": ExpressionParser.call,
}
#: Functions that are not intrinsics: the number of arguments (``-n``: at least ``n``), and the builder of the node.
_FUNCTIONS: dict[str, tuple[int, Callable[[ExpressionParser, Any, list[Any]], Expr]]] = {
    **dict.fromkeys(_BINARY_FUNCTIONS, (2, ExpressionParser.binary_function)),
    "select": (3, ExpressionParser.select),
    "choose": (-2, ExpressionParser.choose),
    "cast": (2, ExpressionParser.cast),
    "ramp": (3, ExpressionParser.ramp),
    "broadcast": (2, ExpressionParser.broadcast),
}
