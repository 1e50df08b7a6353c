"""Conversions between element types."""

from __future__ import annotations

from tilewright.graphir.expr import Expr
from tilewright.graphir.frontend.onnx.node import Node
from tilewright.graphir.frontend.onnx.registry import converter
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import cast
from tilewright.tensorir.dtype import DataType

#: What the attribute was before opset 6: a name.
_NAMES = {"FLOAT": "float32", "DOUBLE": "float64"}


@converter("Cast")
def cast_to_name(node: Node) -> Expr:
    """Before opset 6 the type is named by a text."""
    name = node.required("to")
    if name in ("STRING", "COMPLEX64", "COMPLEX128"):
        raise node.unsupported(f"element type {name}")
    return _cast(node, DataType(_NAMES.get(name, name.lower())))


@converter("Cast", since=6)
def cast_to_number(node: Node) -> Expr:
    """To the type of an attribute."""
    return _cast(node, node.dtype("to"))


@converter("CastLike", since=15)
def cast_like(node: Node) -> Expr:
    """To the type of the second input."""
    return _cast(node, node.type(1).dtype)


def _cast(node: Node, dtype: DataType) -> Expr:
    return node[0] if node.type().dtype is dtype else cast(node[0], dtype=dtype)


@converter("BitCast", since=26)
def bit_cast(node: Node) -> Expr:
    """The same bits as another type."""
    return get_operator("bitcast")(node[0], dtype=node.dtype("to"))
