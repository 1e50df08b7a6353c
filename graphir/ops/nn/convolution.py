"""Define the base of convolutions in one, two and three spatial dimensions, in plain and in blocked layouts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.dims import Dim, as_dim, dim_equal, simplify
from tilewright.graphir.expr import Call
from tilewright.graphir.layout import parse_layout
from tilewright.graphir.layout_rewrite import reshape
from tilewright.graphir.op import Operator
from tilewright.graphir.ops.calls import multiply, pad
from tilewright.graphir.ops.common import compute_type, normalize
from tilewright.graphir.ops.layout_transform import change_layout
from tilewright.graphir.ops.narrow import ConvolutionSums
from tilewright.graphir.ops.nn.channel_blocks import ChannelAxes, channel_at, channel_block, group_block, place_of
from tilewright.graphir.ops.nn.window import is_padded, margins, pad_image, per_axis, window_count
from tilewright.graphir.ops.sums import narrowed_sum, product_dtype, sum_dtype, widened_factors
from tilewright.graphir.traits import LayoutChoice
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.errors import ArgumentValueError
from tilewright.tensorir.expr import Var, as_expr, cast
from tilewright.tensorir.target import Target
from tilewright.tensorir.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class ConvolutionAttrs:
    """The steps of the window and the layouts of the tensors. Below, for an image; a row has no ``H``, and a volume has
    a depth ``D`` before it.

    Attributes:
        strides: the steps of the window, for height and width.
        padding: zeros around the image: one size, (height, width), or (top, left, bottom, right); integers, or
            expressions over symbolic dimensions.
        dilation: the distance between pixels in a window.
        groups: independent groups of channels; as many as channels for a depthwise convolution.
        data_layout: ``NCHW``, ``NHWC``, or blocked as ``NCHW16c``.
        kernel_layout: ``OIHW``, ``HWIO``, or blocked as ``OIHW16i16o``.
        out_layout: the layout of the result; by default ``data_layout``.
        channels: the number of input channels of blocked data whose last block is partly filled: the elements behind
            them are never read. 0: all.
        pad_value: the value of the border: the zero point of quantized data.
        out_dtype: ``int32`` for data and weight of narrower integers, perhaps of two types, ``float32`` for those of
            half types; None: all have one type.
    """

    #: The spatial axes, outermost first.
    space: ClassVar[str]

    strides: Any = 1
    padding: Any = 0
    dilation: Any = 1
    groups: int = 1
    data_layout: str = ""
    kernel_layout: str = ""
    out_layout: str = ""
    channels: int = 0
    pad_value: int = 0
    out_dtype: DataType | None = None

    def __post_init__(self) -> None:
        rank = len(self.space)
        normalize(
            self,
            strides=per_axis(self.strides, "strides", rank),
            padding=margins(self.padding, "padding", rank),
            dilation=per_axis(self.dilation, "dilation", rank),
            out_layout=self.out_layout or self.data_layout,
            out_dtype=sum_dtype(self.out_dtype),
        )
        if type(self.groups) is not int or self.groups < 1:
            raise ArgumentValueError(f"groups: expected a positive integer, found {self.groups!r}")
        for name, plain in zip(("data_layout", "kernel_layout", "out_layout"), self.plain_layouts, strict=True):
            given = getattr(self, name)
            if given == plain:
                continue
            layout = parse_layout(given)
            blocked = {axis for axis, size in layout.axes if size}
            if sorted(layout.primal) != sorted(plain) or blocked - set("COI"):
                raise ArgumentValueError(
                    f"{name}: expected a layout of the axes {plain} with blocks of channels, found {layout}"
                )

    @property
    def plain_layouts(self) -> tuple[str, str, str]:
        """The layouts of data, weight and result with no blocks and with channels before space."""
        return f"NC{self.space}", f"OI{self.space}", f"NC{self.space}"

    @property
    def layouts(self) -> tuple[str, str, str]:
        """The layouts of data, weight and result."""
        return self.data_layout, self.kernel_layout, self.out_layout


class Convolution(Operator):
    """Base of convolutions of ``data`` with ``weight``, whose attributes are a :class:`ConvolutionAttrs`.

    In a blocked layout channels are whole blocks. Elements of the last block of data behind ``channels`` do not matter;
    if the last block of weight is padded with zeros, the result's is too.
    """

    arguments = ("data", "weight")
    kind = "contraction"
    bounded_reference = False

    def infer_type(self, args: Sequence[TensorType], attrs: ConvolutionAttrs) -> TensorType:
        data, weight = args
        dtype = product_dtype(self, args, attrs.out_dtype)
        layouts = parse_layout(attrs.data_layout), parse_layout(attrs.kernel_layout)
        for number, layout in enumerate(layouts):
            if not layout.matches(args[number].shape):
                raise self.error(number, f"a tensor in layout {layout} ({layout.ndim} dimensions)", args[number])
        image, kernel = layouts[0].extents(data.shape), layouts[1].extents(weight.shape)
        if not dim_equal(kernel["I"] * attrs.groups, image["C"]):
            expected = f"{simplify(as_dim(image['C']) // attrs.groups)} input channels (of {image['C']} in data"
            groups = f" in {attrs.groups} groups" if attrs.groups > 1 else ""
            raise self.error(1, f"{expected}{groups})", f"{kernel['I']} in {weight}")
        if attrs.groups > 1 and not (isinstance(kernel["O"], int) and kernel["O"] % attrs.groups == 0):
            raise self.error(1, f"a number of output channels divisible by {attrs.groups} groups", kernel["O"])
        extents = {"N": image["N"], "C": kernel["O"]}
        for n, axis in enumerate(attrs.space):
            padding = attrs.padding[n], attrs.padding[n + len(attrs.space)]
            count = window_count(self, image[axis], kernel[axis], attrs.strides[n], attrs.dilation[n], padding)
            extents[axis] = count
        if attrs.channels and attrs.groups > 1:
            raise self.error("channels", "0 for groups of channels", attrs.channels)
        if attrs.channels and isinstance(image["C"], int):
            least = image["C"] - layouts[0].block("C") + 1
            if not least <= attrs.channels <= image["C"]:
                raise self.error("channels", f"{least} to {image['C']}, which is in the last block", attrs.channels)
        target = parse_layout(attrs.out_layout)
        shape = target.shape(extents)
        if not dim_equal(target.extents(shape)["C"], kernel["O"]):
            raise self.error("out_layout", f"blocks that divide {kernel['O']} output channels", target)
        return TensorType(shape, dtype)

    def reference(self, args: Sequence[Any], attrs: ConvolutionAttrs) -> Any:
        wide = widened_factors(args, attrs.out_dtype)
        plain = attrs.plain_layouts
        data = change_layout(wide[0], attrs.data_layout, plain[0])
        weight = change_layout(wide[1], attrs.kernel_layout, plain[1])
        if attrs.channels:
            data, weight = data[:, : attrs.channels], weight[:, : attrs.channels]
        rank = len(attrs.space)
        border = [(0, 0), (0, 0), *zip(attrs.padding[:rank], attrs.padding[rank:], strict=True)]
        data = np.pad(data, border, constant_values=attrs.pad_value)
        (n, _, *space), (o, i, *window) = data.shape, weight.shape
        moves = list(zip(attrs.strides, attrs.dilation, strict=True))
        made = [
            (extent - (size - 1) * d - 1) // s + 1 for extent, size, (s, d) in zip(space, window, moves, strict=True)
        ]
        result = np.zeros((n, attrs.groups, o // attrs.groups, *made), data.dtype)
        grouped = data.reshape(n, attrs.groups, i, *space)
        kernel = weight.reshape(attrs.groups, o // attrs.groups, i, *window)
        for at in np.ndindex(*window):
            taken = [
                slice(k * d, k * d + (count - 1) * s + 1, s) for k, count, (s, d) in zip(at, made, moves, strict=True)
            ]
            pixels: Any = (..., *taken)
            factor: Any = (..., *at)
            result += np.einsum("ngi...,goi->ngo...", grouped[pixels], kernel[factor], dtype=result.dtype)
        out = change_layout(result.reshape(n, o, *made), plain[2], attrs.out_layout)
        return narrowed_sum(out, args[0], attrs.out_dtype)

    def channel_axis(self, argument: int, attrs: ConvolutionAttrs) -> int | None:
        layout = parse_layout(attrs.out_layout if argument == -1 else attrs.data_layout)
        return layout.position("C") if layout.block("C") == 1 else None

    def scale_weights(
        self, args: Sequence[GraphExpr], attrs: ConvolutionAttrs, scale: GraphExpr, of_result: bool
    ) -> list[GraphExpr] | None:
        data, weight = args
        kernel = parse_layout(attrs.kernel_layout)
        if kernel.ndim != len(kernel.primal) or attrs.out_dtype is not None:
            return None
        extents = kernel.extents(weight.shape)
        depthwise = attrs.groups == extents["O"] and extents["I"] == 1
        if not of_result and attrs.groups > 1 and not depthwise:
            return None  # the factors of a group's channels belong to that group's part of the weight
        axis = "O" if of_result or attrs.groups > 1 else "I"
        factors = reshape(scale, [scale.shape[0] if name == axis else 1 for name in kernel.primal])
        return [data, multiply(weight, factors)]

    def sum_of_products(self, args: Sequence[GraphExpr], attrs: ConvolutionAttrs) -> ConvolutionSums | None:
        return ConvolutionSums(self, args, attrs) if attrs.layouts == attrs.plain_layouts else None

    def prefer_layout(self, args: Sequence[GraphExpr], attrs: ConvolutionAttrs, lanes: int) -> LayoutChoice | str:
        plain = attrs.plain_layouts
        if attrs.layouts != plain:
            return f"its layouts are {', '.join(attrs.layouts)}, and not {', '.join(plain[:2])}"
        neighbours = 1
        if attrs.out_dtype is not None:
            machine = Target.current()
            lanes = machine.lanes(attrs.out_dtype)
            neighbours = machine.dot_products(args[0].dtype, args[1].dtype, attrs.out_dtype)
        if lanes == 1:
            return "a vector of the target has a single element"
        outputs, inputs = args[1].shape[:2]
        own = outputs // attrs.groups if isinstance(outputs, int) else outputs
        depthwise = attrs.groups > 1 and dim_equal(outputs, attrs.groups) and dim_equal(inputs, 1)
        grouped = f" in each of {attrs.groups} groups" if attrs.groups > 1 and not depthwise else ""
        block_of = group_block if grouped else channel_block
        made = block_of(outputs if depthwise else own, lanes)
        if made is None:
            fault = "are too few for" if isinstance(own, int) and not grouped else "do not fill"
            return f"{own} output channels{grouped} {fault} blocks of {lanes}"
        result = f"{plain[0]}{made}c"
        read = block_of(inputs, lanes)
        if depthwise:
            blocked = (result, f"{plain[1]}{made}o", result)  # each lane is a channel of its own
        elif read is not None:
            kernel = f"{plain[1]}{read}i{made}o"
            if neighbours > 1 and inputs % read == 0 and read % neighbours == 0:
                # Channels whose products one instruction adds are contiguous.
                kernel = f"{plain[1]}{read // neighbours}i{made}o{neighbours}i"
            blocked = (f"{plain[0]}{read}c", kernel, result)
        elif attrs.groups > 1:
            return f"{inputs} input channels{grouped} do not fill blocks of {lanes}"
        else:
            blocked = (plain[0], f"{plain[1]}{made}o", result)  # an image's few channels stay as they are
        names: dict[str, Any] = dict(zip(("data_layout", "kernel_layout", "out_layout"), blocked, strict=True))
        if depthwise:
            names["groups"] = -(-attrs.groups // made) * made
        elif read is not None and inputs % read:
            names["channels"] = inputs
        return LayoutChoice(plain, blocked, dataclasses.replace(attrs, **names))

    def padded_outside(self, args: Sequence[GraphExpr], attrs: ConvolutionAttrs) -> GraphExpr | None:
        if not is_padded(attrs.padding):
            return None
        layout = parse_layout(attrs.data_layout)
        widths: list[tuple[Dim, Dim]] = [(0, 0)] * layout.ndim
        rank = len(attrs.space)
        for axis, before, behind in zip(attrs.space, attrs.padding[:rank], attrs.padding[rank:], strict=True):
            widths[layout.position(axis)] = (before, behind)
        around = pad(args[0], pad_width=tuple(widths), pad_value=attrs.pad_value)
        bare = dataclasses.replace(attrs, padding=0, pad_value=0)
        return Call(self, (around, args[1]), bare)

    def compute(self, args: Sequence[Tensor], attrs: ConvolutionAttrs, out: TensorType) -> Tensor:
        data, weight = args
        source, kernel = parse_layout(attrs.data_layout), parse_layout(attrs.kernel_layout)
        target = parse_layout(attrs.out_layout)
        wide = compute_type(out.dtype)
        extents = kernel.extents([as_dim(extent) for extent in weight.shape])
        image = pad_image(data, [source.position(axis) for axis in attrs.space], attrs.padding, attrs.pad_value)
        if attrs.channels:
            extents["I"] = attrs.channels
        channels = ChannelAxes(extents, source, kernel, attrs.groups)
        window = {axis: te.reduce_axis(as_expr(extents[axis]), f"k{axis.lower()}") for axis in attrs.space}

        def element(*place: Var) -> te.Reduction:
            at = target.logical(place)
            made = channel_at(target, place, at["C"])
            pixel = {"N": at["N"], "C": channels.of_group(made, extents["O"])}
            for axis, stride, distance in zip(attrs.space, attrs.strides, attrs.dilation, strict=True):
                pixel[axis] = at[axis] * stride + window[axis] * distance
            weighed = {"O": made, "I": channels.within, **window}
            value = cast(wide, image[place_of(source, pixel)]) * cast(wide, weight[place_of(kernel, weighed)])
            return te.sum(value, axis=[*channels.outer, *window.values(), *channels.inner])

        result = te.compute(out.shape, element, name=self.__name__)
        if wide is out.dtype:
            return result
        return te.compute(out.shape, lambda *place: cast(out.dtype, result[place]), name=f"{self.__name__}_cast")
