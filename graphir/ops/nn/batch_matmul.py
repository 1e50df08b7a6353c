"""Multiply two batches of matrices."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.meaning import MatrixProduct
from tilewright.graphir.op import Operator, get_operator, register_operator
from tilewright.graphir.ops.calls import matmul, transpose
from tilewright.graphir.types import TensorType, Type


@dataclasses.dataclass(frozen=True)
class BatchMatmulAttrs:
    """``transpose_a``, ``transpose_b``: whether the rows and columns of a factor are exchanged."""

    transpose_a: bool = False
    transpose_b: bool = False


@register_operator
class batch_matmul(Operator):
    """Multiply the matrices of each item of a batch: a ``[batch, m, k]``, b ``[batch, k, n]``."""

    name = "nn.batch_matmul"
    arguments = ("a", "b")
    kind = "contraction"
    Attrs = BatchMatmulAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: BatchMatmulAttrs) -> Type:
        for number, arg in enumerate(args):
            if arg.ndim != 3:
                raise self.error(number, "3 dimensions (batch, rows, columns)", arg)
        flags = (attrs.transpose_a, attrs.transpose_b)
        turned = [
            TensorType((arg.shape[0], arg.shape[2], arg.shape[1]), arg.dtype) if flag else arg
            for arg, flag in zip(args, flags, strict=True)
        ]
        product = get_operator("matmul")
        return product.infer_type(turned, product.Attrs())

    def decompose(self, args: Sequence[GraphExpr], attrs: BatchMatmulAttrs) -> GraphExpr:
        return matmul(*self._factors(args, attrs))

    def meaning(self, args: Sequence[GraphExpr], attrs: BatchMatmulAttrs) -> MatrixProduct:
        return MatrixProduct(*self._factors(args, attrs))

    def _factors(self, args: Sequence[GraphExpr], attrs: BatchMatmulAttrs) -> list[GraphExpr]:
        flags = (attrs.transpose_a, attrs.transpose_b)
        return [transpose(arg, axes=(0, 2, 1)) if flag else arg for arg, flag in zip(args, flags, strict=True)]
