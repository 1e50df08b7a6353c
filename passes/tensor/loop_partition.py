"""``LoopPartition``: splits the range of a loop where a condition in its body turns, and drops the condition::

    for i in range((n + 5) // 6):                   for i in range(n // 6):
        for j in range(6):                              for j in range(6):
            if i * 6 + j < n:               ->              b[i * 6 + j] = 0
                b[i * 6 + j] = 0                    for i in range(n // 6, (n + 5) // 6):
                                                        for j in range(6):
                                                            if i * 6 + j < n:
                                                                b[i * 6 + j] = 0

A parallel loop stays one loop, with both forms of its body under a condition. The first iteration of a reduction, which
starts the accumulator, is split off as well. A loop whose body is one condition on its variable runs only where that
holds, and where inner loops lie between, only where it holds for some of theirs.

With the annotation ``{"specialize_tail": True}`` the rest of a division into tiles is written out, so that inner loops
keep constant extents: a half tile where the rest is as long (``n % 6 >= 3``: ``for j in range(3)``), and what is left
then for each remainder (``n % 3 == 1``: ``for j in range(1)``, else ``n % 3 == 2``: ...).

With the annotation ``{"roll_tail": True}`` the copies of a large body for a few iterations stay small: unrolled loops
become serial there, but for those by whose variable a formula is chosen, and the register buffers that they index are
on the stack.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.config import register_config_option
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.registry import register_pass
from tilewright.passes.tensor.scoped import ScopedMutator
from tilewright.passes.tensor.simplify import INTEGER_DIVISIONS
from tilewright.tensorir.arith.analyzer import Analyzer
from tilewright.tensorir.arith.intern import same_structure
from tilewright.tensorir.arith.region import partition_point
from tilewright.tensorir.dtype import BOOL, INT64
from tilewright.tensorir.expr import (
    BinaryOp,
    Buffer,
    BufferLoad,
    Call,
    Compare,
    Expr,
    IntImm,
    Select,
    UnaryOp,
    Var,
    all_of,
    compare,
    const,
    maximum,
    minimum,
)
from tilewright.tensorir.functor import (
    Mutator,
    Visitor,
    copy_with_fresh_definitions,
    free_vars,
    loads_and_stores,
    substitute,
    uses_var,
    walk,
    walk_statements,
)
from tilewright.tensorir.stmt import BufferStore, For, IfThenElse, LetStmt, PrimFunc, Stmt, sequence

TAIL_ANNOTATION = "specialize_tail"
ROLL_ANNOTATION = "roll_tail"
#: So many times as many iterations as the tails has a main loop whose tails may be slower.
_MAIN_PER_TAIL = 4


@register_config_option("tensorir.LoopPartition")
@dataclass(frozen=True)
class LoopPartitionConfig:
    """Options of ``LoopPartition``."""

    max_copies: int = dataclasses.field(
        default=16, metadata={"doc": "copies of loop bodies that the splits of one function may add"}
    )
    max_statements: int = dataclasses.field(
        default=128, metadata={"doc": "bodies of more statements than this are not copied, but for annotated loops"}
    )
    partition_parallel: bool = dataclasses.field(
        default=True, metadata={"doc": "whether parallel loops choose between two forms of their body"}
    )


@dataclass(frozen=True)
class _Guard:
    """A condition in the body of a loop, with the loops between."""

    condition: Expr
    inner: Mapping[Var, tuple[Expr, Expr]]


class _GuardFinder(Visitor):
    """The conditions in a loop's body that mention its variable, no memory, and nothing else that the body defines
    but loop variables."""

    def __init__(self, var: Var) -> None:
        self.var = var
        self.inner: dict[Var, tuple[Expr, Expr]] = {}
        self.lets: set[Var] = set()
        self.found: list[_Guard] = []

    def _add(self, condition: Expr | None) -> None:
        if condition is None or condition.dtype is not BOOL:
            return
        for part in conjuncts(condition):
            plain = not uses_var(part, self.lets) and not any(isinstance(n, BufferLoad) for n in walk(part))
            if plain and uses_var(part, {self.var}):
                self.found.append(_Guard(part, dict(self.inner)))

    def visit_For(self, loop: For) -> None:
        self.visit(loop.min)
        self.visit(loop.extent)
        self.inner[loop.var] = (loop.min, loop.extent)
        self.visit(loop.body)
        del self.inner[loop.var]

    def visit_LetStmt(self, op: LetStmt) -> None:
        self.lets.add(op.var)
        self.generic_visit(op)

    def visit_IfThenElse(self, op: IfThenElse) -> None:
        self._add(op.condition)
        self.generic_visit(op)

    def visit_Select(self, op: Select) -> None:
        self._add(op.condition)
        self.generic_visit(op)

    def visit_BufferLoad(self, op: BufferLoad) -> None:
        self._add(op.predicate)
        self.generic_visit(op)

    def visit_BufferStore(self, op: BufferStore) -> None:
        self._add(op.predicate)
        self.generic_visit(op)


def conjuncts(condition: Expr) -> list[Expr]:
    """The conditions that ``condition`` joins by ``and``."""
    if isinstance(condition, BinaryOp) and condition.op == "and":
        return conjuncts(condition.a) + conjuncts(condition.b)
    return [condition]


class _Replacer(Mutator):
    """Replaces conditions by what they are known to be, and takes the branches that follow from it."""

    def __init__(self, known: Mapping[Any, Expr]) -> None:
        self.known = known

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


class _Moved(Mutator):
    """Lets tiles begin anywhere: ``var * factor`` becomes ``first`` in all indices. ``failed`` says that ``var`` is
    used in another way."""

    def __init__(self, analyzer: Analyzer, var: Var, factor: int, first: Expr) -> None:
        self.analyzer, self.var, self.factor = analyzer, var, factor
        self.first = analyzer.linear(first)
        self.failed = False

    def mutate(self, node: Any) -> Any:
        if not isinstance(node, Expr) or node.dtype is not INT64 or not uses_var(node, {self.var}):
            return super().mutate(node)
        form = self.analyzer.linear(node)
        multiple, other = divmod(form.terms.get(self.var, 0), self.factor)
        rest = form.without(self.var)
        if other or any(uses_var(term, {self.var}) for term in rest.terms):
            self.failed = True
            return node
        return self.analyzer.expr(rest.combine(self.first, multiple))


_TRUE, _FALSE = IntImm(1, BOOL), IntImm(0, BOOL)
_OPPOSITE = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}


class _Partitioner(ScopedMutator):
    def __init__(self, func: PrimFunc, config: LoopPartitionConfig) -> None:
        super().__init__(func)
        self.config = config
        self.copies_left = config.max_copies
        self.in_tail = False

    def mutate_For(self, loop: For) -> Stmt:
        if loop.kind in ("serial", "parallel") and loop.var.dtype is INT64:
            split = self._split(loop)
            if split is not None:
                return split
        return super().mutate_For(loop)

    # Splits.

    def _split(self, loop: For) -> Stmt | None:
        annotated = bool(loop.annotations.get(TAIL_ANNOTATION))
        if not annotated:
            size = sum(isinstance(node, BufferStore) for node in walk_statements(loop.body))
            too_much = self.copies_left <= 0 or size > self.config.max_statements
            if self.in_tail or too_much or (loop.kind == "parallel" and not self.config.partition_parallel):
                return None
        finder = _GuardFinder(loop.var)
        finder.visit(loop.body)
        guards = finder.found
        if not annotated and isinstance(loop.body, IfThenElse) and loop.body.else_body is None:
            # A condition that is the whole body limits the range of the loop instead, which needs no copy.
            whole = set(conjuncts(loop.body.condition))
            guards = [guard for guard in guards if guard.condition not in whole]
        if not guards:
            return None
        with self.analyzer.scope():
            self.analyzer.assume(loop.extent > 0)
            if annotated:
                specialized = self._specialized(loop, guards)
                if specialized is not None:
                    return specialized
            if loop.kind == "serial":
                first = self._first_iteration(loop, guards)
                if first is not None:
                    return first
            return self._main_and_tails(loop, guards)

    def _first_iteration(self, loop: For, guards: list[_Guard]) -> Stmt | None:
        """Split off the first iteration, if there are conditions that hold in it alone."""
        known = {
            guard.condition: _FALSE
            for guard in guards
            if isinstance(guard.condition, Compare)
            and guard.condition.op == "eq"
            and guard.condition.a is loop.var
            and self.analyzer.prove_equal(guard.condition.b, loop.min)
        }
        if not known:
            return None
        self.copies_left -= 1
        taken = _Replacer(dict.fromkeys(known, _TRUE)).mutate(copy_with_fresh_definitions(loop.body))
        first: Stmt = self.mutate(substitute(taken, {loop.var: loop.min}))
        if not (isinstance(loop.extent, IntImm) and loop.extent.value >= 1):
            first = IfThenElse(loop.extent > 0, first)
        rest = For(
            loop.var,
            self.simplify(loop.min + 1),
            self.simplify(loop.extent - 1),
            loop.kind,
            _Replacer(known).mutate(loop.body),
            loop.annotations,
        )
        return sequence(first, self.mutate_For(rest))

    def _main_and_tails(self, loop: For, guards: list[_Guard]) -> Stmt | None:
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
            known[guard.condition] = _TRUE
        if not known:
            return None
        low = begin if low is begin else self.simplify(minimum(low, end))
        high = self.simplify(maximum(high, low)) if high is not end else end
        self.copies_left -= 1 + (low is not begin and high is not end)
        main_body = _Replacer(known).mutate(loop.body)
        if loop.kind == "parallel":
            inside = all_of(
                *([compare("ge", loop.var, low)] if low is not begin else []),
                *([compare("lt", loop.var, high)] if high is not end else []),
            )
            with self.analyzer.scope():
                self.analyzer.bind(loop.var, begin, loop.extent)
                main, tail = self.mutate(main_body), self._tail(loop.body)
            return For(loop.var, begin, loop.extent, "parallel", IfThenElse(inside, main, tail), loop.annotations)
        tail_body = _rolled_up(loop.body) if self._rolls_tails(loop, self.simplify(high - low)) else loop.body
        parts: list[Stmt] = []
        if low is not begin:
            parts.append(self._part(loop, begin, low, tail_body, tail=True))
        parts.append(self._part(loop, low, high, main_body, tail=False))
        if high is not end:
            parts.append(self._part(loop, high, end, tail_body, tail=True))
        return sequence(*parts)

    def _rolls_tails(self, loop: For, main: Expr) -> bool:
        """Whether loops stay loops outside of the ``main`` iterations: those take half as long again, so that they must
        be few."""
        if not loop.annotations.get(ROLL_ANNOTATION):
            return False
        rest = self.simplify(loop.extent - main)
        return not isinstance(main, IntImm) or not isinstance(rest, IntImm) or main.value >= _MAIN_PER_TAIL * rest.value

    def _is_visible(self, loop: For, guard: _Guard, ends: tuple[Expr | None, Expr | None]) -> bool:
        """Whether the ends are made of what is known outside of the loop."""
        hidden = {loop.var, *guard.inner}
        return not any(var in hidden for end in ends if end is not None for var in free_vars(end))

    def _part(self, loop: For, low: Expr, high: Expr, body: Stmt, *, tail: bool) -> Stmt:
        var = Var(loop.var.name, loop.var.dtype)
        copy = substitute(copy_with_fresh_definitions(body), {loop.var: var})
        extent = self.simplify(high - low)
        outer, self.in_tail = self.in_tail, self.in_tail or tail
        new = self.mutate_in_loop(var, low, extent, copy)
        self.in_tail = outer
        return For(var, low, extent, loop.kind, new, loop.annotations)

    def _tail(self, body: Stmt) -> Stmt:
        outer, self.in_tail = self.in_tail, True
        result: Stmt = self.mutate(copy_with_fresh_definitions(body))
        self.in_tail = outer
        return result

    # Tails by remainder.

    def _specialized(self, loop: For, guards: list[_Guard]) -> Stmt | None:
        """The main loop, and the tail written out for each remainder of the division into tiles."""
        if not (isinstance(loop.min, IntImm) and loop.min.value == 0):
            return None
        tile: tuple[int, Expr] | None = None
        offsets: dict[Expr, Expr] = {}
        for guard in guards:
            found = self._tile_guard(loop, guard)
            if found is None:
                continue
            factor, offset, total = found
            if tile is None:
                tile = factor, total
            if tile[0] == factor and self.analyzer.prove_equal(tile[1], total):
                offsets[guard.condition] = offset
        if tile is None:
            return None
        factor, total = tile
        whole = self.simplify(total // factor)
        rest = self.simplify(total % factor)
        has_tail: Expr = _TRUE
        if not self.analyzer.prove(loop.extent.equal((total + (factor - 1)) // factor)):
            if loop.kind == "parallel":
                return None
            # One of several parts of the tiles: it may end before the last one, or begin behind it.
            whole = self.simplify(maximum(minimum(whole, loop.extent), 0))
            has_tail = self.simplify(all_of(compare("lt", whole, loop.extent), compare("gt", total, 0)))
        main = _Replacer(dict.fromkeys(offsets, _TRUE)).mutate(loop.body)

        def rows(count: int, first: Expr | None) -> Stmt | None:
            """A tile of ``count`` rows from ``first`` on (None: from where the last tile begins)."""
            known = {guard: compare("lt", offset, const(count, INT64)) for guard, offset in offsets.items()}
            body: Stmt = copy_with_fresh_definitions(_Replacer(known).mutate(loop.body))
            if first is None:
                body = body if loop.kind == "parallel" else substitute(body, {loop.var: whole})
            else:
                moved = _Moved(self.analyzer, loop.var, factor, first)
                body = moved.mutate(body)
                if moved.failed:
                    return None
            return self.mutate(body)  # type: ignore[no-any-return]

        def remainders(rest: Expr, end: int, first: Expr | None) -> Stmt | None:
            """The tail of ``rest`` rows, fewer than ``end``, a tile of its own for each number of rows."""
            chain: Stmt | None = None
            for count in range(end - 1, 0, -1):
                body = rows(count, first)
                if body is None:
                    return None
                chain = IfThenElse(rest.equal(count), body, chain)
            return chain

        def tail() -> Stmt:
            chain = self._halved(factor, total, rest, rows, remainders) or remainders(rest, factor, None)
            if chain is None:
                return sequence()
            return chain if has_tail is _TRUE else IfThenElse(has_tail, chain)

        return self._with_tail(loop, whole, main, tail)

    def _halved(
        self,
        factor: int,
        total: Expr,
        rest: Expr,
        rows: Callable[[int, Expr | None], Stmt | None],
        remainders: Callable[[Expr, int, Expr | None], Stmt | None],
    ) -> Stmt | None:
        """The tail as half a tile and what is left then: much less code than a tile for each remainder, and half a tile
        is about as fast for each of its rows. None if the body does not allow it, or the tail has one size."""
        half = (factor + 1) // 2
        if half < 2 or isinstance(rest, IntImm):
            return None
        left = self.simplify(total % half) if factor % half == 0 else self.simplify(rest % half)
        first = rows(half, None)
        second = remainders(left, half, self.simplify(total - left))
        if first is None or second is None:
            return None
        return sequence(IfThenElse(rest >= half, first), second)

    def _with_tail(self, loop: For, whole: Expr, main: Stmt, tail: Callable[[], Stmt]) -> Stmt:
        annotations = {key: value for key, value in loop.annotations.items() if key != TAIL_ANNOTATION}
        if loop.kind == "parallel":
            with self.analyzer.scope():
                self.analyzer.bind(loop.var, loop.min, loop.extent)
                both = IfThenElse(loop.var < whole, self.mutate(main), tail())
            return For(loop.var, loop.min, loop.extent, loop.kind, both, annotations)
        body = self.mutate_in_loop(loop.var, loop.min, whole, main)
        return sequence(For(loop.var, loop.min, whole, loop.kind, body, annotations), tail())

    def _tile_guard(self, loop: For, guard: _Guard) -> tuple[int, Expr, Expr] | None:
        """``loop.var * factor + offset < total`` with the offset within a tile: factor, offset and total."""
        condition, analyzer = guard.condition, self.analyzer
        if not isinstance(condition, Compare) or condition.op != "lt" or condition.a.dtype is not INT64:
            return None
        form = analyzer.linear(condition.a) - analyzer.linear(condition.b)
        factor = form.terms.get(loop.var, 0)
        if factor < 2:
            return None
        inner = set(guard.inner)
        offset, total = const(0, INT64), const(-form.const, INT64)
        for term, coefficient in form.terms.items():
            if term is loop.var:
                continue
            if uses_var(term, {loop.var}):
                return None
            if uses_var(term, inner):
                offset = offset + term * coefficient
            else:
                total = total - term * coefficient
        with analyzer.scope():
            for var, (low, extent) in guard.inner.items():
                analyzer.bind(var, low, extent)
            if not (analyzer.prove(offset >= 0) and analyzer.prove(offset < factor)):
                return None
        return factor, analyzer.simplify(offset), analyzer.simplify(total)


def _rolled_up(body: Stmt) -> Stmt:
    """``body`` without unrolled loops, but for those by whose variable a formula is chosen."""
    rolled = {
        loop.var
        for loop in walk(body)
        if isinstance(loop, For) and loop.kind == "unrolled" and not _chooses(loop.body, loop.var)
    }
    indexed = {
        access.buffer
        for access in loads_and_stores(body)
        if access.buffer.scope == "register" and any(uses_var(index, rolled) for index in access.indices)
    }
    memory = {old: dataclasses.replace(old, scope="stack") for old in indexed}
    result: Stmt = _RolledUp(rolled, memory).mutate(body)
    return result


def _chooses(body: Stmt, var: Var) -> bool:
    return any(
        isinstance(node, Select)
        and isinstance(node.condition, Compare)
        and node.condition.op == "eq"
        and uses_var(node.condition, {var})
        for node in walk(body)
    )


class _RolledUp(Mutator):
    """Makes the loops of some variables serial, and puts some buffers in place of others."""

    def __init__(self, rolled: set[Var], buffers: Mapping[Buffer, Buffer]) -> None:
        self.rolled, self.buffers = rolled, buffers

    def mutate_For(self, loop: For) -> Stmt:
        kind = "serial" if loop.var in self.rolled else loop.kind
        return For(loop.var, loop.min, loop.extent, kind, self.mutate(loop.body), loop.annotations)

    def mutate_buffer(self, buffer: Buffer) -> Buffer:
        return self.buffers.get(buffer, buffer)


class _Trimmer(ScopedMutator):
    """Moves conditions that are a whole loop body out of the loop, or into its range."""

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
            if any(isinstance(node, (BufferLoad, Call)) for node in walk(part)):
                kept.append(part)
            elif not uses_var(part, {new.var}):
                (kept if _may_trap(part) else outside).append(part)
            else:
                found = partition_point(part, new.var, {}, self.analyzer)
                if found is None or (constant_only and not self._is_constant(new, found)):
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
        """``loop`` without iterations at its ends in which a condition below inner loops holds for none of theirs."""
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
            opposite = _OPPOSITE.get(part.op) if isinstance(part, Compare) else None
            if opposite is None or not uses_var(part, {loop.var}) or any(isinstance(n, BufferLoad) for n in walk(part)):
                continue
            assert isinstance(part, Compare)
            never = partition_point(compare(opposite, part.a, part.b), loop.var, inner, self.analyzer)
            if never is None or any(uses_var(bound, {loop.var, *inner}) for bound in never if bound is not None):
                continue
            first, last = never  # the condition holds nowhere in [first, last)
            if last is None and first is not None:
                end = minimum(end, first)
            elif first is None and last is not None:
                low = maximum(low, last)
        extent = self.simplify(end - low)
        return For(loop.var, self.simplify(low), extent, loop.kind, loop.body, loop.annotations)

    def _within_reach(self, loop: For) -> For:
        """``loop`` without the iterations in which no instance of the loops inside meets the condition that is their
        whole body: behind the last vector of a row, masks would switch off all lanes of one vector after the other."""
        inner: dict[Var, tuple[Expr, Expr]] = {}
        body = loop.body
        while isinstance(body, For) and body.var.dtype is INT64:
            inner[body.var] = (body.min, body.extent)
            body = body.body
        if not inner or not isinstance(body, IfThenElse) or body.else_body is not None:
            return loop
        if loop.kind not in ("serial", "parallel") or loop.var.dtype is not INT64:
            return loop
        low, end = loop.min, loop.min + loop.extent
        for part in conjuncts(body.condition):
            if not uses_var(part, {loop.var}) or any(isinstance(node, (BufferLoad, Call)) for node in walk(part)):
                continue
            never = partition_point(UnaryOp("not", part), loop.var, inner, self.analyzer)
            if never is None or (never[0] is None) == (never[1] is None):
                continue
            if never[0] is not None:  # from there on the condition never holds
                end = minimum(end, never[0])
            if never[1] is not None:
                low = maximum(low, never[1])
        low, extent = self.simplify(low), self.simplify(end - low)
        if same_structure(low, self.simplify(loop.min)) and same_structure(extent, self.simplify(loop.extent)):
            return loop
        return For(loop.var, low, extent, loop.kind, loop.body, loop.annotations)

    def _is_constant(self, loop: For, ends: tuple[Expr | None, Expr | None]) -> bool:
        return all(isinstance(end, IntImm) for end in (loop.min, loop.extent, *ends) if end is not None)


def _may_trap(condition: Expr) -> bool:
    """Whether the condition divides by something that may be zero where the loop does not run."""
    return any(
        isinstance(node, BinaryOp) and node.op in INTEGER_DIVISIONS and not isinstance(node.b, IntImm)
        for node in walk(condition)
    )


def partition_loops(func: PrimFunc, config: LoopPartitionConfig | None = None) -> PrimFunc:
    """``func`` with its loops split where their conditions turn."""
    partitioner = _Partitioner(func, config if config is not None else LoopPartitionConfig())
    return func.with_body(_Trimmer(func).mutate(partitioner.mutate(func.body)))


@register_pass
@primfunc_pass(opt_level=2, name="LoopPartition")
class LoopPartition(PrimFuncPass):
    """See the module."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """``func`` with its loops split where their conditions turn."""
        return partition_loops(func, ctx.get_config("tensorir.LoopPartition"))
