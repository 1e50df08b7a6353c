"""Keep handwritten loops inside of their buffers.

Before::

    primfunc @gather(at: Buffer[(n,), int64], x: Buffer[(m,), float32], y: Buffer[(n,), float32], n: int64, m: int64) {
      for i in range(n) { y[i] = x[at[i]] }
    }

After::

      for i in range(n) { y[i] = x[at[i] where at[i] >= 0 and at[i] < m] }

An index that nothing proves to be inside becomes part of the access's predicate: a load reads zero where it is outside,
and a store does not happen. What is proved costs nothing, and so do most indices that depend on sizes alone, as
``LoopPartition`` makes their conditions the ends of loops. An access that is outside for all sizes is an error.

Where ``CheckBounds`` is asked for, nothing is guarded: that an access is outside is reported, and must not be hidden.

What was read from a buffer proves nothing about what is read from it later, unless the function never writes to it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable

from tilewright.passes.context import PassContext
from tilewright.passes.tensor.check_bounds import checks_bounds
from tilewright.passes.tensor.index_limits import LOCAL_SCOPES, ZERO, as_int64, clamped, over
from tilewright.passes.tensor.lower_blocks import lower_blocks
from tilewright.passes.tensor.scoped import ScopedMutator
from tilewright.passes.tensor.verify_memory import verify_accesses
from tilewright.tensorir.arith.analyzer import Analyzer
from tilewright.tensorir.arith.lane_numbers import lane_number
from tilewright.tensorir.arith.lanes import per_lane
from tilewright.tensorir.conditions import conjuncts
from tilewright.tensorir.dtype import BOOL, INT64
from tilewright.tensorir.errors import VerifyError
from tilewright.tensorir.expr import (
    Buffer,
    BufferLoad,
    Call,
    Expr,
    IntImm,
    UnaryOp,
    all_of,
    as_expr,
    compare,
)
from tilewright.tensorir.functor import LOADS, kinds, leaves, walk_statements
from tilewright.tensorir.intrinsics import ADDRESSING
from tilewright.tensorir.keys import UNCHECKED_INDICES
from tilewright.tensorir.stmt import Block, BufferStore, For, IfThenElse, IterVar, PrimFunc, Stmt


def guard_accesses(func: PrimFunc, ctx: PassContext) -> PrimFunc:
    """Return a handwritten function with the accesses guarded that nothing proves to be inside of their buffers; itself
    with the attribute ``unchecked_indices``, or where ``CheckBounds`` is asked for.

    Raises:
        VerifyError: an index is outside of its buffer for all sizes, or the attribute is no bool.
    """
    unchecked = func.attrs.get(UNCHECKED_INDICES, False)
    if not isinstance(unchecked, bool):
        raise VerifyError(f"@{func.name}: attribute {UNCHECKED_INDICES}: expected True or False, found {unchecked!r}")
    verify_accesses(lower_blocks(func))
    if unchecked or checks_bounds(ctx):
        return func
    guard = _Guard(func)
    body = guard.mutate(func.body)
    for access, problems in guard.guarded.items():
        ctx.remark(
            f"{access} is guarded: nothing proves {' and '.join(map(str, problems))}", "missed", function=func.name
        )
    return func.with_body(body)


class _Guard(ScopedMutator):
    """Adds predicates to accesses, with what is known at their places."""

    def __init__(self, func: PrimFunc) -> None:
        super().__init__(func)
        self.written = frozenset(stmt.buffer for stmt in walk_statements(func.body) if isinstance(stmt, BufferStore))
        #: The conditions that hold at this place, as they are written: the analyzer learns none about memory.
        self.holding: list[Expr] = []
        #: The accesses, as text, with what was not proved about them.
        self.guarded: dict[str, tuple[Expr, ...]] = {}

    # Scopes.

    def stays(self, expr: Expr) -> bool:
        """Return whether ``expr`` keeps its value while the function runs."""
        return not kinds(expr) & LOADS or self.written.isdisjoint(leaves(expr))

    def mutate_For(self, loop: For) -> Stmt:
        low, extent = self.mutate(loop.min), self.mutate(loop.extent)
        if self.stays(low) and self.stays(extent):
            body = self.mutate_in_loop(loop.var, low, extent, loop.body)
        else:
            body = self.mutate(loop.body)
        if low is loop.min and extent is loop.extent and body is loop.body:
            return loop
        return For(loop.var, low, extent, loop.kind, body, loop.annotations)

    def mutate_IfThenElse(self, op: IfThenElse) -> Stmt:
        condition = self.mutate(op.condition)
        known = self.lasting([condition])
        self.holding += known
        then_body = self.mutate_where(functools.partial(_assume, known), op.then_body)
        del self.holding[len(self.holding) - len(known) :]
        else_body = op.else_body
        if else_body is not None:
            opposite = [UnaryOp("not", condition)] if self.stays(condition) else []
            else_body = self.mutate_where(functools.partial(_assume, opposite), else_body)
        if condition is op.condition and then_body is op.then_body and else_body is op.else_body:
            return op
        return IfThenElse(condition, then_body, else_body)

    def mutate_Block(self, block: Block) -> Stmt:
        iters = self.mutate_all(block.iters)
        predicate = None if block.predicate is None else self.mutate(block.predicate)
        inside = self.inside(iters, predicate)
        known = self.lasting([] if predicate is None else [predicate])
        learn, define = functools.partial(_enter_block, inside, known), functools.partial(_enter_block, inside, [])
        self.holding += known
        init = None if block.init is None else self.mutate_where(learn, block.init, define)
        body = self.mutate_where(learn, block.body, define)
        del self.holding[len(self.holding) - len(known) :]
        if iters is block.iters and predicate is block.predicate and init is block.init and body is block.body:
            return block
        return dataclasses.replace(block, iters=iters, predicate=predicate, init=init, body=body)

    def inside(self, iters: Iterable[IterVar], predicate: Expr | None) -> list[IterVar]:
        """Return the iteration variables that keep to their domains, which bound them then."""
        with self.where(functools.partial(_assume, [] if predicate is None else [predicate])):
            return [
                item
                for item in iters
                if self.stays(item.value)
                and self.stays(item.extent)
                and self.analyzer.prove(item.value >= item.min)
                and self.analyzer.prove(item.value < item.min + item.extent)
            ]

    def lasting(self, conditions: Iterable[Expr]) -> list[Expr]:
        """Return the conditions, or terms of them, that hold until the function ends."""
        return [term for condition in conditions for term in conjuncts(condition) if self.stays(term)]

    # Accesses.

    def mutate_Call(self, call: Call) -> Expr:
        if call.name not in ADDRESSING:
            return self.generic_mutate(call)  # type: ignore[no-any-return]
        args = (self.generic_mutate(call.args[0]), *self.mutate_all(call.args[1:]))
        return call if args == call.args else Call(call.name, args, call.dtype)

    def mutate_BufferLoad(self, op: BufferLoad) -> Expr:
        new: BufferLoad = self.generic_mutate(op)
        indices, predicate = self.guard(new)
        if indices == new.indices and predicate is new.predicate:
            return new
        return BufferLoad(new.buffer, indices, predicate)

    def mutate_BufferStore(self, op: BufferStore) -> Stmt:
        new: BufferStore = self.generic_mutate(op)
        indices, predicate = self.guard(new)
        if indices == new.indices and predicate is new.predicate:
            return new
        return BufferStore(new.buffer, new.value, indices, predicate)

    def guard(self, access: BufferLoad | BufferStore) -> tuple[tuple[Expr, ...], Expr | None]:
        """Return the indices of an access, and its predicate with the conditions that keep it inside of the buffer.

        Indices of a local buffer are clamped where only the predicate keeps them inside: code generators touch all
        lanes of such a buffer, and choose.
        """
        pairs = list(zip(access.indices, access.buffer.shape, strict=True))
        indices = access.indices
        if access.buffer.scope in LOCAL_SCOPES:
            indices = tuple([clamped(*pair) if self.unproved(*pair) else pair[0] for pair in pairs])
        own = [] if access.predicate is None else list(conjuncts(access.predicate))
        self.holding += own
        with self.where(functools.partial(_assume, own)):
            unproved = [each for pair in pairs for each in self.unproved(*pair)]
        del self.holding[len(self.holding) - len(own) :]
        if not unproved:
            return indices, access.predicate
        self.guarded.setdefault(_as_text(access), tuple(unproved))
        lanes = max(index.dtype.lanes for index in access.indices)
        terms = unproved if access.predicate is None else [access.predicate, *unproved]
        return indices, all_of(*[over(term, lanes) for term in terms])

    def unproved(self, index: Expr, extent: Expr) -> list[Expr]:
        """Return which of the conditions ``index >= 0`` and ``index < extent`` are not known to hold."""
        place, lanes = as_int64(index), index.dtype.lanes
        end = extent.astype(INT64)
        low, high = compare("ge", place, over(ZERO, lanes)), compare("lt", place, over(end, lanes))
        if lanes > 1:
            lane = lane_number(lanes)
            number = per_lane(place, lane)
            if number is None:
                return [low, high]
            with self.where(functools.partial(_bind_lane, lanes)):
                reaches = not self.analyzer.prove(number >= ZERO), not self.analyzer.prove(number < end)
            return [each for each, outside in zip((low, high), reaches, strict=True) if outside]
        found: list[Expr] = []
        if not self.holds(low, compare("le", ZERO, place), compare("gt", place, -1), compare("lt", -1, place)):
            found.append(low)
        if not self.holds(
            high, compare("gt", end, place), compare("le", place, end - 1), compare("ge", end - 1, place)
        ):
            found.append(high)
        return found

    def holds(self, condition: Expr, *forms: Expr) -> bool:
        """Return whether ``condition`` is known to hold, or is written here in one of several ``forms``."""
        return self.analyzer.prove(condition) or any(form in self.holding for form in (condition, *forms))


def _assume(conditions: Iterable[Expr], analyzer: Analyzer) -> None:
    for condition in conditions:
        if condition.dtype is BOOL:
            analyzer.assume(condition)


def _enter_block(inside: Iterable[IterVar], conditions: Iterable[Expr], analyzer: Analyzer) -> None:
    for item in inside:
        analyzer.bind(item.var, item.min, item.extent)
        if not isinstance(item.extent, IntImm):
            analyzer.assume(item.extent > 0)
    _assume(conditions, analyzer)


def _bind_lane(lanes: int, analyzer: Analyzer) -> None:
    analyzer.bind(lane_number(lanes), as_expr(0), as_expr(lanes))


def _as_text(access: BufferLoad | BufferStore) -> str:
    buffer: Buffer = access.buffer
    return f"{buffer.name}[{', '.join(map(str, access.indices))}]"
