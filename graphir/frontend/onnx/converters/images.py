"""Images: resizing, borders, sampling, and what moves between pixels and channels."""

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
    chosen = [axis % ndim for axis in (range(ndim) if axes is None else axes)]
    if len(pads) != 2 * len(chosen):
        raise node.unsupported(f"{len(pads)} pads for {len(chosen)} axes")
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
    """Resized by scales, as operators did before there were coordinate modes."""
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
