"""Copy images with a border of zeros into the L1 cache part by part.

A window that slides over an image reads pixels outside of it. Padding the whole image first costs two more passes over
memory; a task that pads only the part which its own windows cover keeps that part in the L1 cache.
"""

from __future__ import annotations

import dataclasses

from tilewright.passes.schedule.cost import lines_in_cache, nearly_equal, tiles_of_a_line, vector_lanes
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
from tilewright.passes.schedule.settings import NOTHING, Given
from tilewright.tensorir.arith.iter_map import coefficient
from tilewright.tensorir.expr import BufferLoad
from tilewright.tensorir.functor import uses_var
from tilewright.tensorir.schedule import BlockRef, LoopRef, Schedule
from tilewright.tensorir.stmt import Block, IterVar
from tilewright.tensorir.target import Target


@dataclasses.dataclass(frozen=True)
class Strip:
    """A part of an image that a task copies into the cache, with its border, before it slides windows over it.

    Attributes:
        source: the block that computes the elements of the image with its border.
        lines: the variable over the lines of the result (rows of pixels), of which a task has ``height``.
        tiles: number of tiles along a line in a task.
    """

    source: BlockRef
    lines: IterVar
    height: int
    tiles: int


def find_strip(
    schedule: Schedule, ref: BlockRef, row: IterVar | None, rows: int, lanes: int, given: Given = NOTHING
) -> Strip | None:
    """Find the part that a task copies of an image whose channels are independent (in a depthwise convolution); None
    for any other operand. Where all channels of the result need the whole image, each task would copy it again.

    Args:
        ref: a contraction.
        row: the variable along which its tiles have ``rows`` vectors of ``lanes`` lanes.
        given: ``strip_height`` and ``tiles``, where they are set.
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
            tiles = int(given.get("tiles", 0)) or tiles_of_a_line(constant(line.item.extent), rows)
            size = load.buffer.dtype.bits // 8 * lanes * line.span(tiles * rows)
            most = max(1, lines.most(lines_in_cache(size)))
            height = int(given.get("strip_height", 0)) or nearly_equal(constant(lines.item.extent), 1, most)
            return Strip(source, lines.item, height, tiles)
    return None


def _only_for(schedule: Schedule, ref: BlockRef, load: BufferLoad) -> BlockRef | None:
    """Return the elementwise block that computes the buffer of ``load``, if it has no other consumer."""
    for made in schedule.get_producers(ref):
        block = block_of(schedule, made)
        if stores(block)[0].buffer is load.buffer:
            return None if reductions(block) or len(schedule.get_consumers(made)) > 1 else made
    return None


@dataclasses.dataclass(frozen=True)
class _Window:
    """An index ``item * stride + step * dilation`` with ``step`` in ``range(size)``."""

    item: IterVar
    stride: int
    reach: int

    def span(self, count: int) -> int:
        """Return the number of elements that ``count`` neighbouring windows cover."""
        return (count - 1) * self.stride + self.reach

    def most(self, elements: int) -> int:
        """Return the number of neighbouring windows that ``elements`` elements hold."""
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
    """Compute the part of the image in the task, line by line, vectorized."""
    source = strip.source
    schedule.set_scope(source, 0, "stack")
    schedule.compute_at(source, task)
    vectorize_loop(schedule, schedule.get_loops(source)[-1], vector_lanes(block_of(schedule, source), target))
