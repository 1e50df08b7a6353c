"""One object for each expression of the same structure, so that comparing expressions is comparing identities."""

from __future__ import annotations

import struct
from typing import Any

from tilewright.tensorir.dtype import INT64, DataType
from tilewright.tensorir.expr import BinaryOp, BufferLoad, Call, Compare, Expr, FloatImm, IntImm, Var
from tilewright.tensorir.intrinsics import find_intrinsic
from tilewright.tensorir.node import Node


class Interner:
    """A table of expressions by structure. Operands of what it is given must come from the same table."""

    def __init__(self) -> None:
        self._table: dict[tuple[Any, ...], Expr] = {}
        self._offered: dict[tuple[Any, ...], Expr] = {}
        self._order: dict[Expr, int] = {}
        #: The same for constants of int64, by their values: most of what is asked for.
        self._indices: dict[int, Expr] = {}
        self._offered_indices: dict[int, Expr] = {}

    def order(self, expr: Expr) -> int:
        """When ``expr`` was first met: the order in which canonical forms list what is otherwise equal."""
        found = self._order.get(expr)
        if found is None:
            found = self._order[expr] = len(self._order)
        return found

    def knows(self, expr: Expr) -> bool:
        """Whether ``expr`` was met before."""
        return expr in self._order

    def binary(self, op: str, a: Expr, b: Expr) -> Expr:
        """The node ``a op b``."""
        key = (op, a, b)
        found = self._table.get(key)
        if found is None:
            offered = self._offered.get(key)
            if offered is not None:
                del self._offered[key]
            found = self._table[key] = BinaryOp(op, a, b) if offered is None else offered
            self.order(found)
        return found

    def offer(self, expr: BinaryOp) -> None:
        """Let ``expr`` be the node of its structure, if its operands are in the table and there is no such node yet:
        what has its canonical form already need not be built again."""
        key = (expr.op, expr.a, expr.b)
        if key not in self._table:
            self._offered.setdefault(key, expr)

    def integer(self, value: int, dtype: DataType = INT64) -> Expr:
        """An integer or boolean constant."""
        if dtype is not INT64:
            return self.node(IntImm(value, dtype))
        found = self._indices.get(value)
        if found is None:
            offered = self._offered_indices.get(value)
            if offered is not None:
                del self._offered_indices[value]
            found = self._indices[value] = IntImm(value, INT64) if offered is None else offered
            self.order(found)
        return found

    def offer_index(self, expr: IntImm) -> None:
        """Let ``expr`` be the node of its value, if it is an int64 and there is none yet."""
        if expr.dtype is INT64 and expr.value not in self._indices:
            self._offered_indices.setdefault(expr.value, expr)

    def node(self, expr: Expr) -> Expr:
        """The one node of the structure of ``expr``, whose operands are interned already."""
        kind = type(expr)
        if kind is Var or (kind is Call and not is_pure_call(expr)):
            self.order(expr)  # a variable is its own identity; what has an effect is not the same twice
            return expr
        if isinstance(expr, IntImm) and expr.dtype is INT64:
            known = self._indices.get(expr.value)
            if known is None:
                known = self._indices[expr.value] = expr
                self.order(known)
            return known
        if kind is BinaryOp:
            key: tuple[Any, ...] = (expr.op, expr.a, expr.b)  # type: ignore[attr-defined]
        elif kind is Compare:
            key = (Compare, expr.op, expr.a, expr.b)  # type: ignore[attr-defined]
        elif kind is FloatImm:
            key = (FloatImm, struct.pack("d", expr.value), expr.dtype)  # type: ignore[attr-defined]
        else:
            key = (kind, *[getattr(expr, name) for name, _ in expr.node_fields])
        found = self._table.get(key)
        if found is None:
            found = self._table[key] = expr
            self.order(found)
        return found


def is_pure_call(expr: Any) -> bool:
    """Whether a call has no effect and depends on nothing but its arguments."""
    name: str = expr.name
    known = _PURE.get(name)
    if known is None:
        known = _PURE[name] = not name.startswith("@") and bool(find_intrinsic(name).pure)
    return known


#: What :func:`is_pure_call` has said of names.
_PURE: dict[str, bool] = {}


def same_structure(a: Node, b: Node) -> bool:
    """Whether two expressions are equal node by node; variables and buffers by identity."""
    if a is b:
        return True
    if type(a) is not type(b) or isinstance(a, Var):
        return False
    if isinstance(a, BinaryOp) and isinstance(b, BinaryOp):
        return a.op == b.op and same_structure(a.a, b.a) and same_structure(a.b, b.b)
    if isinstance(a, FloatImm) and isinstance(b, FloatImm):
        return a.dtype is b.dtype and struct.pack("d", a.value) == struct.pack("d", b.value)
    for name, role in a.node_fields:
        x, y = getattr(a, name), getattr(b, name)
        if x is y:
            continue
        if role == "child":
            if x is None or y is None or not same_structure(x, y):
                return False
        elif role == "children":
            if len(x) != len(y) or not all(same_structure(p, q) for p, q in zip(x, y, strict=True)):
                return False
        elif role == "buffer" or x != y:
            return False
    return True


def reads_memory(expr: Expr) -> bool:
    """Whether the value of ``expr`` depends on the contents of a buffer or on an effect."""
    stack: list[Any] = [expr]
    while stack:
        current = stack.pop()
        if isinstance(current, BufferLoad) or (isinstance(current, Call) and not is_pure_call(current)):
            return True
        stack.extend(current.parts())
    return False
