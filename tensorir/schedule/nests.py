"""Find statements among the loops, sequences and allocations around blocks, and copy them with parts replaced."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence, Set

from tilewright.tensorir.expr import Buffer, Expr, IntImm, Var
from tilewright.tensorir.functor import substitute
from tilewright.tensorir.node import notes_on
from tilewright.tensorir.schedule.blocks import change_block, with_value
from tilewright.tensorir.schedule.questions import Questions
from tilewright.tensorir.sources import TRACING, inherit
from tilewright.tensorir.stmt import Allocate, Block, For, SeqStmt, Stmt, sequence


def loops_in(path: Sequence[Stmt]) -> list[For]:
    """The loops on a path, outermost first."""
    return [stmt for stmt in path if isinstance(stmt, For)]


def blocks_in(stmt: Stmt) -> tuple[Block, ...]:
    """The blocks in ``stmt``, in program order."""
    while isinstance(stmt, (For, Allocate)):
        stmt = stmt.body
    if type(stmt) is SeqStmt:
        return _contents(stmt).blocks
    return (stmt,) if type(stmt) is Block else ()


class _Contents:
    """The blocks and loops in a sequence.

    Attributes:
        blocks: in program order.
        places: the number of the sequence's statement that holds it, for each loop's variable and each block's name.
    """

    def __init__(self, sequence: SeqStmt) -> None:
        blocks: list[Block] = []
        places: dict[Var | str, int] = {}
        for number, stmt in enumerate(sequence.stmts):
            while True:
                if type(stmt) is For:
                    places[stmt.var] = number
                    stmt = stmt.body
                elif type(stmt) is Allocate:
                    stmt = stmt.body
                else:
                    break
            if type(stmt) is Block:
                places[stmt.name] = number
                blocks.append(stmt)
            elif type(stmt) is SeqStmt:
                inner = _contents(stmt)
                places.update(dict.fromkeys(inner.places, number))
                blocks.extend(inner.blocks)
        self.blocks: tuple[Block, ...] = tuple(blocks)
        self.places: dict[Var | str, int] = places


def _contents(sequence: SeqStmt) -> _Contents:
    """Return the contents of ``sequence``, collected once: edits make new loops up to the root, but few sequences."""
    notes = notes_on(sequence)
    found: _Contents | None = notes.get(_Contents)
    if found is None:
        found = notes[_Contents] = _Contents(sequence)
    return found


def path_to(stmt: Stmt, key: Var | str) -> tuple[Stmt, ...] | None:
    """Return the statements from ``stmt`` down to the loop of that variable, or to the block of that name, both
    included; None if there is no such loop or block."""
    path: list[Stmt] = []
    return tuple(path) if find(stmt, key, path, []) else None


#: The keys on a path: for each statement the variable of a loop, the name of a block, None for another statement.
Keys = list[Var | str | None]


def find(stmt: Stmt, key: Var | str, path: list[Stmt], keys: Keys) -> bool:
    """Append the path from ``stmt`` to the loop of that variable, or to the block of that name, and the keys on it;
    return whether there is such a loop or block."""
    current: Stmt | None = stmt
    while current is not None:
        path.append(current)
        if type(current) is For:
            var = current.var
            keys.append(var)
            if var is key:
                return True
            current = current.body
        elif type(current) is Block:
            keys.append(current.name)
            return current.name == key
        else:
            keys.append(None)
            if type(current) is SeqStmt:
                number = _contents(current).places.get(key)
                current = None if number is None else current.stmts[number]
            else:
                current = current.body if type(current) is Allocate else None
    return False


def keys_on(path: Sequence[Stmt]) -> Keys:
    """The keys on ``path``."""
    return [stmt.var if type(stmt) is For else stmt.name if type(stmt) is Block else None for stmt in path]


def loops_to(stmt: Stmt, block: Block) -> list[For]:
    """The loops from ``stmt`` (included) down to ``block``, which it holds."""
    path = path_to(stmt, block.name)
    return [] if path is None else loops_in(path)


def walk_nests(stmt: Stmt) -> Iterator[Stmt]:
    """The statements in ``stmt`` down to the blocks, which are not entered, parents first."""
    stack = [stmt]
    while stack:
        current = stack.pop()
        yield current
        if isinstance(current, (For, Allocate)):
            stack.append(current.body)
        elif isinstance(current, SeqStmt):
            stack.extend(current.stmts[::-1])


def allocated_buffers(stmt: Stmt) -> list[Buffer]:
    """The buffers that are allocated in the statements above the blocks, in order."""
    return [found.buffer for found in walk_nests(stmt) if isinstance(found, Allocate)]


def rewrite(
    stmt: Stmt, table: Mapping[Stmt, Stmt | None], within: Set[Stmt] | None = None, unused: Buffer | None = None
) -> Stmt | None:
    """Return ``stmt`` with the statements in ``table`` replaced (None: removed); None if it becomes empty.

    Args:
        within: the statements in ``table`` and those around them, if they are known: no other is entered.
        unused: a buffer that nothing accesses any more; its allocation, around statements in ``table``, is removed.
    """
    if stmt in table:
        new = table[stmt]
        if new is not None:
            inherit(new, stmt)
        return new
    if within is not None and stmt not in within:
        return stmt
    if isinstance(stmt, (For, Allocate)):
        body = rewrite(stmt.body, table, within, unused)
        if isinstance(stmt, Allocate) and stmt.buffer is unused:
            return body
        if body is stmt.body:
            return stmt
        if body is None:
            return None
        return with_loop_body(stmt, body) if isinstance(stmt, For) else Allocate(stmt.buffer, body)
    if type(stmt) is SeqStmt:
        parts = [
            part if within is not None and part not in within else rewrite(part, table, within, unused)
            for part in stmt.stmts
        ]
        if all(map(operator.is_, parts, stmt.stmts)):
            return stmt
        kept = [part for part in parts if part is not None]
        return sequence(*kept) if kept else None
    return stmt


def with_end(path: Sequence[Stmt], new: Stmt | None, same_contents: bool = False) -> tuple[Stmt, ...]:
    """Replace the last statement of ``path`` (None: remove it, and statements that become empty); return the path from
    the new first statement towards ``new``.

    Args:
        same_contents: ``new`` holds the same blocks, and loops over the same variables.
    """
    old = path[-1]
    if new is old:
        return tuple(path)
    depth = len(path) - 1
    if new is not None:
        inherit(new, old)
    while new is None and depth:
        depth -= 1
        outer = path[depth]
        if type(outer) is SeqStmt and len(outer.stmts) > 1:
            new = sequence(*[part for part in outer.stmts if part is not old])
        old = outer
    if new is None:
        return ()
    is_traced = bool(TRACING.callers)
    made = [new]
    for outer in path[:depth][::-1]:
        if type(outer) is For:
            new = outer.with_body(new)
            if is_traced:
                inherit(new, outer)
        elif type(outer) is SeqStmt:
            parts = list(outer.stmts)
            parts[parts.index(old)] = new
            if SeqStmt in map(type, parts):
                made = []  # the new statements are among the others now
                new = sequence(*parts)
            else:
                new = SeqStmt(tuple(parts))
                if same_contents:
                    notes_on(new)[_Contents] = _contents(outer)
        elif type(outer) is Allocate:
            new = Allocate(outer.buffer, new)
        made.append(new)
        old = outer
    return tuple(made[::-1])


def with_loop_body(loop: For, body: Stmt) -> For:
    """The loop with another body."""
    made = loop.with_body(body)
    if made is not loop:
        inherit(made, loop)
    return made


def substitute_loops(stmt: Stmt, values: Mapping[Var, Expr], questions: Questions | None = None) -> Stmt:
    """Return ``stmt`` with loop variables replaced. They only occur in bounds of loops and in the bindings and
    predicates of blocks, so nothing else is visited. With ``questions``, changed expressions are simplified."""
    if isinstance(stmt, For):
        begin, extent = _substituted(stmt.min, values, questions), _substituted(stmt.extent, values, questions)
        body = substitute_loops(stmt.body, values, questions)
        if begin is stmt.min and extent is stmt.extent:
            return with_loop_body(stmt, body)
        made = For(stmt.var, begin, extent, stmt.kind, body, stmt.annotations)
        inherit(made, stmt)
        return made
    if isinstance(stmt, SeqStmt):
        return SeqStmt(tuple([substitute_loops(part, values, questions) for part in stmt.stmts]))
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
