"""Properties of modules, which passes require, provide and invalidate, and the check of a pipeline's order.

A pass states them where it is declared::

    @primfunc_pass(opt_level=2, name="DotProduct", requires={FLAT, VECTORS})

and a pipeline is checked once, when it is constructed. Only the order is checked: a context may leave out a pass and
with it the properties that it provides, and later passes then find nothing to do. Passes that state no properties may
be anywhere. A property is a name: those of this project are listed here, and users may add their own.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from typing import NamedTuple

from tilewright.passes.info import PassInfo

# -- graphs -----------------------------------------------------------------------------------------------------------

#: Every expression has its type.
TYPED = "typed"

#: Operators are not grouped.
UNGROUPED = "ungrouped"

#: Operators that become one loop nest form a group.
GROUPS = "groups"

#: Expressions of constants alone are folded to constants.
FOLDED = "folded"

#: Expressions of which constants are computed are not folded yet.
UNFOLDED = "unfolded"

#: Tensors lie in memory in the order of their dimensions.
PLAIN_LAYOUTS = "plain layouts"

#: Convolutions work on blocks of channels, where that is faster.
BLOCKED_LAYOUTS = "blocked layouts"

# -- loop nests with blocks -------------------------------------------------------------------------------------------

#: Kernels are loop nests in functions of their own.
LOOPS = "loops"

#: Computations are blocks with named iteration variables.
BLOCKS = "blocks"

#: Loops follow the formulas, one for each dimension.
UNSCHEDULED = "unscheduled"

#: Loops are tiled, and marked as vectorized, unrolled and parallel.
SCHEDULED = "scheduled"

# -- loop nests on the way to code ------------------------------------------------------------------------------------

#: Computations are plain statements.
STATEMENTS = "statements"

#: Intermediate buffers are allocated in the functions that use them; the source of their memory is not decided yet.
ALLOCATED = "allocated"

#: Intermediate buffers are allocated where they are used, and no larger than the part used there.
COMPACT = "compact"

#: Buffers have the dimensions of their tensors.
DIMENSIONS = "dimensions"

#: Buffers have one dimension.
FLAT = "flat"

#: Vectorized loops are not lowered to vectors yet.
VECTOR_LOOPS = "vector loops"

#: Conditions of tiles at a border are split off the main loops.
PARTITIONED = "partitioned"

#: Vectorized loops are lowered to vector expressions.
VECTORS = "vectors"

#: Loops are parallel wherever the schedule allows it.
PARALLEL_WISHES = "parallel wishes"

#: Loops are parallel only where threads are estimated to be faster.
PARALLEL = "parallel"

#: Costly values that statements compute several times are bound to variables.
NAMED = "named"

#: Memory comes from registers, the stack and the caller.
WORKSPACES = "workspaces"

#: Expressions have their canonical form.
SIMPLE = "simple"

#: Functions of floats are calls, and expressions of floats may be rewritten as the level allows.
FORMULAS = "formulas"

#: Statements without effect are removed.
EFFECTIVE = "effective"

#: Unrolled loops are still loops: each tile exists once.
TILES = "tiles"

#: The model is a loop-level function that calls kernels.
MAIN = "main"

# ---------------------------------------------------------------------------------------------------------------------

#: The properties of a graph as a frontend or a user builds it.
GRAPH = frozenset({UNGROUPED, UNFOLDED, PLAIN_LAYOUTS})

#: The properties of a loop nest as lowered from formulas.
NEST = frozenset(
    {
        *(LOOPS, BLOCKS, UNSCHEDULED, ALLOCATED, DIMENSIONS),
        *(VECTOR_LOOPS, PARALLEL_WISHES, FORMULAS, TILES),
    }
)

#: The properties of a loop nest after scheduling.
SCHEDULED_NEST = (NEST - {UNSCHEDULED}) | {SCHEDULED}

#: Properties that a module may have from the start although passes provide them: graphs are typed as they are built.
_FROM_THE_START = GRAPH | {TYPED, FOLDED}


class Order(NamedTuple):
    """The combined properties of passes in order.

    Attributes:
        requires: properties that modules must have before the passes.
        provides: properties that modules have after them.
        invalidates: properties that modules no longer have after them.
    """

    requires: frozenset[str]
    provides: frozenset[str]
    invalidates: frozenset[str]


class Missing(NamedTuple):
    """A requirement that an order does not meet.

    Attributes:
        step: the number of the pass that requires it.
        property: the missing property.
        taken_by: the number of the earlier pass that invalidates it; None if there is none.
        provided_by: the number of the first later pass that provides it; None if there is none.
    """

    step: int
    property: str
    taken_by: int | None
    provided_by: int | None


#: What a pass states: the properties that it requires, provides and invalidates.
_Stated = tuple[frozenset[str], frozenset[str], frozenset[str]]


def check_order(infos: Sequence[PassInfo], given: Collection[str] | None = None) -> Order | Missing:
    """Combine the properties of passes in this order, or return the first requirement that is not met.

    Args:
        given: the properties before the first pass; None: all required ones that none of the passes provides.
    """
    stated = tuple([(info.requires, info.provides, info.invalidates) for info in infos])
    return _checked(stated, None if given is None else frozenset(given))


@functools.lru_cache(maxsize=256)  # each build makes its pipelines anew
def _checked(stated: tuple[_Stated, ...], given: frozenset[str] | None) -> Order | Missing:
    provided = frozenset().union(*[provides for _, provides, _ in stated]) - _FROM_THE_START
    holds, required, made = set(given or ()), set[str](), set[str]()
    taken: dict[str, int] = {}
    for step, (requires, provides, invalidates) in enumerate(stated):
        for name in sorted(requires - made):
            if name not in holds:
                if name in taken or given is not None or name in provided:
                    later = [number for number in range(step + 1, len(stated)) if name in stated[number][1]]
                    return Missing(step, name, taken.get(name), later[0] if later else None)
                holds.add(name)
            required.add(name)
        if invalidates:
            holds -= invalidates
            made -= invalidates
            taken.update((name, step) for name in invalidates)
        if provides:
            made |= provides
            for name in provides:
                taken.pop(name, None)
    return Order(frozenset(required), frozenset(made), frozenset(taken))
