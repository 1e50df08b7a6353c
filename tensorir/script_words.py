"""The words of loops that are written as Python: what stands in functions decorated with ``@ti.func`` (``script.py``).

They are read there and never run, so that each has a signature for editors and type checkers, and says where it
belongs when it is called elsewhere. They stand for the methods of :class:`~.builder.Builder` of the same names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NoReturn

from tilewright.tensorir.errors import BuilderError
from tilewright.tensorir.expr import Buffer, ExprLike, Var


def grid(*extents: ExprLike) -> Iterator[tuple[Var, ...]]:
    """Loop over all places of a box, the last index fastest: ``for i, j in ti.grid(n, m):``."""
    _outside("grid")


def serial(
    start: ExprLike, stop: ExprLike | None = None, *, annotations: Mapping[str, Any] | None = None
) -> Iterator[Var]:
    """Loop over ``[0, start)`` or ``[start, stop)`` in order, as ``range`` does."""
    _outside("serial")


def parallel(
    start: ExprLike, stop: ExprLike | None = None, *, annotations: Mapping[str, Any] | None = None
) -> Iterator[Var]:
    """Loop in several threads; no iteration may depend on another one."""
    _outside("parallel")


def vectorized(
    start: ExprLike, stop: ExprLike | None = None, *, annotations: Mapping[str, Any] | None = None
) -> Iterator[Var]:
    """Loop over the lanes of vectors; no iteration may depend on another one."""
    _outside("vectorized")


def unrolled(
    start: ExprLike, stop: ExprLike | None = None, *, annotations: Mapping[str, Any] | None = None
) -> Iterator[Var]:
    """Loop whose iterations are written out one after the other in the machine code."""
    _outside("unrolled")


def block(name: str, annotations: Mapping[str, Any] | None = None) -> AbstractContextManager[None]:
    """Name a computation, so that schedules find it: ``with ti.block("matmul"):``. Its body uses iteration variables
    (:func:`axes`), never those of the loops around it."""
    _outside("block")


def init() -> AbstractContextManager[None]:
    """Say what a block does before the first step of a reduction: ``with ti.init():``."""
    _outside("init")


def axes(kinds: str, values: Sequence[ExprLike]) -> tuple[Var, ...]:
    """Give the iteration variables of a block: ``vi, vk = ti.axes("SR", [i, k])``.

    Args:
        kinds: a letter for each: ``S`` (spatial: each value computes other elements) or ``R`` (reduction).
        values: variables of the loops around the block, whose ranges they take over.
    """
    _outside("axes")


def spatial(extent: ExprLike | tuple[ExprLike, ExprLike], value: ExprLike) -> Var:
    """Give one iteration variable of a block, for each of whose values it computes other elements.

    Args:
        extent: how many values there are, or a pair of the first value and the end.
        value: the one that an instance of the block has, of the loops' variables: ``ti.spatial(n, i * 8 + j)``.
    """
    _outside("spatial")


def reduce(extent: ExprLike | tuple[ExprLike, ExprLike], value: ExprLike) -> Var:
    """Give one iteration variable of a block over whose values it reduces; see :func:`spatial`."""
    _outside("reduce")


def where(condition: ExprLike) -> None:
    """Let a block run only where ``condition`` holds, which may mention the variables of loops."""
    _outside("where")


def needed(condition: ExprLike) -> None:
    """Say that nothing depends on a block's instances for which ``condition`` does not hold."""
    _outside("needed")


def reads(*regions: Any) -> None:
    """State what a block reads, as elements or slices: ``ti.reads(a[vi, 0:64])``. Without it, its body tells."""
    _outside("reads")


def writes(*regions: Any) -> None:
    """State what a block writes, as elements or slices. Without it, its body tells."""
    _outside("writes")


def alloc(shape: Sequence[ExprLike], dtype: Any = "float32", *, scope: str = "arena") -> Buffer:
    """Allocate a buffer, named after the variable that it is assigned to; its elements are undefined at first.

    Args:
        shape: its extents; ``()`` for a single element, ``t[()]``.
        dtype: the type of its elements.
        scope: ``arena``, ``stack``, or ``register`` (for a small buffer at places known at build time).
    """
    _outside("alloc")


def _outside(word: str) -> NoReturn:
    raise BuilderError(f"{word}() stands in a function that is decorated with @func; a Builder has a method {word}()")


#: What stands in a ``for``, by the kind of its loops; None: a nest of serial ones.
LOOPS: dict[Any, str | None] = {
    range: "serial",
    serial: "serial",
    parallel: "parallel",
    vectorized: "vectorized",
    unrolled: "unrolled",
    grid: None,
}
#: What stands in a ``with``.
SCOPES = (block, init)
#: What stands in other statements.
CALLS = (axes, spatial, reduce, where, needed, reads, writes, alloc)
