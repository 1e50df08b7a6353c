"""``CheckBounds``: report every access outside of a buffer, instead of touching other memory.

Before::

    primfunc @gather(at: Buffer[(n,), int64], x: Buffer[(m,), float32], y: Buffer[(n,), float32], n: int64, m: int64) {
      for i in range(n) { y[i] = x[at[i]] }
    }

After, with the attribute ``checked_accesses``: ``("@gather: x[at[i]]: dimension 0 of x", ..)``::

      for i in range(n) { y[i where check_index(i, n, True, 3)] = x[.. where check_index(at[..], m, True, 1)] }

It does nothing unless ``PassContext(config={"tensorir.CheckBounds": True})`` asks for it. Then the call of a model
whose kernels leave a buffer raises an ``OutOfBoundsError`` that names kernel, buffer, dimension and index. The first
such access is reported; like all later ones, it reads zero or does not happen.

Each index is compared with the extent of its dimension, by itself: the pass comes before ``FlattenBuffer``, after which
an index that is too large may be one of the next row, and after ``VectorizeLoop`` and what hoists and names loads, so
that their accesses are checked as they are made. It trusts no conclusion of the compiler but one: an index is not
checked if constant bounds of the loops around it keep it inside. Masked lanes are not checked: they access nothing.
Instructions of users are replaced by the loops that describe them, whose accesses are checked. What C functions of
operators access is not.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.config import register_config_option
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.properties import ALLOCATED, DIMENSIONS, STATEMENTS
from tilewright.passes.registry import register_pass
from tilewright.passes.tensor.index_limits import LOCAL_SCOPES, as_int64, clamped, over
from tilewright.passes.tensor.scoped import ScopedMutator
from tilewright.passes.tensor.simplify import is_empty
from tilewright.tensorir.dtype import BOOL, INT64
from tilewright.tensorir.expr import BufferLoad, Call, Expr, IntImm, Ramp, const
from tilewright.tensorir.functor import LOADS, kinds
from tilewright.tensorir.intrinsics import ADDRESSING, CHECK_INDEX
from tilewright.tensorir.keys import CHECKED_ACCESSES
from tilewright.tensorir.stmt import BufferStore, IfThenElse, PrimFunc, Stmt
from tilewright.tensorir.tensor_intrins import called_intrin


@register_config_option("tensorir.CheckBounds")
@dataclass(frozen=True)
class CheckBoundsConfig:
    """Options of ``CheckBounds``."""

    enabled: bool = dataclasses.field(
        default=False,
        metadata={"doc": "accesses outside of buffers raise an OutOfBoundsError when the model is called"},
    )


def checks_bounds(ctx: PassContext) -> bool:
    """Return whether kernels that are built in ``ctx`` check the indices of their accesses."""
    config: CheckBoundsConfig = ctx.get_config("tensorir.CheckBounds")
    return config.enabled


class _Checker(ScopedMutator):
    """Adds a check to the predicate of each access whose indices may be outside."""

    def __init__(self, func: PrimFunc) -> None:
        super().__init__(func)
        self.name = func.name
        #: What each check is about, by its number.
        self.checked: dict[str, int] = {}

    def mutate_Call(self, call: Call) -> Expr:
        if call.name not in ADDRESSING:
            return self.generic_mutate(call)  # type: ignore[no-any-return]
        args = (self.generic_mutate(call.args[0]), *self.mutate_all(call.args[1:]))
        return call if args == call.args else Call(call.name, args, call.dtype)

    def mutate_IfThenElse(self, op: IfThenElse) -> Stmt:
        if called_intrin(op.condition) is not None and is_empty(op.then_body) and op.else_body is not None:
            result: Stmt = self.mutate(op.else_body)
            return result
        return super().mutate_IfThenElse(op)

    def mutate_BufferLoad(self, op: BufferLoad) -> Expr:
        new: BufferLoad = self.generic_mutate(op)
        indices, predicate = self.check(new, op)
        if predicate is new.predicate:
            return new
        return BufferLoad(new.buffer, indices, predicate)

    def mutate_BufferStore(self, op: BufferStore) -> Stmt:
        new: BufferStore = self.generic_mutate(op) if _reads(op) else op
        indices, predicate = self.check(new, op)
        if predicate is new.predicate:
            return new
        return BufferStore(new.buffer, new.value, indices, predicate)

    def check(
        self, access: BufferLoad | BufferStore, written: BufferLoad | BufferStore
    ) -> tuple[tuple[Expr, ...], Expr | None]:
        """Return the indices of an access, and its predicate with the checks of those that may be outside. Those of a
        local buffer are clamped: a predicate does not keep generated code from touching such memory.

        Args:
            written: the access as messages show it, without checks of loads in its indices.
        """
        pairs = list(zip(access.indices, access.buffer.shape, strict=True))
        outside = [axis for axis, pair in enumerate(pairs) if not self.stays_inside(*pair)]
        if not outside:
            return access.indices, access.predicate
        lanes = max(index.dtype.lanes for index in access.indices)
        happens = const(True, BOOL) if access.predicate is None else access.predicate
        happens = over(happens, lanes)
        indices = list(access.indices)
        text = f"{access.buffer.name}[{', '.join(map(str, written.indices))}]"
        for axis in outside:
            index, extent = pairs[axis]
            about = f"@{self.name}: {text}: dimension {axis} of {access.buffer.name}"
            number = self.checked.setdefault(about, len(self.checked))
            happens = Call(
                CHECK_INDEX,
                (over(as_int64(index), lanes), over(extent.astype(INT64), lanes), happens, const(number, INT64)),
                BOOL.with_lanes(lanes),
            )
            if access.buffer.scope in LOCAL_SCOPES:
                indices[axis] = clamped(index, extent)
        return tuple(indices), happens

    def stays_inside(self, index: Expr, extent: Expr) -> bool:
        """Return whether constant bounds of enclosing loops keep an index inside."""
        first, reach = index, 0
        if isinstance(index, Ramp) and isinstance(index.stride, IntImm) and index.stride.value >= 0:
            first, reach = index.base, index.stride.value * (index.lanes - 1)
        if first.dtype is not INT64 or not isinstance(extent, IntImm):
            return False
        bounds = self.range_analyzer.bounds(first)
        return bounds.lower >= 0 and bounds.upper + reach < extent.value


def _reads(op: BufferStore) -> bool:
    parts = [op.value, *op.indices, *([] if op.predicate is None else [op.predicate])]
    return any(kinds(part) & LOADS for part in parts)


def check_bounds(func: PrimFunc) -> PrimFunc:
    """Return ``func`` with accesses that report where they leave their buffers; itself if they do already."""
    if CHECKED_ACCESSES in func.attrs:
        return func
    checker = _Checker(func)
    body = checker.mutate(func.body)
    if not checker.checked:
        return func if body is func.body else func.with_body(body)
    return func.with_body(body).with_attr(CHECKED_ACCESSES, tuple(checker.checked))


@register_pass
@primfunc_pass(opt_level=0, name="CheckBounds", requires={STATEMENTS, ALLOCATED, DIMENSIONS})
class CheckBounds(PrimFuncPass):
    """See the module."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """Return ``func`` with checked accesses, if the configuration asks for it."""
        return check_bounds(func) if checks_bounds(ctx) else func
