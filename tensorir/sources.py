"""Source locations of statements: the places of an earlier program that a statement was made of.

A location is a number. Its meaning is up to whoever sets it: an operator of a group of the graph, or a line of a
program's text. The statements that a pass makes take over the sources of the statement that they replace, as
:class:`.functor.Mutator` and the primitives of schedules see to, inside of :func:`tracing`: builds that nobody looks
into do not pay for it. Sources are no part of a program: they are neither printed nor compared.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from tilewright.tensorir import forking
from tilewright.tensorir.node import Node
from tilewright.tensorir.stmt import BufferStore, Evaluate, PrimFunc, Stmt

Sources = frozenset[int]

NO_SOURCES: Sources = frozenset()

_set = object.__setattr__


class Tracing:
    """The number of callers, in any thread, that want sources."""

    __slots__ = ("callers",)

    def __init__(self) -> None:
        self.callers = 0


#: All threads share it: a program that is lowered meanwhile gets sources that nobody reads.
TRACING = Tracing()
_lock = forking.Lock()


def _begin_anew() -> None:
    """Forget the callers that are not in a forked process."""
    TRACING.callers = 0


forking.in_forked_process(_begin_anew)


@contextlib.contextmanager
def tracing() -> Iterator[None]:
    """Hand sources on inside the ``with`` block."""
    with _lock:
        TRACING.callers += 1
    try:
        yield
    finally:
        with _lock:
            TRACING.callers = max(0, TRACING.callers - 1)  # a caller that forked is not counted in the new process


def sources_of(stmt: Node) -> Sources:
    """Return the sources of a statement itself; none if they are not known."""
    try:
        return stmt._sources
    except AttributeError:
        return NO_SOURCES


def add_sources(stmt: Stmt, sources: Sources) -> None:
    """Add sources to a statement that was just made, and to those in it that have none of their own."""
    if sources:
        own = sources_of(stmt)
        _set(stmt, "_sources", own | sources)
        if not own:
            for part in _inner(stmt):
                _hand_down(part, sources)


def inherit(new: Node, old: Node) -> None:
    """Give the sources of ``old``, which ``new`` replaces, to the statements in ``new`` that have none yet, inside of
    :func:`tracing`."""
    if TRACING.callers:
        sources = sources_of(old)
        if sources:
            _hand_down(new, sources)


def _hand_down(stmt: Node, sources: Sources) -> None:
    waiting = [stmt]
    while waiting:
        current = waiting.pop()
        if isinstance(current, Stmt) and not sources_of(current):
            _set(current, "_sources", sources)
            waiting += _inner(current)


def _inner(stmt: Node) -> list[Stmt]:
    if isinstance(stmt, (BufferStore, Evaluate)):  # they hold expressions only
        return []
    return [part for part in stmt.parts() if isinstance(part, Stmt)]


def with_sources(func: PrimFunc, sources: Mapping[Stmt, Sources]) -> PrimFunc:
    """Return a copy of a function whose statements are new objects, with these sources in place of their own."""
    return func.with_body(_copied(func.body, sources))


def _copied(stmt: Stmt, sources: Mapping[Stmt, Sources]) -> Stmt:
    parts = []
    for name, role in stmt.node_fields:
        value = getattr(stmt, name)
        if role == "child" and isinstance(value, Stmt):
            value = _copied(value, sources)
        elif role == "children":
            value = tuple([_copied(part, sources) if isinstance(part, Stmt) else part for part in value])
        parts.append(value)
    made: Stmt = type(stmt)(*parts)
    found = sources.get(stmt, NO_SOURCES)
    if found:
        _set(made, "_sources", found)
    return made
