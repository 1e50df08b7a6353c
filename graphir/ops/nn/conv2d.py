"""Two-dimensional convolution, in plain and in blocked layouts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.dims import Dim, as_dim, dim_equal, simplify
from tilewright.graphir.expr import Call
from tilewright.graphir.layout import Layout, parse_layout
from tilewright.graphir.layout_rewrite import reshape
from tilewright.graphir.op import LayoutChoice, Operator, register_operator
from tilewright.graphir.ops.calls import multiply, pad
from tilewright.graphir.ops.common import compute_type, normalize
from tilewright.graphir.ops.layout_transform import change_layout
from tilewright.graphir.ops.nn.window import borders, is_padded, pad_image, pair, window_count
from tilewright.graphir.ops.sums import narrowed_sum, product_dtype, sum_dtype, widened_factors
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.expr import Expr, Var, as_expr, cast
from tilewright.tensorir.target import Target
from tilewright.tensorir.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class Conv2dAttrs:
    """How the window moves and how the tensors lie in memory.

    Attributes:
        strides: of the window, for height and width.
        padding: zeros around the image: one size, (height, width), or (top, left, bottom, right); integers, or
            expressions over symbolic dimensions.
        dilation: distance of the pixels in a window.
        groups: independent groups of channels; as many as channels for a depthwise convolution.
        data_layout: ``NCHW``, ``NHWC``, or blocked as ``NCHW16c``.
        kernel_layout: ``OIHW``, ``HWIO``, or blocked as ``OIHW16i16o``.
        out_layout: that of the result; by default ``data_layout``.
        channels: how many input channels data in blocks has, where the last block is not full: what is behind them is
            never read. 0: all.
        pad_value: what the border holds: the zero point of quantized data.
        out_dtype: ``int32`` for data and weight that are narrower integers, perhaps of two types, ``float32`` for those
            of half types; None: all have one type.
    """

    strides: Any = (1, 1)
    padding: Any = (0, 0)
    dilation: Any = (1, 1)
    groups: int = 1
    data_layout: str = "NCHW"
    kernel_layout: str = "OIHW"
    out_layout: str = ""
    channels: int = 0
    pad_value: int = 0
    out_dtype: DataType | None = None

    def __post_init__(self) -> None:
        normalize(
            self,
            strides=pair(self.strides, "strides"),
            padding=borders(self.padding),
            dilation=pair(self.dilation, "dilation"),
            out_layout=self.out_layout or self.data_layout,
            out_dtype=sum_dtype(self.out_dtype),
        )
        if type(self.groups) is not int or self.groups < 1:
            raise ValueError(f"groups: expected a positive integer, found {self.groups!r}")
        for name, axes in (("data_layout", "NCHW"), ("kernel_layout", "OIHW"), ("out_layout", "NCHW")):
            layout = parse_layout(getattr(self, name))
            blocked = {axis for axis, size in layout.axes if size}
            if sorted(layout.primal) != sorted(axes) or blocked - set("COI"):
                raise ValueError(
                    f"{name}: expected a layout of the axes {axes} with blocks of channels, found {layout}"
                )


@register_operator
class conv2d(Operator):
    """Slides a window over the image: ``out[n, o, y, x] = sum(data[n, c, y*s + i*d - p, x*s + j*d - p] *
    weight[o, c, i, j])`` over the channels ``c`` of the group of ``o`` and the window ``i, j``. Half types accumulate
    in float32.

    In a blocked layout channels are whole blocks. What the last block of data holds behind ``channels`` does not
    matter; where the last block of weight is filled with zeros, the result's is too.
    """

    name = "nn.conv2d"
    arguments = ("data", "weight")
    kind = "contraction"
    bounded_reference = False
    Attrs = Conv2dAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: Conv2dAttrs) -> TensorType:
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
        size = []
        for n, axis in enumerate("HW"):
            padding = attrs.padding[n], attrs.padding[n + 2]
            size.append(window_count(self, image[axis], kernel[axis], attrs.strides[n], attrs.dilation[n], padding))
        extents = {"N": image["N"], "C": kernel["O"], "H": size[0], "W": size[1]}
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

    def reference(self, args: Sequence[Any], attrs: Conv2dAttrs) -> Any:
        wide = widened_factors(args, attrs.out_dtype)
        data = change_layout(wide[0], attrs.data_layout, "NCHW")
        weight = change_layout(wide[1], attrs.kernel_layout, "OIHW")
        if attrs.channels:
            data, weight = data[:, : attrs.channels], weight[:, : attrs.channels]
        top, left, bottom, right = attrs.padding
        border = ((0, 0), (0, 0), (top, bottom), (left, right))
        data = np.pad(data, border, constant_values=attrs.pad_value)
        n, _, h, w = data.shape
        o, i, kh, kw = weight.shape
        (sh, sw), (dh, dw) = attrs.strides, attrs.dilation
        oh, ow = (h - (kh - 1) * dh - 1) // sh + 1, (w - (kw - 1) * dw - 1) // sw + 1
        result = np.zeros((n, attrs.groups, o // attrs.groups, oh, ow), data.dtype)
        grouped = data.reshape(n, attrs.groups, i, h, w)
        kernel = weight.reshape(attrs.groups, o // attrs.groups, i, kh, kw)
        for y in range(kh):
            for x in range(kw):
                window = grouped[
                    ..., y * dh : y * dh + (oh - 1) * sh + 1 : sh, x * dw : x * dw + (ow - 1) * sw + 1 : sw
                ]
                result += np.einsum("ngihw,goi->ngohw", window, kernel[..., y, x], dtype=result.dtype)
        out = change_layout(result.reshape(n, o, oh, ow), "NCHW", attrs.out_layout)
        return narrowed_sum(out, args[0], attrs.out_dtype)

    def channel_axis(self, argument: int, attrs: Conv2dAttrs) -> int | None:
        layout = parse_layout(attrs.out_layout if argument == -1 else attrs.data_layout)
        return layout.position("C") if layout.block("C") == 1 else None

    def scale_weights(
        self, args: Sequence[GraphExpr], attrs: Conv2dAttrs, scale: GraphExpr, of_result: bool
    ) -> list[GraphExpr] | None:
        data, weight = args
        kernel = parse_layout(attrs.kernel_layout)
        if kernel.ndim != 4 or attrs.out_dtype is not None:
            return None
        extents = kernel.extents(weight.shape)
        depthwise = attrs.groups == extents["O"] and extents["I"] == 1
        if not of_result and attrs.groups > 1 and not depthwise:
            return None  # the factors of a group's channels belong to that group's part of the weight
        axis = "O" if of_result or attrs.groups > 1 else "I"
        factors = reshape(scale, [scale.shape[0] if name == axis else 1 for name in kernel.primal])
        return [data, multiply(weight, factors)]

    def prefer_layout(self, args: Sequence[GraphExpr], attrs: Conv2dAttrs, lanes: int) -> LayoutChoice | str:
        plain = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout)
        if plain != ("NCHW", "OIHW", "NCHW"):
            return f"its layouts are {', '.join(plain)}, and not NCHW, OIHW"
        neighbours = 1
        if attrs.out_dtype is not None:
            machine = Target.current()
            lanes = machine.lanes(attrs.out_dtype)
            neighbours = machine.dot_products(args[0].dtype, args[1].dtype, attrs.out_dtype)
        if lanes == 1:
            return "vectors have one element"
        outputs, inputs = args[1].shape[:2]
        own = outputs // attrs.groups if isinstance(outputs, int) else outputs
        depthwise = attrs.groups > 1 and dim_equal(outputs, attrs.groups) and dim_equal(inputs, 1)
        grouped = f" in each of {attrs.groups} groups" if attrs.groups > 1 and not depthwise else ""
        whole = attrs.groups > 1 and not depthwise  # a block of channels belongs to one group
        made = channel_block(outputs if depthwise else own, lanes, whole)
        if made is None:
            fault = "are too few for" if isinstance(own, int) and not whole else "are no whole"
            return f"{own} output channels{grouped} {fault} blocks of {lanes}"
        result = f"NCHW{made}c"
        read = channel_block(inputs, lanes, whole)
        if depthwise:
            blocked = (result, f"OIHW{made}o", result)  # each lane is a channel of its own
        elif read is not None:
            kernel = f"OIHW{read}i{made}o"
            if neighbours > 1 and inputs % read == 0 and read % neighbours == 0:
                # Channels whose products one instruction adds lie side by side.
                kernel = f"OIHW{read // neighbours}i{made}o{neighbours}i"
            blocked = (f"NCHW{read}c", kernel, result)
        elif attrs.groups > 1:
            return f"{inputs} input channels{grouped} are no whole blocks of {lanes}"
        else:
            blocked = ("NCHW", f"OIHW{made}o", result)  # an image's few channels stay as they are
        names: dict[str, Any] = dict(zip(("data_layout", "kernel_layout", "out_layout"), blocked, strict=True))
        if depthwise:
            names["groups"] = -(-attrs.groups // made) * made
        elif read is not None and inputs % read:
            names["channels"] = inputs
        return LayoutChoice(plain, blocked, dataclasses.replace(attrs, **names))

    def padded_outside(self, args: Sequence[GraphExpr], attrs: Conv2dAttrs) -> GraphExpr | None:
        if not is_padded(attrs.padding):
            return None
        layout = parse_layout(attrs.data_layout)
        widths: list[tuple[Dim, Dim]] = [(0, 0)] * layout.ndim
        for number, axis in enumerate("HW"):
            widths[layout.position(axis)] = (attrs.padding[number], attrs.padding[number + 2])
        around = pad(args[0], pad_width=tuple(widths), pad_value=attrs.pad_value)
        bare = dataclasses.replace(attrs, padding=(0, 0, 0, 0), pad_value=0)
        return Call(self, (around, args[1]), bare)

    def compute(self, args: Sequence[Tensor], attrs: Conv2dAttrs, out: TensorType) -> Tensor:
        data, weight = args
        source, kernel = parse_layout(attrs.data_layout), parse_layout(attrs.kernel_layout)
        target = parse_layout(attrs.out_layout)
        wide = compute_type(out.dtype)
        (sh, sw), (dh, dw) = attrs.strides, attrs.dilation
        extents = kernel.extents([as_dim(extent) for extent in weight.shape])
        image = pad_image(data, [source.position(axis) for axis in "HW"], attrs.padding, attrs.pad_value)
        if attrs.channels:
            extents["I"] = attrs.channels
        channels = _ChannelAxes(extents, source, kernel, attrs.groups)
        kh, kw = te.reduce_axis(as_expr(extents["H"]), "kh"), te.reduce_axis(as_expr(extents["W"]), "kw")

        def element(*place: Var) -> te.Reduction:
            at = target.logical(place)
            made = _channel(target, place, at["C"])
            own = channels.of_group(made, extents["O"])
            pixel = {"N": at["N"], "C": own, "H": at["H"] * sh + kh * dh, "W": at["W"] * sw + kw * dw}
            weighed = {"O": made, "I": channels.within, "H": kh, "W": kw}
            value = cast(wide, image[_place(source, pixel)]) * cast(wide, weight[_place(kernel, weighed)])
            return te.sum(value, axis=[*channels.outer, kh, kw, *channels.inner])

        result = te.compute(out.shape, element, name="conv2d")
        if wide is out.dtype:
            return result
        return te.compute(out.shape, lambda *place: cast(out.dtype, result[place]), name="conv2d_cast")


def channel_block(channels: Dim, lanes: int, whole: bool = False) -> int | None:
    """How many neighbouring channels lie together: as many as a vector has lanes, or half of them; None where the
    plain layout is better. All tensors with so many channels have the same blocks.

    The last block may be full in part alone: 24 channels in two vectors of 16 lanes take less time than in three half
    vectors. ``whole``: only blocks that divide the channels.
    """
    if not isinstance(channels, int) or not channels:
        return None
    if not whole:
        return lanes if channels > lanes // 2 else lanes // 2 if lanes > 2 and channels == lanes // 2 else None
    return next((block for block in (lanes, lanes // 2) if block > 1 and channels % block == 0), None)


class _Blocked:
    """A channel as a block's number and the place in the block, so that indices need no division."""

    def __init__(self, block: Expr, inner: Expr, size: int) -> None:
        self.block, self.inner, self.size = block, inner, size

    def whole(self) -> Expr:
        """The channel as one number."""
        return self.block * self.size + self.inner


def _channel(layout: Layout, place: Sequence[Expr], whole: Expr) -> Expr | _Blocked:
    """The channel at ``place``: a block's number and the place in it where the layout has such blocks."""
    sizes = [size for axis, size in layout.axes if axis == "C" and size]
    if len(sizes) != 1:
        return whole
    return _Blocked(place[layout.position("C")], place[layout.axes.index(("C", sizes[0]))], sizes[0])


def _place(layout: Layout, index: dict[str, Any]) -> tuple[Expr, ...]:
    """``layout.place`` that takes blocked channels as they are where the layout has the same block, in one dimension or
    in several."""
    plain = {axis: at.whole() if isinstance(at, _Blocked) else at for axis, at in index.items()}
    result = list(layout.place(plain))
    for axis, at in index.items():
        if not isinstance(at, _Blocked) or layout.block(axis) != at.size:
            continue
        result[layout.position(axis)] = at.block
        rest = at.inner
        parts = [number for number, (name, size) in enumerate(layout.axes) if size and name == axis]
        for number in reversed(parts[1:]):
            size = layout.axes[number][1]
            result[number], rest = rest % size, rest // size
        result[parts[0]] = rest
    return tuple(result)


class _ChannelAxes:
    """The reduction over the input channels of a group: one axis, or a block's number and the place in the block.

    Attributes:
        outer: axes that come before those of the window.
        inner: axes that come behind them.
        within: the channel in the group.
    """

    def __init__(self, extents: dict[str, Dim], source: Layout, kernel: Layout, groups: int) -> None:
        count, block = extents["I"], source.block("C")
        self.groups = groups
        self.count = count
        self.block = block
        self.outer: list[Var] = []
        self.inner: list[Var] = []
        self.within: Any
        if block > 1 and isinstance(count, int) and count % block == 0:
            outer, inner = te.reduce_axis(count // block, "ic"), te.reduce_axis(block, "ici")
            self.outer, self.inner = [outer], [inner]
            self.within = _Blocked(outer, inner, block)
        elif block > 1 and groups == 1 and isinstance(count, int):
            channel = te.reduce_axis(count, "ic")  # the last block is not full; schedules split the axis
            self.inner = [channel]
            self.within = _Blocked(channel // block, channel % block, block)
        else:
            self.outer = [te.reduce_axis(as_expr(count), "ic")]
            self.within = self.outer[0]

    def of_group(self, channel: Expr | _Blocked, total: Dim) -> Any:
        """The input channel in the whole image for output channel ``channel`` of ``total``."""
        if self.groups == 1:
            return self.within
        assert isinstance(total, int)
        made = total // self.groups
        if made == 1 and self.count == 1:
            return channel  # depthwise
        if isinstance(channel, _Blocked):
            blocks, rest = divmod(made, channel.size)
            group = channel.whole() // made if rest else channel.block // blocks
        else:
            group = channel // made
        if isinstance(self.within, _Blocked):
            assert isinstance(self.count, int)
            return _Blocked(group * (self.count // self.block) + self.within.block, self.within.inner, self.block)
        return group * as_expr(self.count) + self.within
