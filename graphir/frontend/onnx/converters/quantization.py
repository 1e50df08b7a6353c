"""Convert quantization, and products of quantized tensors.

A product of quantized tensors is that of the integers minus their zero points, accumulated in int32.
"""

from __future__ import annotations

from typing import Any

from tilewright.graphir.expr import Expr
from tilewright.graphir.frontend.onnx.converters.windows import convolved
from tilewright.graphir.frontend.onnx.node import Node
from tilewright.graphir.frontend.onnx.registry import converter
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops import calls
from tilewright.tensorir.dtype import DataType, as_dtype


@converter("QuantizeLinear", since=10)
def _quantize_tensor(node: Node) -> Expr:
    return _quantize(node, 1, 0)


@converter("QuantizeLinear", since=13)
def _quantize_axis(node: Node) -> Expr:
    return _quantize(node, node.attribute("axis", 1), 0)


@converter("QuantizeLinear", since=21)
def _quantize_block(node: Node) -> Expr:
    return _quantize(node, node.attribute("axis", 1), node.attribute("block_size", 0))


def _quantize(node: Node, axis: int, block_size: int) -> Expr:
    zero = node.optional(2)
    dtype = node.dtype("output_dtype", "uint8") if node.attribute("output_dtype", 0) else "uint8"
    dtype = as_dtype(dtype if zero is None else zero.dtype)
    attrs: dict[str, Any] = {"axis": axis, "block_size": block_size, "saturate": bool(node.attribute("saturate", 1))}
    return get_operator("quantize")(node[0], node[1], _zero_point(node, dtype), dtype=dtype, **attrs)


def _zero_point(node: Node, dtype: DataType) -> Expr | None:
    """Return the zero point; that of a float type is zero itself and only states the type."""
    return node.optional(2) if "int" in dtype else None


def _dequantize(node: Node, axis: int, block_size: int) -> Expr:
    zero = _zero_point(node, node.type().dtype)
    return get_operator("dequantize")(node[0], node[1], zero, axis=axis, block_size=block_size)


@converter("DequantizeLinear", since=10)
def _dequantize_tensor(node: Node) -> Expr:
    return _dequantize(node, 1, 0)


@converter("DequantizeLinear", since=13)
def _dequantize_axis(node: Node) -> Expr:
    return _dequantize(node, node.attribute("axis", 1), 0)


@converter("DequantizeLinear", since=21)
def _dequantize_block(node: Node) -> Expr:
    result = _dequantize(node, node.attribute("axis", 1), node.attribute("block_size", 0))
    return calls.cast(result, dtype=node.dtype("output_dtype")) if node.attribute("output_dtype", 0) else result


@converter("MatMulInteger", since=10)
def _matmul_integer(node: Node) -> Expr:
    return calls.matmul(_rows(node[0], node.optional(2)), _shifted(node[1], node.optional(3)))


@converter("QLinearMatMul", since=10)
def _qlinear_matmul(node: Node) -> Expr:
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = (node[number] for number in range(8))
    product = calls.matmul(_rows(a, a_zero), _shifted(b, b_zero))
    wide = _wide(_as_column(a_scale, a)) * _wide(b_scale)
    floats = calls.cast(product, dtype="float32") * wide
    return get_operator("quantize")(floats, _wide(scale), zero, axis=-2, dtype=zero.dtype)


@converter("ConvInteger", since=10)
def _conv_integer(node: Node) -> Expr:
    return _convolve(node, node[0], node.optional(2), node[1], node.optional(3))


@converter("QLinearConv", since=10)
def _qlinear_conv(node: Node) -> Expr:
    x, x_scale, x_zero, w, w_scale, w_zero, scale, zero = (node[number] for number in range(8))
    product = _convolve(node, x, x_zero, w, w_zero)
    per_channel = (-1, *[1] * (len(product.shape) - 2))
    bias = node.optional(8)
    if bias is not None:
        product = product + calls.reshape(bias, newshape=per_channel)
    wide = _wide(x_scale) * calls.reshape(_wide(w_scale), newshape=per_channel)
    floats = calls.cast(product, dtype="float32") * wide
    return get_operator("quantize")(floats, _wide(scale), zero, dtype=zero.dtype)


def _wide(scale: Expr) -> Expr:
    return calls.cast(scale, dtype="float32")


def _shifted(x: Expr, zero: Expr | None) -> Expr:
    """Subtract the zero point from ``x``, in int32."""
    wide = calls.cast(x, dtype="int32")
    return wide if zero is None else wide - calls.cast(zero, dtype="int32")


def _rows(a: Expr, zero: Expr | None) -> Expr:
    """Shift a left factor as :func:`_shifted`; a vector has a zero point for each row."""
    return _shifted(a, None if zero is None else _as_column(zero, a))


def _as_column(parameter: Expr, a: Expr) -> Expr:
    if len(parameter.shape) == 1 and len(a.shape) > 1:
        return calls.expand_dims(parameter, axis=1)
    return parameter


def _convolve(node: Node, x: Expr, x_zero: Expr | None, w: Expr, w_zero: Expr | None) -> Expr:
    """Convolve integers; the zero point of the filters may be a vector, one for each output channel."""
    if w_zero is not None and len(w_zero.shape) == 1:
        w_zero = calls.reshape(w_zero, newshape=(-1, *[1] * (len(w.shape) - 1)))
    return convolved(node, _shifted(x, x_zero), _shifted(w, w_zero))
