"""``NameIndices``: bind the quotients and remainders of a parallel loop's variable to names::

    for i in parallel(m * n):                       for i in parallel(m * n):
        b[i // n, i % n] = a[i % n, i // n]  ->         let row = i // n
                                                        let column = i % n
                                                        b[row, column] = a[column, row]

Schedules fuse several loops into such a loop. With a name and a range for each original variable, indices are short
sums again, however long the formulas of the extents are; the passes that follow visit each index many times.
"""

from __future__ import annotations

from typing import Any

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.properties import COMPACT, VECTOR_LOOPS
from tilewright.passes.registry import register_pass
from tilewright.passes.tensor.scoped import ScopedMutator
from tilewright.tensorir.arith.analyzer import Analyzer
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import BinaryOp, Expr, Var
from tilewright.tensorir.functor import (
    DIVISIONS,
    INTEGER_DIVISIONS,
    Mutator,
    kinds,
    reads_memory,
    uses_var,
    walk_statements,
    walk_to,
)
from tilewright.tensorir.stmt import For, LetStmt, PrimFunc, Stmt

_DIVISIONS = ("floordiv", "floormod")


class _Naming(Mutator):
    """Replace the divisions of one loop's variable in its body by names."""

    def __init__(self, loop: For, analyzer: Analyzer) -> None:
        self.loop = loop
        self.analyzer = analyzer
        self.names: dict[Expr, Var] = {}
        #: The variables that the body defines: formulas of them have no value yet where the names are defined.
        self.inner = {stmt.var for stmt in walk_statements(loop.body) if isinstance(stmt, (For, LetStmt))}
        self.done: dict[Expr, Expr] = {}

    def mutate(self, node: Any) -> Any:
        if not kinds(node) & DIVISIONS:
            return node
        if not isinstance(node, Expr):
            return super().mutate(node)
        found = self.done.get(node)
        if found is None:
            found = self.done[node] = super().mutate(node)
        return found

    def mutate_BinaryOp(self, op: BinaryOp) -> Expr:
        if op.op not in _DIVISIONS or op.dtype is not INT64 or not self._has_value(op):
            return self.generic_mutate(op)  # type: ignore[no-any-return]
        known = self.analyzer.canonical(op)  # equal divisions become one object and share a name
        if isinstance(known, BinaryOp) and known.op in _DIVISIONS:
            return self.names.setdefault(known, Var(self.loop.var.name, INT64))
        return self.generic_mutate(known)  # type: ignore[no-any-return]

    def _has_value(self, op: BinaryOp) -> bool:
        """Return whether the division depends on the loop, and can be evaluated at the start of the loop's body."""
        return (
            uses_var(op, {self.loop.var})
            and not uses_var(op, self.inner)
            and not reads_memory(op)
            and all(
                self.analyzer.prove(node.b > 0)
                for node in walk_to(op, DIVISIONS)
                if isinstance(node, BinaryOp) and node.op in INTEGER_DIVISIONS
            )
        )


class _Namer(ScopedMutator):
    def mutate_For(self, loop: For) -> Stmt:
        if loop.kind != "parallel" or loop.var.dtype is not INT64:
            return super().mutate_For(loop)
        if not kinds(loop.body) & DIVISIONS:
            return loop
        if not any(isinstance(stmt, For) for stmt in walk_statements(loop.body)):
            return loop  # used once; and FlattenBuffer joins the parts of a number only if they are divisions
        with self.analyzer.scope():
            self.analyzer.bind(loop.var, loop.min, loop.extent)
            self.analyzer.assume(loop.extent > 0)
            naming = _Naming(loop, self.analyzer)
            body: Stmt = naming.mutate(loop.body)
        if not naming.names:
            return loop
        for value, var in reversed(naming.names.items()):
            body = LetStmt(var, value, body)
        return For(loop.var, loop.min, loop.extent, loop.kind, body, loop.annotations)


def name_indices(func: PrimFunc) -> PrimFunc:
    """Return ``func`` with names for the quotients and remainders of its parallel loops' variables."""
    return func.with_body(_Namer(func).mutate(func.body))


@register_pass
@primfunc_pass(opt_level=1, name="NameIndices", requires={COMPACT, VECTOR_LOOPS})
class NameIndices(PrimFuncPass):
    """See the module."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """Return ``func`` with names for the quotients and remainders of its parallel loops' variables."""
        return name_indices(func)
