"""DecomposeReductions: initialize reductions before their loops instead of in the first step.

Before::

    for i: for k: block C(vi, vk) { init { C[vi] = 0 }  C[vi] = C[vi] + A[vi, vk] }

After::

    for i: { block C_init(vi) { C[vi] = 0 }  for k: block C(vi, vk) { C[vi] = C[vi] + A[vi, vk] } }

So an empty reduction gives its initial value, and no step tests whether it is the first.
"""

from __future__ import annotations

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.properties import BLOCKS, SCHEDULED
from tilewright.passes.registry import register_pass
from tilewright.passes.schedule.facts import block_of, schedule_of
from tilewright.passes.schedule.inline import reduction_blocks
from tilewright.passes.schedule.loops import loop_kinds
from tilewright.tensorir.errors import ScheduleError
from tilewright.tensorir.stmt import PrimFunc


@register_pass
@primfunc_pass(opt_level=0, name="DecomposeReductions", requires={BLOCKS, SCHEDULED})
class DecomposeReductions(PrimFuncPass):
    """Split the initialization of every reduction off into a statement before the outermost reduction loop."""

    family = "schedule"
    essential = True

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """Return ``func`` without reductions that are initialized in their first step, where a schedule can move the
        initialization."""
        schedule = schedule_of(func, ctx)
        if schedule is None:
            return func
        for ref in reduction_blocks(schedule):
            if block_of(schedule, ref).init is None:
                continue
            loops = schedule.get_loops(ref)
            kinds = loop_kinds(schedule, ref, loops)
            reduced = [loop for loop in loops if kinds[loop] == "reduction"]
            if not reduced:
                continue
            attempt = schedule.copy()
            try:
                attempt.decompose_reduction(ref, reduced[0])
            except ScheduleError as error:
                ctx.remark(
                    f"{ref.name} is initialized in the first step of its reduction: {error.summary}", kind="missed"
                )
                continue
            schedule = attempt
        return schedule.func
