"""Treat a value as a constant in derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import ANY, Unary
from tilewright.tensorir.expr import Expr


@register_operator
class stop_gradient(Unary):
    """Return ``x`` unchanged; its derivative is zero, as if it were a constant (``tw.grad``). ``SimplifyInference``
    removes it by its decomposition."""

    name = "stop_gradient"
    dtypes = ANY
    reference = Operator.reference

    def scalar(self, x: Expr) -> Expr:
        return x

    def decompose(self, args: Sequence[GraphExpr], attrs: Any) -> GraphExpr:
        return args[0]

    def simplify_inference(self, args: Sequence[GraphExpr], attrs: Any) -> GraphExpr:
        return self.decompose(args, attrs)
