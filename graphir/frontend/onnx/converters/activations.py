"""Convert activation functions, softmax and dropout."""

from __future__ import annotations

from tilewright.graphir.dims import product
from tilewright.graphir.expr import Expr
from tilewright.graphir.frontend.onnx.node import Node
from tilewright.graphir.frontend.onnx.registry import converter
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import cast, multiply, reshape, where

#: The operators of the graph, and the attributes with their defaults, which are those of float32.
_ACTIVATIONS: dict[str, tuple[str, dict[str, float]]] = {
    "Celu": ("nn.celu", {"alpha": 1.0}),
    "Elu": ("nn.elu", {"alpha": 1.0}),
    "HardSigmoid": ("nn.hard_sigmoid", {"alpha": 0.2, "beta": 0.5}),
    "HardSwish": ("nn.hard_swish", {}),
    "LeakyRelu": ("nn.leaky_relu", {"alpha": 0.01}),
    "Mish": ("nn.mish", {}),
    "Relu": ("nn.relu", {}),
    "Selu": ("nn.selu", {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}),
    "Shrink": ("nn.shrink", {"bias": 0.0, "lambd": 0.5}),
    "Sigmoid": ("sigmoid", {}),
    "Softplus": ("nn.softplus", {}),
    "Softsign": ("nn.softsign", {}),
    "ThresholdedRelu": ("nn.thresholded_relu", {"alpha": 1.0}),
}


def _activation(node: Node) -> Expr:
    name, defaults = _ACTIVATIONS[node.op_type]
    return get_operator(name)(node[0], **{key: node.attribute(key, value) for key, value in defaults.items()})


for _name in _ACTIVATIONS:
    converter(_name, since=6 if _name == "Selu" else 1)(_activation)


@converter("Selu")
def first_selu(node: Node) -> Expr:
    """Convert the first version, whose defaults have fewer digits."""
    return get_operator("nn.selu")(
        node[0], alpha=node.attribute("alpha", 1.6732), gamma=node.attribute("gamma", 1.0507)
    )


@converter("Gelu", since=20)
def gelu(node: Node) -> Expr:
    """Convert by the error function, or approximately by ``tanh``."""
    return get_operator("nn.gelu")(node[0], approximate=node.attribute("approximate", "none") == "tanh")


@converter("Swish", since=24)
def swish(node: Node) -> Expr:
    """Convert to ``x * sigmoid(alpha * x)``."""
    return _swish(node)


def _swish(node: Node) -> Expr:
    alpha = node.attribute("alpha", 1.0)
    return get_operator("nn.silu")(node[0]) if alpha == 1 else get_operator("nn.swish")(node[0], beta=alpha)


@converter("SwiGLU", since=28)
def swiglu(node: Node) -> Expr:
    """Multiply the second input by the swish of the first."""
    return multiply(_swish(node), node[1])


@converter("PRelu")
def prelu_by_channel(node: Node) -> Expr:
    """Convert before opset 7: one slope, or one for each channel."""
    slope, rank = node.shape(1), len(node.shape())
    if slope in ((), (1,)) or len(slope) > 1 or rank < 2:
        return prelu(node)
    return get_operator("nn.prelu")(node[0], node[1], axis=1)


@converter("PRelu", since=7)
def prelu(node: Node) -> Expr:
    """Convert with slopes that broadcast to the input."""
    x, slope = node[0], node[1]
    return where(get_operator("greater")(x, 0), x, multiply(x, slope))


@converter("Softmax")
def softmax_of_rows(node: Node) -> Expr:
    """Convert before opset 13: the input is a matrix, whose columns are the dimensions from ``axis`` on."""
    return _of_rows(node, "nn.softmax")


@converter("LogSoftmax")
def log_softmax_of_rows(node: Node) -> Expr:
    """Convert before opset 13, as ``Softmax``."""
    return _of_rows(node, "nn.log_softmax")


def _of_rows(node: Node, name: str) -> Expr:
    shape = node.shape()
    axis = node.attribute("axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    if axis == len(shape) - 1:
        return get_operator(name)(node[0], axis=axis)
    matrix = reshape(node[0], newshape=(product(shape[:axis]), product(shape[axis:])))
    return reshape(get_operator(name)(matrix, axis=1), newshape=shape)


@converter("Softmax", since=13)
def softmax(node: Node) -> Expr:
    """Convert along one axis."""
    return get_operator("nn.softmax")(node[0], axis=node.attribute("axis", -1))


@converter("LogSoftmax", since=13)
def log_softmax(node: Node) -> Expr:
    """Convert along one axis."""
    return get_operator("nn.log_softmax")(node[0], axis=node.attribute("axis", -1))


@converter("Dropout")
def dropout_with_numeric_mask(node: Node) -> list[Expr]:
    """Convert before opset 10, where the mask has the type of the data."""
    return _dropout(node, str(node.type().dtype))


@converter("Dropout", since=10)
def dropout(node: Node) -> list[Expr]:
    """Return the data: inference drops nothing."""
    return _dropout(node, "bool")


@converter("Dropout", since=12)
def dropout_by_inputs(node: Node) -> list[Expr]:
    """Return the data: inference drops nothing. Training at a rate above 0, which draws random numbers, is not
    supported."""
    training = node.optional_constant(2)
    rate = node.optional_constant(1)
    if training is not None and bool(training) and (rate is None or float(rate) != 0):
        raise node.unsupported("training")
    return _dropout(node, "bool")


def _dropout(node: Node, mask_type: str) -> list[Expr]:
    mask = get_operator("full")(shape=node.shape(), fill=True, dtype="bool")
    return [node[0], mask if mask_type == "bool" else cast(mask, dtype=mask_type)][: node.num_outputs]
