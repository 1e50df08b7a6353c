"""Walk programs, and find the variables, buffers and kinds of expressions that occur in them.

Nodes do not change, so each caches the results of :func:`leaves` and :func:`kinds`. All of this is derived from the
nodes' declared fields. ``functor.py`` has these names, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tilewright.tensorir.expr import BinaryOp, Buffer, BufferLoad, Call, Choose, Compare, Expr, IntImm, Select, Var
from tilewright.tensorir.folding import INTEGER_DIVISIONS
from tilewright.tensorir.node import Node
from tilewright.tensorir.stmt import Allocate, BufferStore, Evaluate, For, IfThenElse, LetStmt, SeqStmt, Stmt


def walk(node: Node) -> Iterator[Node]:
    """All nodes below and including ``node``, parents first."""
    stack: list[Node] = [node]
    while stack:
        current = stack.pop()
        yield current
        parts = current.parts()
        if parts:
            stack.extend(parts[::-1])


def walk_statements(stmt: Stmt) -> Iterator[Stmt]:
    """All statements below and including ``stmt``, parents first."""
    stack: list[Stmt] = [stmt]
    while stack:
        current = stack.pop()
        yield current
        while isinstance(current, (For, LetStmt, Allocate)):
            current = current.body
            yield current
        if type(current) is BufferStore or type(current) is Evaluate:  # most are stores, which hold no others
            pass
        elif type(current) is SeqStmt:
            stack.extend(current.stmts[::-1])
        else:
            stack.extend([part for part in current.parts()[::-1] if isinstance(part, Stmt)])


def leaves(node: Node) -> frozenset[Node]:
    """Return the variables that occur in ``node`` and the buffers that it accesses (not those that it only defines, nor
    those in shapes of buffers). Nodes do not change, so each computes its leaves once, from those of its parts."""
    found = node._leaves
    return look_into(node) if found is None else found


#: The bits of :func:`kinds`.
COMPARISONS: Final = 1
SELECTIONS: Final = 2
CALLS: Final = 4
LOADS: Final = 8
MASKED_LOADS: Final = 16
DIVISIONS: Final = 32
HALVES: Final = 64
FLOAT_DIVISIONS: Final = 128
CHOICES: Final = 256
BRANCHES: Final = 512


def kinds(node: Node) -> int:
    """Tell the kinds that occur in ``node`` or below, as a sum of bits: :data:`COMPARISONS`, :data:`SELECTIONS`,
    :data:`CHOICES` by place, :data:`CALLS`, :data:`LOADS` (and :data:`MASKED_LOADS`), :data:`DIVISIONS` of integers,
    :data:`FLOAT_DIVISIONS`, values of 16-bit floats (:data:`HALVES`), and statements under conditions
    (:data:`BRANCHES`). Each node finds out once, from its parts, so that a search for one of these skips all nodes
    without it."""
    if node._leaves is None:
        look_into(node)
    return node._kinds


def look_into(node: Node) -> frozenset[Node]:
    """Compute leaves and kinds of ``node`` and of all nodes below it, and return its leaves."""
    above: list[Node] = []  # the nodes that wait for one below them: there are some in long chains only
    while True:
        try:
            found = _look_below(node, _MOST_FRAMES)
        except _TooDeepError as error:
            above.append(node)
            node = error.node
            continue
        if not above:
            return found
        node = above.pop()


#: The most frames of recursion in a search for leaves. Chains of lets and of infix operators may be longer.
_MOST_FRAMES: Final = 100


class _TooDeepError(Exception):
    """A node that a search for leaves does not reach."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.node = node


def _look_below(node: Node, frames: int) -> frozenset[Node]:
    """Compute leaves and kinds of ``node`` from those of its parts, which come first where they are not known.

    Raises:
        _TooDeepError: a node is more than this number of frames away.
    """
    if not frames:
        raise _TooDeepError(node)
    occurring = 0
    if type(node) is BinaryOp:  # most nodes are: of halves if its operands are
        a, b = node.a, node.b
        below = a._leaves
        found = _look_below(a, frames - 1) if below is None else below
        below = b._leaves
        if below is None:
            below = _look_below(b, frames - 1)
        occurring = a._kinds | b._kinds
        if below and below is not found:
            found = _union(found, below) if found else below
        if node.op in _OPERATIONS:
            occurring |= _OPERATIONS[node.op]
    elif type(node) is IntImm:
        found = _NO_LEAVES
    elif type(node) is Var:
        found = frozenset((node,))
        if node.dtype.is_half:
            occurring = HALVES
    else:
        found = _NO_LEAVES
        parts: tuple[Node, ...] = node.parts()
        for part in parts:
            below = part._leaves
            if below is None:
                below = _look_below(part, frames - 1)
            occurring |= part._kinds
            if below and below is not found:
                found = _union(found, below) if found else below
        if type(node) is BufferStore:
            found |= {node.buffer}
        elif type(node) is BufferLoad:
            found |= {node.buffer}
            occurring |= LOADS if node.predicate is None else LOADS | MASKED_LOADS
            if node.dtype.is_half:
                occurring |= HALVES
        elif isinstance(node, Expr):
            occurring |= _KINDS.get(type(node), 0)
            if node.dtype.is_half:
                occurring |= HALVES
        elif type(node) is IfThenElse:
            occurring |= BRANCHES
        elif not isinstance(node, Stmt):
            found |= _used_buffers(node)
    _set(node, "_kinds", occurring)
    _set(node, "_leaves", found)
    return found


def _union(some: frozenset[Node], others: frozenset[Node]) -> frozenset[Node]:
    """Return one of two sets of leaves if it has the other, so that nodes share it; else a set of both."""
    if others <= some:
        return some
    return others if some <= others else some | others


_set = object.__setattr__
_NO_LEAVES: Final[frozenset[Node]] = frozenset()
_KINDS: Final[dict[type[Node], int]] = {
    Compare: COMPARISONS,
    Select: SELECTIONS,
    Choose: CHOICES,
    Call: CALLS,
}
_OPERATIONS: Final[dict[str, int]] = {**dict.fromkeys(INTEGER_DIVISIONS, DIVISIONS), "div": FLOAT_DIVISIONS}


def _used_buffers(node: Node) -> frozenset[Node]:
    """The buffers that ``node`` itself accesses, by the declaration of its fields."""
    return frozenset([getattr(node, name) for name, role in node.node_fields if role == "buffer"])


def accesses_buffers(expr: Expr) -> bool:
    """Return whether ``expr`` reads any buffer."""
    return any(isinstance(leaf, Buffer) for leaf in leaves(expr))


def reads_memory(expr: Expr) -> bool:
    """Return whether the value of ``expr`` depends on the contents of a buffer or on an effect."""
    occurring = kinds(expr)
    if occurring & LOADS:
        return True
    return bool(occurring & CALLS) and any(isinstance(node, Call) and not node.is_pure for node in walk_to(expr, CALLS))


def uses_var(node: Node, variables: set[Var] | frozenset[Var]) -> bool:
    """Return whether any of ``variables`` occurs in ``node``."""
    found = node._leaves
    if found is None:
        found = look_into(node)
    return not found.isdisjoint(variables)


def variables_in_order(expr: Expr) -> list[Var]:
    """The variables in an expression, in order of first use."""
    left = {leaf for leaf in leaves(expr) if isinstance(leaf, Var)}
    if len(left) < 2:
        return list(left)
    found: list[Var] = []
    stack: list[Node] = [expr]
    while left:
        current = stack.pop()
        if isinstance(current, Var):
            if current in left:
                left.discard(current)
                found.append(current)
        elif not left.isdisjoint(leaves(current)):
            stack.extend(current.parts()[::-1])
    return found


def walk_once(node: Node) -> Iterator[Node]:
    """All nodes below and including ``node``, parents first, each once: expressions are graphs with many paths to an
    operand."""
    seen: set[Node] = set()
    stack: list[Node] = [node]
    while stack:
        current = stack.pop()
        if current not in seen:
            seen.add(current)
            yield current
            parts = current.parts()
            if parts:
                stack.extend(parts[::-1])


def walk_to(node: Node, wanted: int) -> Iterator[Node]:
    """The nodes below and including ``node`` in which any of the kinds ``wanted`` occurs (see :func:`kinds`), parents
    first, each once."""
    seen: set[Node] = set()
    stack: list[Node] = [node] if kinds(node) & wanted else []
    while stack:
        current = stack.pop()
        if current not in seen:
            seen.add(current)
            yield current
            parts: tuple[Node, ...] = current.parts()
            for part in parts[::-1]:
                if part._kinds & wanted:  # known since the node above was asked
                    stack.append(part)


def walk_to_loads(node: Node) -> Iterator[Node]:
    """All statements below and including ``node``, and all loads, parents first; expressions without loads are
    skipped."""
    stack: list[Node] = [node] if isinstance(node, Stmt) or kinds(node) & LOADS else []
    while stack:
        current = stack.pop()
        parts: tuple[Node, ...] = current.parts()
        if isinstance(current, Stmt):
            yield current
            for part in parts[::-1]:
                if isinstance(part, Stmt) or kinds(part) & LOADS:
                    stack.append(part)
        else:
            if type(current) is BufferLoad:
                yield current
            for part in parts[::-1]:
                if part._kinds & LOADS:  # known since the whole expression was asked
                    stack.append(part)


def loads_and_stores(node: Node) -> Iterator[BufferLoad | BufferStore]:
    """All accesses to buffers in ``node``."""
    return (found for found in walk_to_loads(node) if isinstance(found, (BufferLoad, BufferStore)))
