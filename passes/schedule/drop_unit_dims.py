"""``DropUnitDims``: drop last dimensions of one element, so that vectors lie along a dimension that has more.

Before::

    primfunc @scale(x: Buffer[(n, 1), float32], y: Buffer[(n, 1), float32]) ... {
      for i0, i1: y[i0, i1] = x[i0, i1] * 2.0

After::

    primfunc @scale(x: Buffer[(n,), float32], y: Buffer[(n,), float32]) ... {
      for i0: y[i0] = x[i0] * 2.0

Schedules take the last dimension of a result for the lanes of vectors, and a vector of one lane is none. Such
dimensions come from reductions that keep the dimension, and from images of one column. ``CollapseDims`` merges them
only where every operand has them, too. The memory layout stays the same; callers pass addresses. Kernels with a sum of
products stay as they are: the rules for these choose their lanes among all dimensions. (MLIR's
``linalg-fold-unit-extent-dims`` does the same for all dimensions.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.properties import BLOCKS, UNSCHEDULED
from tilewright.passes.registry import register_pass
from tilewright.passes.schedule.collapse_dims import FoldedIndices, is_plain_nest, nest
from tilewright.passes.schedule.facts import (
    Access,
    accesses_of,
    blocks_of,
    constant,
    contraction,
    is_manual,
    schedule_of,
    spatial,
)
from tilewright.passes.schedule.redirect import AccessRedirector
from tilewright.tensorir.expr import Buffer, Expr, Var
from tilewright.tensorir.functor import Mutator, substitute
from tilewright.tensorir.schedule.blocks import change_block
from tilewright.tensorir.stmt import Block, For, IterVar, PrimFunc, Stmt


@register_pass
@primfunc_pass(opt_level=2, name="DropUnitDims", requires={BLOCKS, UNSCHEDULED})
class DropUnitDims(PrimFuncPass):
    """Drop last dimensions of one element."""

    family = "schedule"

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """Return ``func`` without last dimensions of one element."""
        blocks = blocks_of(func)
        if not any(_dropped(block) for block in blocks) or any(contraction(block) is not None for block in blocks):
            return func
        if is_manual(func) or schedule_of(func, ctx) is None:
            return func
        loops = _Loops()
        func = func.with_body(loops.mutate(func.body))
        if not loops.count:
            return func
        ctx.remark(f"{loops.count} loops of one iteration dropped, so that vectors lie along longer ones", "applied")
        return _without_axes(func)


def _dropped(block: Block) -> list[IterVar]:
    """Return the last iteration variables of one value, if a longer one precedes them."""
    items = spatial(block)
    kept = len(items)
    while kept and constant(items[kept - 1].extent) == 1 and constant(items[kept - 1].min) == 0:
        kept -= 1
    return items[kept:] if kept else []


class _Loops(Mutator):
    """Removes the loops over the dropped variables, of blocks in nests of their own."""

    def __init__(self) -> None:
        self.count = 0

    def mutate_For(self, loop: For) -> Stmt:
        loops = [loop]
        while isinstance(loops[-1].body, For):
            loops.append(loops[-1].body)
        block = loops[-1].body
        if not isinstance(block, Block):
            return self.generic_mutate(loop)  # type: ignore[no-any-return]
        dropped = _dropped(block)
        if not dropped or not is_plain_nest(loops, block):
            return loop
        self.count += len(dropped)
        zeros: dict[Var, Expr] = {item.var: item.min for item in dropped}
        changed = change_block(
            block,
            iters=tuple(item for item in block.iters if item.var not in zeros),
            init=None if block.init is None else FoldedIndices().mutate(substitute(block.init, zeros)),
            body=FoldedIndices().mutate(substitute(block.body, zeros)),
            needed=None if block.needed is None else substitute(block.needed, zeros),
        )
        return nest([each for each in loops if any(item.value is each.var for item in changed.iters)], changed)


def _without_axes(func: PrimFunc) -> PrimFunc:
    """Drop the last axes of one element that no access indexes with anything but zero."""
    axes = {buffer: _unit_axes(buffer) for buffer in func.buffers}
    for block in blocks_of(func):
        for access in accesses_of(block):
            found = axes.get(access.buffer)
            if found:
                axes[access.buffer] = {axis for axis in found if constant(access.indices[axis]) == 0}
    lost: dict[Buffer, Set[int]] = {}
    for buffer, found in axes.items():
        last = {axis for axis in found if set(range(axis, buffer.ndim)) <= found}
        if last:
            lost[buffer] = last
    changed = _Axes(lost)
    body = changed.mutate(func.body)
    params = tuple(changed.buffers.get(param, param) if isinstance(param, Buffer) else param for param in func.params)
    return PrimFunc(func.name, params, body, func.attrs)


def _unit_axes(buffer: Buffer) -> set[int]:
    """Return the axes of one element, but for the first one."""
    return {axis for axis in range(1, buffer.ndim) if constant(buffer.shape[axis]) == 1}


class _Axes(AccessRedirector):
    """Redirects accesses to buffers without some axes.

    Args:
        lost: the axes.
    """

    def __init__(self, lost: Mapping[Buffer, Set[int]]) -> None:
        super().__init__({buffer: _smaller(buffer, axes) for buffer, axes in lost.items()})
        self.lost = lost

    def mutate_Block(self, block: Block) -> Stmt:
        init = None if block.init is None else self.mutate(block.init)
        body = self.mutate(block.body)
        needed = None if block.needed is None else self.mutate(block.needed)
        if init is block.init and body is block.body and needed is block.needed:
            return block
        return change_block(block, init=init, body=body, needed=needed)

    def indices_of(self, access: Access, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        lost = self.lost.get(access.buffer, set())
        return tuple(index for axis, index in enumerate(indices) if axis not in lost)


def _smaller(buffer: Buffer, lost: Set[int]) -> Buffer:
    kept = [axis for axis in range(buffer.ndim) if axis not in lost]
    strides = tuple(buffer.strides[axis] for axis in kept) if buffer.strides else ()
    return Buffer(
        buffer.name, tuple(buffer.shape[axis] for axis in kept), buffer.dtype, buffer.scope, strides, buffer.alignment
    )
