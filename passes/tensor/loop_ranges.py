"""Move conditions that are the whole body of a loop into its range or around the loop::

    for i in range(10):                             if m > 0:
        if i >= 2 and i < 7 and m > 0:      ->          for i in range(2, 7):
            b[i] = 0                                        b[i] = 0

With inner loops between, a loop is limited to iterations in which the condition holds for some of theirs.
"""

from __future__ import annotations

from typing import Any

from tilewright.passes.tensor.scoped import ScopedMutator
from tilewright.tensorir.arith.analyzer import Analyzer
from tilewright.tensorir.arith.region import partition_point
from tilewright.tensorir.conditions import OPPOSITES, conjuncts
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import (
    BinaryOp,
    Compare,
    Expr,
    IntImm,
    Var,
    all_of,
    compare,
    maximum,
    minimum,
)
from tilewright.tensorir.functor import (
    CALLS,
    DIVISIONS,
    INTEGER_DIVISIONS,
    LOADS,
    accesses_buffers,
    kinds,
    uses_var,
    walk_statements,
    walk_to,
)
from tilewright.tensorir.occurrences import BRANCHES
from tilewright.tensorir.stmt import For, IfThenElse, PrimFunc, Stmt


def limit_ranges(func: PrimFunc) -> PrimFunc:
    """Return ``func`` with conditions that are a whole loop body moved out of the loop, or into its range."""
    return func.with_body(_Limiter(func).mutate(func.body))


def limiting_conditions(loop: For, analyzer: Analyzer) -> set[Expr]:
    """Return the conditions that will become part of the range of ``loop``, or of a serial loop in it, because they
    guard its whole body: no iteration has to check them. An annotated inner loop keeps its extent, which the passes
    that read the annotation may need to be constant."""
    found: set[Expr] = set()
    if not kinds(loop) & BRANCHES:
        return found
    for inner in walk_statements(loop):
        if not isinstance(inner, For) or inner.var.dtype is not INT64:
            continue
        if inner is not loop and (inner.kind != "serial" or inner.annotations):
            continue
        body, between = inner.body, set()
        while isinstance(body, For):
            between.add(body.var)
            body = body.body
        if not isinstance(body, IfThenElse) or body.else_body is not None:
            continue
        for part in conjuncts(body.condition):
            if (
                uses_var(part, {inner.var})
                and not uses_var(part, between)
                and not accesses_buffers(part)
                and partition_point(part, inner.var, {}, analyzer) is not None
            ):
                found.add(part)
    return found


class _Limiter(ScopedMutator):
    def mutate(self, node: Any) -> Any:
        return super().mutate(node) if kinds(node) & BRANCHES else node

    def mutate_For(self, loop: For) -> Stmt:
        new = super().mutate_For(loop)
        assert isinstance(new, For)
        new = self._without_idle_ends(new)
        body = new.body
        if not isinstance(body, IfThenElse) or body.else_body is not None or new.var.dtype is not INT64:
            return new
        low, end = new.min, new.min + new.extent
        kept: list[Expr] = []
        outside: list[Expr] = []
        constant_only = new.kind in ("vectorized", "unrolled")
        for part in conjuncts(body.condition):
            if kinds(part) & (LOADS | CALLS):
                kept.append(part)
            elif not uses_var(part, {new.var}):
                (kept if _may_trap(part) else outside).append(part)
            else:
                found = partition_point(part, new.var, {}, self.analyzer)
                if found is None or (constant_only and not _are_constant(new, found)):
                    kept.append(part)
                    continue
                low = low if found[0] is None else maximum(low, found[0])
                end = end if found[1] is None else minimum(end, found[1])
        if len(kept) == len(conjuncts(body.condition)):
            return new
        low, extent = self.simplify(low), self.simplify(end - low)
        inner = IfThenElse(all_of(*kept), body.then_body) if kept else body.then_body
        result: Stmt = For(new.var, low, extent, new.kind, inner, new.annotations)
        return IfThenElse(all_of(*outside), result) if outside else result

    def _without_idle_ends(self, loop: For) -> For:
        """Remove iterations at the ends of ``loop`` in which a condition in inner loops holds for none of theirs."""
        inner: dict[Var, tuple[Expr, Expr]] = {}
        body = loop.body
        while isinstance(body, For):
            inner[body.var] = (body.min, body.extent)
            body = body.body
        guarded = isinstance(body, IfThenElse) and body.else_body is None
        if not guarded or not inner or loop.kind != "serial" or loop.var.dtype is not INT64:
            return loop
        assert isinstance(body, IfThenElse)
        low, end = loop.min, loop.min + loop.extent
        for part in conjuncts(body.condition):
            if not isinstance(part, Compare) or part.op in ("eq", "ne") or not uses_var(part, {loop.var}):
                continue
            if kinds(part) & LOADS:
                continue
            never = partition_point(compare(OPPOSITES[part.op], part.a, part.b), loop.var, inner, self.analyzer)
            if never is None or any(uses_var(bound, {loop.var, *inner}) for bound in never if bound is not None):
                continue
            first, last = never  # the condition is false everywhere in [first, last)
            if last is None and first is not None:
                end = minimum(end, first)
            elif first is None and last is not None:
                low = maximum(low, last)
        extent = self.simplify(end - low)
        return For(loop.var, self.simplify(low), extent, loop.kind, loop.body, loop.annotations)


def _are_constant(loop: For, ends: tuple[Expr | None, Expr | None]) -> bool:
    return all(isinstance(end, IntImm) for end in (loop.min, loop.extent, *ends) if end is not None)


def _may_trap(condition: Expr) -> bool:
    """Return whether the condition has a divisor that may be zero where the loop does not run."""
    return any(
        isinstance(node, BinaryOp) and node.op in INTEGER_DIVISIONS and not isinstance(node.b, IntImm)
        for node in walk_to(condition, DIVISIONS)
    )
