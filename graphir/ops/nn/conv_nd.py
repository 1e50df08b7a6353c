"""Convolution in one and in three spatial dimensions; that of images is ``nn.conv2d``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.base import call_operator
from tilewright.graphir.dims import Dim, as_dim, dim_equal, simplify
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.calls import expand_dims, squeeze
from tilewright.graphir.ops.common import NUMBERS, check_dtype, compute_type, normalize, same_dtype, widened
from tilewright.graphir.ops.nn.window import Windows, margins, pad_image, per_axis, window_count
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import Expr, Var, cast
from tilewright.tensorir.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class ConvAttrs:
    """How the window moves.

    Attributes:
        strides: of the window, along each spatial dimension.
        padding: zeros around the data: one size, one for each dimension, or those before each and then behind each;
            integers, or expressions over symbolic dimensions.
        dilation: distance of the elements in a window.
        groups: independent groups of channels; as many as channels for a depthwise convolution.
    """

    rank: ClassVar[int]

    strides: Any = 1
    padding: Any = 0
    dilation: Any = 1
    groups: int = 1

    def __post_init__(self) -> None:
        normalize(
            self,
            strides=per_axis(self.strides, "strides", self.rank),
            padding=margins(self.padding, "padding", self.rank),
            dilation=per_axis(self.dilation, "dilation", self.rank),
        )
        if type(self.groups) is not int or self.groups < 1:
            raise ValueError(f"groups: expected a positive integer, found {self.groups!r}")


class Conv(Operator):
    """Base of convolutions of ``data`` (batch, channels, space) with ``weight`` (outputs, inputs per group, window)."""

    arguments = ("data", "weight")
    kind = "contraction"
    bounded_reference = False

    def infer_type(self, args: Sequence[TensorType], attrs: Any) -> TensorType:
        data, weight = args
        dtype = same_dtype(self, args)
        check_dtype(self, 0, data, NUMBERS)
        for number, arg in enumerate(args):
            if arg.ndim != attrs.rank + 2:
                raise self.error(number, f"a tensor with {attrs.rank + 2} dimensions", arg)
        outputs, inputs = weight.shape[:2]
        if not dim_equal(simplify(as_dim(inputs) * attrs.groups), data.shape[1]):
            expected = f"input channels that in {attrs.groups} groups make up the {data.shape[1]} of data"
            raise self.error(1, expected, f"{inputs} in {weight}")
        if attrs.groups > 1 and not (isinstance(outputs, int) and outputs % attrs.groups == 0):
            raise self.error(1, f"a number of output channels divisible by {attrs.groups} groups", outputs)
        space: list[Dim] = []
        for n in range(attrs.rank):
            padding = attrs.padding[n], attrs.padding[n + attrs.rank]
            extent, size = data.shape[n + 2], weight.shape[n + 2]
            space.append(window_count(self, extent, size, attrs.strides[n], attrs.dilation[n], padding))
        return TensorType((data.shape[0], outputs, *space), dtype)

    def channel_axis(self, argument: int, attrs: Any) -> int | None:
        return 1

    def reference(self, args: Sequence[Any], attrs: Any) -> Any:
        data, weight = widened(args[0]), widened(args[1])
        positions = tuple(range(2, data.ndim))
        windows = Windows(positions, weight.shape[2:], attrs.strides, attrs.padding, attrs.dilation)
        gathered = windows.gather(self, data, 0)
        batch, space = data.shape[0], gathered.shape[2:-1]
        made, taken = weight.shape[0] // attrs.groups, weight.shape[1]
        columns = gathered.reshape(batch, attrs.groups, taken, int(np.prod(space)), gathered.shape[-1])
        kernel = weight.reshape(attrs.groups, made, taken, gathered.shape[-1])
        result = np.einsum("ngisk,goik->ngos", columns, kernel, dtype=data.dtype)
        return result.reshape(batch, weight.shape[0], *space).astype(args[0].dtype, copy=False)


@dataclasses.dataclass(frozen=True)
class Conv1dAttrs(ConvAttrs):
    """As :class:`ConvAttrs`, along one dimension."""

    rank = 1


@register_operator
class conv1d(Conv):
    """Slides a window over rows: ``out[n, o, x] = sum(data[n, c, x*s + i*d - p] * weight[o, c, i])``. An image of
    height 1."""

    name = "nn.conv1d"
    Attrs = Conv1dAttrs

    def decompose(self, args: Sequence[GraphExpr], attrs: Conv1dAttrs) -> GraphExpr:
        data, weight = [expand_dims(arg, axis=2) for arg in args]
        before, behind = attrs.padding
        result = call_operator(
            "nn.conv2d",
            data,
            weight,
            strides=(1, *attrs.strides),
            padding=(0, before, 0, behind),
            dilation=(1, *attrs.dilation),
            groups=attrs.groups,
        )
        return squeeze(result, axis=2)

    def simplify_inference(self, args: Sequence[GraphExpr], attrs: Conv1dAttrs) -> GraphExpr:
        return self.decompose(args, attrs)


@dataclasses.dataclass(frozen=True)
class Conv3dAttrs(ConvAttrs):
    """As :class:`ConvAttrs`, along depth, height and width."""

    rank = 3


@register_operator
class conv3d(Conv):
    """Slides a window over volumes: ``out[n, o, z, y, x] = sum(data[n, c, z*s + h*d - p, y*s + i*d - p, x*s + j*d - p]
    * weight[o, c, h, i, j])`` over the channels ``c`` of the group of ``o`` and the window. Half types accumulate in
    float32."""

    name = "nn.conv3d"
    Attrs = Conv3dAttrs

    def compute(self, args: Sequence[Tensor], attrs: Conv3dAttrs, out: TensorType) -> Tensor:
        data, weight = args
        wide = compute_type(data.dtype)
        volume = pad_image(data, range(2, 5), attrs.padding, 0)
        taken = weight.shape[1]
        channel = te.reduce_axis(taken, "ic")
        window = [
            te.reduce_axis(extent, name) for extent, name in zip(weight.shape[2:], ("kd", "kh", "kw"), strict=True)
        ]
        outputs = out.shape[1]

        def element(*place: Var) -> te.Reduction:
            batch, made, *space = place
            own: Expr = channel
            if attrs.groups > 1:
                assert isinstance(outputs, int)
                own = made // (outputs // attrs.groups) * taken + channel
            at = [
                index * stride + k * distance
                for index, stride, k, distance in zip(space, attrs.strides, window, attrs.dilation, strict=True)
            ]
            value = cast(wide, volume(batch, own, *at)) * cast(wide, weight(made, channel, *window))
            return te.sum(value, axis=[channel, *window])

        result = te.compute(out.shape, element, name="conv3d")
        if wide is out.dtype:
            return result
        return te.compute(out.shape, lambda *place: cast(out.dtype, result[place]), name="conv3d_cast")
