"""One representative for all expressions of a structure: equal expressions are found by identity."""

from __future__ import annotations

import struct
from collections.abc import Hashable
from typing import Any

from tilewright.tensorir.expr import Expr, FloatImm, Var


class SameExpressions:
    """Tells expressions apart by what they are made of. Variables and buffers are what they are, floats their bits.

    Each node is looked at once, however many expressions it is part of and however often somebody asks.
    """

    def __init__(self) -> None:
        self._first: dict[Expr, Expr] = {}
        self._by_structure: dict[Hashable, Expr] = {}

    def first(self, expr: Expr) -> Expr:
        """The expression of this structure that was met first: ``expr`` itself if there was none."""
        found = self._first.get(expr)
        if found is None:
            found = self._first[expr] = self._by_structure.setdefault(self._structure(expr), expr)
        return found

    def _structure(self, expr: Expr) -> Hashable:
        if isinstance(expr, Var):
            return expr
        if isinstance(expr, FloatImm):
            return FloatImm, struct.pack("d", expr.value), expr.dtype
        return type(expr), *[self._part(role, getattr(expr, name)) for name, role in expr.node_fields]

    def _part(self, role: str, value: Any) -> Hashable:
        if role == "child" and value is not None:
            return self.first(value)
        if role == "children":
            return tuple([self.first(item) for item in value])
        held: Hashable = value
        return held
