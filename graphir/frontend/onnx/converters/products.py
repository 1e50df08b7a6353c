"""Convert products of matrices and tensors."""

from __future__ import annotations

from tilewright.graphir.expr import Expr
from tilewright.graphir.frontend.onnx.node import Node
from tilewright.graphir.frontend.onnx.registry import converter
from tilewright.graphir.op import get_operator


@converter("MatMul")
def _matmul(node: Node) -> Expr:
    return get_operator("matmul")(node[0], node[1])


@converter("Gemm")
def _gemm(node: Node) -> Expr:
    return get_operator("gemm")(
        node[0],
        node[1],
        node.optional(2),
        alpha=node.attribute("alpha", 1.0),
        beta=node.attribute("beta", 1.0),
        transpose_a=bool(node.attribute("transA", 0)),
        transpose_b=bool(node.attribute("transB", 0)),
    )


@converter("Einsum")
def _einsum(node: Node) -> Expr:
    operands = [node[number] for number in range(len(node.inputs))]
    return get_operator("einsum")(*operands, equation=node.required("equation"))
