"""Compare two tensors elementwise, with broadcasting; the result is bool."""

from __future__ import annotations

import numpy as np

from tilewright.graphir.op import register_operator
from tilewright.graphir.ops.common import Comparison
from tilewright.tensorir.expr import Expr


@register_operator
class equal(Comparison):
    """Test ``lhs == rhs`` elementwise, with NumPy's broadcasting; false where either is NaN."""

    name = "equal"
    function = np.equal

    def scalar(self, lhs: Expr, rhs: Expr) -> Expr:
        return lhs.equal(rhs)


@register_operator
class not_equal(Comparison):
    """Test ``lhs != rhs`` elementwise, with NumPy's broadcasting; true where either is NaN."""

    name = "not_equal"
    function = np.not_equal

    def scalar(self, lhs: Expr, rhs: Expr) -> Expr:
        return lhs.not_equal(rhs)


@register_operator
class less(Comparison):
    """Test ``lhs < rhs`` elementwise, with NumPy's broadcasting; false where either is NaN."""

    name = "less"
    function = np.less

    def scalar(self, lhs: Expr, rhs: Expr) -> Expr:
        return lhs < rhs


@register_operator
class less_equal(Comparison):
    """Test ``lhs <= rhs`` elementwise, with NumPy's broadcasting; false where either is NaN."""

    name = "less_equal"
    function = np.less_equal

    def scalar(self, lhs: Expr, rhs: Expr) -> Expr:
        return lhs <= rhs


@register_operator
class greater(Comparison):
    """Test ``lhs > rhs`` elementwise, with NumPy's broadcasting; false where either is NaN."""

    name = "greater"
    function = np.greater

    def scalar(self, lhs: Expr, rhs: Expr) -> Expr:
        return lhs > rhs


@register_operator
class greater_equal(Comparison):
    """Test ``lhs >= rhs`` elementwise, with NumPy's broadcasting; false where either is NaN."""

    name = "greater_equal"
    function = np.greater_equal

    def scalar(self, lhs: Expr, rhs: Expr) -> Expr:
        return lhs >= rhs
