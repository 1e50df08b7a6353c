"""Select between two tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.meaning import Choice
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import broadcast_shapes, read_broadcast, same_dtype
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import Expr, Var, select
from tilewright.tensorir.tensor import Tensor


@register_operator
class where(Operator):
    """Select ``x`` where the bool ``condition`` holds, else ``y``, elementwise with NumPy's broadcasting."""

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

    def meaning(self, args: Sequence[GraphExpr], attrs: Any) -> Choice:
        return Choice(args[0], args[1], args[2])

    def symbolic_value(self, args: Sequence[np.ndarray[Any, Any]], attrs: Any, out: TensorType) -> Any:
        condition, x, y = np.broadcast_arrays(*[arg.astype(object) for arg in args])
        made = np.empty(condition.size, object)
        for number, (which, here, there) in enumerate(zip(condition.flat, x.flat, y.flat, strict=True)):
            made[number] = select(which, here, there) if isinstance(which, Expr) else (here if which else there)
        return made.reshape(condition.shape)

    def compute(self, args: Sequence[Tensor], attrs: Any, out: TensorType) -> Tensor:
        def element(*place: Var) -> Expr:
            condition, x, y = [read_broadcast(arg, place) for arg in args]
            return select(condition, x, y)

        return te.compute(out.shape, element, name="where")
