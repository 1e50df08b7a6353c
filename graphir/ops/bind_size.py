"""Bind a symbolic dimension to a size that becomes known while a model runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.dims import as_dim
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import normalize
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.errors import InputError
from tilewright.tensorir.expr import Expr, Var
from tilewright.tensorir.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class BindSizeAttrs:
    """``dim``: the symbolic dimension that gets its size here, a single variable."""

    dim: Any

    def __post_init__(self) -> None:
        normalize(self, dim=as_dim(self.dim))


@register_operator
class bind_size(Operator):
    """Return ``x``, in whose type and computation the symbolic dimension ``dim`` stands for the number in ``size``.

    A model with such calls is cut at them: the part that computes ``size`` runs first, then its value is read, and
    everything that depends on ``dim`` runs with it, without being compiled again. (Relax, of Apache TVM, binds such
    variables with ``match_cast``.)
    """

    name = "bind_size"
    arguments = ("x", "size")
    kind = "injective"
    Attrs = BindSizeAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: BindSizeAttrs) -> TensorType:
        x, size = args
        if size.ndim != 0 or size.dtype is not INT64:
            raise self.error(1, "a number of type int64 (no dimensions)", size)
        if not isinstance(attrs.dim, Var):
            raise self.error("dim", "a symbolic dimension (one variable)", attrs.dim)
        return x

    def reference(self, args: Sequence[Any], attrs: BindSizeAttrs) -> Any:
        x, size = args
        if int(size) != attrs.dim:  # the interpreter has put the size in the place of the variable
            raise InputError(f"bind_size: {attrs.dim} is bound to {int(size)}")
        return np.array(x)

    def bound_size(self, args: Sequence[GraphExpr], attrs: BindSizeAttrs) -> tuple[Var, GraphExpr]:
        return attrs.dim, args[1]

    def compute(self, args: Sequence[Tensor], attrs: BindSizeAttrs, out: TensorType) -> Tensor:
        x = args[0]

        def element(*place: Var) -> Expr:
            return x[place]

        return te.compute(out.shape, element, name="bind_size")
