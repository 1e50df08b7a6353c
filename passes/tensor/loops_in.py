"""Walk to the loops in a statement, and tell those that :mod:`.unroll_loop` replaces by copies of their bodies."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.tensorir.expr import IntImm
from tilewright.tensorir.stmt import Allocate, BufferStore, For, LetStmt, SeqStmt, Stmt


def loops_in(stmt: Stmt) -> Iterator[For]:
    """Yield the loops in ``stmt``, the outer ones before those in them."""
    left = [stmt]
    while left:
        part = left.pop()
        while isinstance(part, (For, LetStmt, Allocate)):
            if type(part) is For:
                yield part
            part = part.body
        if type(part) is SeqStmt:
            left.extend([each for each in part.stmts if type(each) is not BufferStore])
        elif type(part) is not BufferStore:
            left.extend([each for each in part.parts() if isinstance(each, Stmt)])


def is_written_out(loop: For) -> bool:
    """Return whether a loop will be replaced by copies of its body."""
    return loop.kind == "unrolled" and isinstance(loop.min, IntImm) and isinstance(loop.extent, IntImm)


def has_inner_loops(body: Stmt) -> bool:
    """Return whether a loop with this body is not the innermost one, once loops that are written out are gone."""
    return not all(map(is_written_out, loops_in(body)))
