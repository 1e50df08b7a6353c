"""Measure the size of modules: operator calls of their graphs and statements of their loop nests.

Expressions of loop nests do not count: they would dominate the number, and counting them takes 2 % of a build's time.
"""

from __future__ import annotations

import weakref

from tilewright.graphir.expr import Call, Function
from tilewright.graphir.module import AnyFunction, IRModule
from tilewright.graphir.visitor import post_order
from tilewright.tensorir.node import notes_on
from tilewright.tensorir.stmt import PrimFunc, SeqStmt, Stmt


class ModuleSizes:
    """Sizes of modules. The size of a function is cached as long as it lives: a pass changes few of them."""

    def __init__(self) -> None:
        self._known: weakref.WeakKeyDictionary[Function, int] = weakref.WeakKeyDictionary()

    def __call__(self, mod: IRModule) -> int:
        """Count the calls in graph functions (also in nested ones) and the statements of PrimFuncs."""
        return sum(map(self._size, mod.functions.values()))

    def _size(self, function: AnyFunction) -> int:
        if isinstance(function, Function):
            size = self._known.get(function)
            if size is None:
                size = self._known[function] = function_size(function)
            return size
        notes = notes_on(function)
        found: int | None = notes.get(function_size)
        if found is None:
            found = notes[function_size] = function_size(function)
        return found


def function_size(function: Function | PrimFunc) -> int:
    """Count the calls of a graph function, or the statements of a PrimFunc (a sequence counts as its parts)."""
    if isinstance(function, Function):
        return sum(isinstance(node, Call) for node in post_order(function))
    count = 0
    waiting: list[Stmt] = [function.body]
    while waiting:
        stmt = waiting.pop()
        count += not isinstance(stmt, SeqStmt)
        waiting.extend(part for part in type(stmt).parts(stmt) if isinstance(part, Stmt))
    return count
