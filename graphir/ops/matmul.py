"""Multiply matrices."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.dims import Dim, dim_equal, format_shape
from tilewright.graphir.expr import const
from tilewright.graphir.meaning import MatrixProduct
from tilewright.graphir.op import Operator, get_operator, register_operator
from tilewright.graphir.ops import calls
from tilewright.graphir.ops.common import (
    FLOATS,
    broadcast_shapes,
    compute_type,
    normalize,
    read_broadcast,
    same_dtype,
)
from tilewright.graphir.ops.narrow import MatrixSums
from tilewright.graphir.ops.nn.dense import panels
from tilewright.graphir.ops.sums import narrowed_sum, product_dtype, sum_dtype, widened_factors
from tilewright.graphir.traits import LayoutChoice
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.expr import Expr, Var, cast
from tilewright.tensorir.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class MatmulAttrs:
    """``out_dtype``: ``int32`` for factors of narrower integers, perhaps of two types, ``float32`` for those of half
    types; None: both have one type, and so has the result."""

    out_dtype: DataType | None = None

    def __post_init__(self) -> None:
        normalize(self, out_dtype=sum_dtype(self.out_dtype))


@register_operator
class matmul(Operator):
    """Multiply matrices over the last two axes, by NumPy's rules: leading axes broadcast; a vector on the left is a
    row, on the right a column, and its axis is dropped from the result. Half types accumulate in float32; the result is
    of type ``out_dtype`` if that is given."""

    name = "matmul"
    arguments = ("a", "b")
    kind = "contraction"
    Attrs = MatmulAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: MatmulAttrs) -> TensorType:
        a, b = args
        dtype = product_dtype(self, args, attrs.out_dtype)
        for number, arg in enumerate(args):
            if arg.ndim == 0:
                raise self.error(number, "at least one dimension", arg)
        inner = b.shape[-2] if b.ndim > 1 else b.shape[0]
        if not dim_equal(a.shape[-1], inner):
            raise self.error(1, f"{a.shape[-1]} rows to match the columns of a, {format_shape(a.shape)}", b)
        batch: tuple[Dim, ...] = broadcast_shapes(self, [TensorType(a.shape[:-2]), TensorType(b.shape[:-2])])
        rows = a.shape[-2:-1] if a.ndim > 1 else ()
        columns = b.shape[-1:] if b.ndim > 1 else ()
        return TensorType((*batch, *rows, *columns), dtype)

    def reference(self, args: Sequence[Any], attrs: MatmulAttrs) -> Any:
        a, b = widened_factors(args, attrs.out_dtype)
        return narrowed_sum(np.asarray(np.matmul(a, b)), args[0], attrs.out_dtype)

    def reads_rows(self, args: Sequence[TensorType], attrs: MatmulAttrs) -> Sequence[int]:
        return (0,)

    def prefer_layout(self, args: Sequence[GraphExpr], attrs: MatmulAttrs, lanes: int) -> LayoutChoice | str:
        a, b = args
        return panels(a, b, "IO", lanes, attrs.out_dtype) if b.ndim == 2 else ""

    def meaning(self, args: Sequence[GraphExpr], attrs: MatmulAttrs) -> MatrixProduct | None:
        return MatrixProduct(args[0], args[1]) if attrs.out_dtype is None else None

    def sum_of_products(self, args: Sequence[GraphExpr], attrs: MatmulAttrs) -> MatrixSums:
        return MatrixSums(self, args, attrs)

    def compute(self, args: Sequence[Tensor], attrs: MatmulAttrs, out: TensorType) -> Tensor:
        a, b = args
        wide = compute_type(out.dtype)
        k = te.reduce_axis(a.shape[-1], "k")

        def element(*place: Var) -> te.Reduction:
            rest: list[Expr] = list(place)
            column = [rest.pop()] if b.ndim > 1 else []
            row = [rest.pop()] if a.ndim > 1 else []
            left = read_broadcast(a, [*rest[max(0, len(rest) - max(0, a.ndim - 2)) :], *row, k])
            right = read_broadcast(b, [*rest[max(0, len(rest) - max(0, b.ndim - 2)) :], k, *column])
            return te.sum(cast(wide, left) * cast(wide, right), axis=k)

        product = te.compute(out.shape, element, name="matmul")
        if wide is out.dtype:
            return product
        return te.compute(out.shape, lambda *place: cast(out.dtype, product[place]), name="matmul_cast")


@dataclasses.dataclass(frozen=True)
class GemmAttrs:
    """The factors of product and summand, and the transposed matrices.

    Attributes:
        alpha: factor of the product; a whole number for integers.
        beta: factor of the summand; the same.
        transpose_a: whether ``a`` is ``[k, rows]``.
        transpose_b: whether ``b`` is ``[columns, k]``.
    """

    alpha: float = 1.0
    beta: float = 1.0
    transpose_a: bool = False
    transpose_b: bool = False


@register_operator
class gemm(Operator):
    """Compute ``alpha * a @ b + beta * c`` of matrices, as the BLAS routine; ``c`` broadcasts to the product's
    shape."""

    name = "gemm"
    arguments = ("a", "b", "c?")
    kind = "contraction"
    Attrs = GemmAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: GemmAttrs) -> TensorType:
        dtype = same_dtype(self, args)
        for number, arg in enumerate(args[:2]):
            if arg.ndim != 2:
                raise self.error(number, "2 dimensions", arg)
        for name in ("alpha", "beta"):
            if str(dtype) not in FLOATS and getattr(attrs, name) != int(getattr(attrs, name)):
                raise self.error(name, f"a whole number, as a is {dtype!s}", getattr(attrs, name))
        flags = (attrs.transpose_a, attrs.transpose_b)
        a, b = [TensorType(arg.shape[::-1], dtype) if flag else arg for arg, flag in zip(args[:2], flags, strict=True)]
        product = get_operator("matmul").infer_type([a, b], MatmulAttrs())
        assert isinstance(product, TensorType)
        if len(args) == 3:
            shape = broadcast_shapes(self, [product, TensorType((1,)), args[2]])  # errors name argument 2
            fits = len(shape) == 2 and all(map(dim_equal, shape, product.shape))
            if not fits:
                raise self.error(2, f"a shape that broadcasts to {format_shape(product.shape)}", args[2])
        return product

    def decompose(self, args: Sequence[GraphExpr], attrs: GemmAttrs) -> GraphExpr:
        dtype = args[0].dtype
        wide = compute_type(dtype)
        a, b, *rest = [arg if dtype is wide else calls.cast(arg, dtype=wide) for arg in args]
        left = calls.transpose(a) if attrs.transpose_a else a
        product = get_operator("nn.dense")(left, b) if attrs.transpose_b else calls.matmul(left, b)
        if attrs.alpha != 1:
            product = calls.multiply(product, const(attrs.alpha, wide))
        if rest and attrs.beta != 0:
            summand = rest[0] if attrs.beta == 1 else calls.multiply(rest[0], const(attrs.beta, wide))
            product = calls.add(product, summand)
        return product if dtype is wide else calls.cast(product, dtype=dtype)

    def simplify_inference(self, args: Sequence[GraphExpr], attrs: GemmAttrs) -> GraphExpr:
        return self.decompose(args, attrs)
