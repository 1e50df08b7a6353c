"""``LowerTensorIntrin``: call the instructions that loops were tensorized by.

The loops stay as the alternative: code generators without an implementation and the interpreter run them, and later
passes see in them which elements are read and written::

    for i in range(4):                  # tensor_intrin: "add4"
        c[n * 4 + i] = a[n * 4 + i] + b[i]

becomes::

    if not add4(address_of(c[n * 4]), address_of(a[n * 4]), address_of(b[0])):
        for i in range(4):
            c[n * 4 + i] = a[n * 4 + i] + b[i]

It comes after ``CompactBuffer``, which decides the strides of buffers, and compares the loops with the description
again: what a schedule changed after ``tensorize`` is an error.
"""

from __future__ import annotations

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.properties import COMPACT, STATEMENTS
from tilewright.passes.registry import register_pass
from tilewright.tensorir.errors import ScheduleError
from tilewright.tensorir.functor import Mutator, walk_statements
from tilewright.tensorir.keys import TENSOR_INTRIN, TENSOR_INTRIN_DIGEST, TENSOR_INTRINS
from tilewright.tensorir.schedule.tensorize import MisfitError, call_for
from tilewright.tensorir.stmt import For, IfThenElse, PrimFunc, SeqStmt, Stmt
from tilewright.tensorir.tensor_intrins import find_tensor_intrin


class _Caller(Mutator):
    def __init__(self, func: PrimFunc) -> None:
        super().__init__()
        self.func = func
        self.vectorized = ""

    def mutate_For(self, loop: For) -> Stmt:
        name = loop.annotations.get(TENSOR_INTRIN)
        if isinstance(name, str):
            return self.called(loop, name)
        outside = self.vectorized
        if loop.kind == "vectorized":
            self.vectorized = loop.var.name
        made: Stmt = self.generic_mutate(loop)
        self.vectorized = outside
        return made

    def called(self, loop: For, name: str) -> Stmt:
        """Return the call of an instruction, or ``loop``."""
        intrin = find_tensor_intrin(name)
        where = f"{self.func.name}: tensor intrinsic {name}"
        if loop.annotations.get(TENSOR_INTRIN_DIGEST) != intrin.digest:
            raise ScheduleError(f"{where}: it is another one than when the loop was tensorized; tensorize again")
        if self.vectorized:
            raise ScheduleError(f"{where}: it is inside of the vectorized loop {self.vectorized}")
        try:
            call = call_for(intrin, loop)
        except MisfitError as misfit:
            raise ScheduleError(f"{where}: the loops have changed since tensorize: {misfit}") from None
        notes = {
            key: value for key, value in loop.annotations.items() if key not in (TENSOR_INTRIN, TENSOR_INTRIN_DIGEST)
        }
        plain = For(loop.var, loop.min, loop.extent, loop.kind, loop.body, notes)
        return IfThenElse(call, SeqStmt(()), plain)


def lower_tensor_intrin(func: PrimFunc) -> PrimFunc:
    """Return ``func`` with calls of the instructions that its loops were tensorized by.

    Raises:
        ScheduleError: the loops, or the instructions, have changed since.
    """
    marked = [
        stmt for stmt in walk_statements(func.body) if isinstance(stmt, For) and TENSOR_INTRIN in stmt.annotations
    ]
    if not marked:
        return func
    made = func.with_body(_Caller(func).mutate(func.body))
    # Kept code is looked up by the lowered function, which must differ if an implementation does.
    used = {f"{loop.annotations[TENSOR_INTRIN]}#{loop.annotations[TENSOR_INTRIN_DIGEST]}" for loop in marked}
    return made.with_attr(TENSOR_INTRINS, tuple(sorted(used)))


@register_pass
@primfunc_pass(opt_level=0, name="LowerTensorIntrin", requires={STATEMENTS, COMPACT})
class LowerTensorIntrin(PrimFuncPass):
    """See the module."""

    essential = True

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """Return ``func`` with calls of the instructions that its loops were tensorized by."""
        return lower_tensor_intrin(func)
