"""Convert overloads of backward passes that PyTorch's tables do not take apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.graphir.dims import dim_equal, product
from tilewright.graphir.expr import Expr
from tilewright.graphir.frontend.torch.converters.windows import per_axis
from tilewright.graphir.frontend.torch.node import Node, dtype_of, reshaped, shape_of
from tilewright.graphir.frontend.torch.registry import converter
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import concatenate, pad, reshape, sum, transpose


@converter("aten.max_pool2d_with_indices_backward.default", "aten.max_pool3d_with_indices_backward.default")
def max_pool_backward(node: Node, grad: Expr, x: Expr, *options: Any) -> Expr:
    """Add each gradient at the place that its window's greatest element has in the channel."""
    indices = options[-1]
    rank = 3 if "3d" in node.label.partition(" ")[0] else 2
    shape = shape_of(x)
    before, space = shape[:-rank], product(shape[-rank:])
    empty = get_operator("zeros")(shape=(*before, space), dtype=dtype_of(x))
    rows, places = (reshape(each, newshape=(*before, -1)) for each in (grad, indices))
    return reshaped(get_operator("scatter_elements")(empty, places, rows, axis=-1, reduction="add"), shape)


@converter("aten.convolution_backward.default")
def convolution_backward(
    node: Node,
    grad: Expr,
    x: Expr,
    weight: Expr,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> list[Expr | None]:
    """Return the gradients of a convolution's data, weight and bias: each is a convolution, or a sum, too."""
    rank = len(shape_of(weight)) - 2
    if transposed or rank > 2 or not all(isinstance(dim, int) for dim in shape_of(weight)):
        raise node.unsupported("the gradient of a transposed convolution, or of one in three dimensions,")
    steps, margins, distances = (per_axis(value, rank) for value in (stride, padding, dilation))
    window = [int(size) for size in shape_of(weight)[2:]]  # type: ignore[arg-type]
    results: list[Expr | None] = [None, None, None]
    if output_mask[0]:
        results[0] = _of_data(grad, x, weight, steps, margins, distances, groups, window)
    if output_mask[1]:
        channels = shape_of(x)[1]
        if not isinstance(channels, int):
            raise node.unsupported(f"a number of channels {channels}")
        results[1] = _of_weight(grad, x, steps, margins, distances, groups, window, channels)
    if output_mask[2]:
        results[2] = sum(grad, axis=(0, *range(2, 2 + rank)))
    return results


def _of_data(
    grad: Expr,
    x: Expr,
    weight: Expr,
    steps: Sequence[int],
    margins: Sequence[int],
    distances: Sequence[int],
    groups: int,
    window: Sequence[int],
) -> Expr:
    """Spread the gradients by the weight: a transposed convolution, which may end before the data do."""
    made = get_operator("nn.conv_transpose")(
        grad, weight, strides=tuple(steps), padding=(0,) * len(steps), dilation=tuple(distances), groups=groups
    )
    widths = [(0, 0), (0, 0)]
    for n, margin in enumerate(margins):
        found, wanted = shape_of(made)[2 + n], shape_of(x)[2 + n]
        widths.append((-margin, wanted - found + margin))  # type: ignore[arg-type]
    return reshaped(pad(made, pad_width=widths), shape_of(x))


def _of_weight(
    grad: Expr,
    x: Expr,
    steps: Sequence[int],
    margins: Sequence[int],
    distances: Sequence[int],
    groups: int,
    window: Sequence[int],
    channels: int,
) -> Expr:
    """Convolve the data with the gradients over space; items take the place of channels. Strides and dilation change
    their roles."""
    rank = len(steps)
    per_group, outputs = channels // groups, int(shape_of(grad)[1]) // groups  # type: ignore[arg-type]
    exchange = (1, 0, *range(2, 2 + rank))
    parts = []
    for group in range(groups):
        data, gradients = x, grad
        if groups > 1:
            data = _channels(x, group * per_group, per_group)
            gradients = _channels(grad, group * outputs, outputs)
        made = get_operator("nn.conv2d" if rank == 2 else "nn.conv1d")(
            transpose(data, axes=exchange),
            transpose(gradients, axes=exchange),
            strides=tuple(distances),
            padding=tuple(margins),
            dilation=tuple(steps),
        )
        for n, size in enumerate(window):
            if not dim_equal(shape_of(made)[2 + n], size):
                made = get_operator("slice")(made, begin=(0,), end=(size,), axes=(2 + n,))
        parts.append(reshaped(transpose(made, axes=exchange), (outputs, per_group, *window)))
    return parts[0] if groups == 1 else concatenate(parts, axis=0)


def _channels(x: Expr, first: int, count: int) -> Expr:
    return get_operator("slice")(x, begin=(first,), end=(first + count,), axes=(1,))
