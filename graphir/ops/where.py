"""A choice between two tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import broadcast_shapes, read_broadcast, same_dtype
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import Expr, Var, select
from tilewright.tensorir.tensor import Tensor


@register_operator
class where(Operator):
    """``x`` where the bool ``condition`` holds, else ``y``, with broadcasting."""

    name = "where"
    arguments = ("condition", "x", "y")
    kind = "broadcast"
    literals_from = 1

    def infer_type(self, args: Sequence[TensorType], attrs: Any) -> TensorType:
        if not args[0].dtype.is_bool:
            raise self.error(0, "a bool tensor", args[0])
        return TensorType(broadcast_shapes(self, args), same_dtype(self, args, 1))

    def reference(self, args: Sequence[Any], attrs: Any) -> Any:
        return np.where(*args).astype(args[1].dtype, copy=False)

    def compute(self, args: Sequence[Tensor], attrs: Any, out: TensorType) -> Tensor:
        def element(*place: Var) -> Expr:
            condition, x, y = [read_broadcast(arg, place) for arg in args]
            return select(condition, x, y)

        return te.compute(out.shape, element, name="where")
