"""Describe data layouts by name: ``NCHW``, ``NHWC``, ``NCHW16c``, ``OIHW16i16o``.

A capital letter is an axis. A number with a small letter is an inner block of the axis of that letter: in ``NCHW16c``
the fifth dimension holds 16 neighbouring channels and the second one counts such groups. Channels that do not fill
the last group are padded with zeros.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence

from tilewright.graphir.dims import Dim, simplify
from tilewright.tensorir.errors import ArgumentValueError
from tilewright.tensorir.expr import Expr, as_expr, binary


@dataclasses.dataclass(frozen=True)
class Layout:
    """The axis that each dimension of a tensor holds; made by :func:`parse_layout`.

    Attributes:
        name: the text.
        axes: for each dimension its axis (a capital letter) and, for an inner block, its size (0 otherwise).
    """

    name: str
    axes: tuple[tuple[str, int], ...]

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.axes)

    @functools.cached_property
    def primal(self) -> tuple[str, ...]:
        """The axes in order, without the blocks."""
        return tuple([axis for axis, size in self.axes if not size])

    @functools.cached_property
    def _blocks(self) -> dict[str, int]:
        """By axis, the number of elements in one step of its outer dimension."""
        found = dict.fromkeys(self.primal, 1)
        for axis, size in self.axes:
            found[axis] *= size or 1
        return found

    @functools.cached_property
    def _outer(self) -> tuple[tuple[str, int, int], ...]:
        """Each axis with the position of its outer dimension and the number of elements in one step of that."""
        return tuple([(axis, self.position(axis), block) for axis, block in self._blocks.items()])

    @functools.cached_property
    def _inner(self) -> tuple[tuple[int, int], ...]:
        """The positions of the dimensions that are inner blocks, with their sizes."""
        return tuple([(place, size) for place, (_, size) in enumerate(self.axes) if size])

    def block(self, axis: str) -> int:
        """Return the number of elements of ``axis`` in one step of its outer dimension (1 if it is not blocked)."""
        return self._blocks.get(axis, 1)

    def position(self, axis: str) -> int:
        """Return the dimension of ``axis`` (of its outer part, if it is blocked)."""
        return self.axes.index((axis, 0))

    def extents(self, shape: Sequence[Dim]) -> dict[str, Dim]:
        """Return the extent of each axis of a tensor of shape ``shape``, padding included."""
        return {axis: shape[at] if block == 1 else simplify(shape[at] * block) for axis, at, block in self._outer}

    def shape(self, extents: Mapping[str, Dim]) -> tuple[Dim, ...]:
        """Return the shape of a tensor whose axes have those extents, rounded up to whole blocks."""
        dims: list[Dim] = []
        for axis, size in self.axes:
            block = self._blocks[axis]
            if size:
                dims.append(size)
            elif block == 1:
                dims.append(extents[axis])
            else:
                dims.append(simplify((extents[axis] + (block - 1)) // block))
        return tuple(dims)

    def logical(self, place: Sequence[Expr]) -> dict[str, Expr]:
        """Return the index along each axis of the element at ``place``."""
        found: dict[str, Expr] = {}
        for (axis, size), index in zip(self.axes, place, strict=True):
            found[axis] = found[axis] * size + index if size else index
        return found

    def place(self, index: Mapping[str, Expr | int]) -> tuple[Expr, ...]:
        """Return the place of the element with the given index along each axis."""
        inner: dict[str, int] = {}  # by axis, the number of elements in the blocks behind
        result: list[Expr] = []
        for axis, size in reversed(self.axes):
            whole = as_expr(index[axis])
            if axis in inner:
                whole = binary("floordiv", whole, as_expr(inner[axis]))
            if size:
                whole = binary("floormod", whole, as_expr(size))
                inner[axis] = inner.get(axis, 1) * size
            result.append(whole)
        return tuple(reversed(result))

    def order(self, shape: Sequence[Dim]) -> list[tuple[str, int]]:
        """Return the order in memory of a tensor's elements: its dimensions of more than one element, as in ``axes``.
        Dimensions of an axis that follow each other count as one."""
        found: list[tuple[str, int]] = []
        for (axis, size), extent in zip(self.axes, shape, strict=True):
            if isinstance(extent, int) and extent == 1:
                continue
            if found and found[-1][0] == axis:
                found[-1] = axis, found[-1][1] * size
            else:
                found.append((axis, size))
        parts = [axis for axis, _ in found]
        return [(axis, size if parts.count(axis) > 1 else 0) for axis, size in found]

    def matches(self, shape: Sequence[Dim]) -> bool:
        """Return whether a tensor of that shape can have this layout: as many dimensions, and blocks of the right
        size."""
        if len(shape) != len(self.axes):
            return False
        for place, size in self._inner:
            dim = shape[place]
            if not (isinstance(dim, int) and dim == size):
                return False
        return True

    def __str__(self) -> str:
        return self.name


@functools.cache
def parse_layout(name: str) -> Layout:
    """Parse the name of a layout.

    Raises:
        ValueError: it is no layout: an axis occurs twice, or a block has no size or no axis before it.
    """
    if not isinstance(name, str) or not re.fullmatch(r"(?:[A-Z]|[1-9]\d*[a-z])+", name):
        raise ArgumentValueError(
            f"{name!r} is no layout; expected capital letters and blocks such as 16c, as in NCHW16c"
        )
    axes: list[tuple[str, int]] = []
    for size, block, axis in re.findall(r"(\d+)([a-z])|([A-Z])", name):
        if axis and (axis, 0) in axes:
            raise ArgumentValueError(f"layout {name}: axis {axis} appears twice")
        if block and (block.upper(), 0) not in axes:
            raise ArgumentValueError(f"layout {name}: the block {size}{block} has no axis {block.upper()} before it")
        axes.append((axis, 0) if axis else (block.upper(), int(size)))
    return Layout(name, tuple(axes))
