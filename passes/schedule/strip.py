"""Images with a border of zeros, copied into the first cache part by part.

A window that slides over an image reads pixels outside of it. Where the image with its border is made first, and then
read, memory is passed over twice more; a task that makes the part which its own windows cover has that part in the
first cache.
"""

from __future__ import annotations

import dataclasses

from tilewright.passes.schedule.elementwise import vector_lanes
from tilewright.passes.schedule.facts import (
    block_of,
    constant,
    contraction,
    reductions,
    spatial,
    stores,
    uses,
)
from tilewright.passes.schedule.loops import vectorize_loop
from tilewright.tensorir.expr import BufferLoad
from tilewright.tensorir.functor import uses_var
from tilewright.tensorir.schedule import BlockRef, LoopRef, Schedule
from tilewright.tensorir.schedule.indices import coefficient
from tilewright.tensorir.stmt import Block, IterVar
from tilewright.tensorir.target import Target

#: Pixels of a line, and bytes of the image with its border, that a task copies at most: they stay in the first cache
#: with what the task writes.
_STRIP_PIXELS = 64
#: Pixels of a line of unknown length: most are shorter than those, and a strip has more lines instead.
_UNKNOWN_PIXELS = 32
_STRIP_BYTES = 24 << 10


@dataclasses.dataclass(frozen=True)
class Strip:
    """A part of an image that a task copies into the cache, with its border, before it slides windows over it.

    Attributes:
        source: the block that computes the elements of the image with its border.
        lines: the variable over the lines of the result (rows of pixels), of which a task has ``height``.
        tiles: how many tiles along a line a task has.
    """

    source: BlockRef
    lines: IterVar
    height: int
    tiles: int


def find_strip(schedule: Schedule, ref: BlockRef, row: IterVar | None, rows: int, lanes: int) -> Strip | None:
    """What a task copies of an image whose channels are independent (in a depthwise convolution). Where all channels
    of the result need the whole image, each task would copy it again.

    Args:
        ref: a contraction.
        row: the variable along which its tiles have ``rows`` elements, of vectors of ``lanes``.
    """
    block = block_of(schedule, ref)
    found = contraction(block)
    if found is None or row is None:
        return None
    for load in (found.left, found.right):
        source = _only_for(schedule, ref, load)
        if source is None or any(constant(item.extent) != 1 and not uses(load, item.var) for item in spatial(block)):
            continue
        windows = [window for window in (_window(load, item, block) for item in spatial(block)) if window is not None]
        if len(windows) == 2 and windows[1].item is row:
            lines, line = windows
            pixels = _UNKNOWN_PIXELS if constant(line.item.extent) is None else _STRIP_PIXELS
            tiles = _nearly_equal(line.item, rows, max(1, pixels // rows))
            size = load.buffer.dtype.bits // 8 * lanes * line.span(tiles * rows)
            return Strip(
                source, lines.item, _nearly_equal(lines.item, 1, max(1, lines.most(_STRIP_BYTES // size))), tiles
            )
    return None


def _only_for(schedule: Schedule, ref: BlockRef, load: BufferLoad) -> BlockRef | None:
    """The block that computes, element by element, what ``load`` reads, if nothing else needs it."""
    for made in schedule.get_producers(ref):
        block = block_of(schedule, made)
        if stores(block)[0].buffer is load.buffer:
            return None if reductions(block) or len(schedule.get_consumers(made)) > 1 else made
    return None


def _nearly_equal(item: IterVar, size: int, most: int) -> int:
    """How many pieces of ``size`` a part of a dimension has, so that parts have at most ``most`` and about as many."""
    extent = constant(item.extent)
    if extent is None:
        return most
    pieces = -(-extent // size)
    return -(-pieces // -(-pieces // most))


@dataclasses.dataclass(frozen=True)
class _Window:
    """``item * stride + step * dilation`` with ``step`` in ``range(size)``, as an index."""

    item: IterVar
    stride: int
    reach: int

    def span(self, count: int) -> int:
        """How many elements so many neighbouring windows cover."""
        return (count - 1) * self.stride + self.reach

    def most(self, elements: int) -> int:
        """How many neighbouring windows so many elements hold."""
        return (elements - self.reach) // self.stride + 1


def _window(load: BufferLoad, item: IterVar, block: Block) -> _Window | None:
    for index in load.indices:
        stride = coefficient(index, item.var)
        steps = [step for step in reductions(block) if uses_var(index, {step.var})]
        if not stride or len(steps) != 1:
            continue
        dilation, size = coefficient(index, steps[0].var), constant(steps[0].extent)
        if dilation and size:
            return _Window(item, stride, (size - 1) * dilation + 1)
    return None


def copy_strip(schedule: Schedule, strip: Strip, task: LoopRef, target: Target) -> None:
    """Compute the part of the image in the task, line by line, in vectors."""
    source = strip.source
    schedule.set_scope(source, 0, "stack")
    schedule.compute_at(source, task)
    vectorize_loop(schedule, schedule.get_loops(source)[-1], vector_lanes(block_of(schedule, source), target))
