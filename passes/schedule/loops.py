"""Find the variables that a loop drives, and vectorize loops."""

from __future__ import annotations

from tilewright.passes.schedule.facts import block_of, constant, loop_of
from tilewright.tensorir.expr import Expr
from tilewright.tensorir.functor import leaves
from tilewright.tensorir.schedule import BlockRef, LoopRef, Schedule

#: Lanes of the longest vectors: bytes in a register of 512 bits.
_MOST_LANES = 64


def uses_loop(expr: Expr, loop: LoopRef) -> bool:
    """Return whether ``expr`` depends on the variable of ``loop``."""
    return loop.var in leaves(expr)


def loop_kinds(schedule: Schedule, ref: BlockRef, loops: list[LoopRef]) -> dict[LoopRef, str]:
    """Return, for each loop, the kind of the iteration variable that it drives (``spatial`` if it drives none)."""
    block = block_of(schedule, ref)
    kinds = {}
    for loop in loops:
        kinds[loop] = "spatial"
        for item in block.iters:
            if uses_loop(item.value, loop):
                kinds[loop] = item.kind
                break
    return kinds


def are_lanes(count: int) -> bool:
    """Return whether vectors may have ``count`` lanes: a power of two, as interleaving and reducing them requires, and
    no more than fit a few registers of any machine."""
    return 2 <= count <= _MOST_LANES and count & (count - 1) == 0


def vectorize_loop(schedule: Schedule, loop: LoopRef, lanes: int, reassociate: bool = False) -> None:
    """Vectorize a loop: itself if its extent is constant, else its inner part of ``lanes`` iterations."""
    if constant(loop_of(schedule, loop).extent) is None:
        _, loop = schedule.split(loop, [None, lanes])
    schedule.vectorize(loop, reassociate=reassociate)
