"""Compute convolutions and pooling by loops over windows, for tests to compare operators with."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np


def window(x: Any, at: Any, size: Any, attrs: Any) -> list[tuple[Any, Any, str]]:
    """(offset in the window, place, where it lies: data, padding or beyond) for each element of one window."""
    rank = len(size)
    strides, padding, dilation = (
        attrs.get("strides", size),
        attrs.get("padding", (0,) * 2 * rank),
        attrs.get("dilation"),
    )
    found = []
    for offset in itertools.product(*map(range, size)):
        place = [at[n] * strides[n] + offset[n] * (dilation[n] if dilation else 1) - padding[n] for n in range(rank)]
        inside = all(0 <= p < x.shape[n + 2] for n, p in enumerate(place))
        padded = all(-padding[n] <= p < x.shape[n + 2] + padding[n + rank] for n, p in enumerate(place))
        found.append((offset, tuple(place), "data" if inside else "padding" if padded else "beyond"))
    return found


def extents(x: Any, size: Any, attrs: Any) -> list[int]:
    """Count the windows along each dimension, one by one."""
    rank = len(size)
    strides, padding, dilation = (
        attrs.get("strides", size),
        attrs.get("padding", (0,) * 2 * rank),
        attrs.get("dilation"),
    )
    result = []
    for n in range(rank):
        span = (size[n] - 1) * (dilation[n] if dilation else 1) + 1
        starts = range(-padding[n], x.shape[n + 2] + padding[n + rank], strides[n])
        whole = [start for start in starts if start + span <= x.shape[n + 2] + padding[n + rank]]
        more = [start for start in starts if start not in whole and start < x.shape[n + 2]][:1]
        result.append(len(whole) + (len(more) if attrs.get("ceil_mode") else 0))
    return result


def pool(x: Any, attrs: Any, of_window: Any, dtype: Any = None) -> Any:
    """``of_window(image, window's elements)`` for each window of each channel."""
    size = attrs["pool_size"]
    out = np.zeros((*x.shape[:2], *extents(x, size, attrs)), dtype or x.dtype)
    for n, c, *at in np.ndindex(*out.shape):
        out[(n, c, *at)] = of_window(x[n, c], window(x, at, size, attrs), (n, c))
    return out


def values_of(image: Any, elements: Any) -> list[Any]:
    return [image[place] for _, place, where in elements if where == "data"]


def greatest(image: Any, elements: Any, _: Any) -> Any:
    return max(values_of(image, elements))


def average(image: Any, elements: Any, _: Any) -> Any:
    return np.mean(values_of(image, elements))


def padded_average(image: Any, elements: Any, _: Any) -> Any:
    return sum(values_of(image, elements)) / sum(where != "beyond" for *_, where in elements)


def norm(p: float) -> Any:
    return lambda image, elements, _: sum(abs(value) ** p for value in values_of(image, elements)) ** (1 / p)


def convolve(x: Any, w: Any, attrs: Any) -> Any:
    size, groups = w.shape[2:], attrs.get("groups", 1)
    attrs = {"strides": (1,) * len(size), **attrs}
    out = np.zeros((x.shape[0], w.shape[0], *extents(x, size, attrs)), x.dtype)
    for n, o, *at in np.ndindex(*out.shape):
        first = o // (w.shape[0] // groups) * w.shape[1]
        for offset, place, where in window(x, at, size, attrs):
            if where == "data":
                for c in range(w.shape[1]):
                    out[(n, o, *at)] += x[(n, first + c, *place)] * w[(o, c, *offset)]
    return out


def spread(x: Any, w: Any, attrs: Any) -> Any:
    """Transposed convolution: each product added where it lies."""
    rank, groups = x.ndim - 2, attrs.get("groups", 1)
    strides, dilation = attrs.get("strides", (1,) * rank), attrs.get("dilation", (1,) * rank)
    padding, extra = attrs.get("padding", (0,) * 2 * rank), attrs.get("output_padding", (0,) * rank)
    space = [
        (x.shape[n + 2] - 1) * strides[n]
        + (w.shape[n + 2] - 1) * dilation[n]
        + 1
        + extra[n]
        - padding[n]
        - padding[n + rank]
        for n in range(rank)
    ]
    out = np.zeros((x.shape[0], w.shape[1] * groups, *space), x.dtype)
    for n, c, *at in np.ndindex(*x.shape):
        group = c // (x.shape[1] // groups)
        for o, *offset in np.ndindex(*w.shape[1:]):
            place = [at[k] * strides[k] + offset[k] * dilation[k] - padding[k] for k in range(rank)]
            if all(0 <= p < size for p, size in zip(place, space, strict=True)):
                out[(n, group * w.shape[1] + o, *place)] += x[(n, c, *at)] * w[(c, o, *offset)]
    return out


def deform(x: Any, w: Any, offset: Any, mask: Any, attrs: Any) -> Any:
    """Each element of each window read by itself."""
    (sh, sw), (dh, dw), (top, left, _, _) = attrs["strides"], attrs["dilation"], attrs["padding"]
    o, i, kh, kw = w.shape
    groups, parts = attrs["groups"], attrs["offset_groups"]
    moved = offset.reshape(x.shape[0], parts, kh, kw, 2, *offset.shape[2:])
    weights = mask.reshape(x.shape[0], parts, kh, kw, *mask.shape[2:])

    def read(image: Any, y: float, z: float) -> float:
        total = 0.0
        for row, column in np.ndindex(*image.shape):
            total += image[row, column] * max(0, 1 - abs(y - row)) * max(0, 1 - abs(z - column))
        return total

    out = np.zeros((x.shape[0], o, *offset.shape[2:]))
    for n, c, y, z in np.ndindex(*out.shape):
        for k, row, column in np.ndindex(i, kh, kw):
            own = c // (o // groups) * i + k
            part = own // (x.shape[1] // parts)
            dy, dz = moved[n, part, row, column, :, y, z]
            at = y * sh - top + row * dh + dy, z * sw - left + column * dw + dz
            out[n, c, y, z] += w[c, k, row, column] * read(x[n, own], *at) * weights[n, part, row, column, y, z]
    return out


def blocked(x: Any, block: int) -> Any:
    """Channels, dimension 1, in blocks behind all others; the last one filled up with zeros."""
    padded = np.pad(x, [(0, -extent % block if axis == 1 else 0) for axis, extent in enumerate(x.shape)])
    return np.moveaxis(padded.reshape(x.shape[0], -1, block, *x.shape[2:]), 2, -1)


def plain(x: Any) -> Any:
    """The inverse of :func:`blocked`."""
    parts = np.moveaxis(x, -1, 2)
    return parts.reshape(x.shape[0], -1, *parts.shape[3:])
