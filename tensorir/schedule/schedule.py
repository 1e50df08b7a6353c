"""The schedule of a function: rewrite its loops step by step without changing its results."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from tilewright.tensorir.errors import ScheduleError
from tilewright.tensorir.expr import Buffer
from tilewright.tensorir.schedule import cache, compute_at, inline, layout, loops, reduction, scope, tiling
from tilewright.tensorir.schedule.blocks import accesses
from tilewright.tensorir.schedule.dependence import loop_role
from tilewright.tensorir.schedule.handles import BlockRef, LoopRef
from tilewright.tensorir.schedule.index_map import IndexMap
from tilewright.tensorir.schedule.nests import blocks_in, loops_in
from tilewright.tensorir.schedule.state import State
from tilewright.tensorir.schedule.trace import Trace
from tilewright.tensorir.stmt import Block, For, PrimFunc

F = TypeVar("F", bound=Callable[..., Any])

#: A block's buffer: its place among the block's reads (or writes), its name, or the buffer itself.
Which = int | str | Buffer

_PRIMITIVES: set[str] = set()


def _primitive(method: F) -> F:
    """Records the call in the trace once it has succeeded; a call that fails leaves the schedule as it was."""
    name = method.__name__.lstrip("_")
    _PRIMITIVES.add(name)

    @functools.wraps(method)
    def recorded(self: Schedule, *args: Any, **kwargs: Any) -> Any:
        before = self._state
        try:
            result = method(self, *args, **kwargs)
            self.trace.record(name, args, kwargs, result)
        except BaseException:
            self._state = before
            raise
        return result

    return cast(F, recorded)


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

    def show(self) -> None:
        """Print the function."""
        print(self.func)

    def primitive(self, name: str) -> Callable[..., Any]:
        """Return the primitive of that name, for a trace to call.

        Raises:
            ScheduleError: there is none.
        """
        if name not in _PRIMITIVES:
            raise ScheduleError(f"there is no primitive {name!r}; expected one of {', '.join(sorted(_PRIMITIVES))}")
        found: Callable[..., Any] = getattr(self, name)
        return found

    # -- finding -------------------------------------------------------------------------------------------------

    def get(self, ref: BlockRef | LoopRef) -> Block | For:
        """The statement that a handle stands for."""
        return self._state.block(ref) if isinstance(ref, BlockRef) else self._state.loop(ref)

    @_primitive
    def get_block(self, name: str) -> BlockRef:
        """The block of that name.

        Raises:
            ScheduleError: there is none.
        """
        ref = BlockRef(name)
        self._state.block(ref)
        return ref

    @_primitive
    def get_blocks(self) -> list[BlockRef]:
        """All blocks, in program order."""
        return [BlockRef(block.name) for block in self._state.all_blocks()]

    @_primitive
    def get_loops(self, block: BlockRef) -> list[LoopRef]:
        """The loops around a block, outermost first."""
        return [LoopRef(loop.var) for loop in loops_in(self._state.block_path(block))]

    @_primitive
    def get_producers(self, block: BlockRef) -> list[BlockRef]:
        """The blocks that write what ``block`` reads, in program order."""
        own = self._state.block(block)
        read = accesses(own).reads
        others = self._state.all_blocks()
        return [BlockRef(b.name) for b in others if b is not own and any(w in read for w in accesses(b).writes)]

    @_primitive
    def get_consumers(self, block: BlockRef) -> list[BlockRef]:
        """The blocks that read what ``block`` writes, in program order."""
        own = self._state.block(block)
        written = accesses(own).writes
        others = self._state.all_blocks()
        return [BlockRef(b.name) for b in others if b is not own and any(r in written for r in accesses(b).reads)]

    # -- loops ---------------------------------------------------------------------------------------------------

    @_primitive
    def split(self, loop: LoopRef, factors: Sequence[Any]) -> list[LoopRef]:
        """See :func:`tilewright.tensorir.schedule.loops.split`."""
        self._state, made = loops.split(self._state, loop, factors)
        return made

    @_primitive
    def fuse(self, *refs: LoopRef) -> LoopRef:
        """See :func:`tilewright.tensorir.schedule.loops.fuse`."""
        self._state, made = loops.fuse(self._state, refs)
        return made

    @_primitive
    def reorder(self, *refs: LoopRef, reassociate: bool = False) -> None:
        """See :func:`tilewright.tensorir.schedule.loops.reorder`."""
        self._state = loops.reorder(self._state, refs, reassociate)

    @_primitive
    def tile(self, what: BlockRef | Sequence[LoopRef], factors: Sequence[Any]) -> list[LoopRef]:
        """See :func:`tilewright.tensorir.schedule.tiling.tile`."""
        self._state, made = tiling.tile(self._state, what, factors)
        return made

    @_primitive
    def peel(self, loop: LoopRef, multiple: Any) -> list[LoopRef]:
        """See :func:`tilewright.tensorir.schedule.tiling.peel`."""
        self._state, made = tiling.peel(self._state, loop, multiple)
        return made

    @_primitive
    def parallel(self, loop: LoopRef) -> None:
        """See :func:`tilewright.tensorir.schedule.loops.parallel`."""
        self._state = loops.parallel(self._state, loop)

    @_primitive
    def vectorize(self, loop: LoopRef, reassociate: bool = False) -> None:
        """See :func:`tilewright.tensorir.schedule.loops.vectorize`."""
        self._state = loops.vectorize(self._state, loop, reassociate)

    @_primitive
    def unroll(self, loop: LoopRef) -> None:
        """See :func:`tilewright.tensorir.schedule.loops.unroll`."""
        self._state = loops.unroll(self._state, loop)

    @_primitive
    def annotate(self, ref: BlockRef | LoopRef, key: str, value: Any) -> None:
        """Attach ``key: value`` to a block or loop."""
        self._state = loops.annotate(self._state, ref, key, value)

    @_primitive
    def unannotate(self, ref: BlockRef | LoopRef, key: str) -> None:
        """Remove an annotation."""
        self._state = loops.unannotate(self._state, ref, key)

    # -- moving computations ---------------------------------------------------------------------------------------

    @_primitive
    def compute_at(self, block: BlockRef, loop: LoopRef) -> None:
        """See :func:`tilewright.tensorir.schedule.compute_at.compute_at`."""
        self._state = compute_at.compute_at(self._state, block, loop)

    @_primitive
    def reverse_compute_at(self, block: BlockRef, loop: LoopRef) -> None:
        """See :func:`tilewright.tensorir.schedule.compute_at.reverse_compute_at`."""
        self._state = compute_at.reverse_compute_at(self._state, block, loop)

    @_primitive
    def compute_inline(self, block: BlockRef) -> None:
        """See :func:`tilewright.tensorir.schedule.inline.compute_inline`."""
        self._state = inline.compute_inline(self._state, block)

    @_primitive
    def reverse_compute_inline(self, block: BlockRef) -> None:
        """See :func:`tilewright.tensorir.schedule.inline.reverse_compute_inline`."""
        self._state = inline.reverse_compute_inline(self._state, block)

    # -- buffers -------------------------------------------------------------------------------------------------

    @_primitive
    def set_scope(self, block: BlockRef, buffer: Which, scope_name: str) -> None:
        """See :func:`tilewright.tensorir.schedule.scope.set_scope`."""
        self._state = scope.set_scope(self._state, block, buffer, scope_name)

    @_primitive
    def cache_read(self, block: BlockRef, buffer: Which, scope_name: str) -> BlockRef:
        """See :func:`tilewright.tensorir.schedule.cache.cache_read`."""
        self._state, made = cache.cache_read(self._state, block, buffer, scope_name)
        return made

    @_primitive
    def cache_write(self, block: BlockRef, buffer: Which, scope_name: str) -> BlockRef:
        """See :func:`tilewright.tensorir.schedule.cache.cache_write`."""
        self._state, made = cache.cache_write(self._state, block, buffer, scope_name)
        return made

    def transform_layout(
        self,
        block: BlockRef,
        buffer: Which,
        index_map: Callable[..., Any] | IndexMap,
        pad_value: float | int | None = None,
    ) -> None:
        """See :func:`tilewright.tensorir.schedule.layout.transform_layout`.

        Args:
            buffer: one that the block writes, or else one that it reads.
            index_map: such as ``lambda k, j: (j // 64, k, j % 64)``.
        """
        found = self._find_buffer(block, buffer)
        self._transform_layout(block, found, IndexMap.of(index_map, found.ndim), pad_value)

    @_primitive
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

    @_primitive
    def decompose_reduction(self, block: BlockRef, loop: LoopRef) -> BlockRef:
        """See :func:`tilewright.tensorir.schedule.reduction.decompose_reduction`."""
        self._state, made = reduction.decompose_reduction(self._state, block, loop)
        return made

    @_primitive
    def rfactor(self, loop: LoopRef, factor_axis: int = 0, *, reassociate: bool = False) -> BlockRef:
        """See :func:`tilewright.tensorir.schedule.reduction.rfactor`; the reduction is the one block that the loop
        drives a reduction variable of."""
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
