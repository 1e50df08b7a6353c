"""Properties of modules: what passes require, provide and take away, and the check of a pipeline's order.

A pass states them where it is declared::

    @primfunc_pass(opt_level=2, name="DotProduct", requires={FLAT, VECTORS})

and a pipeline is checked once, when it is made. What is checked is the order: a context may leave out a pass, and with
it what it provides, and the passes behind find nothing to do. Passes without statements go anywhere. A property is a
name: those of this project are here, and users may have their own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from tilewright.passes.info import PassInfo

# -- graphs -----------------------------------------------------------------------------------------------------------

#: Every expression has its type.
TYPED = "typed"

#: Operators stand by themselves, in no groups.
UNGROUPED = "ungrouped"

#: Operators that become one loop nest are a group.
GROUPS = "groups"

#: What depends on constants alone is a constant.
FOLDED = "folded"

#: What constants are computed from is still there.
UNFOLDED = "unfolded"

#: Tensors lie in memory in the order of their dimensions.
PLAIN_LAYOUTS = "plain layouts"

#: Convolutions work on blocks of channels, where that is faster.
BLOCKED_LAYOUTS = "blocked layouts"

# -- loop nests with blocks -------------------------------------------------------------------------------------------

#: Kernels are loop nests, which are functions of their own.
LOOPS = "loops"

#: Computations are blocks, which name their iteration variables.
BLOCKS = "blocks"

#: Loops are as formulas say, one for each dimension.
UNSCHEDULED = "unscheduled"

#: Loops are those that run: tiled, and marked as vectorized, unrolled and parallel.
SCHEDULED = "scheduled"

# -- loop nests on the way to code ------------------------------------------------------------------------------------

#: Computations are plain statements.
STATEMENTS = "statements"

#: Intermediate buffers are allocated by the functions that use them, wherever their memory is to come from.
ALLOCATED = "allocated"

#: Intermediate buffers stand where they are used, and are no larger than what is used there.
COMPACT = "compact"

#: Buffers have the dimensions of their tensors.
DIMENSIONS = "dimensions"

#: Buffers have one dimension.
FLAT = "flat"

#: Vectorized loops are still loops.
VECTOR_LOOPS = "vector loops"

#: The conditions of tiles at a border are split off.
PARTITIONED = "partitioned"

#: Vectorized loops are expressions with lanes.
VECTORS = "vectors"

#: Loops are parallel wherever the schedule allows it.
PARALLEL_WISHES = "parallel wishes"

#: Loops are parallel where threads are worth it.
PARALLEL = "parallel"

#: A value that statements compute several times has a name.
NAMED = "named"

#: Memory comes from registers, the stack and the caller.
WORKSPACES = "workspaces"

#: Expressions have their canonical form.
SIMPLE = "simple"

#: Functions of floats are calls, and expressions of floats may be rewritten as the level allows.
FORMULAS = "formulas"

#: Every statement has an effect.
EFFECTIVE = "effective"

#: Unrolled loops are still loops: a tile is there once.
TILES = "tiles"

#: The model is a loop-level function that calls kernels.
MAIN = "main"

# ---------------------------------------------------------------------------------------------------------------------

#: A graph as a frontend or a user makes it.
GRAPH = frozenset({UNGROUPED, UNFOLDED, PLAIN_LAYOUTS})

#: A loop nest as formulas say it.
NEST = frozenset(
    {
        *(LOOPS, BLOCKS, UNSCHEDULED, ALLOCATED, DIMENSIONS),
        *(VECTOR_LOOPS, PARALLEL_WISHES, FORMULAS, TILES),
    }
)

#: A loop nest behind the schedule.
SCHEDULED_NEST = (NEST - {UNSCHEDULED}) | {SCHEDULED}

#: What a module may be from the start, although there are passes that make it so: graphs are typed as they are built.
_FROM_THE_START = GRAPH | {TYPED, FOLDED}


class Order(NamedTuple):
    """What the order of some passes comes to.

    Attributes:
        requires: what modules must be.
        provides: what they are behind.
        invalidates: what they are no longer behind.
    """

    requires: frozenset[str]
    provides: frozenset[str]
    invalidates: frozenset[str]


class Missing(NamedTuple):
    """A requirement that an order does not meet.

    Attributes:
        step: the number of the pass that requires it.
        property: what is missing.
        taken_by: the number of the pass before that takes it away; None if there is none.
        provided_by: the number of the first pass behind that provides it; None if there is none.
    """

    step: int
    property: str
    taken_by: int | None
    provided_by: int | None


def check_order(infos: Sequence[PassInfo], given: Collection[str] | None = None) -> Order | Missing:
    """What passes in this order require and provide together; or the first requirement that is not met.

    Args:
        given: what modules are before the first pass; None: whatever is required that none of the passes provides.
    """
    provided = frozenset().union(*[info.provides for info in infos]) - _FROM_THE_START
    holds, requires, made = set(given or ()), set[str](), set[str]()
    taken: dict[str, int] = {}
    for step, info in enumerate(infos):
        for name in sorted(info.requires - made):
            if name not in holds:
                if name in taken or given is not None or name in provided:
                    later = [n for n in range(step + 1, len(infos)) if name in infos[n].provides]
                    return Missing(step, name, taken.get(name), later[0] if later else None)
                holds.add(name)
            requires.add(name)
        if info.invalidates:
            holds -= info.invalidates
            made -= info.invalidates
            taken.update((name, step) for name in info.invalidates)
        if info.provides:
            made |= info.provides
            for name in info.provides:
                taken.pop(name, None)
    return Order(frozenset(requires), frozenset(made), frozenset(taken))
