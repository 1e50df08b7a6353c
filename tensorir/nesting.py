"""Bound the nesting and the size of programs: what passes cannot follow, or would not finish, is an error.

Visitors of the loop-level IR recurse over the depth of a program (not over the length of chains of lets, allocations
and infix operators, where these grow long). Python ends a recursion that is too deep with ``RecursionError``; compiled
modules recurse on the stack of the process, which has no such guard. So the functions that take programs from outside
count the levels first, without recursion, and translate Python's error.

Equal expressions are one object, so that forty lines make a trillion occurrences: ``x = x + x``, forty times. Passes
work on occurrences, and these are counted, too.

A build counts once, at its begin: what its passes schedule, print and compare thousands of times is not counted again
(:class:`Trust`).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager

from tilewright.tensorir.errors import BudgetError, NestingError
from tilewright.tensorir.expr import BinaryOp, Compare
from tilewright.tensorir.node import Node
from tilewright.tensorir.stmt import Allocate, LetStmt, SeqStmt

#: The most levels of a program. The frames of a compiled visitor take about a kilobyte for each, of at least 8 MiB;
#: Python's own limit is reached before that.
MOST_LEVELS = 1000

#: The most occurrences of nodes in a program. The text of as many has tens of megabytes; large kernels have thousands.
MOST_OCCURRENCES = 1 << 21


class Extents:
    """The extents of parts that programs have in common, which last: nodes do not change.

    Attributes:
        depths: the levels below nodes that have parts.
        counts: the occurrences of nodes in them.
    """

    def __init__(self) -> None:
        self.depths: dict[Node, int] = {}
        self.counts: dict[Node, int] = {}


def extent(root: Node, chains: bool = False, known: Extents | None = None) -> tuple[int, int]:
    """Return how many levels a program is nested, and how many occurrences of nodes it has, in time linear in the
    number of different nodes that are not known and without recursion.

    Args:
        chains: count each link of a chain of lets or of allocations, and of one of infix operators that leans to the
            left; otherwise such a chain is one level.
        known: the extents of other programs, counted with the same ``chains``; those of this one are added.
    """
    known = Extents() if known is None else known
    depths, counts = known.depths, known.counts
    if root in depths:
        return depths[root], counts[root]
    parts = _parts(root)
    stack = [(root, parts, iter(parts))]
    while stack:
        node, parts, rest = stack[-1]
        for part in rest:
            if part in depths:
                continue
            below = _parts(part)
            if below:
                stack.append((part, below, iter(below)))
                break
            depths[part], counts[part] = 0, 1
        else:
            stack.pop()
            chained = None if chains else _next_of_chain(node)
            deepest, count = 0, 1
            for part in parts:
                levels = depths[part] + (part is not chained)
                if levels > deepest:
                    deepest = levels
                count += counts[part]
            depths[node], counts[node] = deepest, count
    return depths[root], counts[root]


def _parts(node: Node) -> list[Node]:
    """Return the nodes right below a node: a corrupted one may hold anything."""
    return [part for part in node.parts() if isinstance(part, Node)]


def _next_of_chain(node: Node) -> Node | None:
    """Return the part of a node that is on its own level; None if all are one deeper."""
    if isinstance(node, (BinaryOp, Compare)):
        return node.a if isinstance(node.a, (BinaryOp, Compare)) else None
    if isinstance(node, (LetStmt, Allocate)):
        return node.body
    if isinstance(node, SeqStmt) and node.stmts and isinstance(node.stmts[-1], (LetStmt, Allocate)):
        return node.stmts[-1]  # in the same braces
    return None


def check_extent(what: str, roots: Iterable[Node], chains: bool = False, known: Extents | None = None) -> None:
    """Check that programs are small enough for some work.

    Args:
        what: the work, as a subject of errors: ``"printing"``.
        roots: the programs.
        chains: whether the work recurses over the length of chains, too (:func:`extent`).
        known: the extents of other programs (:func:`extent`).

    Raises:
        NestingError: a program has more than :data:`MOST_LEVELS` levels.
        BudgetError: a program has more than :data:`MOST_OCCURRENCES` occurrences of nodes.
    """
    for root in roots:
        depth, count = extent(root, chains, known)
        if depth > MOST_LEVELS:
            raise NestingError(f"{what}: expected a program of at most {MOST_LEVELS} levels, found {depth}; {_ADVICE}")
        if count > MOST_OCCURRENCES:
            raise BudgetError(
                f"{what}: expected a program with at most {MOST_OCCURRENCES:,} occurrences of expressions, "
                f"found {_rounded(count)}; {_ADVICE}"
            )


class Trust(threading.local):
    """The state of a thread: whether it is at work on programs that have been checked (``passes.environment.session``).
    What passes make of those is not checked again."""

    given = False


TRUST = Trust()


def bounded(
    what: str, *roots: Node, always: bool = False, known: Extents | None = None
) -> AbstractContextManager[None]:
    """Check programs (:func:`check_extent`) before the ``with`` block, and translate Python's error of a recursion in
    it. Where programs have been checked (:class:`Trust`), nothing is done unless ``always``: errors are translated
    around that work.

    Raises:
        NestingError: a program is nested more deeply than the work can follow.
        BudgetError: a program is too large.
    """
    return _NOTHING if TRUST.given and not always else _bounded(what, roots, known)


_NOTHING = contextlib.nullcontext()


@contextlib.contextmanager
def _bounded(what: str, roots: Iterable[Node], known: Extents | None) -> Iterator[None]:
    check_extent(what, roots, known=known)
    try:
        yield
    except NestingError:
        raise
    except RecursionError as error:
        raise too_deep(what) from error


def too_deep(what: str) -> NestingError:
    """Return the error in place of Python's own."""
    return NestingError(f"{what}: the program is nested more deeply than this can follow; {_ADVICE}")


def _rounded(count: int) -> str:
    return f"{count:,}" if count < 10**18 else f"2**{count.bit_length() - 1} or more"


_ADVICE = "names for parts of an expression (let) and functions of their own make it flat"
