"""Lower loops for which a schedule states what becomes of them: ``{"dot_product": 4}``, ``{"interleave": True}``, ...

The annotation is the whole decision: a loop without it stays as it is, whatever it looks like, and one with it is
lowered or, where that can't be done, becomes a plain loop and a remark says why. No annotation is left either way.
"""

from __future__ import annotations

import collections

from tilewright.passes.context import PassContext
from tilewright.passes.tensor.scoped import ScopedMutator
from tilewright.tensorir.functor import walk_statements
from tilewright.tensorir.stmt import For, PrimFunc, Stmt


def states(stmt: Stmt, key: str) -> bool:
    """Whether ``stmt`` is or holds a loop that is annotated with ``key``."""
    return any(isinstance(part, For) and part.annotations.get(key) for part in walk_statements(stmt))


class IntentLowering(ScopedMutator):
    """Replace loops that are annotated with ``key``; a subclass says by what."""

    def __init__(self, func: PrimFunc, key: str) -> None:
        super().__init__(func)
        self.key = key
        #: How many loops were lowered, and for each reason how many were not.
        self.lowered = 0
        self.refused: collections.Counter[str] = collections.Counter()

    def lower(self, loop: For) -> Stmt | str:
        """Return what stands for an annotated loop, or why nothing can."""
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
        """Remark on what was lowered (``applied``, with ``{}`` for how many) and what was not."""
        if self.lowered:
            ctx.remark(applied.format(self.lowered), kind="applied")
        for reason, count in self.refused.items():
            loops = "a loop" if count == 1 else f"{count} loops"
            ctx.remark(f"{loops} annotated {self.key!r} can't be lowered: {reason}", kind="missed")
