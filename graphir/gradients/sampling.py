"""Differentiate the sampling of images at places."""

from __future__ import annotations

import itertools
from typing import Any

from tilewright.graphir.base import call_operator
from tilewright.graphir.dims import Dim, product
from tilewright.graphir.expr import Call, Expr
from tilewright.graphir.gradient import register_composition
from tilewright.graphir.gradients.common import count_of, reshaped
from tilewright.graphir.ops import calls
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


def _taken(
    flat: Expr, extents: tuple[Dim, ...], places: list[Expr], taps: tuple[int, ...], attrs: GridSampleAttrs
) -> Expr:
    """Return what one of the pixels around each place adds to its sample: ``[n, channels, places]``."""
    index: Any = 0
    weight: Expr | None = None
    inside: Expr | None = None
    for extent, place, tap in zip(extents, places, taps, strict=True):
        base = call_operator("floor", place)
        found = calls.cast(base, dtype=INT64) + tap
        length: Any = extent if isinstance(extent, int) else count_of((extent,), INT64)
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
