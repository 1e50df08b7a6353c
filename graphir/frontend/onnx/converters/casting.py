"""Convert between element types."""

from __future__ import annotations

from tilewright.graphir.expr import Expr
from tilewright.graphir.frontend.onnx.node import Node
from tilewright.graphir.frontend.onnx.registry import converter
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import cast
from tilewright.graphir.types import TensorType
from tilewright.tensorir.dtype import DataType

#: Names of types, which the attribute held before opset 6.
_NAMES = {"FLOAT": "float32", "DOUBLE": "float64"}


@converter("Cast")
def cast_to_name(node: Node) -> Expr:
    """Convert before opset 6, where the attribute names the type."""
    name = node.required("to")
    if name in ("STRING", "COMPLEX64", "COMPLEX128"):
        raise node.unsupported(f"element type {name}")
    return _cast(node, DataType(_NAMES.get(name, name.lower())))


@converter("Cast", since=6)
def cast_to_number(node: Node) -> Expr:
    """Cast to the type of an attribute."""
    return _cast(node, node.dtype("to"))


@converter("CastLike", since=15)
def cast_like(node: Node) -> Expr:
    """Cast to the type of the second input."""
    return _cast(node, node.type(1).dtype)


def _cast(node: Node, dtype: DataType) -> Expr:
    return stored(node, decoded(node[0]), dtype) if node.type().dtype is not dtype else node[0]


def decoded(x: Expr) -> Expr:
    """Decode ``x`` from a type that is only stored; types with arithmetic stay."""
    is_stored = isinstance(x.type, TensorType) and x.type.dtype.kind == "storage"
    return get_operator("decode")(x) if is_stored else x


def stored(node: Node, x: Expr, dtype: DataType) -> Expr:
    """Convert ``x`` to ``dtype``, also if that is a type that is only stored."""
    if dtype.kind != "storage":
        return x if isinstance(x.type, TensorType) and x.type.dtype is dtype else cast(x, dtype=dtype)
    wide = cast(x, dtype="int32" if "int" in dtype else "float32")
    saturate, rounding = bool(node.attribute("saturate", 1)), node.attribute("round_mode", "up")
    return get_operator("encode")(wide, dtype=dtype, saturate=saturate, rounding=rounding)


@converter("BitCast", since=26)
def bit_cast(node: Node) -> Expr:
    """Reinterpret the bits as another type."""
    return get_operator("bitcast")(node[0], dtype=node.dtype("to"))
