"""``ParallelizeLoop``: keep loops parallel only if their work outweighs the cost of threads::

    for i in parallel(4):                           for i in range(4):
        b[i] = a[i]                          ->         b[i] = a[i]
    for i in parallel(n):                           for i in parallel(n) annotations {"parallel_if": n >= 5000}:
        b[i] = a[i] + c[i]                              b[i] = a[i] + c[i]

The work of a loop is estimated in scalar instructions. Loops of constant work below ``min_work`` become serial; for
symbolic work the decision is an annotation that code generators turn into a run-time check. An inner loop whose extent
is symbolic but bounded, such as a loop over the tiles of a block, counts with its bound, so that the check before each
loop is a single comparison. A parallel loop inside another one becomes serial, as do a loop whose iterations provably
write the same element, one of at most one iteration, and all of them if the target has one thread.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.config import register_config_option
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.properties import FORMULAS, PARALLEL, PARALLEL_WISHES, STATEMENTS
from tilewright.passes.registry import register_pass
from tilewright.passes.tensor.scoped import ScopedMutator
from tilewright.tensorir.arith.analyzer import Analyzer
from tilewright.tensorir.arith.interval import INFINITY
from tilewright.tensorir.arith.region import upper_bound_expr
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import (
    BinaryOp,
    Buffer,
    BufferLoad,
    Call,
    Expr,
    IntImm,
    Var,
    cast,
    compare,
    const,
    maximum,
)
from tilewright.tensorir.functor import (
    INTEGER_DIVISIONS,
    LOADS,
    free_vars,
    kinds,
    substitute,
    uses_var,
    walk_statements,
)
from tilewright.tensorir.intrinsics import DIVISION_INSTRUCTIONS, INTRINSICS
from tilewright.tensorir.keys import PARALLEL_IF
from tilewright.tensorir.stmt import Allocate, BufferStore, For, IfThenElse, LetStmt, PrimFunc, SeqStmt, Stmt
from tilewright.tensorir.target import Target

#: Operations that take as long as several additions.
_DIVISIONS = ("div", *INTEGER_DIVISIONS)
#: Assumed instructions of a call of another PrimFunc, whose body is not visible here.
_FUNCTION_COST = 20

#: A number of instructions: constant, or an expression.
Work = int | Expr

#: More work is counted as this much.
_MOST_WORK = (1 << 63) - 1


@register_config_option("tensorir.ParallelizeLoop")
@dataclass(frozen=True)
class ParallelizeLoopConfig:
    """Options of ``ParallelizeLoop``."""

    min_work: int = dataclasses.field(
        default=20_000,
        metadata={
            "doc": "loops of fewer scalar operations run on one thread; the default takes about 5 microseconds, "
            "ten times as long as a fork of existing threads"
        },
    )


def expression_cost(expr: Expr) -> int:
    """Estimate the instructions that evaluate ``expr``; index arithmetic counts as free."""
    cost = 0
    stack: list[Expr] = [expr]
    while stack:
        node = stack.pop()
        if isinstance(node, BufferLoad):
            cost += 1
            continue
        if isinstance(node, Call):
            found = INTRINSICS.get(node.name)
            cost += _FUNCTION_COST if found is None else found.instructions
        elif isinstance(node, BinaryOp) and node.op in _DIVISIONS:
            cost += DIVISION_INSTRUCTIONS
        elif not isinstance(node, (Var, IntImm)):
            cost += 1
        stack.extend(node.parts())
    return cost


def _sum(terms: list[Work]) -> Work:
    """Add numbers, pairs of other terms, and pairs of their sums, so that a long sum is not deep."""
    number = 0
    exprs: list[Expr] = []
    for term in terms:
        if isinstance(term, int):
            number += term
        else:
            exprs.append(term)
    while len(exprs) > 1:
        pairs = [a + b for a, b in zip(exprs[::2], exprs[1::2], strict=False)]
        exprs = pairs + exprs[2 * len(pairs) :]
    return exprs[0] + number if exprs else number


class _WorkEstimator:
    """Estimate the instructions of a statement, as a number or as an expression over variables defined outside of
    it."""

    def __init__(self, analyzer: Analyzer) -> None:
        self.analyzer = analyzer

    def work(self, stmt: Stmt | None) -> Work:
        if stmt is None:
            return 0
        if isinstance(stmt, For):
            return self._loop(stmt)
        if isinstance(stmt, SeqStmt):
            return _sum([self.work(inner) for inner in stmt.stmts])
        if isinstance(stmt, IfThenElse):
            taken, other = self.work(stmt.then_body), self.work(stmt.else_body)
            known = isinstance(taken, int) and isinstance(other, int)
            return expression_cost(stmt.condition) + (max(taken, other) if known else maximum(taken, other))
        if isinstance(stmt, LetStmt):
            body = self.work(stmt.body)
            rest = body if isinstance(body, int) else substitute(body, {stmt.var: stmt.value})
            return expression_cost(stmt.value) + rest
        if isinstance(stmt, Allocate):
            return self.work(stmt.body)
        if isinstance(stmt, BufferStore):
            return 1 + expression_cost(stmt.value)
        return _FUNCTION_COST

    def _loop(self, loop: For) -> Work:
        extent: Work = loop.extent.value if isinstance(loop.extent, IntImm) else cast(INT64, loop.extent)
        if not isinstance(extent, int):
            most = self.analyzer.bounds(extent).upper
            extent = extent if most == INFINITY else max(0, int(most))
        return extent * self.iteration(loop)

    def iteration(self, loop: For) -> Work:
        """Estimate the instructions of one iteration of ``loop``: of the longest one, if it is known."""
        body = self.work(loop.body)
        if isinstance(body, int) or not uses_var(body, {loop.var}):
            return body
        bounded = upper_bound_expr(body, {loop.var: (cast(INT64, loop.min), cast(INT64, loop.extent))})
        return bounded if bounded is not None else substitute(body, {loop.var: loop.min})  # the first iteration's


class _Parallelizer(ScopedMutator):
    def __init__(self, func: PrimFunc, ctx: PassContext, target: Target) -> None:
        super().__init__(func)
        self.known = set(func.variables)
        self.ctx, self.target = ctx, target
        self.config: ParallelizeLoopConfig = ctx.get_config("tensorir.ParallelizeLoop")
        self.in_parallel = False

    def mutate_For(self, loop: For) -> Stmt:
        if loop.kind != "parallel":
            return super().mutate_For(loop)
        annotations = dict(loop.annotations)
        reason = self._reason_against(loop, annotations)
        if reason is not None:
            self.ctx.remark(f"loop {loop.var.name} not parallelized: {reason}", "missed")
            return self._with_inner(For(loop.var, loop.min, loop.extent, "serial", loop.body, loop.annotations))
        self.in_parallel = True
        new = self._with_inner(loop)
        self.in_parallel = False
        assert isinstance(new, For)
        return For(new.var, new.min, new.extent, new.kind, new.body, annotations)

    def _with_inner(self, loop: For) -> Stmt:
        """Process the parallel loops in ``loop``; most have none."""
        for stmt in walk_statements(loop.body):
            if isinstance(stmt, For) and stmt.kind == "parallel":
                return super().mutate_For(loop)
        return loop

    def _reason_against(self, loop: For, annotations: dict[str, object]) -> str | None:
        """Return the reason why the loop should be serial, or None; annotate a condition on symbolic work."""
        if self.in_parallel:
            return "it is nested in a parallel loop"
        if self.target.num_threads == 1:
            return "the target has a single thread"
        if self.analyzer.bounds(loop.extent).upper <= 1:
            return "it has at most one iteration"
        conflict = shared_element(loop)
        if conflict is not None:
            return f"all iterations write the same element of {conflict.name}"
        least = self.config.min_work
        body = self._bounded(_WorkEstimator(self.analyzer).iteration(loop))
        extent = cast(INT64, loop.extent)
        if isinstance(body, IntImm) and isinstance(extent, IntImm):
            work = extent.value * body.value
            return f"{work} operations are less than min_work = {least}" if work < least else None
        if isinstance(body, IntImm):
            # A single iteration runs on one thread, however long it takes.
            enough = compare("ge", extent, const(max(2, -(-least // max(1, body.value))), INT64))
        else:
            enough = compare("ge", extent * body, const(least, INT64))
        if self._is_known(enough) and not self.analyzer.prove(enough):
            annotations[PARALLEL_IF] = enough
        return None

    def _bounded(self, work: Work) -> Expr:
        """Return the constant upper bound of ``work``, or ``work`` in canonical form if it has none."""
        if isinstance(work, int):
            return const(min(work, _MOST_WORK), INT64)
        work = self.analyzer.simplify(work)
        most = self.analyzer.bounds(work).upper
        return work if most == INFINITY else const(int(most), INT64)

    def _is_known(self, condition: Expr) -> bool:
        """Return whether ``condition`` uses only symbolic dimensions, which no later pass renames."""
        return not kinds(condition) & LOADS and set(free_vars(condition)) <= self.known


def shared_element(loop: For) -> Buffer | None:
    """Return a buffer from outside of the loop of which all iterations write the same element, or None."""
    defined: set[Var] = {loop.var}
    local: set[Buffer] = set()
    stack: list[Stmt] = [loop.body]
    while stack:  # over all statements that run in each iteration; those around a store come before it
        stmt = stack.pop()
        if isinstance(stmt, BufferStore):
            if (
                stmt.predicate is None
                and stmt.buffer not in local
                and not any(uses_var(index, defined) or kinds(index) & LOADS for index in stmt.indices)
            ):
                return stmt.buffer
        elif isinstance(stmt, SeqStmt):
            stack.extend(stmt.stmts[::-1])
        elif isinstance(stmt, LetStmt):
            defined.add(stmt.var)
            stack.append(stmt.body)
        elif isinstance(stmt, Allocate):
            local.add(stmt.buffer)
            stack.append(stmt.body)
        elif isinstance(stmt, For) and isinstance(stmt.extent, IntImm) and stmt.extent.value > 0:
            defined.add(stmt.var)
            stack.append(stmt.body)
    return None


def parallelize_loops(func: PrimFunc, ctx: PassContext | None = None, target: Target | None = None) -> PrimFunc:
    """Return ``func`` with parallel loops only where they pay."""
    ctx = ctx if ctx is not None else PassContext.current()
    target = target if target is not None else Target.current()
    return func.with_body(_Parallelizer(func, ctx, target).mutate(func.body))


@register_pass
@primfunc_pass(
    opt_level=0,
    name="ParallelizeLoop",
    requires={STATEMENTS, FORMULAS, PARALLEL_WISHES},
    provides={PARALLEL},
    invalidates={PARALLEL_WISHES},
)
class ParallelizeLoop(PrimFuncPass):
    """See the module. ``target``: default :meth:`Target.current`."""

    family = "schedule"
    essential = True

    def __init__(self, target: Target | None = None) -> None:
        self.target = target

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """Return ``func`` with parallel loops only where they pay."""
        return parallelize_loops(func, ctx, self.target)
