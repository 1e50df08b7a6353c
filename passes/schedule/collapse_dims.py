"""``CollapseDims``: collapse neighbouring dimensions that a kernel traverses as one.

Before::

    primfunc @relu(x: Buffer[(1, 64, 56, 56), float32], y: Buffer[(1, 64, 56, 56), float32]) ... {
      for i0, i1, i2, i3: y[i0, i1, i2, i3] = max(x[i0, i1, i2, i3], 0.0)

After::

    primfunc @relu(x: Buffer[(200704,), float32], y: Buffer[(200704,), float32]) ... {
      for i0: y[i0] = max(x[i0], 0.0)

Two dimensions of a buffer are collapsed where every block of the function indexes them with two neighbouring iteration
variables, the second of which covers its whole dimension, and these variables occur nowhere else. The memory layout
stays the same; callers pass addresses. Schedules have fewer dimensions to choose from and longer ones to tile: the
pixels of an image under a 1x1 convolution become one dimension, and so do the rows of all sentences of a batch.
Reductions keep the order of their steps; reduction loops of a single step are removed. (PyTorch's iterators coalesce
dimensions in this way.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.properties import BLOCKS, UNSCHEDULED
from tilewright.passes.registry import register_pass
from tilewright.passes.schedule.facts import (
    Access,
    accesses_of,
    constant,
    is_manual,
    lie_like_one,
    schedule_of,
    usual_strides,
)
from tilewright.passes.schedule.redirect import AccessRedirector
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import BinaryOp, Buffer, BufferLoad, Expr, IntImm, Var, binary
from tilewright.tensorir.functor import LOADS, Mutator, kinds, leaves, substitute
from tilewright.tensorir.node import Node
from tilewright.tensorir.schedule.blocks import accesses, change_block
from tilewright.tensorir.schedule.indices import structure
from tilewright.tensorir.stmt import Block, BufferStore, For, IterVar, PrimFunc, Stmt


@register_pass
@primfunc_pass(opt_level=2, name="CollapseDims", requires={BLOCKS, UNSCHEDULED})
class CollapseDims(PrimFuncPass):
    """Collapse neighbouring dimensions that are traversed as one."""

    family = "schedule"

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """Return ``func`` with dimensions collapsed."""
        if is_manual(func) or schedule_of(func, ctx) is None:
            return func
        found = _Nests()
        func = func.with_body(found.mutate(func.body))
        plan = _Plan(found.blocks, found.others)
        if not plan.buffers:
            return func
        names = ", ".join(buffer.name for buffer in plan.buffers)
        ctx.remark(f"neighbouring dimensions of {names} collapsed, as loops traverse them as one", "applied")
        return plan.apply(func)


class _Nests(Mutator):
    """Find the blocks in nests of their own, whose loops drive one variable each, in order; remove reduction loops of
    a single step."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        #: The blocks in other loops; the buffers that they access are not collapsed.
        self.others: list[Block] = []

    def mutate_For(self, loop: For) -> Stmt:
        loops = [loop]
        while isinstance(loops[-1].body, For):
            loops.append(loops[-1].body)
        block = loops[-1].body
        if not isinstance(block, Block):
            return self.generic_mutate(loop)  # type: ignore[no-any-return]
        if not is_plain_nest(loops, block):
            self.others.append(block)
            return loop
        found: Stmt = loop
        kept = [item for item in block.iters if not _is_single_step(item)]
        if len(kept) < len(block.iters) and any(item.kind == "reduction" for item in kept):
            zeros: dict[Var, Expr] = {item.var: item.min for item in block.iters if _is_single_step(item)}
            needed = None if block.needed is None else substitute(block.needed, zeros)
            body = FoldedIndices().mutate(substitute(block.body, zeros))
            block = change_block(block, iters=tuple(kept), body=body, needed=needed)
            loops = [each for each in loops if any(item.value is each.var for item in kept)]
            found = nest(loops, block)
        self.blocks.append(block)
        return found

    def mutate_Block(self, block: Block) -> Stmt:
        self.others.append(block)
        return block


class FoldedIndices(Mutator):
    """Simplify additions of zero and products with zero in indices."""

    def mutate_BinaryOp(self, op: BinaryOp) -> Expr:
        a, b = self.mutate(op.a), self.mutate(op.b)
        if a is op.a and b is op.b:
            return op if op.dtype is not INT64 else binary(op.op, a, b)
        return BinaryOp(op.op, a, b) if op.dtype is not INT64 else binary(op.op, a, b)


def is_plain_nest(loops: Sequence[For], block: Block) -> bool:
    """Return whether each loop drives one variable of the block, in order, and covers it whole."""
    if block.predicate is not None or len(loops) != len(block.iters):
        return False
    for loop, item in zip(loops, block.iters, strict=True):
        if item.value is not loop.var or loop.kind != "serial" or loop.annotations or constant(loop.min) != 0:
            return False
        if not (_are_equal(item.min, loop.min) and _are_equal(item.extent, loop.extent)):
            return False
    return True


def _are_equal(a: Expr, b: Expr) -> bool:
    return a is b or structure(a) == structure(b)


def _is_single_step(item: IterVar) -> bool:
    return item.kind == "reduction" and constant(item.extent) == 1


def nest(loops: Iterable[For], body: Stmt) -> Stmt:
    """Return ``body`` in copies of the loops, the outermost first."""
    for loop in reversed(list(loops)):
        body = loop.with_body(body)
    return body


class _Plan:
    """Choose the pairs to collapse: the largest set that is closed under their dependences.

    Attributes:
        blocks: for each block the pairs of its variables, by the position of the first.
        buffers: for each buffer the pairs of its dimensions.
    """

    def __init__(self, blocks: Sequence[Block], others: Sequence[Block]) -> None:
        untouched = {access.buffer for block in others for access in accesses_of(block)}
        self.blocks: dict[Block, set[int]] = {}
        self.buffers: dict[Buffer, set[int]] = {}
        neighbours: dict[Block, _Neighbours] = {}
        for block in blocks:
            found = neighbours[block] = _Neighbours(block)
            self.blocks[block] = set(found.places)
            own = accesses(block)
            for buffer in (*own.writes, *own.reads):
                if buffer not in self.buffers:
                    axes = range(buffer.ndim - 1) if buffer not in untouched else ()
                    self.buffers[buffer] = {number for number in axes if lie_like_one(buffer, number)}
        changed = True
        while changed:
            changed = False
            for block, found in neighbours.items():
                pairs = self.blocks[block]
                changed |= _keep(pairs, {number for number in pairs if self._are_collapsed(found.places[number])})
                for buffer, walked in found.walked:
                    left = self.buffers.get(buffer)
                    if left:
                        changed |= _keep(left, {axis for axis in left if walked.get(axis) in pairs})
        self.buffers = {buffer: pairs for buffer, pairs in self.buffers.items() if pairs}

    def _are_collapsed(self, places: Sequence[tuple[Buffer, int]]) -> bool:
        """Return whether dimensions of buffers are collapsed with the next."""
        return all(axis in self.buffers.get(buffer, ()) for buffer, axis in places)

    def apply(self, func: PrimFunc) -> PrimFunc:
        """Return ``func`` with the pairs collapsed."""
        buffers = {buffer: _collapsed(buffer, pairs) for buffer, pairs in self.buffers.items()}
        body = _Collapser(self, buffers).mutate(func.body)
        params = tuple(buffers.get(param, param) if isinstance(param, Buffer) else param for param in func.params)
        return PrimFunc(func.name, params, body, func.attrs)


def _keep(pairs: set[int], kept: set[int]) -> bool:
    """Keep some of the pairs; return whether others are gone."""
    if len(kept) == len(pairs):
        return False
    pairs &= kept
    return True


class _Neighbours:
    """Where neighbouring variables of a block are neighbouring indices.

    Attributes:
        places: for each two variables of one kind that do not occur otherwise, by the position of the first, the
            dimensions that the first one indexes.
        walked: for each access its buffer and, for the dimensions that are indexed so together with the next, the
            position of the first variable, if the second covers its whole dimension.
    """

    def __init__(self, block: Block) -> None:
        items = block.iters
        numbers: dict[Node, int] = {item.var: number for number, item in enumerate(items)}
        indexed = [0] * len(items)
        elsewhere: set[Node] = set()
        places: list[list[tuple[Buffer, int]]] = [[] for _ in items]
        self.walked: list[tuple[Buffer, dict[int, int]]] = []
        stack: list[Node] = [part for part in (block.init, block.body, block.needed) if part is not None]
        while stack:
            node = stack.pop()
            if not isinstance(node, (BufferLoad, BufferStore)):
                if type(node) is Var:
                    elsewhere.add(node)
                else:
                    stack += node.parts()
                continue
            buffer = node.buffer
            pairs: dict[int, int] = {}
            before = -2
            for axis, index in enumerate(node.indices):
                number = numbers.get(index, -2)
                if number >= 0:
                    indexed[number] += 1
                    if number == before + 1:
                        places[before].append((buffer, axis - 1))
                        if _are_equal(items[number].extent, buffer.shape[axis]):
                            pairs[axis - 1] = before
                elif type(index) is not IntImm:
                    elsewhere |= leaves(index)
                    if kinds(index) & LOADS:
                        stack.append(index)
                before = number
            self.walked.append((buffer, pairs))
            if node.predicate is not None:
                stack.append(node.predicate)
            if type(node) is BufferStore:
                stack.append(node.value)
        self.places: dict[int, list[tuple[Buffer, int]]] = {}
        for number in range(len(items) - 1):
            first, second = items[number], items[number + 1]
            are_together = indexed[number] == indexed[number + 1] == len(places[number])
            if are_together and first.kind == second.kind and elsewhere.isdisjoint((first.var, second.var)):
                self.places[number] = places[number]


def _collapsed(buffer: Buffer, pairs: set[int]) -> Buffer:
    shape = _products(buffer.shape, pairs)
    strides = tuple(stride for number, stride in enumerate(usual_strides(buffer)) if number not in pairs)
    made = Buffer(buffer.name, shape, buffer.dtype, buffer.scope, strides, buffer.alignment)
    if strides and constant(strides[-1]) == 1 and all(lie_like_one(made, axis) for axis in range(made.ndim - 1)):
        made = Buffer(buffer.name, shape, buffer.dtype, buffer.scope, (), buffer.alignment)
    return made


def _products(extents: Sequence[Expr], pairs: set[int]) -> tuple[Expr, ...]:
    """Return the extents with each one at a position in ``pairs`` multiplied by the next."""
    result: list[Expr] = []
    for number, extent in enumerate(extents):
        if number - 1 in pairs:
            result[-1] = binary("mul", result[-1], extent)
        else:
            result.append(extent)
    return tuple(result)


class _Collapser(AccessRedirector):
    def __init__(self, plan: _Plan, buffers: Mapping[Buffer, Buffer]) -> None:
        super().__init__(buffers)
        self.plan = plan

    def mutate_For(self, loop: For) -> Stmt:
        loops = [loop]
        while isinstance(loops[-1].body, For):
            loops.append(loops[-1].body)
        block = loops[-1].body
        if not isinstance(block, Block) or block not in self.plan.blocks:
            return self.generic_mutate(loop)  # type: ignore[no-any-return]
        pairs = self.plan.blocks[block]
        extents = _products([item.extent for item in block.iters], pairs)
        heads = [number for number in range(len(block.iters)) if number - 1 not in pairs]
        made = []
        for number, extent in zip(heads, extents, strict=True):
            outer, item = loops[number], block.iters[number]
            made.append(
                (
                    For(outer.var, outer.min, extent, outer.kind, outer.body),
                    IterVar(item.var, item.min, extent, item.kind, item.value),
                )
            )
        body = change_block(
            block,
            iters=tuple(item for _, item in made),
            init=None if block.init is None else self.mutate(block.init),
            body=self.mutate(block.body),
        )
        return nest([outer for outer, _ in made], body)

    def indices_of(self, access: Access, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """Return the indices without the second of each pair; the first is the variable of both."""
        pairs = self.plan.buffers.get(access.buffer, set())
        return tuple(index for number, index in enumerate(indices) if number - 1 not in pairs)
