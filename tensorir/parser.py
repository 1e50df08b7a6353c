"""Reads the text of the loop-level IR back into nodes; the inverse of ``printer.py``.

``grammar.lark`` says what is text; this module resolves names to definitions, gives bare constants the type of the
place where they stand, and builds the nodes. Everything that is wrong with a text is a :class:`ParseError` that shows
the line with the place underlined.

The graph-level IR holds functions of this IR in its own text: it finds the end of one with :func:`primfunc_end` and
hands the part to :func:`parse`, with ``first_line`` to keep line numbers right.
"""

from __future__ import annotations

import difflib
import functools
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tilewright.tensorir.dtype import BOOL, FLOAT32, INT64, TENSOR_DTYPES, VOID, DataType
from tilewright.tensorir.errors import ParseError
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
from tilewright.tensorir.intrinsics import INTRINSICS
from tilewright.tensorir.spelling import INFIX, peer_hint
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

if TYPE_CHECKING:
    from lark import Lark

T = TypeVar("T")

_LOOP_KINDS = {"range": "serial", "parallel": "parallel", "vectorized": "vectorized", "unrolled": "unrolled"}
_BINARY_FUNCTIONS = ("min", "max", "truncdiv", "truncmod")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")

#: What a parse error calls the terminals of the grammar that are no fixed text.
_TERMINALS = {
    "NAME": "a name",
    "QUOTED": "a name",
    "GLOBAL": "a function name (@name)",
    "INT": "an integer",
    "FLOAT": "a number",
    "STRING": "a string",
    "KIND": "'spatial' or 'reduction'",
    "LOOP": "'range', 'parallel', 'vectorized' or 'unrolled'",
    "SCOPE": "'arena', 'stack', 'register' or 'global'",
    "$END": "the end of the text",
}

#: What can hold a brace that is no brace of a function.
_OPAQUE = re.compile(r'"(?:[^"\\\n]|\\.)*"|`[^`\n]*`|#[^\n]*|(?<![\w.])attrs(?![\w.])|[{}]')


def parse(text: str, first_line: int = 1) -> PrimFunc:
    """The function that ``text`` describes.

    Args:
        first_line: the number that errors give to the first line of ``text``.

    Raises:
        ParseError: the text is not exactly one function.
    """
    functions = parse_all(text, first_line)
    if len(functions) != 1:
        raise ParseError(f"expected the text of one function, found {len(functions)}")
    return functions[0]


def parse_all(text: str, first_line: int = 1) -> list[PrimFunc]:
    """The functions that ``text`` describes, in its order.

    Raises:
        ParseError: the text is not a list of functions.
    """
    return _build(
        lambda builder: [builder.primfunc(tree) for tree in builder.read("functions").children], text, first_line, {}
    )


def parse_stmt(text: str, names: Mapping[str, Var | Buffer] | None = None) -> Stmt:
    """The statement that ``text`` describes; ``names`` says what its free names stand for.

    Raises:
        ParseError: the text is no statement, or uses an unknown name.
    """
    return _build(lambda builder: builder.statements(builder.read("statements").children), text, 1, names or {})


def parse_expr(text: str, names: Mapping[str, Var | Buffer] | None = None) -> Expr:
    """The expression that ``text`` describes; ``names`` says what its free names stand for.

    Raises:
        ParseError: the text is no expression, or uses an unknown name.
    """
    return _build(lambda builder: builder.expr(builder.read("expression").children[0]), text, 1, names or {})


def primfunc_end(text: str, start: int) -> int:
    """The offset just after the function whose keyword ``primfunc`` stands at ``start``.

    Raises:
        ParseError: the text ends within the function.
    """
    depth, in_attributes = 0, False
    for match in _OPAQUE.finditer(text, start):
        found = match.group()
        if found == "{":
            depth += 1
        elif found == "}":
            depth -= 1
            if depth == 0:
                if not in_attributes:
                    return match.end()
                in_attributes = False
        elif found == "attrs" and depth == 0:
            in_attributes = True
    line = text.count("\n", 0, start) + 1
    raise ParseError(f"line {line}: the text ends within the function that starts here")


def _build(build: Callable[[_Builder], T], text: str, first_line: int, names: Mapping[str, Var | Buffer]) -> T:
    """What ``build`` makes of ``text``. Trees that know their places take twice as long, so that only a text with an
    error is read into them."""
    try:
        return build(_Builder(text, first_line, names, places=False))
    except ParseError:
        return build(_Builder(text, first_line, names, places=True))


@functools.cache
def _grammar(places: bool) -> Lark:
    from lark import Lark  # loaded when the first text is read: `import tilewright` must stay fast

    path = os.path.join(os.path.dirname(__file__), "grammar.lark")
    return Lark.open(
        path,
        parser="lalr",
        start=["functions", "statements", "expression"],
        propagate_positions=places,
        maybe_placeholders=True,
    )


def _unquote(token: str) -> str:
    if token.startswith("`"):
        name: str = json.loads('"' + token[1:-1].replace('"', '\\"') + '"')
        return name
    return str(token)


class _Builder:
    """Builds the nodes of one text; ``scope`` maps the names that are visible."""

    def __init__(self, text: str, first_line: int, names: Mapping[str, Var | Buffer], places: bool) -> None:
        self.source = text
        self.grammar = _grammar(places)
        self.first_line = first_line
        self.scope: dict[str, Var | Buffer] = dict(names)
        self.shadowed: list[tuple[str, Var | Buffer | None]] = []

    # Reading and errors.

    def read(self, start: str) -> Any:
        from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

        try:
            return self.grammar.parse(self.source, start=start)
        except UnexpectedToken as error:
            expected = set(error.accepts or error.expected)
            found = "the end of the text" if error.token.type == "$END" else f"{str(error.token)!r}"
            message = f"expected {self.expected(expected)}, found {found}"
            if error.token.type == "$END":
                raise self.error_at(self.source.rstrip().count("\n") + 1, None, 1, message) from None
            raise self.error_at(error.line, error.column, len(error.token), message) from None
        except UnexpectedCharacters as error:
            message = f"unexpected character {error.char!r}"
            raise self.error_at(error.line, error.column, 1, message) from None
        except UnexpectedInput as error:
            raise ParseError(str(error)) from error

    def expected(self, terminals: Iterable[str]) -> str:
        names = set()
        for terminal in terminals:
            if terminal in _TERMINALS:
                names.add(_TERMINALS[terminal])
            else:
                names.add(repr(self.grammar.get_terminal(terminal).pattern.value))
        listed = sorted(names)
        return listed[0] if len(listed) == 1 else "one of " + ", ".join(listed)

    def error(self, tree: Any, message: str) -> ParseError:
        """The error ``message`` at the place of ``tree`` (a tree or a token of the grammar)."""
        meta = getattr(tree, "meta", tree)
        if getattr(meta, "line", None) is None:
            return ParseError(message)
        length = meta.end_column - meta.column if meta.end_line == meta.line else 10**9
        return self.error_at(meta.line, meta.column, length, message)

    def error_at(self, line: int, column: int | None, length: int, message: str) -> ParseError:
        """``column`` None means the end of the line."""
        shown = [*self.source.split("\n"), ""][line - 1]
        if column is None:
            column = len(shown.rstrip()) + 1
        carets = " " * (column - 1) + "^" * max(1, min(length, len(shown) - column + 1))
        return ParseError(f"line {line + self.first_line - 1}, column {column}: {message}\n{shown}\n{carets}")

    def make(self, tree: Any, kind: Callable[..., Any], *args: Any) -> Any:
        """The node ``kind(*args)``; what it refuses is an error at ``tree``."""
        try:
            return kind(*args)
        except (TypeError, ValueError) as error:
            raise self.error(tree, str(error)) from None

    # Names.

    def define(self, name_tree: Any, node: Var | Buffer) -> None:
        name = self.name(name_tree)
        self.shadowed.append((name, self.scope.get(name)))
        self.scope[name] = node

    def restore(self, mark: int) -> None:
        while len(self.shadowed) > mark:
            name, before = self.shadowed.pop()
            if before is None:
                del self.scope[name]
            else:
                self.scope[name] = before

    def lookup(self, name_tree: Any) -> Var | Buffer:
        name = self.name(name_tree)
        found = self.scope.get(name)
        if found is None:
            raise self.error(name_tree, f"undefined name {name}{_nearest(name, self.scope)}")
        return found

    def lookup_buffer(self, name_tree: Any) -> Buffer:
        found = self.lookup(name_tree)
        if not isinstance(found, Buffer):
            raise self.error(name_tree, f"expected a buffer, found the variable {found.name} of type {found.dtype!s}")
        return found

    def name(self, name_tree: Any) -> str:
        name: str = self.make(name_tree, _unquote, name_tree.children[0])
        return name

    def global_name(self, token: Any) -> str:
        name: str = self.make(token, _unquote, token[1:])
        return name

    # Types.

    def dtype(self, tree: Any) -> DataType:
        name = str(tree.children[0])
        try:
            return DataType(name)
        except ValueError:
            raise self.error(tree, f"unknown data type {name}{_nearest(name, TENSOR_DTYPES)}") from None

    def optional_dtype(self, tree: Any) -> DataType:
        return INT64 if tree is None else self.dtype(tree)

    def extents(self, tree: Any) -> tuple[Expr, ...]:
        return tuple(self.expr(extent) for extent in tree.children if extent is not None)

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

    # Functions and statements.

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
        name, iters_tree, predicate, annotations, reads, writes, init, body = tree.children
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
            hint = None  # the operation around it will name the types that differ
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
            if len(args) != arity or dtype is not None:
                raise self.error(tree, f"{name}: expected {arity} arguments, found {len(args) + (dtype is not None)}")
            return build(self, tree, args)
        if name in INTRINSICS:
            return self.intrinsic(tree, name, args, dtype)
        try:
            target = DataType(name)
        except ValueError:
            known = (*INTRINSICS, *_FUNCTIONS, *TENSOR_DTYPES)
            raise self.error(token, f"unknown function {name}{_nearest(name, known)}") from None
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


def _collect(items: list[Stmt]) -> Stmt:
    return items[0] if len(items) == 1 else SeqStmt(tuple(items))


def _is_bare(tree: Any) -> bool:
    """Whether ``tree`` is a number without a type of its own, such as ``3`` or ``-2.5``."""
    return bool(tree.data == "number" or (tree.data == "neg" and tree.children[0].data == "number"))


def _nearest(name: str, candidates: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(candidates), n=3)
    return f"; did you mean {' or '.join(close)}?" if close else ""


_STMTS: dict[str, Callable[[_Builder, Any], Stmt]] = {
    "for_loop": _Builder.for_loop,
    "if_then_else": _Builder.if_then_else,
    "block": _Builder.block,
    "store": _Builder.store,
    "evaluate": _Builder.evaluate,
    "group": _Builder.group,
    "seq": _Builder.seq,
}
_EXPRS: dict[str, Callable[[_Builder, Any], Expr]] = {
    "not": _Builder.prefix,
    "neg": _Builder.prefix,
    "bitnot": _Builder.prefix,
    "true": _Builder.boolean,
    "false": _Builder.boolean,
    "inf": _Builder.special,
    "nan": _Builder.special,
    "parenthesized": _Builder.parenthesized,
    "variable": _Builder.variable,
    "access": _Builder.access,
    "call": _Builder.call,
}
_FUNCTIONS: dict[str, tuple[int, Callable[[_Builder, Any, list[Any]], Expr]]] = {
    **dict.fromkeys(_BINARY_FUNCTIONS, (2, _Builder.binary_function)),
    "select": (3, _Builder.select),
    "cast": (2, _Builder.cast),
    "ramp": (3, _Builder.ramp),
    "broadcast": (2, _Builder.broadcast),
}
