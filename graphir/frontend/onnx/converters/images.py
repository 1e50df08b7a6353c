"""Convert operators on images: resizing, padding, sampling, and moves between pixels and channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.base import call_operator
from tilewright.graphir.dims import Dim
from tilewright.graphir.expr import Expr
from tilewright.graphir.frontend.onnx.node import Node
from tilewright.graphir.frontend.onnx.registry import converter

# Borders.


def _pad(node: Node, pads: Sequence[Dim], value: Any, axes: Sequence[int] | None = None) -> Expr:
    ndim = node.type(0).ndim
    chosen = [node.checked_axis(axis, ndim, "axes") for axis in (range(ndim) if axes is None else axes)]
    if len(pads) != 2 * len(chosen):
        raise node.wrong(f"expected {2 * len(chosen)} pads for {len(chosen)} axes, found {len(pads)}")
    width: list[tuple[Dim, Dim]] = [(0, 0)] * ndim
    for number, axis in enumerate(chosen):
        width[axis] = (pads[number], pads[number + len(chosen)])
    mode = node.attribute("mode", "constant")
    dtype = node.type(0).dtype
    filled = float(value) if dtype.is_float else int(value)
    return call_operator("pad", node[0], pad_width=tuple(width), mode=mode, pad_value=filled)


@converter("Pad")
def pad_1(node: Node) -> Expr:
    return _pad(node, node.attribute("paddings") or node.required("pads"), node.attribute("value", 0.0))


@converter("Pad", since=2)
def pad_2(node: Node) -> Expr:
    return _pad(node, node.required("pads"), node.attribute("value", 0.0))


@converter("Pad", since=11)
def pad_11(node: Node) -> Expr:
    given = node.optional_constant(2)
    value = 0 if given is None or given.size == 0 else given.reshape(-1)[0]
    return _pad(node, node.dims(1), value, None if node.optional(3) is None else node.integers(3))


# Resizing.

_METHODS = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "cubic": "cubic"}


def _method(node: Node) -> str:
    mode = node.attribute("mode", "nearest")
    if mode not in _METHODS:
        raise node.unsupported(f"mode {mode!r}")
    return _METHODS[mode]


def _scales(node: Node, values: Any, **attrs: Any) -> Expr:
    """Resize by scales with the coordinates of operators before there were coordinate modes."""
    old = {"coordinate_mode": "asymmetric", "rounding": "floor"}
    scales = tuple(float(value) for value in np.reshape(values, -1))
    return call_operator("nn.resize", node[0], scale=scales, method=_method(node), **{**old, **attrs})


@converter("Upsample", since=7)
def upsample_7(node: Node) -> Expr:
    return _scales(node, node.required("scales"))


@converter("Upsample", since=9)
@converter("Resize", since=10)
def upsample_9(node: Node) -> Expr:
    return _scales(node, node.constant(1))


@converter("Resize", since=11)
def resize_11(node: Node) -> Expr:
    mode = node.attribute("coordinate_transformation_mode", "half_pixel")
    attrs: dict[str, Any] = {
        "method": _method(node),
        "axes": node.attribute("axes"),
        "coordinate_mode": mode,
        "rounding": node.attribute("nearest_mode", "round_prefer_floor"),
        "cubic_coeff": node.attribute("cubic_coeff_a", -0.75),
        "exclude_outside": bool(node.attribute("exclude_outside", 0)),
        "antialias": bool(node.attribute("antialias", 0)),
        "extrapolation_value": node.attribute("extrapolation_value", 0.0),
        "keep_aspect_ratio": node.attribute("keep_aspect_ratio_policy", "stretch"),
    }
    if mode == "tf_crop_and_resize":
        attrs["roi"] = tuple(float(value) for value in node.constant(1).reshape(-1))
    scales = node.optional(2)
    if scales is not None and node.shape(2) != (0,):
        attrs["scale"] = tuple(float(value) for value in node.constant(2).reshape(-1))
    else:
        attrs["size"] = node.dims(3)
    return call_operator("nn.resize", node[0], **attrs)


# Sampling.


@converter("GridSample", since=16)
def grid_sample_16(node: Node) -> Expr:
    mode = node.attribute("mode", "bilinear" if node.opset < 20 else "linear")
    known = {"bilinear": "linear", "bicubic": "cubic", "linear": "linear", "cubic": "cubic", "nearest": "nearest"}
    if mode not in known:
        raise node.unsupported(f"mode {mode!r}")
    return call_operator(
        "nn.grid_sample",
        node[0],
        node[1],
        method=known[mode],
        padding_mode=node.attribute("padding_mode", "zeros"),
        align_corners=bool(node.attribute("align_corners", 0)),
    )


def _roi_align(node: Node, aligned: bool) -> Expr:
    return call_operator(
        "nn.roi_align",
        node[0],
        node[1],
        node[2],
        output_size=(node.attribute("output_height", 1), node.attribute("output_width", 1)),
        spatial_scale=node.attribute("spatial_scale", 1.0),
        sampling_ratio=node.attribute("sampling_ratio", 0),
        method=node.attribute("mode", "avg"),
        aligned=aligned,
    )


@converter("RoiAlign", since=10)
def roi_align_10(node: Node) -> Expr:
    return _roi_align(node, aligned=False)


@converter("RoiAlign", since=16)
def roi_align_16(node: Node) -> Expr:
    return _roi_align(node, node.attribute("coordinate_transformation_mode", "half_pixel") == "half_pixel")


# Pixels and channels.


@converter("DepthToSpace")
def depth_to_space(node: Node) -> Expr:
    mode = node.attribute("mode", "DCR")
    return call_operator("nn.depth_to_space", node[0], block_size=node.required("blocksize"), mode=mode)


@converter("SpaceToDepth")
def space_to_depth(node: Node) -> Expr:
    mode = node.attribute("mode", "DCR")
    return call_operator("nn.space_to_depth", node[0], block_size=node.required("blocksize"), mode=mode)


@converter("Col2Im", since=18)
def col2im_18(node: Node) -> Expr:
    return call_operator(
        "nn.col2im",
        node[0],
        image_shape=node.dims(1),
        block_shape=node.integers(2),
        strides=node.attribute("strides"),
        padding=node.attribute("pads"),
        dilation=node.attribute("dilations"),
    )
