"""Convert operators on images: resizing, sampling, and moving pixels between channels and space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.graphir.dims import Dim, simplify
from tilewright.graphir.expr import Expr
from tilewright.graphir.frontend.torch.converters.axis_maps import resized_plane
from tilewright.graphir.frontend.torch.node import Node, reshaped, shape_of
from tilewright.graphir.frontend.torch.registry import converter
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import transpose
from tilewright.graphir.vjp import vjp

_RANKS = {"1d": 1, "2d": 2, "3d": 3}


def _rank(overload: str) -> int:
    return next(rank for name, rank in _RANKS.items() if name in overload)


def _resized(node: Node, x: Expr, method: str, mode: str, scales: Sequence[Any] | None = None, **attrs: Any) -> Expr:
    """Resize the axes of space to the result's sizes; known factors decide where elements come from."""
    rank = len(shape_of(x)) - 2
    size = node.shape[2:]
    known = scales is not None and all(isinstance(scale, (int, float)) and scale > 0 for scale in scales)
    given = {"scale": tuple(float(scale) for scale in scales)} if known and scales is not None else {}
    return get_operator("nn.resize")(
        x, size=size, axes=tuple(range(2, 2 + rank)), method=method, coordinate_mode=mode, **given, **attrs
    )


@converter(*(f"aten.upsample_nearest{rank}.vec" for rank in _RANKS))
@converter(*(f"aten._upsample_nearest_exact{rank}.vec" for rank in _RANKS))
def resize_nearest(node: Node, x: Expr, size: Any, scales: Sequence[float] | None) -> Expr:
    """Resize to the nearest elements; exactly, or by rounding down as PyTorch always did."""
    return _nearest(node, x, scales)


@converter(*(f"aten.upsample_nearest{rank}.default" for rank in _RANKS))
@converter(*(f"aten._upsample_nearest_exact{rank}.default" for rank in _RANKS))
def resize_nearest_to(node: Node, x: Expr, size: Any, *scales: Any) -> Expr:
    """Resize to the nearest elements of a given size."""
    return _nearest(node, x, None if any(scale is None for scale in scales) else scales)


def _nearest(node: Node, x: Expr, scales: Sequence[Any] | None) -> Expr:
    if "exact" in node.label:
        return _resized(node, x, "nearest", "half_pixel", scales, rounding="round_prefer_ceil")
    return _resized(node, x, "nearest", "asymmetric", scales, rounding="floor")


_LINEAR = {"upsample_linear1d": "linear", "upsample_bilinear2d": "linear", "upsample_trilinear3d": "linear"}
_SMOOTH = {**_LINEAR, "upsample_bicubic2d": "cubic"}


def _register_smooth(overload: str, method: str, antialias: bool) -> None:
    def by_vector(node: Node, x: Expr, size: Any, align_corners: bool, scales: Sequence[float] | None) -> Expr:
        return _smooth(node, x, method, align_corners, scales, antialias)

    def by_size(node: Node, x: Expr, size: Any, align_corners: bool, *scales: Any) -> Expr:
        known = None if any(scale is None for scale in scales) else scales
        return _smooth(node, x, method, align_corners, known, antialias)

    by_vector.__qualname__, by_size.__qualname__ = f"{overload}_by_vector", f"{overload}_by_size"
    converter(f"aten.{overload}.vec")(by_vector)
    converter(f"aten.{overload}.default")(by_size)


for _overload, _method in _SMOOTH.items():
    _register_smooth(_overload, _method, antialias=False)
for _overload in ("upsample_bilinear2d", "upsample_bicubic2d"):
    _register_smooth(f"_{_overload}_aa", _SMOOTH[_overload], antialias=True)


def _smooth(node: Node, x: Expr, method: str, align: bool, scales: Sequence[Any] | None, antialias: bool) -> Expr:
    if antialias and align:  # PyTorch's filter has another width than that of ONNX, whose operator it is
        return resized_plane(node, x, node.label.partition(" ")[0].rpartition(".")[0], True, scales)
    mode = "align_corners" if align else "half_pixel"
    extra: dict[str, Any] = {"antialias": True, "exclude_outside": True} if antialias else {}
    if method == "cubic":
        extra["cubic_coeff"] = -0.5 if antialias else -0.75
    return _resized(node, x, method, mode, scales, **extra)


_METHODS = ("linear", "nearest", "cubic")
_BORDERS = ("zeros", "border", "reflection")


@converter("aten.grid_sampler.default", "aten.grid_sampler_2d.default", "aten.grid_sampler_3d.default")
def grid_sample(node: Node, x: Expr, grid: Expr, method: int, border: int, align_corners: bool) -> Expr:
    """Sample at places between the elements."""
    return _sampled(x, grid, method, border, align_corners)


def _sampled(x: Expr, grid: Expr, method: int, border: int, align_corners: bool) -> Expr:
    padding = "edge" if _BORDERS[border] == "border" else _BORDERS[border]
    attrs = {"method": _METHODS[method], "padding_mode": padding, "align_corners": bool(align_corners)}
    return get_operator("nn.grid_sample")(x, grid, **attrs)


@converter("aten.grid_sampler_2d_backward.default", "aten.grid_sampler_3d_backward.default")
def grid_sample_backward(
    node: Node,
    grad: Expr,
    x: Expr,
    grid: Expr,
    method: int,
    border: int,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> list[Expr | None]:
    """Return the gradients of the elements and of the places."""
    found = vjp(_sampled(x, grid, method, border, align_corners), [x, grid], grad)
    return [each if wanted else None for each, wanted in zip(found, output_mask, strict=True)]


@converter("aten.pixel_shuffle.default")
def pixel_shuffle(node: Node, x: Expr, factor: int) -> Expr:
    """Move blocks of channels to blocks of pixels."""
    *before, channels, height, width = shape_of(x)
    deep = simplify(channels // (factor * factor))
    parts = reshaped(x, (*before, deep, factor, factor, height, width))
    n = len(before)
    moved = transpose(parts, axes=(*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return reshaped(moved, node.shape)


@converter("aten.pixel_unshuffle.default")
def pixel_unshuffle(node: Node, x: Expr, factor: int) -> Expr:
    """Move blocks of pixels to blocks of channels."""
    *before, channels, _, _ = shape_of(x)
    rows: Dim = node.shape[-2]
    columns: Dim = node.shape[-1]
    parts = reshaped(x, (*before, channels, rows, factor, columns, factor))
    n = len(before)
    moved = transpose(parts, axes=(*range(n), n, n + 2, n + 4, n + 1, n + 3))
    return reshaped(moved, node.shape)


@converter("aten.channel_shuffle.default", "aten.native_channel_shuffle.default")
def channel_shuffle(node: Node, x: Expr, groups: int) -> Expr:
    """Exchange groups of channels and channels of a group."""
    batch, channels, *space = shape_of(x)
    parts = reshaped(x, (batch, groups, simplify(channels // groups), *space))
    moved = transpose(parts, axes=(0, 2, 1, *range(3, 3 + len(space))))
    return reshaped(moved, node.shape)
