"""``CommonSubexprElim``: compute costly expressions that a list of statements repeats only once::

    b[i] = exp(a[i]) + 1.0                          let common: float32 = exp(a[i])
    c[i] = exp(a[i]) * 2.0                   ->     b[i] = common + 1.0
                                                    c[i] = common * 2.0

Only divisions and costly calls are considered: repeated loads and index arithmetic are left to the code generator. A
value that reads memory is not reused after a store to the same buffer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.config import register_config_option
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.properties import LOOPS, NAMED
from tilewright.passes.registry import register_pass
from tilewright.passes.tensor.hoist_invariant import ExprReplacer, is_costly
from tilewright.passes.tensor.parallelize_loop import expression_cost
from tilewright.passes.tensor.remove_no_op import has_effect
from tilewright.tensorir.expr import Buffer, Expr, Var
from tilewright.tensorir.functor import CALLS, FLOAT_DIVISIONS, Mutator, kinds, leaves, walk, walk_statements
from tilewright.tensorir.node import Node
from tilewright.tensorir.stmt import (
    Allocate,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    sequence,
)

#: Functions without any of these are not changed.
_COSTLY_KINDS: Final = CALLS | FLOAT_DIVISIONS


@register_config_option("tensorir.CommonSubexprElim")
@dataclass(frozen=True)
class CommonSubexprElimConfig:
    """Options of ``CommonSubexprElim``."""

    min_cost: int = dataclasses.field(
        default=5, metadata={"doc": "the fewest instructions of an expression that is kept in a variable"}
    )


@dataclass(eq=False)
class _Group:
    """Occurrences of an expression between which nothing changes its value.

    Attributes:
        position: the item of the first occurrence.
        positions: the items of all occurrences.
        count: the number of times that it would be computed.
    """

    expr: Expr
    position: int
    cost: int
    buffers: frozenset[Buffer]
    positions: set[int]
    count: int


@dataclass(frozen=True)
class _Common:
    """The variable that holds a common value, and the item in front of which it is bound."""

    var: Var
    position: int


class _Eliminator(Mutator):
    def __init__(self, min_cost: int) -> None:
        self.min_cost = min_cost

    def mutate_For(self, op: For) -> Stmt:
        body = self.scope(op.body)
        return op if body is op.body else For(op.var, op.min, op.extent, op.kind, body, op.annotations)

    def mutate_IfThenElse(self, op: IfThenElse) -> Stmt:
        then_body = self.scope(op.then_body)
        else_body = self.scope(op.else_body) if op.else_body is not None else None
        if then_body is op.then_body and else_body is op.else_body:
            return op
        return IfThenElse(op.condition, then_body, else_body)

    def scope(self, stmt: Stmt) -> Stmt:
        """Process a list of statements that run one after the other."""
        items = _linearize(stmt)
        replaced = self._replaced(items)
        if replaced:
            new_items = [self._inner(item, replaced.get(position, {})) for position, item in enumerate(items)]
            return _rebuild(new_items, replaced)
        new_items = [self._inner(item, {}) for item in items]
        changed = any(new is not item for new, item in zip(new_items, items, strict=True))
        return _rebuild(new_items, {}) if changed else stmt

    def _replaced(self, items: list[Stmt]) -> dict[int, dict[Expr, _Common]]:
        """Return the expressions that variables replace, by the position of the item."""
        found, groups = self._groups(items)
        replaced: dict[int, dict[Expr, _Common]] = {}
        for group in sorted(found, key=lambda g: -g.cost):
            if group.count < 2:
                continue
            common = _Common(Var("common", group.expr.dtype), group.position)
            for position in group.positions:
                replaced.setdefault(position, {})[group.expr] = common
            for node in walk(group.expr):  # its parts are computed only once now, too
                for part in groups.get(node, ()) if node is not group.expr else ():
                    if group.position in part.positions:
                        part.count -= group.count - 1
        return replaced

    def _inner(self, item: Stmt, common: dict[Expr, _Common]) -> Stmt:
        """Replace the expressions of an item, and process its inner lists of statements."""
        if not isinstance(item, (LetStmt, Allocate, BufferStore, Evaluate)):
            return self.mutate(item)  # type: ignore[no-any-return]
        if not common or isinstance(item, Allocate):
            return item
        replacer = ExprReplacer({expr: each.var for expr, each in common.items()})
        if isinstance(item, LetStmt):
            value = replacer.mutate(item.value)
            return item if value is item.value else LetStmt(item.var, value, item.body)
        return replacer.mutate(item)  # type: ignore[no-any-return]

    def _groups(self, items: list[Stmt]) -> tuple[list[_Group], dict[Node, list[_Group]]]:
        """Return the groups in the order of their first occurrences, and by their expressions."""
        found: list[_Group] = []
        groups: dict[Node, list[_Group]] = {}
        alive: dict[Expr, _Group] = {}
        for position, item in enumerate(items):
            for expr in _own_expressions(item):
                for node in _costly(expr):
                    group = alive.get(node)
                    if group is None:
                        group = self._group(node, position)
                        if group is None:
                            continue
                        alive[node] = group
                        found.append(group)
                        groups.setdefault(node, []).append(group)
                    group.positions.add(position)
                    group.count += 1
            written = _written(item) if alive else set()
            for node in [node for node, group in alive.items() if group.buffers & written]:
                del alive[node]
        return found, groups

    def _group(self, expr: Expr, position: int) -> _Group | None:
        """Return a group for the first occurrence of an expression; None if it is not worth a variable."""
        if not expr.dtype.is_float or has_effect(expr):
            return None
        cost = expression_cost(expr)
        if cost < self.min_cost:
            return None
        buffers = frozenset([leaf for leaf in leaves(expr) if isinstance(leaf, Buffer)])
        return _Group(expr, position, cost, buffers, set(), 0)


def _linearize(stmt: Stmt) -> list[Stmt]:
    """Flatten a list of statements: lets and allocations become items, followed by the items of their bodies (later
    items thus move into their scope, which is harmless, since all names differ)."""
    items: list[Stmt] = []
    while True:
        if isinstance(stmt, (LetStmt, Allocate)):
            items.append(stmt)
            stmt = stmt.body
        elif isinstance(stmt, SeqStmt) and stmt.stmts:
            for inner in stmt.stmts[:-1]:
                items.extend(_linearize(inner))
            stmt = stmt.stmts[-1]
        else:
            items.append(stmt)
            return items


def _rebuild(items: list[Stmt], replaced: dict[int, dict[Expr, _Common]]) -> Stmt:
    """Invert :func:`_linearize`, with the new bindings in front of the items that they belong to."""
    result: Stmt = sequence()
    for position in reversed(range(len(items))):
        item = items[position]
        if isinstance(item, LetStmt):
            result = LetStmt(item.var, item.value, result)
        elif isinstance(item, Allocate):
            result = Allocate(item.buffer, result)
        else:
            result = sequence(item, result)
        here = replaced.get(position, {})
        for expr, common in here.items():
            if common.position == position:  # the largest first, so that it comes last
                inner = {other: each.var for other, each in here.items() if each is not common}
                result = LetStmt(common.var, ExprReplacer(inner).mutate(expr), result)
    return result


def _own_expressions(item: Stmt) -> list[Expr]:
    if isinstance(item, BufferStore):
        return [item.value]
    return [item.value] if isinstance(item, LetStmt) else []


def _costly(expr: Expr) -> Iterator[Expr]:
    """Yield every occurrence of a division or call in ``expr``, parents first."""
    stack: list[Node] = [expr]
    while stack:
        node = stack.pop()
        if kinds(node) & _COSTLY_KINDS:
            if isinstance(node, Expr) and is_costly(node):
                yield node
            stack.extend(node.parts()[::-1])


def _written(item: Stmt) -> set[Buffer]:
    if isinstance(item, (LetStmt, Allocate)):
        return set()
    return {node.buffer for node in walk_statements(item) if isinstance(node, BufferStore)}


def _holds_costly(stmt: Stmt) -> bool:
    return isinstance(stmt, (BufferStore, LetStmt)) and bool(kinds(stmt.value) & _COSTLY_KINDS)


def eliminate_common_subexpressions(func: PrimFunc, min_cost: int = 5) -> PrimFunc:
    """Return ``func`` with repeated costly expressions bound to variables."""
    for stmt in walk_statements(func.body):
        if _holds_costly(stmt):
            return func.with_body(_Eliminator(min_cost).scope(func.body))
    return func


@register_pass
@primfunc_pass(opt_level=1, name="CommonSubexprElim", requires={LOOPS}, provides={NAMED})
class CommonSubexprElim(PrimFuncPass):
    """See the module."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """Return ``func`` with repeated costly expressions bound to variables."""
        config: CommonSubexprElimConfig = ctx.get_config("tensorir.CommonSubexprElim")
        return eliminate_common_subexpressions(func, config.min_cost)
