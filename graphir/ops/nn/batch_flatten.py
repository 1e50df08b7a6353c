"""Flatten each item of a batch to a vector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.graphir.dims import product
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.reshape import reshaped
from tilewright.graphir.types import TensorType
from tilewright.tensorir.tensor import Tensor


@register_operator
class batch_flatten(Operator):
    """Join all axes of ``data`` behind the first into one."""

    name = "nn.batch_flatten"
    arguments = ("data",)
    kind = "injective"
    keeps_order = True

    def infer_type(self, args: Sequence[TensorType], attrs: Any) -> TensorType:
        (data,) = args
        if data.ndim == 0:
            raise self.error(0, "at least one dimension", data)
        return TensorType((data.shape[0], product(data.shape[1:])), data.dtype)

    def reference(self, args: Sequence[Any], attrs: Any) -> Any:
        (data,) = args
        return data.reshape(data.shape[0], int(product(data.shape[1:])))  # type: ignore[arg-type]

    def compute(self, args: Sequence[Tensor], attrs: Any, out: TensorType) -> Tensor:
        return reshaped(args[0], out.shape, "batch_flatten")
