"""Define convolution in one, two and three spatial dimensions."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.base import call_operator
from tilewright.graphir.layout import parse_layout
from tilewright.graphir.op import register_operator
from tilewright.graphir.ops.calls import expand_dims, squeeze
from tilewright.graphir.ops.nn.convolution import Convolution, ConvolutionAttrs


@dataclasses.dataclass(frozen=True)
class Conv1dAttrs(ConvolutionAttrs):
    """As :class:`ConvolutionAttrs`, along one dimension."""

    space = "W"

    strides: Any = (1,)
    padding: Any = (0, 0)
    dilation: Any = (1,)
    data_layout: str = "NCW"
    kernel_layout: str = "OIW"


@register_operator
class conv1d(Convolution):
    """Convolve rows: ``out[n, o, x] = sum(data[n, c, x*s + i*d - p] * weight[o, c, i])``, as for an image of height
    1."""

    name = "nn.conv1d"
    Attrs = Conv1dAttrs

    def decompose(self, args: Sequence[GraphExpr], attrs: Conv1dAttrs) -> GraphExpr:
        lines = [parse_layout(layout).position("W") for layout in attrs.layouts]
        data, weight = [expand_dims(arg, axis=line) for arg, line in zip(args, lines[:2], strict=True)]
        before, behind = attrs.padding
        names = ("data_layout", "kernel_layout", "out_layout")
        result = call_operator(
            "nn.conv2d",
            data,
            weight,
            strides=(1, *attrs.strides),
            padding=(0, before, 0, behind),
            dilation=(1, *attrs.dilation),
            groups=attrs.groups,
            channels=attrs.channels,
            pad_value=attrs.pad_value,
            out_dtype=attrs.out_dtype,
            **{name: layout.replace("W", "HW") for name, layout in zip(names, attrs.layouts, strict=True)},
        )
        return squeeze(result, axis=lines[2])

    def simplify_inference(self, args: Sequence[GraphExpr], attrs: Conv1dAttrs) -> GraphExpr:
        return self.decompose(args, attrs)


@dataclasses.dataclass(frozen=True)
class Conv2dAttrs(ConvolutionAttrs):
    """As :class:`ConvolutionAttrs`, along height and width."""

    space = "HW"

    strides: Any = (1, 1)
    padding: Any = (0, 0)
    dilation: Any = (1, 1)
    data_layout: str = "NCHW"
    kernel_layout: str = "OIHW"


@register_operator
class conv2d(Convolution):
    """Convolve images: ``out[n, o, y, x] = sum(data[n, c, y*s + i*d - p, x*s + j*d - p] * weight[o, c, i, j])`` over
    the channels ``c`` of the group of ``o`` and the window ``i, j``. Half types accumulate in float32."""

    name = "nn.conv2d"
    Attrs = Conv2dAttrs


@dataclasses.dataclass(frozen=True)
class Conv3dAttrs(ConvolutionAttrs):
    """As :class:`ConvolutionAttrs`, along depth, height and width."""

    space = "DHW"

    strides: Any = (1, 1, 1)
    padding: Any = (0, 0, 0)
    dilation: Any = (1, 1, 1)
    data_layout: str = "NCDHW"
    kernel_layout: str = "OIDHW"


@register_operator
class conv3d(Convolution):
    """Convolve volumes: ``out[n, o, z, y, x] = sum(data[n, c, z*s + h*d - p, y*s + i*d - p, x*s + j*d - p] * weight[o,
    c, h, i, j])`` over the channels ``c`` of the group of ``o`` and the window. Half types accumulate in float32."""

    name = "nn.conv3d"
    Attrs = Conv3dAttrs
