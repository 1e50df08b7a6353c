"""Find the source of a function, and show places in it: errors point at the user's own file, line and column."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from tilewright.tensorir.errors import ParseError, TilewrightError

E = TypeVar("E", bound=TilewrightError)


class Source:
    """The text and the syntax tree of one Python function.

    Attributes:
        function: the function.
        tree: its definition.
        names: what its free names stand for, as far as they are known when it is decorated.

    Raises:
        ParseError: there is no source, or it is not that of one function.
    """

    def __init__(self, function: Callable[..., Any], outer: dict[str, Any]) -> None:
        if not inspect.isfunction(function):
            raise ParseError(f"func: expected a Python function, found {type(function).__name__}: {function!r}")
        self.function = function
        try:
            lines, first = inspect.getsourcelines(function)
        except (OSError, TypeError, IndentationError) as error:
            raise ParseError(
                f"func reads the source of {function.__qualname__}, and there is none ({error}): put the function "
                "into a file or a notebook's cell, or make its loops with a Builder"
            ) from None
        self.file = inspect.getsourcefile(function) or function.__code__.co_filename
        self.lines = [line.rstrip("\n") for line in lines]
        indented = self.lines[0][:1].isspace()  # then it stands in another function or class
        self._before_first = first - 1 - indented
        self._skipped = int(indented)
        try:
            module = ast.parse("if True:\n" + "".join(lines) if indented else "".join(lines))
        except SyntaxError as error:  # the lines are only some of the function's, as Python counts them
            raise ParseError(f"func: the source of {function.__qualname__} cannot be told apart: {error}") from None
        found = [
            node for node in ast.walk(module) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        ]
        if not found or not isinstance(found[0], ast.FunctionDef):
            raise ParseError(f"func: expected a function defined by def, found {function.__qualname__}")
        self.tree: ast.FunctionDef = found[0]
        self.names = {**function.__globals__, **outer, **_captured(function)}

    def place(self, node: Any, message: str) -> str:
        """Return ``message`` with file, line and column of a node, and the line with the node underlined."""
        shown = self.lines[node.lineno - 1 - self._skipped]
        start = _characters(shown, node.col_offset)
        end = len(shown) if node.end_lineno != node.lineno else _characters(shown, node.end_col_offset)
        carets = " " * start + "^" * max(1, len(shown[start:end].rstrip()))
        where = f'File "{self.file}", line {node.lineno + self._before_first}, column {start + 1}'
        return f"{where}: {message}\n{shown}\n{carets}"

    def error(self, node: Any, message: str, kind: type[E] = ParseError) -> E:  # type: ignore[assignment]
        """Return the error ``message`` at a node."""
        return kind(self.place(node, message))


def _characters(line: str, offset: int) -> int:
    """The number of characters in the first bytes of a line, which is how syntax trees count."""
    return len(line.encode()[:offset].decode(errors="ignore"))


def _captured(function: Any) -> dict[str, Any]:
    """The values of the variables that a function captures."""
    values = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            values[name] = cell.cell_contents
        except ValueError:
            continue  # it gets a value later
    return values
