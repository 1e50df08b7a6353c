"""Lower loops that a schedule annotates with their lowering: ``{"dot_product": 4}``, ``{"interleave": True}``, ...

The annotation alone decides: a loop without it is not changed, whatever its form, and one with it is lowered or, if
that is impossible, becomes a plain loop and a remark says why. The annotation is removed in both cases.
"""

from __future__ import annotations

import collections

from tilewright.passes.context import PassContext
from tilewright.passes.tensor.loops_in import loops_in
from tilewright.passes.tensor.scoped import ScopedMutator
from tilewright.tensorir.node import notes_on
from tilewright.tensorir.stmt import For, PrimFunc, Stmt


def states(stmt: Stmt, key: str) -> bool:
    """Return whether ``stmt`` is or contains a loop that is annotated with ``key``."""
    return key in _keys_in(stmt) and any(loop.annotations.get(key) for loop in loops_in(stmt))


def _keys_in(stmt: Stmt) -> frozenset[str]:
    """Return the keys of all annotations of loops in ``stmt``. Several passes ask for one, and seldom change any."""
    notes = notes_on(stmt)
    found: frozenset[str] | None = notes.get(_keys_in)
    if found is None:
        annotations = [loop.annotations for loop in loops_in(stmt) if loop.annotations]
        found = notes[_keys_in] = frozenset([key for each in annotations for key in each])
    return found


class IntentLowering(ScopedMutator):
    """Replace loops that are annotated with ``key``; subclasses define the replacement."""

    def __init__(self, func: PrimFunc, key: str) -> None:
        super().__init__(func)
        self.key = key
        #: The number of loops that were lowered, and for each reason the number that were not.
        self.lowered = 0
        self.refused: collections.Counter[str] = collections.Counter()

    def lower(self, loop: For) -> Stmt | str:
        """Return the replacement of an annotated loop, or the reason why there is none."""
        raise NotImplementedError

    def mutate_For(self, op: For) -> Stmt:
        if not op.annotations.get(self.key):
            return super().mutate_For(op)
        made = self.lower(op)
        if isinstance(made, Stmt):
            self.lowered += 1
            return made
        self.refused[made] += 1
        others = {key: value for key, value in op.annotations.items() if key != self.key}
        return super().mutate_For(For(op.var, op.min, op.extent, op.kind, op.body, others))

    def tell(self, ctx: PassContext, applied: str) -> None:
        """Remark on the loops that were lowered (``applied``, with ``{}`` for their number) and those that were not."""
        if self.lowered:
            ctx.remark(applied.format(self.lowered), kind="applied")
        for reason, count in self.refused.items():
            loops = "a loop" if count == 1 else f"{count} loops"
            ctx.remark(f"{loops} annotated {self.key!r} not lowered: {reason}", kind="missed")
