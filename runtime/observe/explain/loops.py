"""Read facts from the lowered loops of a kernel: which are parallel, and which vectors are masked."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from tilewright.tensorir.expr import BinaryOp, Broadcast, BufferLoad, Compare, Expr, Ramp, Var
from tilewright.tensorir.functor import free_vars, walk_statements
from tilewright.tensorir.keys import PARALLEL_IF
from tilewright.tensorir.known_numbers import integer_value
from tilewright.tensorir.stmt import BufferStore, For, IfThenElse, LetStmt, PrimFunc, SeqStmt, Stmt

#: Tails that leave fewer of a buffer's lanes unused than this fraction are not worth a word.
_LEAST_WASTE = 0.05


@dataclasses.dataclass(frozen=True)
class Tail:
    """A vector that is not full, at the end of each row.

    Attributes:
        buffer: the buffer that it is stored to.
        used: lanes that hold elements.
        lanes: lanes of the vector.
    """

    buffer: str
    used: int
    lanes: int


@dataclasses.dataclass(frozen=True)
class LoopFacts:
    """Facts about the loops of a kernel.

    Attributes:
        has_loops: whether there is anything to vectorize or to share: a loop or a vector.
        parallel: for each parallel loop the condition under which it has threads; None for always.
        tails: masked vectors that waste a noticeable part of the work.
        sums: whether it adds floats one by one.
    """

    has_loops: bool
    parallel: Sequence[Expr | None]
    tails: Sequence[Tail]
    sums: bool = False


def loop_facts(func: PrimFunc, sizes: Mapping[Var, int]) -> LoopFacts:
    """Return facts about the loops of a lowered kernel, whose integer parameters have these sizes (as far as they are
    known)."""
    loops = [stmt for stmt in walk_statements(func.body) if isinstance(stmt, For)]
    parallel = [loop.annotations.get(PARALLEL_IF) for loop in loops if loop.kind == "parallel"]
    counter = _Stores(dict(sizes))
    counter.statement(func.body, 1)
    vectors = any(count for counts in counter.lanes.values() for count in counts)
    return LoopFacts(
        bool(loops) or vectors,
        [each if isinstance(each, Expr) else None for each in parallel],
        counter.tails(),
        counter.sums,
    )


class _Stores:
    """Counts the lanes of vector stores, and those of masked vectors that hold nothing."""

    def __init__(self, known: dict[Var, int]) -> None:
        self.known = known
        self.masks: dict[Var, Expr] = {}
        #: For each buffer the lanes of all vector stores, and the unused ones.
        self.lanes: dict[str, list[int]] = {}
        self.found: dict[str, Tail] = {}
        self.sums = False

    def statement(self, stmt: Stmt, times: int) -> None:
        if isinstance(stmt, SeqStmt):
            for part in stmt.stmts:
                self.statement(part, times)
        elif isinstance(stmt, For):
            extent = integer_value(stmt.extent, self.known)
            self.statement(stmt.body, times * (1 if extent is None else max(0, extent)))
        elif isinstance(stmt, LetStmt):
            value = integer_value(stmt.value, self.known)
            if value is not None:
                self.known[stmt.var] = value
            self.masks[stmt.var] = stmt.value
            self.statement(stmt.body, times)
        elif isinstance(stmt, IfThenElse):
            # The loop over vectors whose last one is masked: ``if vector < whole: .. else: ..``.
            share = self._last_iterations(stmt, times)
            self.statement(stmt.then_body, times - share)
            if stmt.else_body is not None:
                self.statement(stmt.else_body, share)
        elif isinstance(stmt, BufferStore):
            self._store(stmt, times)
        else:
            for part in stmt.parts():
                if isinstance(part, Stmt):
                    self.statement(part, times)

    def _last_iterations(self, stmt: IfThenElse, times: int) -> int:
        """Return how often the second branch of a condition runs, if its bound is known; else 0."""
        condition = stmt.condition
        if stmt.else_body is None or not isinstance(condition, Compare) or condition.op != "lt":
            return 0
        whole = integer_value(condition.b, self.known)
        return 0 if whole is None else max(1, times // (whole + 1))

    def _store(self, stmt: BufferStore, times: int) -> None:
        lanes = max([stmt.value.dtype.lanes, *(index.dtype.lanes for index in stmt.indices)])
        if lanes < 2:
            value = stmt.value
            if isinstance(value, BinaryOp) and value.op == "add" and value.dtype.is_float:
                self.sums |= any(
                    isinstance(each, BufferLoad) and each.buffer is stmt.buffer for each in (value.a, value.b)
                )
            return
        counts = self.lanes.setdefault(stmt.buffer.name, [0, 0])
        counts[0] += times * lanes
        used = self._used(stmt.predicate, lanes)
        if used is not None and 0 < used < lanes:
            counts[1] += times * (lanes - used)
            self.found[stmt.buffer.name] = Tail(stmt.buffer.name, used, lanes)

    def _used(self, mask: Expr | None, lanes: int) -> int | None:
        """Return the lanes of a tail ``base + [0, 1, ...] < bound`` that hold elements; None if they are unknown."""
        while isinstance(mask, Var):
            mask = self.masks.get(mask)
        if not (isinstance(mask, Compare) and mask.op == "lt"):
            return None
        if not (isinstance(mask.a, Ramp) and isinstance(mask.b, Broadcast)):
            return None
        # In the first iteration of the loops around it: vectors start at multiples of their lanes from there.
        first = {**dict.fromkeys(free_vars(mask.a.base), 0), **self.known}
        start, bound = integer_value(mask.a.base, first), integer_value(mask.b.value, self.known)
        return None if start is None or bound is None else (bound - start) % lanes

    def tails(self) -> list[Tail]:
        """Return the tails of buffers that waste a noticeable part of their lanes."""
        return [
            tail
            for name, tail in self.found.items()
            if self.lanes[name][1] >= _LEAST_WASTE * max(1, self.lanes[name][0])
        ]
