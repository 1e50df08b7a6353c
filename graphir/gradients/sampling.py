"""Differentiate the sampling of images at places: pixels are gathered, and weighted by where the places lie."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
from collections.abc import Sequence
from typing import Any

from tilewright.graphir.base import call_operator
from tilewright.graphir.dims import Dim, product
from tilewright.graphir.expr import Call, Expr
from tilewright.graphir.gradient import register_composition, unsupported
from tilewright.graphir.gradients.common import count_of, reshaped
from tilewright.graphir.ops import calls
from tilewright.graphir.ops.common import compute_type
from tilewright.graphir.ops.nn.grid_sample import GridSampleAttrs, moved_place, sampling_type, taps_of, weight_of
from tilewright.tensorir.dtype import INT64


@register_composition("nn.grid_sample")
def grid_sample(call: Call) -> Expr:
    """Add up the pixels around each place, gathered from the flat image, with weights that follow from the place."""
    (data, grid), attrs = call.args, call.attrs
    wide = sampling_type(data.dtype, grid.dtype)
    extents, points = data.shape[2:], (data.shape[0], product(grid.shape[1:-1]))
    flat = reshaped(calls.cast(data, dtype=wide), (*data.shape[:2], product(extents)))
    places = []
    for number, extent in enumerate(extents):
        coordinate = calls.take(calls.cast(grid, dtype=wide), len(extents) - 1 - number, axis=-1)
        length = count_of((extent,), wide)
        places.append(moved_place(reshaped(coordinate, points), length, 0.0, attrs, _chosen, call_operator))
    result: Expr | None = None
    for taps in itertools.product(taps_of(attrs.method), repeat=len(extents)):
        taken = _taken(flat, extents, places, taps, attrs)
        result = taken if result is None else result + taken
    assert result is not None
    return calls.cast(reshaped(result, call.shape), dtype=data.dtype)


@register_composition("nn.deform_conv2d")
def deform_conv2d(call: Call) -> Expr:
    """Sample the image at each element of each window, and multiply by the weight."""
    (data, weight, offset, *mask), attrs = (
        [calls.cast(arg, dtype=compute_type(call.dtype)) for arg in call.args],
        call.attrs,
    )
    batch, channels, *extents = data.shape
    groups, window, space = attrs.offset_groups, weight.shape[2:], call.shape[2:]
    elements = product(window)
    moved = reshaped(offset, (batch * groups, *window, 2, *space))
    places = []
    for axis in range(2):
        starts = _numbers(space[axis]) * attrs.strides[axis] - attrs.padding[axis]
        within = _numbers(window[axis]) * attrs.dilation[axis]
        shape = tuple(dim if n == axis else 1 for n, dim in enumerate(window))
        behind = tuple(dim if n == axis else 1 for n, dim in enumerate(space))
        plain = calls.cast(reshaped(within, (*shape, 1, 1)) + reshaped(starts, behind), dtype=data.dtype)
        found = calls.take(moved, axis, axis=3) + plain
        places.append(reshaped(found, (batch * groups, product((elements, *space)))))
    flat = reshaped(data, (batch * groups, channels // groups, product(extents)))
    taps = itertools.product(range(2), repeat=2)
    sampled = functools.reduce(operator.add, (_taken(flat, extents, places, tap, GridSampleAttrs()) for tap in taps))
    sampled = reshaped(sampled, (batch, groups, channels // groups, elements, product(space)))
    if mask:
        sampled = sampled * reshaped(mask[0], (batch, groups, 1, elements, product(space)))
    taken = reshaped(sampled, (batch, attrs.groups, product(weight.shape[1:]), product(space)))
    kernel = reshaped(weight, (attrs.groups, weight.shape[0] // attrs.groups, product(weight.shape[1:])))
    return calls.cast(reshaped(calls.matmul(kernel, taken), call.shape), dtype=call.dtype)


def _numbers(count: Dim) -> Expr:
    return call_operator("arange", start=0, stop=count, step=1, dtype=INT64)


@register_composition("nn.roi_align")
def roi_align(call: Call) -> Expr:
    """Gather the four pixels around each sample, and pool those of a bin."""
    (data, rois, batch), attrs = call.args, call.attrs
    if not attrs.sampling_ratio:
        raise unsupported(call, "samples whose number depends on the regions (sampling_ratio 0)")
    wide = compute_type(data.dtype)
    images, channels, *extents = data.shape
    regions, ratio = rois.shape[0], attrs.sampling_ratio
    samples = [_bin_samples(calls.cast(rois, dtype=wide), n, extents[n], attrs) for n in range(2)]
    flat = reshaped(
        calls.transpose(calls.cast(data, dtype=wide), axes=(1, 0, 2, 3)), (channels, product((images, *extents)))
    )
    image = reshaped(_clamped(calls.cast(batch, dtype=INT64), images), (regions, 1, 1))
    values = []
    for (y, share_y), (x, share_x) in itertools.product(samples[0].pixels, samples[1].pixels):
        rows, columns = calls.expand_dims(y, axis=2), calls.expand_dims(x, axis=1)
        index = (image * _length(extents[0]) + rows) * _length(extents[1]) + columns
        pixels = calls.take(flat, index, axis=1)
        values.append(pixels * (calls.expand_dims(share_y, axis=2) * calls.expand_dims(share_x, axis=1)))
    is_mean = attrs.method == "avg"
    combine = operator.add if is_mean else functools.partial(call_operator, "maximum")
    inside = calls.expand_dims(samples[0].inside, axis=2) & calls.expand_dims(samples[1].inside, axis=1)
    found = calls.where(inside, functools.reduce(combine, values), 0.0)
    height, width = attrs.output_size
    bins = reshaped(found, (channels, regions, height, ratio, width, ratio))
    pooled = (calls.mean if is_mean else calls.max)(bins, axis=(3, 5))
    return calls.cast(calls.transpose(pooled, axes=(1, 0, 2, 3)), dtype=call.dtype)


@dataclasses.dataclass(frozen=True)
class _Samples:
    """Samples along an axis, ``[regions, samples]``: whether each is inside, and two pixels with their weights."""

    inside: Expr
    pixels: tuple[tuple[Expr, Expr], ...]


def _bin_samples(rois: Expr, n: int, extent: Dim, attrs: Any) -> _Samples:
    """Return the samples of all bins along axis ``n`` (0: height) of each region."""
    ratio, bins = attrs.sampling_ratio, attrs.output_size[n]
    begin, end = (
        calls.slice(rois, begin=(place,), end=(place + 1,), axes=(1,)) * attrs.spatial_scale
        - (0.5 if attrs.aligned else 0.0)
        for place in (1 - n, 3 - n)
    )
    size = (end - begin if attrs.aligned else call_operator("maximum", end - begin, 1.0)) / bins
    numbers = _numbers(bins * ratio)
    number, within = (
        calls.cast(call_operator(name, numbers, ratio), dtype=rois.dtype) for name in ("floor_divide", "floor_mod")
    )
    place = begin + number * size + (within + 0.5) * (size / ratio)
    last = count_of((extent,), rois.dtype, less=1)
    inner = call_operator("maximum", call_operator("minimum", place, last), 0.0)
    low = _clamped(calls.cast(call_operator("floor", inner), dtype=INT64), extent)
    share = inner - calls.cast(low, dtype=rois.dtype)
    inside = (place >= -1.0) & (place <= last + 1.0)
    return _Samples(inside, ((low, 1.0 - share), (_clamped(low + 1, extent), share)))


def _length(extent: Dim) -> Any:
    return extent if isinstance(extent, int) else count_of((extent,), INT64)


def _clamped(index: Expr, extent: Dim) -> Expr:
    return call_operator("maximum", call_operator("minimum", index, _length(extent) - 1), 0)


def _taken(
    flat: Expr, extents: Sequence[Dim], places: list[Expr], taps: tuple[int, ...], attrs: GridSampleAttrs
) -> Expr:
    """Return what one of the pixels around each place adds to its sample: ``[n, channels, places]``."""
    index: Any = 0
    weight: Expr | None = None
    inside: Expr | None = None
    for extent, place, tap in zip(extents, places, taps, strict=True):
        base = call_operator("floor", place)
        found = calls.cast(base, dtype=INT64) + tap
        length = _length(extent)
        if attrs.padding_mode == "zeros":
            within = (found >= 0) & (found < length)
            inside = within if inside is None else inside & within
        index = index * length + _inner(found, length, attrs)
        if attrs.method != "nearest":
            share = weight_of(tap, place - base, attrs.method)
            weight = share if weight is None else weight * share
    shape = (*flat.shape[:2], places[0].shape[1])
    found = call_operator(
        "gather_elements", flat, calls.broadcast_to(calls.expand_dims(index, axis=1), shape=shape), axis=2
    )
    if weight is not None:
        found = found * calls.expand_dims(weight, axis=1)
    return found if inside is None else calls.where(calls.expand_dims(inside, axis=1), found, 0.0)


def _inner(index: Expr, length: Any, attrs: GridSampleAttrs) -> Expr:
    """Move the index of a pixel onto the image."""
    if attrs.padding_mode == "reflection":
        period = call_operator("maximum", length * 2 - (2 if attrs.align_corners else 0), 1)
        index = call_operator("floor_mod", index, period)
        index = call_operator("minimum", index, length * 2 - (2 if attrs.align_corners else 1) - index)
    return call_operator("maximum", call_operator("minimum", index, length - 1), 0)


def _chosen(condition: Any, a: Any, b: Any) -> Any:
    return (a if condition else b) if isinstance(condition, bool) else calls.where(condition, a, b)
