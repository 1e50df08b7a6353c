"""Convert normalizations."""

from __future__ import annotations

from tilewright.graphir.dims import dim_equal, product
from tilewright.graphir.expr import Expr, TupleGetItem, const
from tilewright.graphir.frontend.onnx.node import Node
from tilewright.graphir.frontend.onnx.registry import converter
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import add, cast, divide, mean, reshape, sqrt, variance
from tilewright.tensorir.dtype import FLOAT32, DataType


def _widest(node: Node) -> DataType:
    """Return the element type with the most bits, in which inputs of different types are computed."""
    types = [value.dtype for value in node.inputs if value is not None]
    widest = max(types, key=lambda dtype: dtype.bits)
    different = any(dtype is not widest for dtype in types)
    return FLOAT32 if different and widest.bits < 32 else widest


@converter("BatchNormalization")
def batch_normalization(node: Node) -> Expr | list[Expr]:
    """Normalize by given statistics, or with ``training_mode`` (opset 14) by those of the batch."""
    wide = _widest(node)
    args = [cast(node[number], dtype=wide) for number in range(5)]
    epsilon = node.attribute("epsilon", 1e-5)
    if not node.attribute("training_mode", 0):
        return cast(get_operator("nn.batch_norm")(*args, axis=1, epsilon=epsilon), dtype=node[0].dtype)
    momentum = node.attribute("momentum", 0.9)
    made = get_operator("nn.batch_norm_training")(*args, axis=1, epsilon=epsilon, momentum=momentum)
    types = (node[0].dtype, node[3].dtype, node[4].dtype)
    return [cast(TupleGetItem(made, number), dtype=dtype) for number, dtype in enumerate(types)]


@converter("InstanceNormalization")
def instance_normalization(node: Node) -> Expr:
    """Normalize each channel of each item by its own statistics."""
    return get_operator("nn.instance_norm")(node[0], node[1], node[2], epsilon=node.attribute("epsilon", 1e-5))


@converter("GroupNormalization", since=18)
def group_normalization_by_groups(node: Node) -> Expr:
    """Normalize groups of channels; scale and bias are for each group."""
    groups, channels = node.required("num_groups"), node.shape()[1]
    if not isinstance(channels, int) or groups < 1 or channels % groups:
        raise node.unsupported(f"{groups} groups of {channels} channels")

    def for_channels(vector: Expr) -> Expr:
        spread = get_operator("broadcast_to")(reshape(vector, newshape=(groups, 1)), shape=(groups, channels // groups))
        return reshape(spread, newshape=(channels,))

    return _group_norm(node, for_channels(node[1]), for_channels(node[2]))


@converter("GroupNormalization", since=21)
def group_normalization(node: Node) -> Expr:
    """Normalize groups of channels; scale and bias are for each channel."""
    return _group_norm(node, node[1], node[2])


def _group_norm(node: Node, scale: Expr, bias: Expr) -> Expr:
    groups, epsilon = node.required("num_groups"), node.attribute("epsilon", 1e-5)
    return get_operator("nn.group_norm")(node[0], scale, bias, num_groups=groups, epsilon=epsilon)


def _rows(node: Node, name: str, vectors: list[Expr], epsilon: float) -> Expr:
    """Normalize the dimensions from ``axis`` on as one row."""
    x, shape = node[0], node.shape()
    axis = node.attribute("axis", -1) % max(len(shape), 1)
    wide = _widest(node)
    flat = []
    for vector in vectors:
        if len(vector.shape) != 1 or not dim_equal(vector.shape[0], shape[-1]) or axis != len(shape) - 1:
            vector = get_operator("broadcast_to")(vector, shape=shape[axis:])
            vector = reshape(vector, newshape=(product(shape[axis:]),))
        flat.append(cast(vector, dtype=wide))
    rows = cast(x, dtype=wide)
    if axis != len(shape) - 1:
        rows = reshape(rows, newshape=(*shape[:axis], product(shape[axis:])))
    result = get_operator(name)(rows, *flat, axis=-1, epsilon=epsilon)
    if axis != len(shape) - 1:
        result = reshape(result, newshape=shape)
    return cast(result, dtype=node[1].dtype)


@converter("LayerNormalization", since=17)
def layer_normalization(node: Node) -> list[Expr]:
    """Return the normalized data and, where used, mean and reciprocal of the standard deviation."""
    x, scale, bias = node[0], node[1], node.optional(2)
    epsilon = node.attribute("epsilon", 1e-5)
    if bias is None:
        bias = get_operator("zeros_like")(scale)
    results = [_rows(node, "nn.layer_norm", [scale, bias], epsilon)]
    if any(node.outputs_used[1:]):
        wide = cast(x, dtype=node.dtype("stash_type", "float32"))
        axes = tuple(range(node.attribute("axis", -1) % len(node.shape()), len(node.shape())))
        spread = sqrt(add(variance(wide, axis=axes, keepdims=True), epsilon))
        results += [mean(wide, axis=axes, keepdims=True), divide(const(1, spread.dtype), spread)]
    return results


@converter("RMSNormalization", since=23)
def rms_normalization(node: Node) -> Expr:
    """Divide by the root of the mean square."""
    return _rows(node, "nn.rms_norm", [node[1]], node.attribute("epsilon", 1e-5))


@converter("LRN")
def lrn(node: Node) -> Expr:
    """Divide by the power of neighbouring channels."""
    return get_operator("nn.lrn")(
        node[0],
        size=node.required("size"),
        alpha=node.attribute("alpha", 1e-4),
        beta=node.attribute("beta", 0.75),
        bias=node.attribute("bias", 1.0),
    )


@converter("LpNormalization")
def lp_normalization(node: Node) -> Expr:
    """Divide by the norm along an axis."""
    return get_operator("nn.lp_normalize")(node[0], axis=node.attribute("axis", -1), p=node.attribute("p", 2))
