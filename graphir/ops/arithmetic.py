"""Arithmetic of two tensors, with broadcasting."""

from __future__ import annotations

import numpy as np

from tilewright.graphir.op import register_operator
from tilewright.graphir.ops.common import FLOATS, Binary
from tilewright.tensorir.expr import Expr, call
from tilewright.tensorir.expr import maximum as scalar_maximum


@register_operator
class add(Binary):
    """``lhs + rhs``; integers wrap."""

    name = "add"
    function = np.add

    def scalar(self, lhs: Expr, rhs: Expr) -> Expr:
        return lhs + rhs


@register_operator
class maximum(Binary):
    """The larger of ``lhs`` and ``rhs``; NaN if either is NaN."""

    name = "maximum"
    function = np.maximum

    def scalar(self, lhs: Expr, rhs: Expr) -> Expr:
        return scalar_maximum(lhs, rhs)


@register_operator
class power(Binary):
    """``lhs`` to the power ``rhs``."""

    name = "power"
    dtypes = FLOATS
    function = np.power

    def scalar(self, lhs: Expr, rhs: Expr) -> Expr:
        return call("pow", lhs, rhs)
