"""Collect a node's text: its pieces, its indentation, the names of variables and buffers, and the places of marked
nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tilewright.tensorir.expr import Buffer, Var
from tilewright.tensorir.node import Node
from tilewright.tensorir.spelling import quote_name

_INDENT = "  "


class TextWriter:
    """Writes text, names what is visible at one place differently, and records the places of ``marked`` nodes."""

    def __init__(self, marked: tuple[Node, ...] = ()) -> None:
        self.spans: dict[Node, list[tuple[int, int]]] = {node: [] for node in marked}
        self.parts: list[str] = []
        self.length = 0
        self.depth = 0
        self.names: dict[Node, str] = {}
        self.taken: set[str] = set()
        self.uses: dict[str, int] = {}
        self.bound: list[tuple[Node, str, str]] = []

    # Text.

    def text(self) -> str:
        return "".join(self.parts)

    def write(self, text: str) -> None:
        self.parts.append(text)
        self.length += len(text)

    def newline(self) -> None:
        self.write("\n" + _INDENT * self.depth)

    def mark(self, node: Node, start: int) -> None:
        if node in self.spans:
            self.spans[node].append((start, self.length))

    def separated(self, items: Iterable[Any], write_item: Callable[[Any], None]) -> None:
        for position, item in enumerate(items):
            if position:
                self.write(", ")
            write_item(item)

    # Names. A definition takes a name that nothing visible has; free variables and buffers keep theirs until the end.

    def fresh(self, wanted: str) -> str:
        count = self.uses.get(wanted, 0)
        self.uses[wanted] = count + 1
        name = f"{wanted}_{count}" if count else wanted
        while name in self.taken:
            count += 1
            name = f"{wanted}_{count}"
        self.taken.add(name)
        return name

    def bind(self, node: Var | Buffer) -> None:
        if node not in self.names:
            name = self.names[node] = self.fresh(node.name)
            self.bound.append((node, node.name, name))

    def release(self, mark: int) -> None:
        while len(self.bound) > mark:
            node, wanted, name = self.bound.pop()
            del self.names[node]
            self.taken.discard(name)
            self.uses[wanted] -= 1

    def name(self, node: Var | Buffer) -> None:
        name = self.names.get(node)
        if name is None:
            name = self.names[node] = self.fresh(node.name)
        start = self.length
        self.write(quote_name(name))
        self.mark(node, start)
