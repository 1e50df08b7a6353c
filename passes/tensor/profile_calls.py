"""ProfileCalls: read the clock around every kernel call of ``main``.

Before::

    primfunc @main(x, output, arena) {
      @add_relu(address_of(x[0]), address_of(output[0]))
    }

After::

    primfunc @main(x, output, arena, profile) {
      profile_begin(address_of(profile[0, 0]), 8)
      @add_relu(address_of(x[0]), address_of(output[0]))
      profile_end(address_of(profile[0, 0]), 8)
    }

``profile`` is the last buffer: it has a column for each call site of a kernel (:mod:`..tensorir.profiling`); a call in
a loop accumulates its runs. This pass is in no pipeline: ``Executable.profile`` runs it on the ``main`` of a lowered
module, and recompiles only that.
"""

from __future__ import annotations

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.lower.kernel_calls import called_kernels
from tilewright.passes.properties import MAIN
from tilewright.passes.registry import register_pass
from tilewright.tensorir.dtype import INT64, VOID
from tilewright.tensorir.expr import Buffer, Call, address_of, as_expr
from tilewright.tensorir.functor import Mutator
from tilewright.tensorir.keys import NUM_WORKSPACES, PROFILED_CALLS
from tilewright.tensorir.profiling import PROFILE_INTRINSICS, records_shape
from tilewright.tensorir.stmt import Evaluate, PrimFunc, SeqStmt, Stmt, sequence
from tilewright.tensorir.target import Target


@register_pass
@primfunc_pass(opt_level=0, name="ProfileCalls", requires={MAIN})
class ProfileCalls(PrimFuncPass):
    """Put ``profile_begin`` and ``profile_end`` around the kernel calls of ``main``."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """Return ``func`` with the additional buffer, if it is ``main`` and has none yet."""
        if func.name != "main" or PROFILED_CALLS in func.attrs:
            return func
        calls = called_kernels(func)
        shape = records_shape(len(calls), Target.current().num_threads)
        profile = Buffer("profile", tuple(as_expr(extent) for extent in shape), INT64)
        body = _Bracket(profile).mutate(func.body)
        attrs = {
            **func.attrs,
            NUM_WORKSPACES: int(func.attrs.get(NUM_WORKSPACES, 0)) + 1,
            PROFILED_CALLS: tuple(call.name[1:] for call in calls),
        }
        return PrimFunc(func.name, (*func.buffers, profile, *func.variables), body, attrs)


class _Bracket(Mutator):
    """Visit each statement in the order of the text, also both occurrences of an object that occurs twice."""

    def __init__(self, profile: Buffer) -> None:
        self.profile = profile
        self.records = 0

    def mutate_SeqStmt(self, stmt: SeqStmt) -> Stmt:
        return sequence(*[self.mutate(part) for part in stmt.stmts])  # statements around a call are part of it

    def mutate_Evaluate(self, stmt: Evaluate) -> Stmt:
        if not (isinstance(stmt.value, Call) and stmt.value.name.startswith("@")):
            return stmt
        record = address_of(self.profile, as_expr(0), as_expr(self.records))
        self.records += 1
        begin, end = (Evaluate(Call(name, (record, self.profile.shape[1]), VOID)) for name in PROFILE_INTRINSICS)
        return sequence(begin, stmt, end)
