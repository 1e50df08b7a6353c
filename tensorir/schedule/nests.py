"""Loops, sequences and allocations around blocks: what is where among them, and copies with parts replaced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.tensorir.expr import Buffer, Expr, IntImm, Var
from tilewright.tensorir.functor import substitute
from tilewright.tensorir.schedule.blocks import change_block, with_value
from tilewright.tensorir.schedule.questions import Questions
from tilewright.tensorir.stmt import Allocate, Block, For, SeqStmt, Stmt, sequence


def loops_in(path: Sequence[Stmt]) -> list[For]:
    """The loops on a path, outermost first."""
    return [stmt for stmt in path if isinstance(stmt, For)]


def blocks_in(stmt: Stmt) -> list[Block]:
    """The blocks in ``stmt``, in program order."""
    if isinstance(stmt, Block):
        return [stmt]
    if isinstance(stmt, SeqStmt):
        return [block for part in stmt.stmts for block in blocks_in(part)]
    if isinstance(stmt, (For, Allocate)):
        return blocks_in(stmt.body)
    return []


def loops_to(stmt: Stmt, block: Block) -> list[For]:
    """The loops from ``stmt`` (included) down to ``block``, which it holds."""
    if isinstance(stmt, For):
        return [stmt, *loops_to(stmt.body, block)]
    if isinstance(stmt, SeqStmt):
        for part in stmt.stmts:
            if any(found is block for found in blocks_in(part)):
                return loops_to(part, block)
    if isinstance(stmt, Allocate):
        return loops_to(stmt.body, block)
    return []


def allocated_buffers(stmt: Stmt) -> list[Buffer]:
    """The buffers that are allocated in the statements above the blocks, in order."""
    found: list[Buffer] = []
    stack = [stmt]
    while stack:
        current = stack.pop()
        if isinstance(current, Allocate):
            found.append(current.buffer)
            stack.append(current.body)
        elif isinstance(current, For):
            stack.append(current.body)
        elif isinstance(current, SeqStmt):
            stack.extend(reversed(current.stmts))
    return found


def rewrite(stmt: Stmt, table: Mapping[Stmt, Stmt | None]) -> Stmt | None:
    """``stmt`` with the statements in ``table`` replaced; None for what is removed or becomes empty."""
    if stmt in table:
        return table[stmt]
    if isinstance(stmt, (For, Allocate)):
        body = rewrite(stmt.body, table)
        if body is stmt.body:
            return stmt
        if body is None:
            return None
        return with_loop_body(stmt, body) if isinstance(stmt, For) else Allocate(stmt.buffer, body)
    if isinstance(stmt, SeqStmt):
        parts = [rewrite(part, table) for part in stmt.stmts]
        if all(new is old for new, old in zip(parts, stmt.stmts, strict=True)):
            return stmt
        kept = [part for part in parts if part is not None]
        return sequence(*kept) if kept else None
    return stmt


def with_loop_body(loop: For, body: Stmt) -> For:
    """The loop with another body."""
    return loop if body is loop.body else For(loop.var, loop.min, loop.extent, loop.kind, body, loop.annotations)


def substitute_loops(stmt: Stmt, values: Mapping[Var, Expr], questions: Questions | None = None) -> Stmt:
    """``stmt`` with loop variables replaced. They only occur in bounds of loops and in the bindings and predicates of
    blocks, so nothing else is looked at. What changes is simplified if there is somebody to ask."""
    if isinstance(stmt, For):
        begin, extent = _substituted(stmt.min, values, questions), _substituted(stmt.extent, values, questions)
        body = substitute_loops(stmt.body, values, questions)
        if begin is stmt.min and extent is stmt.extent and body is stmt.body:
            return stmt
        return For(stmt.var, begin, extent, stmt.kind, body, stmt.annotations)
    if isinstance(stmt, SeqStmt):
        return SeqStmt(tuple(substitute_loops(part, values, questions) for part in stmt.stmts))
    if isinstance(stmt, Allocate):
        return Allocate(stmt.buffer, substitute_loops(stmt.body, values, questions))
    if isinstance(stmt, Block):
        iters = tuple(
            [
                item if (new := _substituted(item.value, values, questions)) is item.value else with_value(item, new)
                for item in stmt.iters
            ]
        )
        predicate = None if stmt.predicate is None else substitute(stmt.predicate, values)
        return change_block(stmt, iters=iters, predicate=predicate)
    return stmt


def _substituted(expr: Expr, values: Mapping[Var, Expr], questions: Questions | None) -> Expr:
    if isinstance(expr, IntImm):
        return expr
    new = substitute(expr, values)
    if isinstance(expr, Var) or new is expr or questions is None:
        return new
    return questions.shorter(new)
