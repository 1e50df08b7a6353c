"""Read the text of the loop-level IR into trees of its grammar, resolve names, and show the place of errors."""

from __future__ import annotations

import difflib
import functools
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tilewright.tensorir.errors import ParseError
from tilewright.tensorir.expr import Buffer, Var

if TYPE_CHECKING:
    from lark import Lark

#: The names in parse errors of terminals that are not fixed text.
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

#: What is escaped in a name in backquotes, and the quotes that are not, which JSON does not have.
_ESCAPED = re.compile(r'(\\.)|"')


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
        name: str = json.loads('"' + _ESCAPED.sub(lambda found: found[1] or '\\"', token[1:-1]) + '"')
        return name
    return str(token)


class TextReader:
    """Reads one text; ``scope`` maps the names that are visible."""

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
        """Return the node ``kind(*args)``; an exception of its constructor becomes an error at ``tree``."""
        try:
            return kind(*args)
        except (TypeError, ValueError, OverflowError) as error:
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
            raise self.error(name_tree, f"undefined name {name}{nearest(name, self.scope)}")
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


def nearest(name: str, candidates: Iterable[str]) -> str:
    """Return a "did you mean" question with the candidates closest to ``name``; empty if none is close."""
    close = difflib.get_close_matches(name, list(candidates), n=3)
    return f"; did you mean {' or '.join(close)}?" if close else ""
