"""Conditions in the body of a loop that change within its range, and the body once they are known::

for i in range(n):                              for i in range(n):
    if i * 6 + j < m and j < k:         ->          if j < k:                   with i * 6 + j < m known to hold
        b[i * 6 + j] = 0                                b[i * 6 + j] = 0
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tilewright.tensorir.conditions import conjuncts
from tilewright.tensorir.dtype import BOOL
from tilewright.tensorir.expr import BinaryOp, BufferLoad, Compare, Expr, FloatImm, IntImm, Select, Var, all_of
from tilewright.tensorir.functor import (
    COMPARISONS,
    LOADS,
    MASKED_LOADS,
    SELECTIONS,
    Mutator,
    Visitor,
    kinds,
    uses_var,
    walk_statements,
)
from tilewright.tensorir.node import Node
from tilewright.tensorir.occurrences import BRANCHES
from tilewright.tensorir.stmt import BufferStore, Evaluate, For, IfThenElse, LetStmt, Stmt, sequence

TRUE, FALSE = IntImm(1, BOOL), IntImm(0, BOOL)

#: Statements without any of these have no conditions that change within the range of a loop.
CONDITIONS: Final = COMPARISONS | BRANCHES


@dataclass(frozen=True)
class Guard:
    """A condition in the body of a loop, with the loops between.

    Attributes:
        inner: the variables of the loops between, with least value and extent.
        lets: the variables that the body binds by ``let`` up to the condition: bounds of inner loops may use them.
    """

    condition: Expr
    inner: Mapping[Var, tuple[Expr, Expr]]
    lets: frozenset[Var]


def find_guards(loop: For) -> list[Guard]:
    """Return the conditions in a loop's body that use its variable, read no memory, and use nothing else that the body
    defines except loop variables."""
    finder = _GuardFinder(loop.var)
    finder.visit(loop.body)
    return finder.found


@dataclass(frozen=True)
class Conditions:
    """The conditions in a loop's body that mention no memory.

    Attributes:
        guards: those that mention the loop's variable, and nothing else that the body defines but loop variables.
        invariant: comparisons that mention nothing that the loop or its body defines.
        choosing: the comparisons of both kinds that choose between formulas or statements that load something.
    """

    guards: list[Guard]
    invariant: list[Expr]
    choosing: frozenset[Expr]


def find_conditions(loop: For, copying: bool = False) -> Conditions:
    """Return the conditions in a loop's body.

    Args:
        copying: leave out those that only decide, for all lanes of a vector, whether memory is copied or a constant is
            stored: they choose an address.
    """
    finder = _GuardFinder(loop.var, copying)
    finder.visit(loop.body)
    return Conditions(finder.found, list(finder.invariant), frozenset(finder.choosing))


class _GuardFinder(Visitor):
    def __init__(self, var: Var, copying: bool = False) -> None:
        self.var = var
        self.copying = copying
        self.inner: dict[Var, tuple[Expr, Expr]] = {}
        self.lets: set[Var] = set()
        self.found: list[Guard] = []
        self.invariant: dict[Expr, None] = {}
        self.choosing: set[Expr] = set()
        self.lanes: set[Var] = set()  # of vectorized loops between
        self.cheap: set[Expr] = set()  # in the statement that is visited

    def visit(self, node: Node) -> None:
        if not isinstance(node, Expr) or kinds(node) & (SELECTIONS | MASKED_LOADS):
            super().visit(node)

    def _add(self, condition: Expr | None) -> None:
        if condition is None or condition.dtype is not BOOL:
            return
        for part in conjuncts(condition):
            if part in self.cheap:
                continue
            plain = not uses_var(part, self.lets) and not kinds(part) & LOADS
            if plain and uses_var(part, {self.var}):
                self.found.append(Guard(part, dict(self.inner), frozenset(self.lets)))
            elif plain and isinstance(part, Compare) and not uses_var(part, set(self.inner)):
                self.invariant[part] = None

    def visit_For(self, loop: For) -> None:
        self.visit(loop.min)
        self.visit(loop.extent)
        self.inner[loop.var] = (loop.min, loop.extent)
        if loop.kind == "vectorized":
            self.lanes.add(loop.var)
        self.visit(loop.body)
        del self.inner[loop.var]
        self.lanes.discard(loop.var)

    def visit_LetStmt(self, op: LetStmt) -> None:
        self.lets.add(op.var)
        self.generic_visit(op)

    def visit_IfThenElse(self, op: IfThenElse) -> None:
        self._add(op.condition)
        if op.else_body is not None:
            self.choosing.update(conjuncts(op.condition))
        self.generic_visit(op)

    def visit_Select(self, op: Select) -> None:
        self._add(op.condition)
        if kinds(op.true_value) & LOADS and kinds(op.false_value) & LOADS:
            self.choosing.update(conjuncts(op.condition))
        self.generic_visit(op)

    def visit_BufferLoad(self, op: BufferLoad) -> None:
        self._add(op.predicate)
        self.generic_visit(op)

    def visit_BufferStore(self, op: BufferStore) -> None:
        self._add(op.predicate)
        if self.copying and self.lanes:
            self.cheap = {part for part in _guards_of_copy(op) if not uses_var(part, self.lanes)}
        self.generic_visit(op)
        self.cheap = set()


def _guards_of_copy(op: BufferStore) -> list[Expr]:
    """Return the conditions under which ``op`` stores what it loads, and a constant elsewhere; none for others."""
    load, guards = _copied(op.value), []
    if load is None or load.predicate is None:
        return []
    if isinstance(op.value, Select):
        guards = conjuncts(op.value.condition)
    reading = conjuncts(load.predicate)
    return reading if set(guards) <= set(reading) else []


def _copied(value: Expr) -> BufferLoad | None:
    """Return the load whose result ``value`` is, if it is not a constant; None for other values."""
    if isinstance(value, Select) and isinstance(value.false_value, (IntImm, FloatImm)):
        value = value.true_value
    return value if isinstance(value, BufferLoad) else None


def copies_memory(nest: For) -> bool:
    """Return whether a nest of loops does nothing but copy memory, such as an image with a border around it."""
    for stmt in walk_statements(nest):
        if isinstance(stmt, BufferStore):
            if _copied(stmt.value) is None:
                return False
        elif isinstance(stmt, Evaluate):
            return False
    return True


def with_known(body: Stmt, known: Mapping[Any, Expr]) -> Stmt:
    """Replace comparisons in ``body`` by their known values, and take the branches that these decide."""
    result: Stmt = _Replacer(known).mutate(body)
    return result


class _Replacer(Mutator):
    def __init__(self, known: Mapping[Any, Expr]) -> None:
        self.known = known

    def mutate(self, node: Any) -> Any:
        return node if isinstance(node, Expr) and not kinds(node) & COMPARISONS else super().mutate(node)

    def mutate_Compare(self, op: Compare) -> Expr:
        return self.known.get(op, op)

    def mutate_BinaryOp(self, op: BinaryOp) -> Expr:
        if op.op != "and":
            return self.generic_mutate(op)  # type: ignore[no-any-return]
        parts = [self.mutate(part) for part in (op.a, op.b)]
        return op if parts[0] is op.a and parts[1] is op.b else all_of(*parts)

    def mutate_IfThenElse(self, op: IfThenElse) -> Stmt:
        condition = self.mutate(op.condition)
        if isinstance(condition, IntImm):
            chosen = op.then_body if condition.value else op.else_body
            return sequence() if chosen is None else self.mutate(chosen)
        else_body = self.mutate(op.else_body) if op.else_body is not None else None
        return IfThenElse(condition, self.mutate(op.then_body), else_body)

    def mutate_Select(self, op: Select) -> Expr:
        condition = self.mutate(op.condition)
        if isinstance(condition, IntImm):
            return self.mutate(op.true_value if condition.value else op.false_value)  # type: ignore[no-any-return]
        return Select(condition, self.mutate(op.true_value), self.mutate(op.false_value))
