"""Read the expressions of loops that are written as Python: names, operators, calls, and elements of buffers.

What is known when the function is read is computed then, as Python does: numbers, tuples, helper functions of the user,
which get and give expressions. The rest becomes expressions of the IR. ``and``, ``or`` and ``a if c else b`` guard what
Python would not evaluate.
"""

from __future__ import annotations

import ast
import builtins
import functools
import numbers
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tilewright.tensorir import functions, guards, script_words
from tilewright.tensorir.builder import Builder
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.errors import ArgumentTypeError, ArgumentValueError, ParseError
from tilewright.tensorir.expr import (
    Buffer,
    BufferLoad,
    Expr,
    IntImm,
    as_expr,
    binary,
    compare,
    match_operands,
)
from tilewright.tensorir.parser_text import nearest
from tilewright.tensorir.reduction import highest, lowest
from tilewright.tensorir.script_operators import BUILTINS, COMPARISONS, OPERATORS, typed
from tilewright.tensorir.script_source import Source
from tilewright.tensorir.stmt import BufferRegion, Range


class Cell:
    """A local scalar that loops or branches assign to: a buffer with one element."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer


class ExpressionReader:
    """Reads expressions in the scope of names of a function."""

    def __init__(self, source: Source, builder: Builder) -> None:
        self.source = source
        self.builder = builder
        #: What local names stand for, the innermost body last.
        self.scopes: list[dict[str, Any]] = [{}]
        #: The type of what an assignment goes to, for numbers that a condition chooses among.
        self.expected: DataType | None = None
        #: Local names of bodies that have ended.
        self.ended: set[str] = set()
        #: Names that the value of the present assignment goes to.
        self.targets: tuple[str, ...] = ()
        #: Where expressions stand in the source, by the statement around.
        self.spans: dict[tuple[ast.AST | None, Expr], ast.AST] = {}

    def error(self, node: ast.AST, message: str) -> ParseError:
        """Return the error ``message`` at a place of the source."""
        return self.source.error(node, message)

    def make(self, node: ast.AST, kind: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return ``kind(*args)``; what it refuses is an error at ``node``."""
        try:
            return kind(*args, **kwargs)
        except ParseError:
            raise
        except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
            raise self.error(node, str(error)) from None

    # -- names ----------------------------------------------------------------------------------------------------

    def lookup(self, node: ast.Name) -> Any:
        for scope in reversed(self.scopes):
            if node.id in scope:
                return scope[node.id]
        if node.id in self.ended:
            raise self.error(node, f"{node.id} is only known in the body that assigns it; give it a value before")
        if node.id in self.source.names:
            return self.source.names[node.id]
        if hasattr(builtins, node.id):
            return getattr(builtins, node.id)
        known = [name for names in (*self.scopes, self.source.names, vars(builtins)) for name in names]
        raise self.error(node, f"unknown name {node.id}{nearest(node.id, known)}")

    # -- values ---------------------------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Any:
        """Return what an expression stands for: a value of Python, an expression of the IR, or a buffer."""
        read = _READERS.get(type(node))
        if read is None:
            what = type(node).__name__
            raise self.error(node, f"{what} cannot stand in loops; expected numbers, names, operators, elements, calls")
        expected = self.expected
        if not isinstance(node, (ast.IfExp, ast.BinOp, ast.UnaryOp)):
            self.expected = None  # what is inside has types of its own
        found = read(self, node)
        self.expected = expected
        if isinstance(found, Expr):
            self.spans.setdefault((self.builder.origin, found), node)
        return found

    def scalar(self, node: ast.expr) -> Any:
        """Return the value of an expression that is a number, for Python or in the IR."""
        return self.checked(node, self.value(node))

    def checked(self, node: ast.expr, value: Any) -> Any:
        """Return ``value``, which is that of ``node``, if it is a number, for Python or in the IR."""
        if isinstance(value, Buffer):
            raise self.error(node, f"expected a value, found the buffer {value.name}; an element is {value.name}[..]")
        if not isinstance(value, (Expr, numbers.Number)) and getattr(value, "shape", None) != ():
            raise self.error(node, f"expected a number or an expression, found {type(value).__name__}: {value!r}")
        return value

    def constant(self, node: ast.Constant) -> Any:
        return node.value

    def name(self, node: ast.Name) -> Any:
        found = self.lookup(node)
        return found.buffer[()] if isinstance(found, Cell) else found

    def attribute(self, node: ast.Attribute) -> Any:
        held = self.value(node.value)
        try:
            return getattr(held, node.attr)
        except AttributeError as error:
            public = [name for name in dir(held) if not name.startswith("_")]
            raise self.error(node, f"{error}{nearest(node.attr, public)}") from None

    def elements(self, nodes: Sequence[ast.expr]) -> Iterator[Any]:
        """Give the values of expressions, and those of what a star stands before."""
        for node in nodes:
            if isinstance(node, ast.Starred):
                yield from self.make(node, tuple, self.value(node.value))
            else:
                yield self.value(node)

    def row(self, node: ast.Tuple) -> Any:
        return tuple(self.elements(node.elts))

    def sequence(self, node: ast.List) -> Any:
        return list(self.elements(node.elts))

    def mapping(self, node: ast.Dict) -> Any:
        if None in node.keys:
            raise self.error(node, "** cannot stand in loops")
        return {self.value(key): self.value(item) for key, item in zip(node.keys, node.values, strict=True) if key}

    def text(self, node: ast.JoinedStr) -> str:
        parts = []
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                form = "" if part.format_spec is None else self.value(part.format_spec)
                value = self.value(part.value)
                parts.append(self.make(part, format, repr(value) if part.conversion == ord("r") else value, form))
            else:
                parts.append(str(self.value(part)))
        return "".join(parts)

    # -- elements of buffers --------------------------------------------------------------------------------------

    def subscript(self, node: ast.Subscript) -> Any:
        held = self.value(node.value)
        if not isinstance(held, Buffer):
            return self.make(node, operator.getitem, held, self.value(node.slice))
        indices = self.indices(node)
        if any(isinstance(index, slice) for index in indices):
            return self.make(node, self.region, held, indices)
        return self.make(node, BufferLoad, held, indices)

    def indices(self, node: ast.Subscript) -> tuple[Any, ...]:
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        found: list[Any] = []
        for part in parts:
            if isinstance(part, ast.Slice):
                bounds = [
                    None if bound is None else self.scalar(bound) for bound in (part.lower, part.upper, part.step)
                ]
                found.append(slice(*bounds))
            elif isinstance(part, ast.Starred):
                found.extend(self.elements([part]))
            else:
                value = self.value(part)
                items = value if isinstance(value, tuple) and len(parts) == 1 else (value,)
                found.extend([self.make(part, as_expr, self.checked(part, item)) for item in items])
        return tuple(found)

    def region(self, buffer: Buffer, indices: Sequence[Any]) -> BufferRegion:
        if len(indices) != buffer.ndim:
            raise ArgumentTypeError(f"buffer {buffer.name} has {buffer.ndim} dimensions, found {len(indices)} indices")
        ranges = []
        for index, extent in zip(indices, buffer.shape, strict=True):
            if not isinstance(index, slice):
                ranges.append(Range(index, as_expr(1)))
                continue
            if index.step is not None:
                raise ArgumentValueError("a region has no steps")
            begin, end = (0 if index.start is None else index.start), (extent if index.stop is None else index.stop)
            ranges.append(Range(as_expr(begin), binary("sub", end, begin)))
        return BufferRegion(buffer, tuple(ranges))

    # -- operators ------------------------------------------------------------------------------------------------

    def binary(self, node: ast.BinOp) -> Any:
        return self.combine(
            node, type(node.op), (node.left, self.value(node.left)), (node.right, self.value(node.right))
        )

    def combine(
        self, node: ast.AST, kind: type[ast.AST], left: tuple[ast.expr, Any], right: tuple[ast.expr, Any]
    ) -> Any:
        """Return what an operator gives for two operands, each with its place."""
        a, b = left[1], right[1]
        if not isinstance(a, (Expr, Buffer)) and not isinstance(b, (Expr, Buffer)):
            return self.make(node, OPERATORS[kind], a, b)
        a, b = self.checked(*left), self.checked(*right)
        if kind is ast.MatMult:
            raise self.error(node, "@ cannot stand in loops, which say what each element is")
        if kind is ast.Pow:
            if isinstance(b, int) and 1 <= b <= 4:
                return self.make(node, functools.reduce, operator.mul, [a] * b)
            return self.make(node, functions.pow, a, b)
        a, b = self.make(node, match_operands, *self.peers(node, a, b))
        if a.dtype is not b.dtype:
            raise self.error(node, f"operands have different types, {a.dtype!s} and {b.dtype!s}: cast one of them")
        return self.make(node, OPERATORS[kind], a, b)

    def peers(self, node: ast.AST, a: Any, b: Any) -> tuple[Any, Any]:
        """Return two operands, numbers as constants of the other one's type."""
        if isinstance(a, Expr) and not isinstance(b, Expr):
            return a, self.constant_of(node, b, a.dtype)
        if isinstance(b, Expr) and not isinstance(a, Expr):
            return self.constant_of(node, a, b.dtype), b
        return a, b

    def constant_of(self, node: ast.AST, value: Any, dtype: DataType) -> Expr:
        """Return a value as an expression; a number becomes a constant of that type, in which it must fit."""
        if isinstance(value, int) and dtype.is_integer and not lowest(dtype) <= value <= highest(dtype):
            raise self.error(node, f"{value} does not fit into {dtype!s}")
        made: Expr = self.make(node, as_expr, value, dtype)
        return made

    def unary(self, node: ast.UnaryOp) -> Any:
        value = self.scalar(node.operand)
        if isinstance(node.op, ast.Not):
            if not isinstance(value, Expr):
                return not value
            if not value.dtype.is_bool:
                raise self.error(node, f"not: expected a bool, found {value.dtype!s}")
            return guards.negation(value)
        if isinstance(node.op, ast.UAdd):
            return value
        return self.make(node, operator.neg if isinstance(node.op, ast.USub) else operator.invert, value)

    def compare(self, node: ast.Compare) -> Any:
        result: Any = True
        left, left_node = self.value(node.left), node.left
        for kind, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.value(right_node)
            op, in_python = COMPARISONS[type(kind)]
            if isinstance(left, (Expr, Buffer)) or isinstance(right, (Expr, Buffer)):
                if op:
                    found = self.make(
                        node,
                        compare,
                        op,
                        *self.peers(node, self.checked(left_node, left), self.checked(right_node, right)),
                    )
                elif type(kind) in (ast.Is, ast.IsNot):
                    found = in_python(left, right)
                else:
                    raise self.error(node, "in: what is compared is not known before the loops run")
            else:
                found = self.make(node, in_python, left, right)
            result = self.both(node, result, found)
            left, left_node = right, right_node
        return result

    def both(self, node: ast.AST, a: Any, b: Any) -> Any:
        """Return ``a and b``."""
        a, b = _known(a), _known(b)
        if not isinstance(a, Expr):
            return b if a else a
        return self.make(node, guards.both, a, as_expr(b))

    def logical(self, node: ast.BoolOp) -> Any:
        is_and = isinstance(node.op, ast.And)
        result = _known(self.value(node.values[0]))
        for part in node.values[1:]:
            if not isinstance(result, Expr):
                if bool(result) is not is_and:
                    return result
                result = _known(self.value(part))
                continue
            other = _known(self.scalar(part))
            result = self.make(node, guards.both if is_and else guards.either, result, self.make(part, as_expr, other))
        return result

    def condition(self, node: ast.expr) -> Any:
        """Return a condition: a bool where it is known now, else an expression."""
        value = _known(self.value(node))
        if isinstance(value, Expr) and not value.dtype.is_bool:
            raise self.error(node, f"expected a bool condition, found {value.dtype!s}; compare it, such as with != 0")
        return value if isinstance(value, Expr) else self.make(node, bool, value)

    def conditional(self, node: ast.IfExp) -> Any:
        expected, self.expected = self.expected, None
        condition = self.condition(node.test)
        self.expected = expected
        if not isinstance(condition, Expr):
            return self.value(node.body if condition else node.orelse)
        values = typed([self.scalar(node.body), self.scalar(node.orelse)], expected)
        return self.make(node, guards.if_then_else, condition, *values)

    # -- calls ----------------------------------------------------------------------------------------------------

    def call(self, node: ast.Call) -> Any:
        function = self.value(node.func)
        names, self.targets = self.targets, ()
        args = list(self.elements(node.args))
        if any(item.arg is None for item in node.keywords):
            raise self.error(node, "** cannot stand in loops")
        given = {str(item.arg): self.value(item.value) for item in node.keywords}
        if _among(function, script_words.CALLS):
            return self.word(node, function, args, given, names)
        if _among(function, (*script_words.LOOPS, *script_words.SCOPES)) and function is not range:
            where = "for" if _among(function, tuple(script_words.LOOPS)) else "with"
            raise self.error(node, f"{function.__name__} stands in a {where} statement")
        if any(isinstance(value, Expr) for value in args):
            function = BUILTINS.get(function, function) if _among(function, tuple(BUILTINS)) else function
        return self.host_call(node, function, args, given)

    def host_call(self, node: ast.Call, function: Any, args: Sequence[Any], given: dict[str, Any]) -> Any:
        """Call a function of Python now: it gets expressions, and gives what stands in its place."""
        try:
            return function(*args, **given)
        except Exception as error:
            if str(getattr(function, "__module__", None)).startswith("tilewright."):
                raise self.error(node, str(error)) from None
            hint = ""
            name = getattr(function, "__name__", "")
            if hasattr(functions, name) and function is not getattr(functions, name):
                hint = f"; tensorir has a function {name} of expressions"
            elif function in (int, float, bool):
                hint = "; cast(dtype, value) converts expressions"
            raise self.error(node, f"{ast.unparse(node.func)}: {type(error).__name__}: {error}{hint}") from error

    def word(
        self, node: ast.Call, function: Any, args: Sequence[Any], given: dict[str, Any], names: Sequence[str]
    ) -> Any:
        """Call the builder's method of the same name, with the names that the result is assigned to."""
        word = function.__name__
        if word in ("axes", "spatial", "reduce", "alloc") and not names:
            count = "one name, or a tuple of them" if word == "axes" else "one name"
            raise self.error(node, f"the result of {word} is assigned to {count}")
        if word == "axes":
            given["names"] = names if len(names) == len(args[-1] if args else ()) else ()
        elif names:
            given["name"] = names[0]
        return self.make(node, getattr(self.builder, word), *args, **given)

    def comprehension(self, node: ast.ListComp | ast.GeneratorExp) -> Any:
        """Return the list of what is known now how often it is repeated."""
        found: list[Any] = []
        self.generate(node.generators, node.elt, found)
        return found

    def generate(self, generators: Sequence[ast.comprehension], element: ast.expr, found: Any) -> None:
        if not generators:
            found.append(self.value(element))
            return
        first = generators[0]
        for item in self.make(first.iter, iter, self.value(first.iter)):
            self.scopes.append({})
            self.unpack(first.target, item)
            conditions = [self.condition(test) for test in first.ifs]
            for test, condition in zip(first.ifs, conditions, strict=True):
                if isinstance(condition, Expr):
                    raise self.error(test, "how often this is repeated depends on a value that only loops know")
            if all(conditions):
                self.generate(generators[1:], element, found)
            self.scopes.pop()

    def unpack(self, target: ast.expr, value: Any) -> None:
        """Let the names of a target stand for a value of Python."""
        if isinstance(target, ast.Name):
            self.scopes[-1][target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            values = self.make(target, tuple, value)
            if len(values) != len(target.elts):
                raise self.error(target, f"expected {len(target.elts)} values, found {len(values)}")
            for part, item in zip(target.elts, values, strict=True):
                self.unpack(part, item)
        else:
            raise self.error(target, "expected a name")


def _known(value: Any) -> Any:
    """The bool that a constant condition is."""
    return bool(value.value) if isinstance(value, IntImm) and value.dtype.is_bool else value


def _among(function: Any, words: Sequence[Any]) -> bool:
    return any(function is word for word in words)


_READERS: dict[type[ast.AST], Callable[[ExpressionReader, Any], Any]] = {
    ast.Constant: ExpressionReader.constant,
    ast.Name: ExpressionReader.name,
    ast.Attribute: ExpressionReader.attribute,
    ast.Tuple: ExpressionReader.row,
    ast.List: ExpressionReader.sequence,
    ast.Dict: ExpressionReader.mapping,
    ast.JoinedStr: ExpressionReader.text,
    ast.Subscript: ExpressionReader.subscript,
    ast.BinOp: ExpressionReader.binary,
    ast.UnaryOp: ExpressionReader.unary,
    ast.Compare: ExpressionReader.compare,
    ast.BoolOp: ExpressionReader.logical,
    ast.IfExp: ExpressionReader.conditional,
    ast.Call: ExpressionReader.call,
    ast.ListComp: ExpressionReader.comprehension,
    ast.GeneratorExp: ExpressionReader.comprehension,
}
