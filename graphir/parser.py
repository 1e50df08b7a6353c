"""Reads the text of the graph-level IR back into a module; the inverse of ``printer.py``.

``grammar.lark`` says what is text; this module resolves names, builds the nodes, and checks the types that the text
states. Errors show the line with the place underlined. The time is linear in the length of the text.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import functools
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.graphir.dims import as_dim, symbol
from tilewright.graphir.expr import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Loop,
    Tuple,
    TupleGetItem,
    Var,
)
from tilewright.graphir.module import AnyFunction, IRModule
from tilewright.graphir.op import get_operator
from tilewright.graphir.printer import digest
from tilewright.graphir.types import FuncType, TensorType, TupleType, Type
from tilewright.tensorir.dtype import TENSOR_DTYPES, as_dtype
from tilewright.tensorir.errors import ParseError, TilewrightError, TypeInferenceError, UnsupportedOperatorError
from tilewright.tensorir.parser import parse as parse_loop_level
from tilewright.tensorir.parser import parse_expr, primfunc_end

if TYPE_CHECKING:
    from lark import Lark

_PRIMFUNC = re.compile(r"^[ \t]*(primfunc)\b", re.MULTILINE)
_SYMBOL = re.compile(r"[^\W\d]\w*")

_TERMINALS = {
    "LOCAL": "a variable (%name)",
    "GLOBAL": "a function name (@name)",
    "NAME": "a name",
    "CONSTANT": "a constant (const#0)",
    "CONST": "a constant",
    "DTYPE": "a constant",
    "LOOP": "a loop",
    "TENSOR": "a type",
    "DIM": "a dimension",
    "OPAQUE": "a value",
    "FIELD": "a field (.0)",
    "INT": "a number",
    "FLOAT": "a number",
    "STRING": "a string",
    "$END": "the end of the text",
}


def parse(text: str, constants: Mapping[str, np.ndarray[Any, Any]] | None = None) -> IRModule:
    """The module that ``text`` describes.

    Args:
        constants: arrays of large constants by their digest, for a text that does not hold their data: what
            ``large_constants(module)`` gives.

    Raises:
        ParseError: the text is no module, uses an undefined name, or needs an array that ``constants`` lacks.
        UnsupportedOperatorError: an operator is unknown; the closest ones are suggested.
        TypeInferenceError: an expression has no type, or another one than the text states.
    """
    functions: dict[str, AnyFunction] = {}
    source = _cut_loop_level(text, functions)
    builder = _Builder(source, constants or {})
    return builder.module(builder.read(), functions)


def _cut_loop_level(text: str, functions: dict[str, AnyFunction]) -> str:
    """Read the functions of the loop-level IR, and blank them out; lines keep their numbers.

    Where they stand among the others is not kept.
    """
    parts: list[str] = []
    at = 0
    while (found := _PRIMFUNC.search(text, at)) is not None:
        start = found.start(1)
        end = primfunc_end(text, start)
        function = parse_loop_level(text[start:end], text.count("\n", 0, start) + 1)
        if function.name in functions:
            raise ParseError(f"the module has two functions named @{function.name}")
        functions[function.name] = function
        parts.append(text[at:start])
        parts.append("\n" * text.count("\n", start, end))
        at = end
    parts.append(text[at:])
    return "".join(parts)


@functools.cache
def _grammar() -> Lark:
    from lark import Lark  # loaded when the first text is read: `import tilewright` must stay fast

    path = os.path.join(os.path.dirname(__file__), "grammar.lark")
    return Lark.open(path, parser="lalr", start="module", maybe_placeholders=True)


def _unquote(token: str) -> str:
    if token.startswith("`"):
        name: str = json.loads('"' + token[1:-1].replace('"', '\\"') + '"')
        return name
    return str(token)


def _tokens(tree: Any) -> Iterator[Any]:
    """The tokens of a tree, in order."""
    stack = [tree]
    while stack:
        item = stack.pop()
        if item is None:
            continue
        if hasattr(item, "children"):
            stack.extend(reversed(item.children))
        else:
            yield item


class _Builder:
    """Builds the nodes of one text; ``scope`` maps the names that are visible."""

    def __init__(self, source: str, constants: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self.source = source
        self.arrays = constants
        self.scope: dict[str, Expr] = {}
        self.shadowed: list[tuple[str, Expr | None]] = []
        self.globals: dict[str, GlobalVar] = {}
        self.constants: dict[str, Constant] = {}
        self.types: dict[str, Type] = {}

    # Reading and errors.

    def read(self) -> Any:
        from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

        try:
            return _grammar().parse(self.source)
        except UnexpectedToken as error:
            names = {_TERMINALS.get(name) or _terminal_text(name) for name in error.accepts or error.expected}
            expected = sorted(names)[0] if len(names) == 1 else f"one of {', '.join(sorted(names))}"
            if error.token.type == "$END":
                end = self.source.rstrip().split("\n")
                raise self.error_at(
                    len(end), len(end[-1]) + 1, 1, f"expected {expected}, found the end of the text"
                ) from None
            message = f"expected {expected}, found {str(error.token)!r}"
            raise self.error_at(error.line, error.column, len(error.token), message) from None
        except UnexpectedCharacters as error:
            raise self.error_at(error.line, error.column, 1, f"unexpected character {error.char!r}") from None
        except UnexpectedInput as error:
            raise ParseError(str(error)) from error

    def error_at(
        self, line: int, column: int, length: int, message: str, kind: type[TilewrightError] = ParseError
    ) -> TilewrightError:
        shown = [*self.source.split("\n"), ""][line - 1]
        carets = " " * (column - 1) + "^" * max(1, min(length, len(shown) - column + 1))
        return kind(f"line {line}, column {column}: {message}\n{shown}\n{carets}")

    def error(self, tree: Any, message: str, kind: type[TilewrightError] = ParseError) -> TilewrightError:
        """The error ``message`` at the first line of ``tree`` (a tree or a token)."""
        tokens = list(_tokens(tree))
        if not tokens:
            return kind(message)
        first = tokens[0]
        last = [token for token in tokens if token.line == first.line][-1]
        return self.error_at(first.line, first.column, last.end_column - first.column, message, kind)

    def make(self, tree: Any, build: Callable[..., Any], *args: Any) -> Any:
        """``build(*args)``; what it refuses is an error at ``tree``."""
        try:
            return build(*args)
        except (TypeInferenceError, UnsupportedOperatorError) as error:
            raise self.error(tree, str(error), type(error)) from None
        except (TypeError, ValueError) as error:
            raise self.error(tree, str(error)) from None

    # The module.

    def module(self, tree: Any, functions: dict[str, AnyFunction]) -> IRModule:
        definitions = [item for item in tree.children if item.data == "definition"]
        for item in tree.children:
            if item.data == "data_of_constant":
                self.data_of_constant(item)
        heads: list[tuple[str, list[Var], Type | None]] = []
        for item in definitions:
            name = _unquote(item.children[0][1:])
            if name in functions or any(name == other for other in self.globals):
                raise self.error(item.children[0], f"the module has two functions named @{name}")
            params = [self.param(param) for param in item.children[1].children if param is not None]
            result = None if item.children[2] is None else self.type(item.children[2])
            types = [param.type for param in params]
            known = None if result is None or None in types else FuncType(types, result)  # type: ignore[arg-type]
            self.globals[name] = GlobalVar(name, known)
            heads.append((name, params, result))
        loop_level = dict(functions)
        made: dict[GlobalVar, AnyFunction] = {}
        for item, (name, params, result) in zip(definitions, heads, strict=True):
            made[self.globals[name]] = self.function_of(item, item.children[1], params, result, item.children[3:])
        for name, function in loop_level.items():
            made[self.globals.setdefault(name, GlobalVar(name))] = function
        return IRModule(made)

    def param(self, tree: Any) -> Var:
        token, found = tree.children
        return Var(_unquote(token[1:]), None if found is None else self.type(found))

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

    def data_of_constant(self, tree: Any) -> None:
        name, found, how, token = tree.children
        described = self.type(found)
        if not isinstance(described, TensorType) or not all(isinstance(dim, int) for dim in described.shape):
            raise self.error(found, f"expected the type of a tensor of static shape, found {described}")
        text = json.loads(str(token))
        if how.type == "DIGEST":
            array = self.arrays.get(text)
            if array is None:
                raise self.error(
                    tree, "the text does not hold the data of this constant; give parse(text, constants=...) its array"
                )
            constant = Constant(np.asarray(array))
            if digest(constant) != text or constant.type != described:
                raise self.error(tree, f"expected the array of this type and digest, found {constant.type}")
        else:
            try:
                data = base64.b64decode(text, validate=True)
                shape = tuple(int(dim) for dim in described.shape)  # type: ignore[arg-type]  # static, see above
                constant = Constant(np.frombuffer(data, described.dtype.numpy).reshape(shape))
            except (binascii.Error, ValueError) as error:
                raise self.error(token, f"this is not the data of {described}: {error}") from None
        self.constants[str(name)] = constant

    # Names.

    def define(self, token: Any, node: Expr) -> None:
        name = str(token)
        self.shadowed.append((name, self.scope.get(name)))
        self.scope[name] = node

    def restore(self, mark: int) -> None:
        while len(self.shadowed) > mark:
            name, before = self.shadowed.pop()
            if before is None:
                del self.scope[name]
            else:
                self.scope[name] = before

    def lookup(self, token: Any) -> Expr:
        found = self.scope.get(token)
        if found is None:
            close = difflib.get_close_matches(str(token), self.scope, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise self.error(token, f"undefined variable {token}{hint}")
        return found

    def global_var(self, token: Any) -> GlobalVar:
        name = _unquote(token[1:])
        return self.globals.setdefault(name, GlobalVar(name))

    # Expressions.

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
                var = Var(_unquote(name[1:]), node.type if declared is None else self.type(declared))
                lets.append((statement, var, node))
                self.define(name, var)
        result = self.expr(last)
        self.restore(mark)
        for statement, var, node in reversed(lets):
            result = self.make(statement, Let, var, node, result)
        return result

    def typed(self, tree: Any, declared: Any) -> Expr:
        """The expression of ``tree``, whose type must be the declared one, if any."""
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
        made: Expr = self.make(tree, TupleGetItem, self.lookup(token), int(index[1:]))
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
        _, trip_count, condition, body, *initial, collect = tree.children
        if body is None:
            raise self.error(tree, "loop: expected a trip count, a condition or None, and a body")
        asked = None if condition.data == "none" else self.expr(condition)
        state = [self.expr(item) for item in initial if item is not None]
        collected = [] if collect is None else [self.expr(item) for item in collect.children[1:]]
        parts = self.expr(trip_count), asked, self.expr(body), state
        made: Expr = self.make(tree, functools.partial(Loop, collect=collected), *parts)
        return made

    # Types and data.

    def type(self, tree: Any) -> Type:
        children = [child for child in tree.children if child is not None]
        if tree.data == "tensor_type":
            return self.tensor_type(children[0])
        if tree.data == "tuple_type":
            return TupleType([self.type(child) for child in children])
        *params, result = [self.type(child) for child in children]
        return FuncType(params, result)

    def tensor_type(self, token: Any) -> Type:
        found = self.types.get(token)
        if found is None:
            inner = token[len("Tensor[") : -1]
            shape, comma, dtype = inner.rpartition(",")
            shape = shape.strip()
            if not comma or not shape.startswith("(") or not shape.endswith(")"):
                raise self.error(token, f"expected Tensor[(dimensions), element type], found {token}")
            dims = [self.dim(token, part) for part in _split(shape[1:-1])]
            found = self.types[str(token)] = self.make(token, TensorType, dims, dtype.strip())
        return found

    def dim(self, token: Any, text: str) -> Any:
        text = text.strip()
        if text.isdigit():
            return int(text)
        if _SYMBOL.fullmatch(text):
            return symbol(text)
        names = {name: symbol(name) for name in _SYMBOL.findall(text) if name not in ("min", "max")}
        try:
            return as_dim(parse_expr(text, names))
        except (TypeError, ValueError) as error:
            raise self.error(token, f"{text!r} is no dimension: {str(error).partition(chr(10))[0]}") from None

    def data(self, tree: Any) -> Any:
        children = [child for child in tree.children if child is not None]
        kind = tree.data
        if kind == "number":
            return int(children[0]) if children[0].type == "INT" else float(children[0])
        if kind == "negative":
            return -(int(children[0]) if children[0].type == "INT" else float(children[0]))
        if kind in ("list", "data_tuple"):
            values = [self.data(child) for child in children]
            return values if kind == "list" else tuple(values)
        if kind == "mapping":
            return {self.data(entry.children[0]): self.data(entry.children[1]) for entry in children}
        if kind == "text":
            return self.make(tree, json.loads, str(children[0]))
        if kind == "dim":
            return self.dim(children[0], children[0][len("dim[") : -1])
        if kind == "data_type":
            return self.tensor_type(children[0])
        if kind == "opaque":
            raise self.error(tree, "this attribute is an object that text does not describe")
        return _WORDS[kind]


_WORDS = {"none": None, "true": True, "false": False, "inf": math.inf, "nan": math.nan, "negative_inf": -math.inf}
_EXPRS: dict[str, Callable[[_Builder, Any], Expr]] = {
    "local": _Builder.local,
    "global": _Builder.global_name,
    "named": _Builder.named,
    "scalar": _Builder.scalar,
    "array": _Builder.array,
    "call": _Builder.call,
    "field": _Builder.field,
    "tuple": _Builder.tuple,
    "if_then_else": _Builder.if_then_else,
    "function": _Builder.function,
    "loop": _Builder.loop,
    "block": _Builder.block,
}


def _constant(value: Any, dtype: str) -> Constant:
    found = as_dtype(dtype)
    flat = np.asarray(value, dtype=object).reshape(-1)
    for item in flat:
        if isinstance(item, bool) != found.is_bool or (isinstance(item, float) and not found.is_float):
            raise ValueError(f"expected a value of type {dtype}, found {item!r}")
    wide = np.asarray(value, np.float64) if found.is_float else np.asarray(value, found.numpy)
    return Constant(wide.astype(found.numpy))


def _split(text: str) -> list[str]:
    """The parts of ``text`` between commas that stand in no parentheses; an empty last part is left out."""
    parts: list[str] = [""]
    depth = 0
    for char in text:
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts if parts[-1].strip() else parts[:-1]


def _terminal_text(name: str) -> str:
    return repr(_grammar().get_terminal(name).pattern.value)
