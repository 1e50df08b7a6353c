"""Reinterpret the bits of a tensor as another type."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import normalize
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.dtype import DataType, as_dtype
from tilewright.tensorir.expr import call, cast
from tilewright.tensorir.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class BitcastAttrs:
    """``dtype``: an element type of the same width as the tensor's."""

    dtype: DataType

    def __post_init__(self) -> None:
        normalize(self, dtype=as_dtype(self.dtype))


@register_operator
class bitcast(Operator):
    """Reinterpret the bits of ``x`` as elements of another type of the same width; a bool is a byte that is 0 or
    not."""

    name = "bitcast"
    arguments = ("x",)
    kind = "elementwise"
    reads_bits = True
    Attrs = BitcastAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: BitcastAttrs) -> TensorType:
        (x,) = args
        if x.dtype.bits != attrs.dtype.bits:
            raise self.error("dtype", f"a type of {x.dtype.bits} bits, as x has", f"{attrs.dtype!s}")
        return TensorType(x.shape, attrs.dtype)

    def reference(self, args: Sequence[Any], attrs: BitcastAttrs) -> Any:
        (x,) = args
        return x != 0 if attrs.dtype.is_bool else x.view(attrs.dtype.numpy).copy()

    def compute(self, args: Sequence[Tensor], attrs: BitcastAttrs, out: TensorType) -> Tensor:
        (x,) = args
        if x.dtype.is_bool or out.dtype.is_bool or x.dtype is out.dtype:  # a bool is a byte 0 or 1
            return te.compute(out.shape, lambda *place: cast(out.dtype, x[place]), name="bitcast")
        return te.compute(out.shape, lambda *place: call("reinterpret", x[place], dtype=out.dtype), name="bitcast")
