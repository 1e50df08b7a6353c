"""Write out a loop of the graph whose number of iterations is known: so it is differentiated step by step.

Before::

    %0 = loop %i in 0..2 with (%state = %x) { (multiply(%state, %w), %state) } collecting %rows

After: ``(multiply(multiply(%x, %w), %w), concatenate(expand_dims(%x), expand_dims(multiply(%x, %w))))``.
"""

from __future__ import annotations

import numpy as np

from tilewright.graphir.expr import Constant, Expr, Function, Loop, Tuple, TupleGetItem
from tilewright.graphir.known_values import known_values
from tilewright.graphir.ops.calls import concatenate, expand_dims
from tilewright.graphir.ops.calls import slice as slice_of
from tilewright.graphir.visitor import post_order
from tilewright.passes.graph.inline_functions import instantiate

#: The greatest number of expressions that the iterations of a loop are written out to.
MOST_EXPRESSIONS = 1 << 16


def unrolled(loop: Loop) -> Tuple | None:
    """Return the results of ``loop`` without a loop; None if it may end early, the number of its iterations is not
    known or not that of the rows that it collects, or they would be more than :data:`MOST_EXPRESSIONS`."""
    known = known_values(loop.trip_count)
    body = loop.body
    if loop.condition is not None or known is None or known.dtype == object or not isinstance(body, Function):
        return None
    steps = max(0, int(known))
    rows = [table.shape[0] for table in loop.collect]
    if not all(isinstance(count, int) and count >= steps for count in rows):
        return None
    if steps * len(post_order(body.body)) > MOST_EXPRESSIONS:
        return None
    state = list(loop.initial)
    collected: list[list[Expr]] = [[] for _ in loop.collect]
    for step in range(steps):
        results = instantiate(body, (Constant(np.asarray(step, np.int64)), *state))
        fields = [
            results.fields[n] if isinstance(results, Tuple) else TupleGetItem(results, n)
            for n in range(len(state) + len(collected))
        ]
        state, shown = fields[: len(state)], fields[len(state) :]
        for parts, row in zip(collected, shown, strict=True):
            parts.append(expand_dims(row, axis=0))
    tables = []
    for table, parts, count in zip(loop.collect, collected, rows, strict=True):
        if count != steps:  # rows of iterations that do not run keep their values
            parts.append(slice_of(table, begin=(steps,), end=(None,), axes=(0,)))
        tables.append(concatenate(*parts, axis=0) if parts else table)
    return Tuple([*state, *tables])
