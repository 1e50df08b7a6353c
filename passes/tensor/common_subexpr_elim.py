"""``CommonSubexprElim``: computes once what a list of statements computes several times::

    b[i] = exp(a[i]) + 1.0                          let common: float32 = exp(a[i])
    c[i] = exp(a[i]) * 2.0                   ->     b[i] = common + 1.0
                                                    c[i] = common * 2.0

Only divisions and calls that cost something are looked at: repeated loads and index arithmetic are the code generator's
matter. A value that reads memory is not used beyond a store to the same buffer.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.config import register_config_option
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.registry import register_pass
from tilewright.passes.tensor.hoist_invariant import ExprReplacer, is_costly
from tilewright.passes.tensor.parallelize_loop import expression_cost
from tilewright.passes.tensor.remove_no_op import has_effect
from tilewright.passes.tensor.same_expressions import SameExpressions
from tilewright.tensorir.expr import Buffer, BufferLoad, Expr, Var
from tilewright.tensorir.functor import Mutator, walk, walk_statements
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


@register_config_option("tensorir.CommonSubexprElim")
@dataclass(frozen=True)
class CommonSubexprElimConfig:
    """Options of ``CommonSubexprElim``."""

    min_cost: int = dataclasses.field(
        default=5, metadata={"doc": "instructions that an expression has to cost to be kept in a variable"}
    )


@dataclass(eq=False)
class _Group:
    """Equal expressions with equal values: the first one, where it stands, and all of them."""

    first: Expr
    position: int
    cost: int
    buffers: frozenset[Buffer]
    members: list[Expr]


class _Eliminator(Mutator):
    def __init__(self, min_cost: int) -> None:
        self.min_cost = min_cost
        self.same = SameExpressions()

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
        """A list of statements that run one after the other."""
        items = _linearize(stmt)
        groups = self._groups(items)
        bound: dict[int, list[tuple[Var, Expr]]] = {}
        replaced: dict[Expr, Var] = {}
        consumed: set[Expr] = set()
        for group in sorted(groups, key=lambda g: -g.cost):
            members = [member for member in group.members if member not in consumed]
            if len(members) < 2:
                continue
            var = Var("common", group.first.dtype)
            bound.setdefault(group.position, []).append((var, group.first))
            for member in members:
                replaced[member] = var
            for member in members[1:]:
                consumed.update(node for node in walk(member) if isinstance(node, Expr))
        changed = bool(replaced)
        new_items: list[Stmt] = []
        for item in items:
            new = self._inner(item, replaced)
            changed = changed or new is not item
            new_items.append(new)
        return _rebuild(new_items, bound, replaced) if changed else stmt

    def _inner(self, item: Stmt, replaced: dict[Expr, Var]) -> Stmt:
        """An item with its own expressions replaced, and its inner lists of statements done."""
        if isinstance(item, LetStmt):
            value = ExprReplacer(replaced).mutate(item.value) if replaced else item.value
            return item if value is item.value else LetStmt(item.var, value, item.body)
        if isinstance(item, Allocate):
            return item
        if isinstance(item, (BufferStore, Evaluate)):
            return ExprReplacer(replaced).mutate(item) if replaced else item
        return self.mutate(item)  # type: ignore[no-any-return]

    def _groups(self, items: list[Stmt]) -> list[_Group]:
        found: list[_Group] = []
        alive: dict[Expr, _Group] = {}
        for position, item in enumerate(items):
            for expr in _own_expressions(item):
                for node in walk(expr):
                    if isinstance(node, Expr) and self._is_candidate(node):
                        self._add(node, position, found, alive)
            written = _written(item) if alive else set()
            for first in [first for first, group in alive.items() if group.buffers & written]:
                del alive[first]
        return found

    def _add(self, node: Expr, position: int, found: list[_Group], alive: dict[Expr, _Group]) -> None:
        first = self.same.first(node)
        group = alive.get(first)
        if group is None:
            buffers = frozenset(inner.buffer for inner in walk(node) if isinstance(inner, BufferLoad))
            group = alive[first] = _Group(node, position, expression_cost(node), buffers, [])
            found.append(group)
        group.members.append(node)

    def _is_candidate(self, node: Expr) -> bool:
        return (
            is_costly(node) and node.dtype.is_float and expression_cost(node) >= self.min_cost and not has_effect(node)
        )


def _linearize(stmt: Stmt) -> list[Stmt]:
    """The statements of a list; lets and allocations stand for themselves, what they are around follows
    (and what comes after that moves into their scope, which is harmless: all names differ)."""
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


def _rebuild(items: list[Stmt], bound: dict[int, list[tuple[Var, Expr]]], replaced: dict[Expr, Var]) -> Stmt:
    """The opposite of :func:`_linearize`, with the new bindings in front of the items that they belong to."""
    result: Stmt = sequence()
    for position in reversed(range(len(items))):
        item = items[position]
        if isinstance(item, LetStmt):
            result = LetStmt(item.var, item.value, result)
        elif isinstance(item, Allocate):
            result = Allocate(item.buffer, result)
        else:
            result = sequence(item, result)
        for var, expr in bound.get(position, ()):  # the largest first, so that it comes last
            inner = {known: other for known, other in replaced.items() if other is not var}
            result = LetStmt(var, ExprReplacer(inner).mutate(expr), result)
    return result


def _own_expressions(item: Stmt) -> list[Expr]:
    if isinstance(item, BufferStore):
        return [item.value]
    return [item.value] if isinstance(item, LetStmt) else []


def _written(item: Stmt) -> set[Buffer]:
    if isinstance(item, (LetStmt, Allocate)):
        return set()
    return {node.buffer for node in walk_statements(item) if isinstance(node, BufferStore)}


def eliminate_common_subexpressions(func: PrimFunc, min_cost: int = 5) -> PrimFunc:
    """``func`` with repeated costly expressions bound to variables."""
    return func.with_body(_Eliminator(min_cost).scope(func.body))


@register_pass
@primfunc_pass(opt_level=1, name="CommonSubexprElim")
class CommonSubexprElim(PrimFuncPass):
    """See the module."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """``func`` with repeated costly expressions bound to variables."""
        config: CommonSubexprElimConfig = ctx.get_config("tensorir.CommonSubexprElim")
        return eliminate_common_subexpressions(func, config.min_cost)
