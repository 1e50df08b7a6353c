"""``LoopPartition``: split the range of a loop where a condition in its body changes, and drop the condition::

    for i in range((n + 5) // 6):                   for i in range(n // 6):
        for j in range(6):                              for j in range(6):
            if i * 6 + j < n:               ->              b[i * 6 + j] = 0
                b[i * 6 + j] = 0                    for i in range(n // 6, (n + 5) // 6):
                                                        for j in range(6):
                                                            if i * 6 + j < n:
                                                                b[i * 6 + j] = 0

A parallel loop stays one loop, with both forms of its body under a condition. The first iteration of a reduction, which
initializes the accumulator, is peeled as well. A loop whose body is one condition on its variable is limited to the
iterations in which the condition holds; with inner loops between, to those in which it holds for some of theirs.

Copies cost compile time in later passes and in LLVM, so a split makes them only where it saves work in a loop: one main
loop, and before and after it whatever work is left under the known conditions; a loop with a large body stays one loop,
and chooses between the main body and one for both ends. No copy is made for a condition that becomes a part of a loop's
range (``loop_ranges``; in copies for the ends, also one that selects what a reduction adds, ``loop_neutral``), nor
around tiles in which it is known (``loop_remainders``).

With the annotation ``{"specialize_tail": True}`` the remainder of a division into tiles is computed in smaller tiles,
so that inner loops keep constant extents (``loop_remainders`` states the rule).

A loop with the annotation ``{"keep_whole": True}`` is not split. Nor are loops of a nest that copies images with a
border around them: conditions that decide, for whole vectors, whether memory is copied or a constant is stored become
the choice of an address. (A copy inside of a task, for a few multiply-adds each, would take twice as long.)
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.config import register_config_option
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.properties import COMPACT, PARTITIONED, VECTOR_LOOPS
from tilewright.passes.registry import register_pass
from tilewright.passes.tensor.loop_cases import Cases, find_cases, find_choice, find_outer_choice
from tilewright.passes.tensor.loop_guards import (
    CONDITIONS,
    FALSE,
    TRUE,
    Guard,
    copies_memory,
    find_conditions,
    with_known,
)
from tilewright.passes.tensor.loop_neutral import without_neutral_steps
from tilewright.passes.tensor.loop_ranges import limit_ranges, limiting_conditions
from tilewright.passes.tensor.loop_remainders import find_tiles, tile_conditions, with_remainders
from tilewright.passes.tensor.scoped import ScopedMutator
from tilewright.passes.tensor.simplify import is_empty
from tilewright.tensorir.arith.region import partition_point
from tilewright.tensorir.conditions import OPPOSITES
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import BinaryOp, Compare, Expr, IntImm, UnaryOp, Var, all_of, compare, maximum, minimum
from tilewright.tensorir.functor import copy_with_fresh_definitions, free_vars, kinds, substitute, walk_statements
from tilewright.tensorir.keys import INTERLEAVE, KEEP_WHOLE, SPECIALIZE_TAIL
from tilewright.tensorir.stmt import BufferStore, Evaluate, For, IfThenElse, PrimFunc, SeqStmt, Stmt, sequence

#: From this many stores in a copy of its body on, a serial loop with work before and after its main part chooses
#: between two bodies in each iteration, so that there is one copy for both ends.
_LARGE = 16


@register_config_option("tensorir.LoopPartition")
@dataclass(frozen=True)
class LoopPartitionConfig:
    """Options of ``LoopPartition``."""

    max_copies: int = dataclasses.field(
        default=16, metadata={"doc": "copies of loop bodies that the splits of one function may add"}
    )
    max_statements: int = dataclasses.field(
        default=128, metadata={"doc": "bodies of more statements than this are not copied, except in annotated loops"}
    )
    rest_parts: int = dataclasses.field(
        default=4,
        metadata={
            "doc": "tiles of a remainder of unknown size have the rows of a whole tile divided by this: more means "
            "less code, but fewer sums at once to hide the latency of an addition"
        },
    )
    partition_parallel: bool = dataclasses.field(
        default=True,
        metadata={"doc": "whether parallel loops are split as well: a condition selects one of two bodies"},
    )


class _Partitioner(ScopedMutator):
    def __init__(self, func: PrimFunc, config: LoopPartitionConfig) -> None:
        super().__init__(func)
        self.config = config
        self.copies_left = config.max_copies
        self.in_tail = False
        #: Whether the nest around this place only copies memory; None outside of all loops.
        self.copying: bool | None = None

    def mutate_For(self, loop: For) -> Stmt:
        if self.copying is not None:
            return self._parted(loop)
        self.copying = copies_memory(loop)
        parted = self._parted(loop)
        self.copying = None
        return parted

    def _parted(self, loop: For) -> Stmt:
        # Steps whose vectors are stored as one stay together: each is evaluated by itself (InterleaveStores).
        if loop.kind in ("serial", "parallel") and loop.var.dtype is INT64 and not loop.annotations.get(INTERLEAVE):
            choice = find_outer_choice(loop)
            split = self._chosen_outside(loop, *choice) if choice is not None else self._split(loop)
            if split is not None:
                return split
        return super().mutate_For(loop)

    # Splits.

    def _split(self, loop: For) -> Stmt | None:
        if loop.annotations.get(KEEP_WHOLE) or not kinds(loop.body) & CONDITIONS:
            return None
        annotated = bool(loop.annotations.get(SPECIALIZE_TAIL))
        if not annotated:
            size = sum(isinstance(node, BufferStore) for node in walk_statements(loop.body))
            too_much = self.copies_left <= 0 or size > self.config.max_statements
            if self.in_tail or too_much or (loop.kind == "parallel" and not self.config.partition_parallel):
                return None
        conditions = find_conditions(loop, self.copying is True)
        guards = conditions.guards
        if conditions.choosing and not annotated and loop.kind != "parallel":
            choice = find_choice(loop.body, conditions, self.analyzer)
            if choice is not None:
                return self._chosen_outside(loop, *choice)
        if guards and not annotated:
            # A condition that limits the range of a loop, or is known in whole tiles, needs no copy of outer loops.
            inside = limiting_conditions(loop, self.analyzer) | tile_conditions(loop.body, self.analyzer)
            guards = [guard for guard in guards if guard.condition not in inside]
        if not guards:
            return None
        cases = None if annotated else find_cases(loop, conditions, self.analyzer)
        if cases is not None:
            return self._case_by_case(loop, cases)
        runs = loop.extent > 0
        if self.analyzer.prove(runs):
            return self._where_it_runs(loop, guards, annotated)
        with self.analyzer.scope():
            self.analyzer.assume(runs)
            split = self._where_it_runs(loop, guards, annotated)
        if split is None or self._is_idle(split, where=_never_runs(loop.extent)):
            return split
        return IfThenElse(runs, split)

    def _where_it_runs(self, loop: For, guards: list[Guard], annotated: bool) -> Stmt | None:
        """The parts of a range that is not empty: elsewhere their bounds may be wrong."""
        if annotated:
            tiles = find_tiles(loop, guards, self.analyzer)
            specialized = None if tiles is None else with_remainders(tiles, self.config.rest_parts, self)
            if specialized is not None:
                return specialized
        if loop.kind == "serial":
            first = self._first_iteration(loop, guards)
            if first is not None:
                return first
        return self._main_and_tails(loop, guards)

    def _is_idle(self, stmt: Stmt, where: Expr) -> bool:
        """Return whether ``stmt`` certainly does nothing where a condition holds."""
        with self.analyzer.scope():
            self.analyzer.assume(where)
            return self._does_nothing(stmt)

    def _does_nothing(self, stmt: Stmt) -> bool:
        if isinstance(stmt, For):
            return self.analyzer.prove(stmt.extent <= 0)
        if isinstance(stmt, SeqStmt):
            return all(map(self._does_nothing, stmt.stmts))
        if isinstance(stmt, IfThenElse):
            is_else_idle = stmt.else_body is None or self._does_nothing(stmt.else_body)
            never = UnaryOp("not", stmt.condition)
            return is_else_idle and (self.analyzer.prove(never) or self._does_nothing(stmt.then_body))
        return False

    def _case_by_case(self, loop: For, cases: Cases) -> Stmt:
        """The parts of a range one after the other; under conditions if the loop is parallel, which stays one."""
        end = self.simplify(loop.min + loop.extent)
        parts = [(loop.min, cases.first, cases.low), (cases.second, end, cases.high)]
        if cases.first is not cases.second:
            parts.insert(1, (cases.first, cases.second, loop.body))
        if loop.kind == "serial":
            return sequence(*(self._again(loop, *part) for part in parts))
        *others, (low, high, body) = parts
        chosen = self._chosen(loop, low, high, body)
        for low, high, body in reversed(others):
            chosen = IfThenElse(loop.var < high, self._chosen(loop, low, high, body), chosen)
        return For(loop.var, loop.min, loop.extent, loop.kind, chosen, loop.annotations)

    def _chosen_outside(self, loop: For, condition: Expr, taken: Stmt, other: Stmt) -> Stmt:
        """A loop for each side of a condition that it does not change."""
        copies = [
            For(loop.var, loop.min, loop.extent, loop.kind, copy_with_fresh_definitions(body), loop.annotations)
            for body in (taken, other)
        ]
        if is_empty(other):
            return self.mutate_IfThenElse(IfThenElse(condition, copies[0]))
        fresh = Var(loop.var.name, loop.var.dtype)
        copies[1] = For(
            fresh, loop.min, loop.extent, loop.kind, substitute(copies[1].body, {loop.var: fresh}), loop.annotations
        )
        return self.mutate_IfThenElse(IfThenElse(condition, *copies))

    def _again(self, loop: For, low: Expr, high: Expr, body: Stmt) -> Stmt:
        """A part of a loop, split where it has cases again; lanes of one vector that differ are a tail."""
        var = Var(loop.var.name, loop.var.dtype)
        copy = substitute(copy_with_fresh_definitions(body), {loop.var: var})
        part = For(var, low, self.simplify(high - low), loop.kind, copy, loop.annotations)
        outer, self.in_tail = self.in_tail, self.in_tail or body is loop.body
        result = self.mutate_For(part)
        self.in_tail = outer
        return result

    def _chosen(self, loop: For, low: Expr, high: Expr, body: Stmt) -> Stmt:
        """The body of a parallel loop for a part of its range, with the conditions that its cases have there."""
        part = For(loop.var, low, self.simplify(high - low), loop.kind, copy_with_fresh_definitions(body))
        outer, self.in_tail = self.in_tail, self.in_tail or body is loop.body
        split = self._split(part)
        result = split.body if isinstance(split, For) else self.mutate_in_loop(loop.var, low, part.extent, part.body)
        self.in_tail = outer
        return result

    def _first_iteration(self, loop: For, guards: list[Guard]) -> Stmt | None:
        """Peel the first iteration, if there are conditions that hold in it alone."""
        known = {
            guard.condition: FALSE
            for guard in guards
            if isinstance(guard.condition, Compare)
            and guard.condition.op == "eq"
            and guard.condition.a is loop.var
            and self.analyzer.prove_equal(guard.condition.b, loop.min)
        }
        if not known:
            return None
        self.copies_left -= 1
        taken = with_known(copy_with_fresh_definitions(loop.body), dict.fromkeys(known, TRUE))
        first: Stmt = self.mutate(substitute(taken, {loop.var: loop.min}))
        if not (isinstance(loop.extent, IntImm) and loop.extent.value >= 1):
            first = IfThenElse(loop.extent > 0, first)
        rest = For(
            loop.var,
            self.simplify(loop.min + 1),
            self.simplify(loop.extent - 1),
            loop.kind,
            with_known(loop.body, known),
            loop.annotations,
        )
        return sequence(first, self.mutate_For(rest))

    def _main_and_tails(self, loop: For, guards: list[Guard]) -> Stmt | None:
        begin, end = loop.min, self.simplify(loop.min + loop.extent)
        low, high = begin, end
        known: dict[Expr, Expr] = {}
        for guard in guards:
            found = partition_point(guard.condition, loop.var, guard.inner, self.analyzer)
            if found is None or not self._is_visible(loop, guard, found):
                continue
            new_low = low if found[0] is None else self.simplify(maximum(low, found[0]))
            new_high = high if found[1] is None else self.simplify(minimum(high, found[1]))
            if self.analyzer.prove(new_high <= new_low):
                continue  # it never holds, or not where the others do
            low, high = new_low, new_high
            known[guard.condition] = TRUE
        if not known:
            return None
        low = begin if low is begin else self.simplify(minimum(low, end))
        high = self.simplify(maximum(high, low)) if high is not end else end
        main_body = with_known(loop.body, known)
        before = None if low is begin else self._outside(loop, guards, low, before=True)
        behind = None if high is end else self._outside(loop, guards, high, before=False)
        if loop.kind == "parallel" or (before is not None and behind is not None and _stores(loop.body) >= _LARGE):
            inside = all_of(
                *([compare("ge", loop.var, low)] if low is not begin else []),
                *([compare("lt", loop.var, high)] if high is not end else []),
            )
            outside = before is not None or behind is not None
            self.copies_left -= outside
            with self.analyzer.scope():
                self.analyzer.bind(loop.var, begin, loop.extent)
                tail = self._tail(loop.body) if outside else None
                chosen = IfThenElse(inside, self.mutate(main_body), tail)
            return For(loop.var, begin, loop.extent, loop.kind, chosen, loop.annotations)
        self.copies_left -= (before is not None) + (behind is not None)
        parts: list[Stmt] = []
        if before is not None:
            parts.append(self._part(loop, begin, low, before, tail=True))
        parts.append(self._part(loop, low, high, main_body, tail=False))
        if behind is not None:
            parts.append(self._part(loop, high, end, behind, tail=True))
        return sequence(*parts)

    def _outside(self, loop: For, guards: list[Guard], turn: Expr, before: bool) -> Stmt | None:
        """Return the body before (after) ``turn``, where some conditions never hold; None if no work is left."""
        never: dict[Expr, Expr] = {}
        for guard in guards:
            condition = guard.condition
            if not isinstance(condition, Compare) or condition.op in ("eq", "ne"):
                continue
            opposite = compare(OPPOSITES[condition.op], condition.a, condition.b)
            found = partition_point(opposite, loop.var, guard.inner, self.analyzer)
            if found is None or not self._is_visible(loop, guard, found):
                continue
            near, far = (found[1], found[0]) if before else found
            if far is not None or near is None:
                continue
            if before and self.analyzer.prove(maximum(near, loop.min) >= turn):
                never[condition] = FALSE
            if not before and self.analyzer.prove(minimum(near, loop.min + loop.extent) <= turn):
                never[condition] = FALSE
        body = with_known(loop.body, never) if never else loop.body
        return body if any(isinstance(node, (BufferStore, Evaluate)) for node in walk_statements(body)) else None

    def _is_visible(self, loop: For, guard: Guard, ends: tuple[Expr | None, Expr | None]) -> bool:
        """Return whether the ends use only variables that are defined outside of the loop."""
        hidden = {loop.var, *guard.inner, *guard.lets}
        return not any(var in hidden for end in ends if end is not None for var in free_vars(end))

    def _part(self, loop: For, low: Expr, high: Expr, body: Stmt, *, tail: bool) -> Stmt:
        var = Var(loop.var.name, loop.var.dtype)
        copy = substitute(copy_with_fresh_definitions(body), {loop.var: var})
        extent = self.simplify(high - low)
        outer, self.in_tail = self.in_tail, self.in_tail or tail
        new = self.mutate_in_loop(var, low, extent, without_neutral_steps(copy) if tail else copy)
        self.in_tail = outer
        return For(var, low, extent, loop.kind, new, loop.annotations)

    def _tail(self, body: Stmt) -> Stmt:
        outer, self.in_tail = self.in_tail, True
        result: Stmt = self.mutate(copy_with_fresh_definitions(without_neutral_steps(body)))
        self.in_tail = outer
        return result


def _never_runs(extent: Expr) -> Expr:
    """Return the condition that a loop of ``extent`` has no iterations, about the dividend where a constant divides:
    from ``n + 5 < 6`` an analyzer learns more than from ``(n + 5) // 6 <= 0``."""
    if isinstance(extent, BinaryOp) and extent.op == "floordiv" and isinstance(extent.b, IntImm) and extent.b.value > 0:
        return extent.a < extent.b
    return extent <= 0


def _stores(stmt: Stmt) -> int:
    """Count the stores of a body after unrolling."""
    if isinstance(stmt, BufferStore):
        return 1
    copies = 1
    if isinstance(stmt, For) and stmt.kind == "unrolled" and isinstance(stmt.extent, IntImm):
        copies = stmt.extent.value
    return copies * sum(_stores(part) for part in stmt.parts() if isinstance(part, Stmt))


def partition_loops(func: PrimFunc, config: LoopPartitionConfig | None = None) -> PrimFunc:
    """Return ``func`` with its loops split where their conditions turn."""
    if not kinds(func.body) & CONDITIONS:
        return func
    partitioner = _Partitioner(func, config if config is not None else LoopPartitionConfig())
    return limit_ranges(func.with_body(partitioner.mutate(func.body)))


@register_pass
@primfunc_pass(opt_level=2, name="LoopPartition", requires={COMPACT, VECTOR_LOOPS}, provides={PARTITIONED})
class LoopPartition(PrimFuncPass):
    """See the module."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """Return ``func`` with its loops split where their conditions turn."""
        return partition_loops(func, ctx.get_config("tensorir.LoopPartition"))
