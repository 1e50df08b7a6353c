"""The schedule of a function: rewrite its loops step by step without changing its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.tensorir.errors import ScheduleError
from tilewright.tensorir.expr import Buffer
from tilewright.tensorir.notebook import html_text
from tilewright.tensorir.schedule import cache, compute_at, inline, layout, loops, reduction, scope, tensorize, tiling
from tilewright.tensorir.schedule.blocks import accesses
from tilewright.tensorir.schedule.dependence import loop_role
from tilewright.tensorir.schedule.handles import BlockRef, LoopRef
from tilewright.tensorir.schedule.index_map import IndexMap
from tilewright.tensorir.schedule.nests import blocks_in
from tilewright.tensorir.schedule.state import State
from tilewright.tensorir.schedule.trace import PRIMITIVES, Trace, recorded
from tilewright.tensorir.stmt import Block, For, PrimFunc
from tilewright.tensorir.tensor_intrins import TensorIntrin

#: A block's buffer: its place among the block's reads (or writes), its name, or the buffer itself.
Which = int | str | Buffer


class Schedule:
    """Rewrites a function step by step; ``func`` is the current version. The function given is never changed.

    Blocks are found by name and loops through their blocks; handles of both stay valid through all edits that keep the
    block or loop. A step that would change the results raises
    :class:`~tilewright.tensorir.errors.ScheduleError` and leaves the schedule as it was. ``trace`` holds the steps.

    Loops that run in parallel, and blocks moved into loops, rely on intermediate buffers being allocated as far
    inside as all their accesses allow; the lowering of blocks does that.

    Raises:
        ScheduleError: the function computes something outside of a block, or two blocks share a name.
    """

    def __init__(self, func: PrimFunc) -> None:
        self._state = State(func)
        self.trace = Trace()

    @property
    def func(self) -> PrimFunc:
        """The function as scheduled so far."""
        return self._state.func

    def copy(self) -> Schedule:
        """Return an independent schedule in the same state; handles are valid in both."""
        made = Schedule.__new__(Schedule)
        made._state = self._state
        made.trace = self.trace.copy()
        return made

    def __str__(self) -> str:
        return str(self.func)

    def _repr_html_(self) -> str:
        return html_text(str(self))

    def show(self) -> None:
        """Print the function."""
        print(self.func)

    def primitive(self, name: str) -> Callable[..., Any]:
        """Return the primitive of that name, for a trace to call.

        Raises:
            ScheduleError: there is none.
        """
        if name not in PRIMITIVES:
            raise ScheduleError(f"there is no primitive {name!r}; expected one of {', '.join(sorted(PRIMITIVES))}")
        found: Callable[..., Any] = getattr(self, name)
        return found

    # -- finding -------------------------------------------------------------------------------------------------

    def get(self, ref: BlockRef | LoopRef) -> Block | For:
        """The statement that a handle stands for."""
        return self._state.block(ref) if isinstance(ref, BlockRef) else self._state.loop(ref)

    @recorded
    def get_block(self, name: str) -> BlockRef:
        """The block of that name.

        Raises:
            ScheduleError: there is none.
        """
        ref = BlockRef(name)
        self._state.block(ref)
        return ref

    @recorded
    def get_blocks(self) -> list[BlockRef]:
        """All blocks, in program order."""
        return [BlockRef(block.name) for block in self._state.all_blocks()]

    @recorded
    def get_loops(self, block: BlockRef) -> list[LoopRef]:
        """The loops around a block, outermost first."""
        return [LoopRef(stmt.var) for stmt in self._state.block_path(block) if isinstance(stmt, For)]

    @recorded
    def get_producers(self, block: BlockRef) -> list[BlockRef]:
        """The blocks that write what ``block`` reads, in program order."""
        own = self._state.block(block)
        read = accesses(own).reads
        others = self._state.all_blocks()
        return [BlockRef(b.name) for b in others if b is not own and not read.keys().isdisjoint(accesses(b).writes)]

    @recorded
    def get_consumers(self, block: BlockRef) -> list[BlockRef]:
        """The blocks that read what ``block`` writes, in program order."""
        own = self._state.block(block)
        written = accesses(own).writes
        others = self._state.all_blocks()
        return [BlockRef(b.name) for b in others if b is not own and not written.keys().isdisjoint(accesses(b).reads)]

    # -- loops ---------------------------------------------------------------------------------------------------

    @recorded
    def split(self, loop: LoopRef, factors: Sequence[Any]) -> list[LoopRef]:
        """Split a loop into nested loops, one for each factor, outermost first: ``for i in range(64)`` and the factors
        ``[None, 16]`` give ``for i_0 in range(4): for i_1 in range(16)``.

        Where the product of the factors is not known to be the extent, the blocks inside get a predicate.

        Args:
            factors: extents of the new loops; at most one is None and inferred.

        Returns:
            the new loops, outermost first.

        Raises:
            ScheduleError: two factors are None, or the product of the factors may be less than the extent.
        """
        self._state, made = loops.split(self._state, loop, factors)
        return made

    @recorded
    def fuse(self, *refs: LoopRef) -> LoopRef:
        """Fuse perfectly nested loops, given outermost first, into one loop over the product of their extents.

        Raises:
            ScheduleError: they are not directly nested in that order, or the bounds of one depend on another.
        """
        self._state, made = loops.fuse(self._state, refs)
        return made

    @recorded
    def reorder(self, *refs: LoopRef, reassociate: bool = False) -> None:
        """Put perfectly nested loops into the given order; loops between them that are not named keep their places.

        Args:
            reassociate: allow another order of the steps of a floating-point sum or product, which rounds differently.

        Raises:
            ScheduleError: the loops are not in one nest, bounds depend on a loop that would move inside, or the steps
                of a reduction would run in another order where that may change its result.
        """
        self._state = loops.reorder(self._state, refs, reassociate)

    @recorded
    def tile(self, what: BlockRef | Sequence[LoopRef], factors: Sequence[Any]) -> list[LoopRef]:
        """Split loops by the factors and put the outer loops around the inner ones: two loops over 64 x 64 and the
        factors ``[4, 16]`` give loops over 16, 4, 4 and 16.

        Args:
            what: the loops, outermost first; or a block, which stands for its innermost spatial loops.

        Returns:
            the outer loops, then the inner ones.

        Raises:
            ScheduleError: as :meth:`split` and :meth:`reorder`, or there are fewer spatial loops than factors.
        """
        self._state, made = tiling.tile(self._state, what, factors)
        return made

    @recorded
    def peel(self, loop: LoopRef, multiple: Any) -> list[LoopRef]:
        """End a loop at the greatest multiple of ``multiple`` iterations, and run the remainder in a loop after it, so
        that the first loop splits without a remainder.

        The blocks of the second loop are copies, named ``<name>_tail``, and so are the buffers that only the loop uses.
        A buffer with two writers can no longer be moved or inlined, so this comes last in a schedule.

        Returns:
            the main loop and the remainder loop.

        Raises:
            ScheduleError: ``multiple`` may be less than one, or the loop drives a reduction that still has its init
                (the copy must continue where the first loop ends; decompose the reduction first).
        """
        self._state, made = tiling.peel(self._state, loop, multiple)
        return made

    @recorded
    def parallel(self, loop: LoopRef) -> None:
        """Run the iterations of a loop on several threads.

        Raises:
            ScheduleError: the iterations are not independent of each other.
        """
        self._state = loops.parallel(self._state, loop)

    @recorded
    def vectorize(self, loop: LoopRef, reassociate: bool = False) -> None:
        """Run the iterations of a loop as lanes of vectors. An extent that is no number of lanes of the machine is
        divided by ``VectorizeLoop``; :meth:`split` first to choose it.

        Args:
            reassociate: allow a loop that drives a floating-point reduction, whose result then rounds differently (the
                lanes accumulate separately and are combined at the end). The loop is annotated ``reassociate``.

        Raises:
            ScheduleError: the iterations are not independent of each other, or their number is not constant.
        """
        self._state = loops.vectorize(self._state, loop, reassociate)

    @recorded
    def unroll(self, loop: LoopRef) -> None:
        """Write the body of a loop once for each iteration.

        Raises:
            ScheduleError: the number of iterations is not constant.
        """
        self._state = loops.unroll(self._state, loop)

    @recorded
    def annotate(self, ref: BlockRef | LoopRef, key: str, value: Any) -> None:
        """Attach ``key: value`` to a block or loop. ``tensorir.keys`` lists the keys that passes read; others are kept
        and printed.
        """
        self._state = loops.annotate(self._state, ref, key, value)

    @recorded
    def unannotate(self, ref: BlockRef | LoopRef, key: str) -> None:
        """Remove an annotation of a block or loop.

        Raises:
            ScheduleError: there is no annotation of that key.
        """
        self._state = loops.unannotate(self._state, ref, key)

    def tensorize(self, what: BlockRef | LoopRef, intrin: str | TensorIntrin) -> None:
        """Let an instruction (:func:`.tensor_intrin`) do what a loop does, or the innermost loops around a block.

        Raises:
            ScheduleError: there is no such instruction, or the loops are not those of its description.
        """
        self._tensorize(what, intrin.name if isinstance(intrin, TensorIntrin) else intrin)

    @recorded
    def _tensorize(self, what: BlockRef | LoopRef, name: str) -> None:
        self._state = tensorize.tensorize(self._state, what, name)

    # -- moving computations ---------------------------------------------------------------------------------------

    @recorded
    def compute_at(self, block: BlockRef, loop: LoopRef) -> None:
        """Move a block into the body of a loop around its consumers, where it computes only the box that they read in
        one iteration.

        New loops go over that box; where it may leave the block's domain, the block gets a predicate.

        Raises:
            ScheduleError: a consumer is outside of the loop, the block writes a result of the function or a buffer that
                another block writes too, or a buffer that the block reads is not complete there.
        """
        self._state = compute_at.compute_at(self._state, block, loop)

    @recorded
    def reverse_compute_at(self, block: BlockRef, loop: LoopRef) -> None:
        """Move a block to the end of the body of a loop around its producer, where it runs on the elements that each
        iteration completes.

        Raises:
            ScheduleError: the loop holds no producer of the block; an element that the block reads is not complete at
                the end of an iteration, or not known to be; or another producer comes later.
        """
        self._state = compute_at.reverse_compute_at(self._state, block, loop)

    @recorded
    def compute_inline(self, block: BlockRef) -> None:
        """Replace every read of a block's buffer by the expression that the block computes, and remove block and
        buffer. A read under a predicate becomes a ``select`` whose loads are under that predicate.

        Raises:
            ScheduleError: the block is a reduction or more than one store, its buffer is a result of the function or
                has another writer, or a buffer that the block reads is overwritten before a consumer runs.
        """
        self._state = inline.compute_inline(self._state, block)

    @recorded
    def reverse_compute_inline(self, block: BlockRef) -> None:
        """Let the producer of the buffer that an elementwise block reads compute that block's result directly.

        Block ``D[i, j] = f(C[i, j])`` is removed, with buffer ``C``, and the block of ``C`` stores ``f(...)`` to ``D``.

        Raises:
            ScheduleError: the producer is a reduction; the block doesn't read exactly one intermediate buffer at its
                iteration variables over its whole domain; another block reads that buffer; or another input of the
                block is not complete when the producer runs.
        """
        self._state = inline.reverse_compute_inline(self._state, block)

    # -- buffers -------------------------------------------------------------------------------------------------

    @recorded
    def set_scope(self, block: BlockRef, buffer: Which, scope_name: str) -> None:
        """Move a buffer that the block writes to another scope: ``register``, ``stack``, ``arena`` or ``global``.

        Args:
            buffer: its place among the block's writes, its name, or the buffer itself.

        Raises:
            ScheduleError: the scope is unknown, or the buffer is a parameter of the function.
        """
        self._state = scope.set_scope(self._state, block, buffer, scope_name)

    @recorded
    def cache_read(self, block: BlockRef, buffer: Which, scope_name: str) -> BlockRef:
        """Let a block read a buffer through a copy in another scope. A new block makes the copy as early as the buffer
        is complete: before the loops around the block, or inside those that the buffer's producer shares with it.

        The new block and buffer are named ``<buffer>_<scope>``.

        Args:
            buffer: its place among the block's reads, its name, or the buffer itself.
            scope_name: as in :meth:`set_scope`.

        Returns:
            the new block.

        Raises:
            ScheduleError: the block doesn't read that buffer, or writes it too.
        """
        self._state, made = cache.cache_read(self._state, block, buffer, scope_name)
        return made

    @recorded
    def cache_write(self, block: BlockRef, buffer: Which, scope_name: str) -> BlockRef:
        """Let a block write into a copy of a buffer in another scope. A new block writes the copy back, as late as the
        buffer's readers allow: after the loops around the block, or inside those that a reader shares with it.

        The new block and buffer are named ``<buffer>_<scope>``.

        Args:
            buffer: its place among the block's writes, its name, or the buffer itself.
            scope_name: as in :meth:`set_scope`.

        Returns:
            the new block.

        Raises:
            ScheduleError: the block doesn't write that buffer, or another block does so as well.
        """
        self._state, made = cache.cache_write(self._state, block, buffer, scope_name)
        return made

    def transform_layout(
        self,
        block: BlockRef,
        buffer: Which,
        index_map: Callable[..., Any] | IndexMap,
        pad_value: float | int | None = None,
    ) -> None:
        """Store an intermediate buffer in another layout: the element at ``indices`` goes to ``index_map(indices)``.

        If a single block without reduction writes the buffer, the block then iterates over the new layout (its loops
        are made anew, in the order of the new dimensions). Where the new layout has more elements than the old one, the
        block writes ``pad_value`` to them, or nothing if that is None; no block reads them.

        Args:
            buffer: one that the block writes, or else one that it reads.
            index_map: such as ``lambda k, j: (j // 64, k, j % 64)``.

        Raises:
            ScheduleError: the buffer is a parameter, the map is not injective or gives negative indices, or padding is
                wanted but the writer can't iterate over the new layout.
        """
        found = self._find_buffer(block, buffer)
        self._transform_layout(block, found, IndexMap.of(index_map, found.ndim), pad_value)

    @recorded
    def _transform_layout(
        self, block: BlockRef, buffer: Which, index_map: IndexMap, pad_value: float | int | None
    ) -> None:
        found = self._find_buffer(block, buffer)
        self._state = layout.transform_layout(self._state, block, found, index_map, pad_value)

    def _find_buffer(self, block: BlockRef, buffer: Which) -> Buffer:
        found = self._state.block(block)
        written = [region.buffer for region in found.writes]
        names = [other.name for other in written]
        is_written = buffer in names if isinstance(buffer, str) else isinstance(buffer, int) or buffer in written
        return scope.find_buffer(self._state, found, buffer, "writes" if is_written else "reads")

    # -- reductions ----------------------------------------------------------------------------------------------

    @recorded
    def decompose_reduction(self, block: BlockRef, loop: LoopRef) -> BlockRef:
        """Move the init of a reduction into a separate block, right before a loop around all its steps.

        Returns:
            the new block, ``<name>_init``.

        Raises:
            ScheduleError: the block has no init, the loop is not around it, or steps of the reduction run outside of
                it.
        """
        self._state, made = reduction.decompose_reduction(self._state, block, loop)
        return made

    @recorded
    def rfactor(self, loop: LoopRef, factor_axis: int = 0, *, reassociate: bool = False) -> BlockRef:
        """Let each iteration of a reduction loop accumulate separately, in a buffer with one more dimension, and
        combine these partial results afterwards.

        The new block is ``<name>_rf``; the loop drives a spatial variable of it. The old block combines, over a new
        loop.

        Args:
            loop: drives the reduction of one block.
            factor_axis: the place of the new dimension.
            reassociate: allow it for a floating-point sum or product, which then rounds differently.

        Returns:
            the new block.

        Raises:
            ScheduleError: the block is not of the form ``C[i] = C[i] op value`` with an init and an associative
                operation, the loop doesn't drive its reduction alone, or the order of the steps may change the result.
        """
        found = [
            block
            for block in blocks_in(self._state.loop(loop).body)
            if loop_role(self._state.loop(loop), block) == "reduction"
        ]
        if len(found) != 1:
            raise ScheduleError(f"loop {loop.name} drives the reductions of {len(found)} blocks; expected one")
        self._state, made = reduction.rfactor(self._state, BlockRef(found[0].name), loop, factor_axis, reassociate)
        return made


__all__ = ["BlockRef", "IndexMap", "LoopRef", "Schedule"]
