"""Build a block's loop nest over a part of its domain, and insert it into a loop's body."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tilewright.tensorir.arith.iter_map import constant_value
from tilewright.tensorir.arith.iter_solver import Prover, Span
from tilewright.tensorir.conditions import conjunction
from tilewright.tensorir.expr import Buffer, Expr, IntImm, Var, as_expr, compare
from tilewright.tensorir.schedule.blocks import accesses, change_block, with_value
from tilewright.tensorir.schedule.indices import variables_of
from tilewright.tensorir.schedule.nests import blocks_in, with_loop_body
from tilewright.tensorir.schedule.questions import are_unlimited, grows
from tilewright.tensorir.schedule.state import State
from tilewright.tensorir.sources import inherit
from tilewright.tensorir.stmt import Allocate, Block, For, IterVar, SeqStmt, Stmt, sequence


class Part:
    """The values that a nest gives to one iteration variable: ``[low, low + extent)``, cut to the variable's range
    unless that is known to contain them. Without ``looped`` there is no loop: the value is ``low``."""

    def __init__(self, low: Expr, extent: Expr, looped: bool = True) -> None:
        self.low = low
        self.extent = extent
        self.looped = looped


def loop_name(var: Var) -> str:
    """The name of a loop for an iteration variable: that of ``vi`` is ``i``."""
    return var.name[1:] if var.name.startswith("v") and len(var.name) > 1 else var.name


def full_nest(block: Block) -> Stmt:
    """Loops over the whole domain of a block, in the order of its iteration variables, around it."""
    loops = [For(Var(loop_name(item.var)), item.min, item.extent, "serial", block) for item in block.iters]
    iters = tuple(with_value(item, loop.var) for item, loop in zip(block.iters, loops, strict=True))
    stmt: Stmt = change_block(block, iters=iters, predicate=None)
    for loop in reversed(loops):
        stmt = with_loop_body(loop, stmt)
    return stmt


def partial_nest(
    block: Block,
    parts: Mapping[Var, Part],
    outer: Sequence[For],
    prover: Prover,
    conditions: Iterable[Expr] = (),
    exact: bool = False,
) -> Stmt:
    """Return loops around a block over a part of its domain; iteration variables without a part take all values.

    Args:
        outer: the loops among which the nest will stand; the prover knows them.
        conditions: more conditions for the block's predicate.
        exact: compute no more than the parts, even where computing more would make simpler loops. The extents of the
            parts must not use the variables of the outer loops.
    """
    loops: list[For] = []
    iters = []
    guards = list(conditions)
    around = {loop.var: loop for loop in outer}
    for item in block.iters:
        part = parts.get(item.var)
        if not exact:
            part = _fitted(part, item.min, item.extent, around, prover)
        if part is None:
            loop = For(Var(loop_name(item.var)), item.min, item.extent, "serial", block)
            loops.append(loop)
            iters.append(with_value(item, loop.var))
            continue
        value = part.low
        if part.looped:
            loop = For(Var(loop_name(item.var)), as_expr(0), part.extent, "serial", block)
            loops.append(loop)
            value = loop.var if _is_zero(part.low) else part.low + loop.var
        iters.append(with_value(item, value))
        if _goes_along(part, item, around):
            continue
        if not prover.prove(compare("ge", part.low, item.min)):
            guards.append(compare("ge", value, item.min))
        if not prover.prove(compare("le", part.low + part.extent, item.min + item.extent)):
            guards.append(compare("lt", value, item.min + item.extent))
    stmt: Stmt = change_block(block, iters=tuple(iters), predicate=conjunction(guards))
    for loop in reversed(loops):
        stmt = with_loop_body(loop, stmt)
    return stmt


def _goes_along(part: Part, item: IterVar, around: Mapping[Var, For]) -> bool:
    """Return whether a part is one value for each iteration of a loop over the range of an iteration variable."""
    loop = around.get(part.low) if isinstance(part.low, Var) else None
    if loop is None or constant_value(part.extent) != 1:
        return False
    return loop.min is item.min and loop.extent is item.extent


def _is_zero(expr: Expr) -> bool:
    return isinstance(expr, IntImm) and expr.value == 0


def _fitted(part: Part | None, low: Expr, extent: Expr, around: Mapping[Var, For], prover: Prover) -> Part | None:
    """The part with an extent that doesn't vary among the surrounding loops; None for the whole range."""
    if part is None:
        return None
    size = part.extent
    used = variables_of(size)
    if not used.isdisjoint(around):
        upper = prover.bounds(size).upper
        if not upper < 1 << 31:
            return None
        size = as_expr(int(upper))
    if part.looped and not _is_less(size, extent, around) and prover.prove(compare("ge", size, extent)):
        return None
    if variables_of(size) and not prover.prove(compare("ge", size, 0)):
        return None
    return Part(part.low, size, part.looped)


def _is_less(size: Expr, extent: Expr, around: Mapping[Var, For]) -> bool:
    """Return whether an extent grows with sizes while a number of iterations stays the same."""
    return isinstance(size, IntImm) and grows(extent, around) and are_unlimited(list(around.values()))


def solve_parts(block: Block, boxes: Mapping[Buffer, Sequence[tuple[Span, bool] | None]]) -> dict[Var, Part]:
    """Return, for each iteration variable of ``block``, the values that write the boxes of its buffers.

    Args:
        boxes: for each written buffer the box in each dimension (None: all of it), and whether it needs a loop.
    """
    parts: dict[Var, Part] = {}
    spatial = {item.var for item in block.iters if item.kind == "spatial"}
    for buffer, stores in accesses(block).writes.items():
        box = boxes.get(buffer)
        for index, known in zip(stores[-1].indices, box if box is not None else (), strict=box is not None):
            if known is None:
                continue
            (low, extent), looped = known
            divisor = 1
            op, inner, by = getattr(index, "op", None), getattr(index, "a", None), getattr(index, "b", None)
            if op == "floordiv" and isinstance(by, IntImm) and by.value > 0 and isinstance(inner, Var):
                index, divisor, looped = inner, by.value, True
            if isinstance(index, Var) and index in spatial and index not in parts:
                if divisor != 1:
                    low, extent = low * divisor, extent * divisor
                parts[index] = Part(low, extent, looped)
    return parts


def body_parts(stmt: Stmt) -> tuple[Stmt, ...]:
    """The statements of a sequence; another statement alone."""
    return stmt.stmts if isinstance(stmt, SeqStmt) else (stmt,)


def insert(state: State, scope: For | None, nest: Stmt, before: int) -> State:
    """The state with ``nest`` as the statement number ``before`` of a loop's body (None: of the function, below its
    allocations)."""
    stmt = scope.body if scope is not None else _below_allocations(state)
    parts = list(body_parts(stmt))
    parts.insert(before, nest)
    made = sequence(*parts)
    if scope is None:
        return state.replace({stmt: made})
    inherit(made, stmt)
    return state.replace({scope: with_loop_body(scope, made)})


def _below_allocations(state: State) -> Stmt:
    stmt = state.body
    while isinstance(stmt, Allocate):
        stmt = stmt.body
    return stmt


def scope_parts(state: State, scope: For | None) -> tuple[Stmt, ...]:
    """The statements of a loop's body, or of the function below its allocations."""
    return body_parts(scope.body if scope is not None else _below_allocations(state))


def holds(stmt: Stmt, block: Block) -> bool:
    """Return whether ``block`` is in ``stmt``."""
    return any(found is block for found in blocks_in(stmt))
