"""Convert orthogonal polynomials of an order for each element: by their recurrence, up to the greatest order.

The recurrences are those of the NIST Digital Library of Mathematical Functions, 18.9, computed in double precision.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from tilewright.graphir.expr import Expr, const
from tilewright.graphir.frontend.torch.converters.matrices import repeated
from tilewright.graphir.frontend.torch.node import Node, cast_to, shape_of
from tilewright.graphir.frontend.torch.registry import converter
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import add, divide, multiply, subtract, where
from tilewright.tensorir.dtype import FLOAT64, INT64

#: Computes a polynomial of order k from x, k, and those of orders k - 2 and k - 1.
Step = Callable[[Expr, Expr, Expr, Expr], Expr]


def _chebyshev(x: Expr, k: Expr, before: Expr, last: Expr) -> Expr:
    return subtract(multiply(multiply(x, 2.0), last), before)


def _hermite(scale: float) -> Step:
    def step(x: Expr, k: Expr, before: Expr, last: Expr) -> Expr:
        lower = multiply(multiply(subtract(k, 1.0), scale), before)
        return subtract(multiply(multiply(x, scale), last), lower)

    return step


def _laguerre(x: Expr, k: Expr, before: Expr, last: Expr) -> Expr:
    factor = subtract(subtract(multiply(k, 2.0), 1.0), x)
    return divide(subtract(multiply(factor, last), multiply(subtract(k, 1.0), before)), k)


def _legendre(x: Expr, k: Expr, before: Expr, last: Expr) -> Expr:
    factor = multiply(subtract(multiply(k, 2.0), 1.0), x)
    return divide(subtract(multiply(factor, last), multiply(subtract(k, 1.0), before)), k)


def _linear(scale: float, shift: float) -> Callable[[Expr], Expr]:
    def first(x: Expr) -> Expr:
        return add(multiply(x, scale), shift)

    return first


#: The polynomial of order 1 and the recurrence of each family.
_FAMILIES: dict[str, tuple[Callable[[Expr], Expr], Step]] = {
    "chebyshev_polynomial_t": (_linear(1.0, 0.0), _chebyshev),
    "chebyshev_polynomial_u": (_linear(2.0, 0.0), _chebyshev),
    "chebyshev_polynomial_v": (_linear(2.0, -1.0), _chebyshev),
    "chebyshev_polynomial_w": (_linear(2.0, 1.0), _chebyshev),
    "hermite_polynomial_h": (_linear(2.0, 0.0), _hermite(2.0)),
    "hermite_polynomial_he": (_linear(1.0, 0.0), _hermite(1.0)),
    "laguerre_polynomial_l": (_linear(-1.0, 1.0), _laguerre),
    "legendre_polynomial_p": (_linear(1.0, 0.0), _legendre),
}

#: The orders beyond which PyTorch gives NaN, for float32 and float64.
_GREATEST_HERMITE = {32: 128, 64: 512}


def _polynomial(node: Node, x: Any, n: Any, name: str, shifted: bool) -> Expr:
    first, step = _FAMILIES[name]
    spread = functools.partial(get_operator("broadcast_to"), shape=node.shape)
    place = spread(node.tensor(x, FLOAT64))
    if shifted:
        place = subtract(multiply(place, 2.0), 1.0)
    order = spread(node.tensor(n, INT64))
    one = get_operator("ones_like")(place)
    zero = get_operator("zeros_like")(place)
    linear = first(place)
    start = where(get_operator("equal")(order, 0), one, where(get_operator("equal")(order, 1), linear, zero))
    greatest = get_operator("max")(order, axis=tuple(range(len(shape_of(order)))), initial=1)

    def next_order(i: Expr, before: Expr, last: Expr, found: Expr) -> list[Expr]:
        k = add(i, const(2, INT64))
        new = step(place, cast_to(k, FLOAT64), before, last)
        return [last, new, where(get_operator("equal")(order, k), new, found)]

    made = repeated(subtract(greatest, 1), [one, linear, start], next_order)[2]
    limit = _GREATEST_HERMITE.get(node.dtype.bits) if name.startswith("hermite") else None
    if limit is not None:
        made = where(get_operator("greater")(order, limit), const(math.nan, FLOAT64), made)
    return cast_to(made, node.dtype)


def _register(name: str, shifted: bool) -> None:
    def convert(node: Node, x: Any, n: Any) -> Expr:
        return _polynomial(node, x, n, name, shifted)

    overload = f"special_{'shifted_' if shifted else ''}{name}"
    convert.__qualname__ = f"polynomial_{overload}"
    converter(*(f"aten.{overload}.{kind}" for kind in ("default", "n_scalar", "x_scalar")))(convert)


for _name in _FAMILIES:
    _register(_name, shifted=False)
    if _name.startswith("chebyshev"):
        _register(_name, shifted=True)
