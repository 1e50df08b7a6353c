"""Find the places of the greatest elements of small windows element by element, which makes one kernel of vectors."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import numpy as np

from tilewright.graphir.expr import Expr, const
from tilewright.graphir.frontend.torch.node import axis_places, cast_to, dtype_of, shape_of
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import add, pad, where
from tilewright.tensorir.dtype import INT64

#: The most elements of a window that are compared one after another.
_MOST = 16


def chosen_of_windows(windows: Expr) -> Expr:
    """Return the number of the element that PyTorch chooses of each window along the last axis: the last NaN, or the
    first greatest one."""
    numbers = axis_places(shape_of(windows)[-1])
    nan = get_operator("max")(where(get_operator("isnan")(windows), numbers, -1), axis=-1)
    greatest = get_operator("argmax")(windows, axis=-1)
    return where(get_operator("greater_equal")(nan, 0), nan, cast_to(greatest, INT64))


def small_window_places(x: Expr, attrs: dict[str, Any], windows: tuple[Any, ...]) -> Expr | None:
    """Return the place of the greatest element of each window in its channel, as PyTorch chooses: the first of equal
    ones, the last NaN, and of a window of negative infinities its first element. None if windows are large, or sizes of
    the image unknown.

    Each element is compared with the greatest one, not with the best of those before it: such comparisons would be
    copied into each other.

    Args:
        x: the image, floats ``[batch, channels, height, width]``.
        attrs: those of ``nn.max_pool_indices``.
        windows: the numbers of windows along height and width.
    """
    size, strides, before, steps = (attrs[name] for name in ("pool_size", "strides", "padding", "dilation"))
    image = shape_of(x)[2:]
    if len(image) != 2 or math.prod(size) > _MOST or not dtype_of(x).is_float:
        return None
    if not all(isinstance(dim, int) for dim in (*image, *windows)):
        return None
    reach = [(count - 1) * stride + 1 for count, stride in zip(windows, strides, strict=True)]
    ends = [extent + (count - 1) * step for extent, count, step in zip(reach, size, steps, strict=True)]
    behind = [max(0, end - margin - dim) for end, margin, dim in zip(ends, before, image, strict=True)]
    padded = pad(x, pad_width=((0, 0), (0, 0), *zip(before, behind, strict=True)), pad_value=-math.inf)
    corner, first = (
        _places(windows, strides, before, image[1], clamped) for clamped in (None, steps)
    )  # of a window's first element, which may be padding, and of its first one inside
    places = []
    for y, x_ in itertools.product(*map(range, size)):
        begin = (y * steps[0], x_ * steps[1])
        end = tuple(start + extent for start, extent in zip(begin, reach, strict=True))
        part = get_operator("slice")(padded, begin=begin, end=end, strides=strides, axes=(2, 3))
        places.append((part, const(np.int32(begin[0] * image[1] + begin[1]))))
    greatest = functools.reduce(get_operator("maximum"), [part for part, _ in places])
    offset: Expr = const((first - corner).astype(np.int32))
    for part, number in reversed(places):  # so that the first of equal elements has the last word
        offset = get_operator("where")(get_operator("equal")(part, greatest), number, offset)
    lowest = const(np.asarray(-math.inf).astype(dtype_of(x).numpy))  # which padding equals, too
    inside = const((first - corner).astype(np.int32))
    offset = get_operator("where")(get_operator("equal")(greatest, lowest), inside, offset)
    for part, number in places:
        offset = get_operator("where")(get_operator("isnan")(part), number, offset)
    return add(cast_to(offset, INT64), const(corner.astype(np.int64)))


def _places(windows: Any, strides: Any, before: Any, width: Any, steps: Any) -> np.ndarray[Any, Any]:
    """Return the place of the first element of each window; with ``steps``, of the first that is not padding."""
    starts = [
        np.arange(count) * stride - margin for count, stride, margin in zip(windows, strides, before, strict=True)
    ]
    if steps is not None:
        starts = [
            np.where(start < 0, start % step, start) for start, step in zip(starts, steps, strict=True)
        ]  # as many steps further as it takes
    rows, columns = starts
    places: np.ndarray[Any, Any] = rows[:, None] * width + columns
    return places
