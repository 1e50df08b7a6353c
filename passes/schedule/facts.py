"""Analyze blocks for schedule rules: which variables index which buffers, which accesses are contiguous."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Set

from tilewright.graphir.dims import as_dim, dim_equal, simplify
from tilewright.passes.context import PassContext
from tilewright.tensorir.arith.iter_map import coefficient, only_split, run_length
from tilewright.tensorir.errors import PassError, ScheduleError
from tilewright.tensorir.expr import (
    BinaryOp,
    Buffer,
    BufferLoad,
    Cast,
    Choose,
    Expr,
    IntImm,
    Var,
    as_expr,
)
from tilewright.tensorir.functor import CHOICES, kinds, leaves, uses_var, walk_to
from tilewright.tensorir.keys import AUTO, MANUAL, SCHEDULE_MODE
from tilewright.tensorir.schedule import BlockRef, LoopRef, Schedule
from tilewright.tensorir.schedule.blocks import accesses
from tilewright.tensorir.schedule.nests import blocks_in
from tilewright.tensorir.stmt import Block, BufferStore, For, IterVar, PrimFunc

#: A load from or a store to a buffer.
Access = BufferLoad | BufferStore


def constant(expr: Expr) -> int | None:
    """Return the value of an integer constant, None for anything else."""
    return expr.value if isinstance(expr, IntImm) else None


def block_of(schedule: Schedule, ref: BlockRef) -> Block:
    """Return the block that a handle refers to."""
    found = schedule.get(ref)
    assert isinstance(found, Block)
    return found


def loop_of(schedule: Schedule, ref: LoopRef) -> For:
    """Return the loop that a handle refers to."""
    found = schedule.get(ref)
    assert isinstance(found, For)
    return found


def blocks_of(func: PrimFunc) -> tuple[Block, ...]:
    """Return the blocks of a function that can be scheduled, in program order."""
    return blocks_in(func.body)


def accesses_of(block: Block) -> list[Access]:
    """Return the stores and loads of a block, in its init and body."""
    found = accesses(block)
    result: list[Access] = [store for stores in found.writes.values() for store in stores]
    return result + [load for loads in found.reads.values() for load in loads]


def schedule_of(func: PrimFunc, ctx: PassContext) -> Schedule | None:
    """Return a schedule of ``func``; None, with a remark, where computations are outside of blocks: nothing declares
    which of them may move, so the loops stay as written."""
    try:
        return Schedule(func)
    except ScheduleError as error:
        ctx.remark(f"not scheduled: {error.summary}", kind="missed")
        return None


def is_manual(func: PrimFunc) -> bool:
    """Return whether a function's loops stay as they were written or scheduled by hand."""
    mode = func.attrs.get(SCHEDULE_MODE, AUTO)
    if mode not in (MANUAL, AUTO):
        raise PassError(f"@{func.name}: attribute {SCHEDULE_MODE!r}: expected {MANUAL!r} or {AUTO!r}, found {mode!r}")
    return bool(mode == MANUAL)


def spatial(block: Block) -> list[IterVar]:
    """Return the iteration variables whose instances are independent."""
    return [item for item in block.iters if item.kind == "spatial"]


def reductions(block: Block) -> list[IterVar]:
    """Return the iteration variables over which the block accumulates."""
    return [item for item in block.iters if item.kind == "reduction"]


def names_of(items: Iterable[IterVar]) -> list[str]:
    """Return unique names for variables, in order."""
    found: list[str] = []
    for item in items:
        name, number = item.var.name, 0
        while name in found:
            number += 1
            name = f"{item.var.name}_{number}"
        found.append(name)
    return found


def stores(block: Block) -> list[BufferStore]:
    """Return the stores in the block's body."""
    return list(accesses(block).stores)


def loads(block: Block) -> list[BufferLoad]:
    """Return the loads in the block's body from buffers that it does not write."""
    found = accesses(block)
    written = {store.buffer for store in found.stores}
    return [load for load in found.loads if load.buffer not in written]


def axis_of(access: BufferLoad | BufferStore, var: Var) -> int | None:
    """Return the dimension whose index is exactly ``var``; None if there is none or ``var`` also occurs elsewhere."""
    found = None
    for axis, index in enumerate(access.indices):
        if index is var:
            if found is not None:
                return None
            found = axis
        elif var in leaves(index):
            return None
    return found


def uses(access: BufferLoad | BufferStore, var: Var) -> bool:
    """Return whether some index of an access depends on ``var``."""
    return any(var in leaves(index) for index in access.indices)


def shared_by(access: BufferLoad | BufferStore, var: Var) -> int | None:
    """Return how many neighbouring values of ``var``, starting at a multiple of that number, access the same element:
    None for all of them, ``n`` where it occurs only as ``var // n`` (the channels of a group), else 1."""
    runs = [run for index in access.indices if (run := run_length(index, var)) is not None]
    return math.gcd(*runs) if runs else None


def lie_like_one(buffer: Buffer, axis: int) -> bool:
    """Return whether the strides of a dimension and the next allow collapsing both into one."""
    if not buffer.strides:
        return True
    strides = usual_strides(buffer)
    return dim_equal(as_dim(strides[axis]), simplify(buffer.shape[axis + 1] * strides[axis + 1]))


def usual_strides(buffer: Buffer) -> tuple[Expr, ...]:
    """Return the explicit strides of a buffer (empty for dense memory). A dimension of one element, whose stride is
    arbitrary, gets the stride with which it can be collapsed with the next."""
    found = list(buffer.strides)
    for axis in reversed(range(len(found) - 1)):
        if constant(buffer.shape[axis]) == 1:
            found[axis] = as_expr(simplify(buffer.shape[axis + 1] * found[axis + 1]))
    return tuple(found)


def mergeable(accesses: Iterable[Access], outer: IterVar, inner: IterVar) -> bool:
    """Return whether the loops over two neighbouring variables can be fused without divisions in indices: in every
    access either both are missing, or both index neighbouring collapsible dimensions, and ``inner`` covers its whole
    dimension."""
    for access in accesses:
        if not uses(access, outer.var) and not uses(access, inner.var):
            continue
        first, second = axis_of(access, outer.var), axis_of(access, inner.var)
        if first is None or second is None or second != first + 1 or not lie_like_one(access.buffer, first):
            return False
        whole, walked = access.buffer.shape[second], inner.extent
        if whole is not walked and (constant(whole) is None or constant(whole) != constant(walked)):
            return False
    return True


def is_contiguous(access: BufferLoad | BufferStore, var: Var, behind: int = 0) -> bool:
    """Return whether neighbouring values of ``var`` access neighbouring elements.

    Args:
        behind: number of trailing dimensions after the one along which they are neighbours.
    """
    if len(access.indices) <= behind:
        return False
    others = list(access.indices)
    last = others.pop(-1 - behind)
    return not any(uses_var(index, {var}) for index in others) and coefficient(last, var) == 1


def panel_width(access: BufferLoad | BufferStore, var: Var, behind: int = 0) -> int | None:
    """Return the width ``w`` of the panels that ``var`` traverses in an access ``[.., var // w, .., var % w]``; None
    for any other access. Within a panel neighbouring values are neighbours in memory. Other variables may choose among
    groups of panels, as in ``[.., n * 4 + var // w, .., var % w]``.

    Args:
        behind: number of trailing dimensions after the one within a panel.
    """
    if len(access.indices) <= behind:
        return None
    outer = list(access.indices)
    last = outer.pop(-1 - behind)
    within = only_split(last, var)
    if within is None or within.extent is None or constant(within.lower) != 1 or within.factor != 1:
        return None
    whole = [index for index in outer if uses_var(index, {var})]
    panel = only_split(whole[0], var) if len(whole) == 1 else None
    # The two follow each other without a gap.
    is_panel = panel is not None and panel.extent is None and panel.lower is within.extent
    return constant(within.extent) if is_panel else None


@dataclasses.dataclass(frozen=True)
class Contraction:
    """A block that sums products of two loads.

    Attributes:
        accumulator: the buffer that holds the sums.
        left, right: the two loads.
    """

    accumulator: Buffer
    left: BufferLoad
    right: BufferLoad


def contraction(block: Block) -> Contraction | None:
    """Match a block with a sum of products ``acc[..] = acc[..] + left[..] * right[..]``; None if it is something
    else."""
    written = stores(block)
    if len(written) != 1 or not reductions(block) or not isinstance(block.body, BufferStore):
        return None
    value = block.body.value
    if not (isinstance(value, BinaryOp) and value.op == "add" and isinstance(value.a, BufferLoad)):
        return None
    if value.a.buffer is not block.body.buffer or not isinstance(value.b, BinaryOp) or value.b.op != "mul":
        return None
    left, right = _only_load(value.b.a), _only_load(value.b.b)
    if left is None or right is None:
        return None
    return Contraction(block.body.buffer, left, right)


def _only_load(expr: Expr) -> BufferLoad | None:
    while isinstance(expr, Cast):
        expr = expr.value
    return expr if isinstance(expr, BufferLoad) else None


def case_variables(block: Block) -> dict[Var, int | None]:
    """Return the variables that choose formulas (``Choose``), with None for ``v`` itself and ``n`` for ``v % n``."""
    found: dict[Var, int | None] = {}
    if not kinds(block.body) & CHOICES:
        return found
    places = {item.var for item in spatial(block)}
    for node in walk_to(block.body, CHOICES):
        if isinstance(node, Choose):
            chosen = place_in_tile(node.index, places)
            if chosen is not None:
                found.setdefault(*chosen)
    return found


def place_in_tile(index: Expr, places: Set[Var]) -> tuple[Var, int | None] | None:
    """Return ``(v, None)`` for a variable of ``places``, ``(v, n)`` for ``v % n``, None for any other index."""
    if isinstance(index, Var):
        return (index, None) if index in places else None
    if isinstance(index, BinaryOp) and index.op == "floormod" and isinstance(index.a, Var) and index.a in places:
        size = constant(index.b)
        return None if size is None else (index.a, size)
    return None


def product_of_extents(items: Iterable[IterVar]) -> int | None:
    """Return the product of the extents, None if it depends on symbolic dimensions."""
    total = 1
    for item in items:
        extent = constant(item.extent)
        if extent is None:
            return None
        total *= extent
    return total
