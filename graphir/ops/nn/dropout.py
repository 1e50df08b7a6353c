"""Define dropout, which does nothing once a model is trained."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import Unary
from tilewright.tensorir.errors import ArgumentValueError
from tilewright.tensorir.expr import Expr


@dataclasses.dataclass(frozen=True)
class DropoutAttrs:
    """``rate``: the share of elements that training drops."""

    rate: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise ArgumentValueError(f"rate: expected a share between 0 and 1, found {self.rate!r}")


@register_operator
class dropout(Unary):
    """Return ``x`` unchanged, as dropout does at inference. ``SimplifyInference`` removes it by its decomposition."""

    name = "nn.dropout"
    arguments = ("data",)
    Attrs = DropoutAttrs
    reference = Operator.reference

    def scalar(self, x: Expr) -> Expr:
        return x

    def decompose(self, args: Sequence[Any], attrs: DropoutAttrs) -> Any:
        return args[0]

    def simplify_inference(self, args: Sequence[Any], attrs: DropoutAttrs) -> Any:
        return self.decompose(args, attrs)
