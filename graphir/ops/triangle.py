"""Take triangles of matrices, and create identity matrices."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from tilewright.graphir.dims import Dim, as_dim
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import normalize
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.dtype import FLOAT32, DataType, as_dtype
from tilewright.tensorir.expr import Expr, Var, as_expr, cast, const, select
from tilewright.tensorir.tensor import Tensor


class Triangle(Operator):
    """Base of tril and triu. ``k`` is a scalar integer: the diagonal, above the main one if positive."""

    arguments = ("x", "k?")
    kind = "injective"
    literals_from = 1
    function: ClassVar[Callable[..., Any]]

    def infer_type(self, args: Sequence[TensorType], attrs: Any) -> TensorType:
        x = args[0]
        if x.ndim < 2:
            raise self.error(0, "at least 2 dimensions", x)
        if len(args) > 1 and (args[1].ndim or not args[1].dtype.is_integer):
            raise self.error(1, "a scalar integer", args[1])
        return x

    def reference(self, args: Sequence[Any], attrs: Any) -> Any:
        x = args[0]
        k = int(args[1]) if len(args) > 1 else 0
        mask = type(self).function(np.ones(x.shape[-2:], bool), max(-x.shape[-2], min(k, x.shape[-1])))
        return np.where(mask, x, np.zeros((), x.dtype))

    def keeps(self, distance: Expr, k: Expr) -> Expr:
        """Return whether an element ``distance`` above the main diagonal is kept."""
        raise NotImplementedError(f"operator {self.name} states no condition")

    def compute(self, args: Sequence[Tensor], attrs: Any, out: TensorType) -> Tensor:
        x = args[0]
        k = cast("int64", args[1][()]) if len(args) > 1 else as_expr(0)

        def element(*place: Var) -> Expr:
            return select(self.keeps(place[-1] - place[-2], k), x[place], const(0, x.dtype))

        return te.compute(out.shape, element, name=self.__name__)


@register_operator
class tril(Triangle):
    """Keep the lower triangle of matrices, with zeros above diagonal ``k``, as ``numpy.tril``."""

    name = "tril"
    function = np.tril

    def keeps(self, distance: Expr, k: Expr) -> Expr:
        return distance <= k


@register_operator
class triu(Triangle):
    """Keep the upper triangle of matrices, with zeros below diagonal ``k``, as ``numpy.triu``."""

    name = "triu"
    function = np.triu

    def keeps(self, distance: Expr, k: Expr) -> Expr:
        return distance >= k


@dataclasses.dataclass(frozen=True)
class EyeAttrs:
    """The shape and the diagonal of the matrix.

    Attributes:
        n: the number of rows, which may be symbolic.
        m: the number of columns; None: the number of rows.
        k: the diagonal of ones, above the main one if positive.
        dtype: element type.
    """

    n: Any
    m: Any = None
    k: int = 0
    dtype: DataType = FLOAT32

    def __post_init__(self) -> None:
        n: Dim = as_dim(self.n)
        normalize(self, n=n, m=n if self.m is None else as_dim(self.m), k=int(self.k), dtype=as_dtype(self.dtype))


@register_operator
class eye(Operator):
    """Create a matrix with ones on a diagonal and zeros elsewhere, as ``numpy.eye``."""

    name = "eye"
    kind = "injective"
    Attrs = EyeAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: EyeAttrs) -> TensorType:
        return TensorType((attrs.n, attrs.m), attrs.dtype)

    def reference(self, args: Sequence[Any], attrs: EyeAttrs) -> Any:
        return np.eye(attrs.n, attrs.m, attrs.k, attrs.dtype.numpy)

    def compute(self, args: Sequence[Tensor], attrs: EyeAttrs, out: TensorType) -> Tensor:
        return te.compute(out.shape, lambda i, j: cast(out.dtype, (j - i).equal(attrs.k)), name="eye")
