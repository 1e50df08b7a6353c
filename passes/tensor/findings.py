"""Share the facts that analyzers derive about a function among the passes of a pipeline.

Each pass queries the same loops and conditions as the one before it. Derived facts are kept while the function is in
the pipeline, so that the result depends on the function alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tilewright.passes.context import RUNNING
from tilewright.tensorir.arith.facts import Findings
from tilewright.tensorir.arith.places import order_of
from tilewright.tensorir.stmt import PrimFunc


def findings(func: PrimFunc) -> Findings:
    """Return the facts known about ``func``, on which a pass works: in a pipeline that shares facts, those that earlier
    passes derived."""
    shared = RUNNING.findings
    if shared is None:
        return Findings(order_of(func), shared=True)
    found = shared.get(func.name)
    if found is None:
        found = shared[func.name] = Findings(order_of(func), shared=True)
    return found


@contextlib.contextmanager
def sharing() -> Iterator[None]:
    """Open a ``with`` block in which the passes over a function share the facts that they derive."""
    outer, RUNNING.findings = RUNNING.findings, {}
    try:
        yield
    finally:
        RUNNING.findings = outer
