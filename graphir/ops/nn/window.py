"""What convolution and pooling share: windows that slide over the two spatial axes of an image."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from tilewright.graphir.dims import Dim, simplify
from tilewright.graphir.op import Operator


def pair(value: Any, name: str, least: int = 1) -> tuple[int, int]:
    """A size for height and width, given once for both or as two.

    Raises:
        TypeError: it is neither.
        ValueError: it is below ``least``.
    """
    sizes = _integers(value, name)
    if len(sizes) == 1:
        sizes = sizes * 2
    if len(sizes) != 2:
        raise ValueError(f"{name}: expected 1 or 2 integers, found {value!r}")
    if min(sizes) < least:
        raise ValueError(f"{name}: expected at least {least}, found {value!r}")
    return sizes[0], sizes[1]


def borders(value: Any, name: str = "padding") -> tuple[int, int, int, int]:
    """The padding at top, left, bottom and right, given once, for height and width, or as four.

    Raises:
        TypeError: it is none of these.
        ValueError: it is negative.
    """
    sizes = _integers(value, name)
    if len(sizes) not in (1, 2, 4):
        raise ValueError(f"{name}: expected 1, 2 (height, width) or 4 (top, left, bottom, right), found {value!r}")
    if min(sizes) < 0:
        raise ValueError(f"{name}: expected no negative size, found {value!r}")
    top, left = sizes[0], sizes[1 if len(sizes) > 1 else 0]
    return (top, left, sizes[2], sizes[3]) if len(sizes) == 4 else (top, left, top, left)


def _integers(value: Any, name: str) -> tuple[int, ...]:
    items = value if isinstance(value, (tuple, list)) else (value,)
    try:
        return tuple(operator.index(item) for item in items)
    except TypeError:
        raise TypeError(f"{name}: expected integers, found {value!r}") from None


def window_count(
    op: Operator, extent: Dim, size: Dim, stride: int, dilation: int, padding: Sequence[int], ceil_mode: bool = False
) -> Dim:
    """How many windows fit along one axis.

    Args:
        size: elements of the window; ``dilation`` apart.
        padding: before and behind.
        ceil_mode: whether a last window that only partly fits counts, as long as it starts inside the image or the
            padding before it.

    Raises:
        TypeInferenceError: a static image is smaller than the window.
    """
    before, behind = padding
    span = simplify((size - 1) * dilation + 1)
    room = simplify(extent + (before + behind) - span)
    if isinstance(room, int) and room < 0:
        raise op.error(0, f"an image of at least {span} pixels with its padding", f"{extent} + {before + behind}")
    if not ceil_mode:
        return simplify(room // stride + 1)
    if not isinstance(room, int) or not isinstance(extent, int):
        raise op.error("ceil_mode", "an image of static size", extent)
    count = -(-room // stride) + 1
    return count - 1 if (count - 1) * stride >= extent + before else count
