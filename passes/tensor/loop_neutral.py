"""Put the condition of a neutral element around the step of a reduction::

    s[0] = s[0] + select(i >= 1, x[i - 1 where i >= 1], 0.0)    ->    if i >= 1:
                                                                          s[0] = s[0] + x[i - 1]

It may become a part of a loop's range then (``loop_ranges``), where windows are partly outside of what they read: the
steps outside go away. Lanes still select. Unlike the sum with 0.0, what is left out keeps a negative zero.
"""

from __future__ import annotations

from tilewright.passes.tensor.accesses import reads_target
from tilewright.passes.tensor.loop_guards import TRUE, with_known
from tilewright.tensorir.arith.pattern import constant_of
from tilewright.tensorir.conditions import conjuncts
from tilewright.tensorir.expr import BinaryOp, Broadcast, Expr, Select, Var, all_of, binary, select
from tilewright.tensorir.functor import Mutator, uses_var
from tilewright.tensorir.reduction import identity_of
from tilewright.tensorir.stmt import BufferStore, For, IfThenElse, Stmt


def without_neutral_steps(body: Stmt) -> Stmt:
    """Return ``body`` with conditions around steps of reductions in place of neutral elements."""
    result: Stmt = _Neutral().mutate(body)
    return result


class _Neutral(Mutator):
    def __init__(self) -> None:
        #: The variables of vectorized loops: lanes select, so that the step stays one of whole vectors.
        self.lanes: set[Var] = set()

    def mutate_For(self, loop: For) -> Stmt:
        if loop.kind != "vectorized":
            return self.generic_mutate(loop)  # type: ignore[no-any-return]
        self.lanes.add(loop.var)
        new: Stmt = self.generic_mutate(loop)
        self.lanes.discard(loop.var)
        return new

    def mutate_BufferStore(self, op: BufferStore) -> Stmt:
        step = op.value
        if not isinstance(step, BinaryOp) or not isinstance(step.b, Select):
            return op
        old, chosen = step.a, step.b
        neutral = identity_of(step.op, op.buffer.dtype)
        if not reads_target(old, op) or neutral is None or constant_of(chosen.false_value) != neutral:
            return op
        uniform: list[Expr] = []
        others: list[Expr] = []
        for part in conjuncts(chosen.condition):
            inner = part.value if isinstance(part, Broadcast) else part
            if inner.dtype.lanes == 1 and not uses_var(inner, self.lanes):
                uniform += conjuncts(inner)
            else:
                others.append(part)
        if not uniform:
            return op
        value = select(all_of(*others), chosen.true_value, chosen.false_value) if others else chosen.true_value
        store = BufferStore(op.buffer, binary(step.op, old, value), op.indices, op.predicate)
        return IfThenElse(all_of(*uniform), with_known(store, dict.fromkeys(uniform, TRUE)))
