"""Make sizes data: a vector of integer expressions over the symbolic dimensions."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.dims import simplify
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import normalize, sequence_of
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.errors import ArgumentTypeError
from tilewright.tensorir.expr import Expr, Var, as_expr, cast, const, select
from tilewright.tensorir.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class SizesAttrs:
    """``values``: integers and integer expressions over symbolic dimensions; they may be negative."""

    values: Any

    def __post_init__(self) -> None:
        values = []
        for value in sequence_of(self.values, "values"):
            if isinstance(value, Expr):
                if not value.dtype.is_integer:
                    raise ArgumentTypeError(f"values: expected integer expressions, found {value.dtype!s}: {value!s}")
                values.append(simplify(value))
            elif isinstance(value, (int, np.integer)) and not isinstance(value, bool):
                values.append(int(value))
            else:
                raise ArgumentTypeError(f"values: expected integers and integer expressions, found {value!r}")
        normalize(self, values=tuple(values))


@register_operator
class sizes(Operator):
    """Create an int64 vector of ``values``. ``sizes(values=x.shape)`` is the shape of ``x`` as data."""

    name = "sizes"
    kind = "injective"
    Attrs = SizesAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: SizesAttrs) -> TensorType:
        return TensorType((len(attrs.values),), INT64)

    def reference(self, args: Sequence[Any], attrs: SizesAttrs) -> Any:
        return np.array(attrs.values, np.int64)

    def symbolic_value(self, args: Sequence[np.ndarray[Any, Any]], attrs: SizesAttrs, out: TensorType) -> Any:
        made = np.empty(len(attrs.values), object)
        made[:] = attrs.values
        return made

    def compute(self, args: Sequence[Tensor], attrs: SizesAttrs, out: TensorType) -> Tensor:
        values = [cast("int64", as_expr(value)) for value in attrs.values]

        def element(place: Var) -> Expr:
            result: Expr = values[-1] if values else const(0, INT64)
            for number, value in reversed(list(enumerate(values[:-1]))):
                result = select(place <= number, value, result)
            return result

        return te.compute(out.shape, element, name="sizes")
