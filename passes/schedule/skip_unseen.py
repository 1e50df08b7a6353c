"""``SkipUnseen``: skip positions that no row of a task sees.

Before::

    for task in parallel(8):
      for tile in range(8) annotations {"seen": 0, "seen_step": 64, "seen_row": 0}:
        for i in range(64): for lane in vectorized(64):
          block scores(vs = task * 64 + i, vt = tile * 64 + lane) ..    # row s sees places up to s + 0

After::

    for task in parallel(8):
      for tile in range(min(8, task + 1)):
        .. the same

The rule ``chained`` annotates such loops, from the ``needed`` conditions that operators declare for blocks: ``seen`` is
the number of positions beyond its own index that a row sees, ``seen_step`` the number of positions of an iteration, and
``seen_row`` the position of the row among the variables of the blocks inside. This halves the work of causal attention.
"""

from __future__ import annotations

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.properties import BLOCKS, SCHEDULED
from tilewright.passes.registry import register_pass
from tilewright.passes.schedule.facts import spatial
from tilewright.tensorir.expr import Expr, Var, maximum, minimum
from tilewright.tensorir.functor import Mutator, substitute, walk
from tilewright.tensorir.keys import SEEN, SEEN_ROW, SEEN_STEP
from tilewright.tensorir.schedule.nests import walk_nests
from tilewright.tensorir.stmt import Block, For, PrimFunc, Stmt


@register_pass
@primfunc_pass(opt_level=0, name="SkipUnseen", requires={BLOCKS, SCHEDULED})
class SkipUnseen(PrimFuncPass):
    """Shorten loops over positions of which the rows of a task see only a part."""

    family = "schedule"
    essential = True

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """Return ``func`` with shorter loops."""
        marked = sum(isinstance(stmt, For) and SEEN in stmt.annotations for stmt in walk_nests(func.body))
        if not marked:
            return func
        ctx.remark(f"{marked} loops end at the last position that a row of their task sees", "applied")
        return func.with_body(_Shortener().mutate(func.body))


class _Shortener(Mutator):
    def __init__(self) -> None:
        #: The enclosing loops, from the parallel one inwards.
        self.task: list[For] = []

    def mutate_For(self, loop: For) -> Stmt:
        outer = self.task
        self.task = [loop] if loop.kind == "parallel" else [*outer, loop]
        body: Stmt = self.mutate(loop.body)
        self.task = outer
        if SEEN not in loop.annotations:
            return (
                loop if body is loop.body else For(loop.var, loop.min, loop.extent, loop.kind, body, loop.annotations)
            )
        others = {key: value for key, value in loop.annotations.items() if key not in (SEEN, SEEN_STEP, SEEN_ROW)}
        return For(loop.var, loop.min, self._extent(loop), loop.kind, body, others)

    def _extent(self, loop: For) -> Expr:
        """Return the number of iterations that a task needs: that of its last row."""
        block = next(node for node in walk(loop.body) if isinstance(node, Block))
        inner = [node for node in (*self.task, loop, *walk(loop.body)) if isinstance(node, For)]
        last: dict[Var, Expr] = {other.var: other.min + other.extent - 1 for other in inner if other.kind != "parallel"}
        row = substitute(spatial(block)[int(loop.annotations[SEEN_ROW])].value, last)
        needed = (row + int(loop.annotations[SEEN])) // int(loop.annotations[SEEN_STEP]) + 1
        return minimum(loop.extent, maximum(needed, 0))
