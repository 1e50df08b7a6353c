"""Differentiate the arithmetic of two tensors, and choices between them."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.graphir.base import call_operator
from tilewright.graphir.expr import Call, Expr
from tilewright.graphir.gradient import register_gradient
from tilewright.graphir.gradients.common import collapse, masked
from tilewright.graphir.ops import calls


@register_gradient("add")
def add(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Pass the cotangent on to both."""
    return [collapse(cotangent, arg) for arg in call.args]


@register_gradient("subtract")
def subtract(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Negate that of the second."""
    lhs, rhs = call.args
    return collapse(cotangent, lhs), -collapse(cotangent, rhs)


@register_gradient("multiply")
def multiply(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Multiply by the other factor."""
    lhs, rhs = call.args
    return collapse(cotangent * rhs, lhs), collapse(cotangent * lhs, rhs)


@register_gradient("divide")
def divide(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Divide by the divisor: ``d(a/b) = da/b - (a/b) db/b``."""
    lhs, rhs = call.args
    shared = cotangent / rhs
    return collapse(shared, lhs), -collapse(shared * call, rhs)


@register_gradient("floor_divide", "trunc_divide")
def steps(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """State that quotients of whole numbers are constant but for their steps."""
    return None, None


@register_gradient("floor_mod")
def floor_mod(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Differentiate ``a - floor(a / b) * b`` between its steps."""
    lhs, rhs = call.args
    return collapse(cotangent, lhs), -collapse(cotangent * (lhs // rhs), rhs)


@register_gradient("trunc_mod")
def trunc_mod(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Differentiate ``a - trunc(a / b) * b`` between its steps."""
    lhs, rhs = call.args
    return collapse(cotangent, lhs), -collapse(cotangent * call_operator("trunc_divide", lhs, rhs), rhs)


def _share(wins: Expr, ties: Expr, cotangent: Expr) -> Expr:
    return calls.where(wins, cotangent, masked(ties, cotangent * 0.5))


@register_gradient("maximum")
def maximum(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Give the cotangent to the greater one, half to each of equal ones (as PyTorch and JAX)."""
    lhs, rhs = call.args
    ties = lhs.equal(rhs)
    return collapse(_share(lhs > rhs, ties, cotangent), lhs), collapse(_share(rhs > lhs, ties, cotangent), rhs)


@register_gradient("minimum")
def minimum(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Give the cotangent to the lesser one, half to each of equal ones."""
    lhs, rhs = call.args
    ties = lhs.equal(rhs)
    return collapse(_share(lhs < rhs, ties, cotangent), lhs), collapse(_share(rhs < lhs, ties, cotangent), rhs)


@register_gradient("power")
def power(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Differentiate by base, ``b a^(b-1)``, which is 0 for exponent 0 also at base 0; and by exponent, ``a^b log a``,
    which is 0 at base 0 for exponents that are not negative."""
    base, exponent = call.args
    slope = exponent * call_operator("power", base, exponent - 1.0)
    by_base = cotangent * calls.where(exponent.equal(0.0), 0.0, slope)
    vanishes = call_operator("logical_and", base.equal(0.0), exponent >= 0.0)
    logarithm = calls.log(calls.where(vanishes, 1.0, base))
    return collapse(by_base, base), collapse(cotangent * call * logarithm, exponent)


@register_gradient("where")
def where(call: Call, cotangent: Expr) -> Sequence[Expr | None]:
    """Give the cotangent to the chosen one."""
    condition, chosen, other = call.args
    return None, collapse(masked(condition, cotangent), chosen), collapse(calls.where(condition, 0.0, cotangent), other)
