"""How large a module is, for what watches passes: in operators of its graphs and statements of its loop nests.

Expressions of loop nests do not count. They would be most of the number, and counting them takes a fiftieth of a build.
"""

from __future__ import annotations

from tilewright.graphir.expr import Call, Function
from tilewright.graphir.module import AnyFunction, IRModule
from tilewright.graphir.visitor import post_order
from tilewright.tensorir.stmt import PrimFunc, SeqStmt, Stmt


class ModuleSizes:
    """Sizes of modules. What functions of the module before measured is remembered: passes leave most as they are."""

    def __init__(self) -> None:
        self._known: dict[AnyFunction, int] = {}

    def __call__(self, mod: IRModule) -> int:
        """Operators called in graph functions (those of nested functions too), and statements of PrimFuncs."""
        known, self._known = self._known, {}
        for function in mod.functions.values():
            size = known.get(function)
            self._known[function] = function_size(function) if size is None else size
        return sum(self._known[function] for function in mod.functions.values())


def function_size(function: Function | PrimFunc) -> int:
    """The calls of a graph function, or the statements of a PrimFunc (a sequence is its parts)."""
    if isinstance(function, Function):
        return sum(isinstance(node, Call) for node in post_order(function))
    count = 0
    waiting: list[Stmt] = [function.body]
    while waiting:
        stmt = waiting.pop()
        count += not isinstance(stmt, SeqStmt)
        waiting.extend(part for part in type(stmt).parts(stmt) if isinstance(part, Stmt))
    return count
