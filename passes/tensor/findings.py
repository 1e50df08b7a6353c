"""Share what analyzers derive of one function among the passes of a pipeline.

Each pass asks about the same loops and conditions as the one before it. What was derived there is found again, as long
as the function is in the pipeline; so what comes out depends on the function alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tilewright.passes.context import RUNNING
from tilewright.tensorir.arith.facts import Findings
from tilewright.tensorir.arith.places import order_of
from tilewright.tensorir.stmt import PrimFunc


def findings(func: PrimFunc) -> Findings:
    """The facts known of ``func``, on which a pass works: in a pipeline that shares, those that the passes before found
    out."""
    shared = RUNNING.findings
    if shared is None:
        return Findings(order_of(func), shared=True)
    found = shared.get(func.name)
    if found is None:
        found = shared[func.name] = Findings(order_of(func), shared=True)
    return found


@contextlib.contextmanager
def sharing() -> Iterator[None]:
    """A ``with`` block in which the passes over a function share what they find out."""
    outer, RUNNING.findings = RUNNING.findings, {}
    try:
        yield
    finally:
        RUNNING.findings = outer
