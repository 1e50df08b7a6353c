"""Divide channels into blocks that fill vectors: choose the block size, and locate channels without divisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.graphir.dims import Dim
from tilewright.graphir.layout import Layout
from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import Expr, Var, as_expr


def channel_block(channels: Dim, lanes: int, whole: bool = False) -> int | None:
    """Return the number of neighbouring channels in a block: the lanes of a vector, or half of them; None if the plain
    layout is better. All tensors with so many channels have the same blocks.

    Only the last block may be partly filled: 24 channels in two vectors of 16 lanes take less time than in three half
    vectors. ``whole``: only blocks that divide the channels.
    """
    if not isinstance(channels, int) or not channels:
        return None
    if not whole:
        return lanes if channels > lanes // 2 else lanes // 2 if lanes > 2 and channels == lanes // 2 else None
    return next((block for block in (lanes, lanes // 2) if block > 1 and channels % block == 0), None)


def group_block(channels: Dim, lanes: int) -> int | None:
    """Return the number of neighbouring channels in a block where blocks lie inside of groups of so many channels. A
    group of several half vectors takes longer than vectors of pixels in the plain layout."""
    found = channel_block(channels, lanes, whole=True)
    return found if found in (lanes, channels) else None


class Blocked:
    """A channel as the number of a block and the position in it, so that indices need no division."""

    def __init__(self, block: Expr, inner: Expr, size: int) -> None:
        self.block, self.inner, self.size = block, inner, size

    def whole(self) -> Expr:
        """Return the channel as one number."""
        return self.block * self.size + self.inner


def channel_at(layout: Layout, place: Sequence[Expr], whole: Expr) -> Expr | Blocked:
    """Return the channel at ``place``: the number of a block and the position in it if the layout has such blocks."""
    sizes = [size for axis, size in layout.axes if axis == "C" and size]
    if len(sizes) != 1:
        return whole
    return Blocked(place[layout.position("C")], place[layout.axes.index(("C", sizes[0]))], sizes[0])


def place_of(layout: Layout, index: dict[str, Any]) -> tuple[Expr, ...]:
    """Return ``layout.place``; blocked channels are used as they are if the layout has the same block, in one dimension
    or in several."""
    plain = dict(index)
    kept: list[tuple[str, Blocked]] = []
    for axis, at in index.items():
        if isinstance(at, Blocked):
            if layout.block(axis) == at.size:
                kept.append((axis, at))
                plain[axis] = 0
            else:
                plain[axis] = at.whole()
    result = list(layout.place(plain))
    for axis, at in kept:
        result[layout.position(axis)] = at.block
        rest = at.inner
        parts = [number for number, (name, size) in enumerate(layout.axes) if size and name == axis]
        for number in reversed(parts[1:]):
            size = layout.axes[number][1]
            result[number], rest = rest % size, rest // size
        result[parts[0]] = rest
    return tuple(result)


class ChannelAxes:
    """The reduction over the input channels of a group: one axis, or the number of a block and the position in it.

    Attributes:
        outer: axes that come before those of the window.
        inner: axes that come behind them.
        within: the channel in the group.
    """

    def __init__(self, extents: dict[str, Dim], source: Layout, kernel: Layout, groups: int) -> None:
        count, block = extents["I"], source.block("C")
        self.groups = groups
        self.count = count
        self.block = block
        self.outer: list[Var] = []
        self.inner: list[Var] = []
        self.within: Any
        if block > 1 and isinstance(count, int) and count % block == 0:
            outer, inner = te.reduce_axis(count // block, "ic"), te.reduce_axis(block, "ici")
            self.outer, self.inner = [outer], [inner]
            self.within = Blocked(outer, inner, block)
        elif block > 1 and groups == 1 and isinstance(count, int):
            channel = te.reduce_axis(count, "ic")  # the last block is not full; schedules split the axis
            self.inner = [channel]
            self.within = Blocked(channel // block, channel % block, block)
        else:
            self.outer = [te.reduce_axis(as_expr(count), "ic")]
            self.within = self.outer[0]

    def of_group(self, channel: Expr | Blocked, total: Dim) -> Any:
        """Return the input channel in the whole image for output channel ``channel`` of ``total``."""
        if self.groups == 1:
            return self.within
        assert isinstance(total, int)
        made = total // self.groups
        if made == 1 and self.count == 1:
            return channel  # depthwise
        if isinstance(channel, Blocked):
            blocks, rest = divmod(made, channel.size)
            group = channel.whole() // made if rest else channel.block // blocks
        else:
            group = channel // made
        if isinstance(self.within, Blocked):
            assert isinstance(self.count, int)
            return Blocked(group * (self.count // self.block) + self.within.block, self.within.inner, self.block)
        return group * as_expr(self.count) + self.within
