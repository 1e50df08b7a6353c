"""Read the text of the graph IR into a tree of its grammar, resolve names, and locate errors in the text."""

from __future__ import annotations

import difflib
import functools
import json
import os
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tilewright.graphir.expr import Expr
from tilewright.tensorir.errors import ParseError, TilewrightError, TypeInferenceError, UnsupportedOperatorError

if TYPE_CHECKING:
    from lark import Lark

#: Names of the grammar's terminals, other than fixed text, in parse errors.
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

#: What is escaped in a name in backquotes, and the quotes that are not, which JSON does not have.
_ESCAPED = re.compile(r'(\\.)|"')


@functools.cache
def _grammar() -> Lark:
    from lark import Lark  # loaded when the first text is read: `import tilewright` must stay fast

    path = os.path.join(os.path.dirname(__file__), "grammar.lark")
    return Lark.open(path, parser="lalr", start="module", maybe_placeholders=True)


def unquote(token: str) -> str:
    """Return the name that ``token`` stands for, without backquotes."""
    if token.startswith("`"):
        name: str = json.loads('"' + _ESCAPED.sub(lambda found: found[1] or '\\"', token[1:-1]) + '"')
        return name
    return str(token)


def _tokens(tree: Any) -> Iterator[Any]:
    """Yield the tokens of a tree, in order."""
    stack = [tree]
    while stack:
        item = stack.pop()
        if item is None:
            continue
        if hasattr(item, "children"):
            stack.extend(reversed(item.children))
        else:
            yield item


class TextReader:
    """Read one text; ``scope`` maps the names that are visible."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.scope: dict[str, Expr] = {}
        self.shadowed: list[tuple[str, Expr | None]] = []

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
        """Return the error ``message`` at the first line of ``tree`` (a tree or a token)."""
        tokens = list(_tokens(tree))
        if not tokens:
            return kind(message)
        first = tokens[0]
        last = [token for token in tokens if token.line == first.line][-1]
        return self.error_at(first.line, first.column, last.end_column - first.column, message, kind)

    def make(self, tree: Any, build: Callable[..., Any], *args: Any) -> Any:
        """Return ``build(*args)``; raise the errors of ``build`` as errors at ``tree``."""
        try:
            return build(*args)
        except (TypeInferenceError, UnsupportedOperatorError) as error:
            raise self.error(tree, str(error), type(error)) from None
        except (TypeError, ValueError, OverflowError) as error:
            raise self.error(tree, str(error)) from None

    # Names.

    def name_of(self, token: Any) -> str:
        """Return the name that a token such as ``%x`` or ``@main`` stands for."""
        name: str = self.make(token, unquote, token[1:])
        return name

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


def _terminal_text(name: str) -> str:
    return repr(_grammar().get_terminal(name).pattern.value)
