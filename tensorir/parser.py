"""Read the text of the loop-level IR back into nodes; the inverse of ``printer.py``.

``grammar.lark`` defines the text. ``parser_text.py`` reads it into trees and resolves names to definitions;
``parser_expressions.py`` and ``parser_statements.py`` build the nodes. Every error in a text is a :class:`ParseError`
that shows the line with the place underlined.

The graph-level IR holds functions of this IR in its own text: it finds the end of one with :func:`primfunc_end` and
hands the part to :func:`parse`, with ``first_line`` to keep line numbers right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from tilewright.tensorir.errors import ArgumentTypeError, ParseError
from tilewright.tensorir.expr import Buffer, Expr, Var
from tilewright.tensorir.nesting import bounded
from tilewright.tensorir.parser_statements import StatementParser
from tilewright.tensorir.stmt import PrimFunc, Stmt

T = TypeVar("T")

#: Tokens that may contain a brace that does not belong to a function's body, and the braces.
_OPAQUE = re.compile(r'"(?:[^"\\\n]|\\.)*"|`[^`\n]*`|#[^\n]*|(?<![\w.])attrs(?![\w.])|[{}]')


def parse(text: str, first_line: int = 1) -> PrimFunc:
    """Return the function that ``text`` describes.

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
    """Return the functions that ``text`` describes, in its order.

    Raises:
        ParseError: the text is not a list of functions.
    """
    return _build(
        lambda builder: [builder.primfunc(tree) for tree in builder.read("functions").children], text, first_line, {}
    )


def parse_stmt(text: str, names: Mapping[str, Var | Buffer] | None = None) -> Stmt:
    """Return the statement that ``text`` describes; ``names`` says what its free names stand for.

    Raises:
        ParseError: the text is no statement, or uses an unknown name.
    """
    return _build(lambda builder: builder.statements(builder.read("statements").children), text, 1, names or {})


def parse_expr(text: str, names: Mapping[str, Var | Buffer] | None = None) -> Expr:
    """Return the expression that ``text`` describes; ``names`` says what its free names stand for.

    Raises:
        ParseError: the text is no expression, or uses an unknown name.
    """
    return _build(lambda builder: builder.expr(builder.read("expression").children[0]), text, 1, names or {})


def primfunc_end(text: str, start: int) -> int:
    """Return the offset just after the function whose keyword ``primfunc`` stands at ``start``.

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
    raise ParseError(f"line {line}: the text ends inside the function that starts here")


def _build(build: Callable[[StatementParser], T], text: str, first_line: int, names: Mapping[str, Var | Buffer]) -> T:
    """Return the result of ``build`` on ``text``. Trees with positions take twice as long to read, so only a text with
    an error is read into them."""
    if not isinstance(text, str):
        raise ArgumentTypeError(f"expected the text of the loop-level IR, found {type(text).__name__}")
    with bounded("reading the text"):
        try:
            return build(StatementParser(text, first_line, names, places=False))
        except ParseError:
            return build(StatementParser(text, first_line, names, places=True))
