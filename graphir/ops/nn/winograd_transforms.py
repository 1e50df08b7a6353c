"""Build the matrices of Winograd's minimal filtering, and write their products with few additions.

``winograd.py`` states their origin, and the effect of the interpolation points on the error.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from tilewright.tensorir.expr import Expr, const

#: Height and width of the window.
WINDOW = 3
#: The finite interpolation points for a tile of that size; one more lies at infinity.
POINTS = {2: (0, 1, -1), 4: (0, Fraction(5, 8), Fraction(-5, 8), Fraction(3, 2), Fraction(-3, 2))}

Matrix = tuple[tuple[float, ...], ...]


@dataclasses.dataclass(frozen=True)
class Transforms:
    """The matrices of one-dimensional minimal filtering, ``result @ ((weight @ w) * (image @ x))``.

    Attributes:
        image: ``(tile + 2, tile + 2)``.
        weight: ``(tile + 2, 3)``.
        result: ``(tile, tile + 2)``.
    """

    image: Matrix
    weight: Matrix
    result: Matrix


@functools.cache
def transforms(tile: int) -> Transforms:
    """Return the matrices for ``tile`` results, built from exact fractions."""
    points = [Fraction(point) for point in POINTS[tile]]
    zero, one = Fraction(0), Fraction(1)
    size = len(points) + 1
    result = [[*(point**row for point in points), one if row == tile - 1 else zero] for row in range(tile)]
    weight, image = [], []
    for point in points:
        others = [other for other in points if other is not point]
        scale = math.prod((point - other for other in others), start=one)
        weight.append([point**power / scale for power in range(WINDOW)])
        image.append([*_coefficients(others), zero])
    weight.append([zero] * (WINDOW - 1) + [one])
    image.append(_coefficients(points))
    assert all(len(row) == size for row in (*image, *result))
    return Transforms(_floats(image), _floats(weight), _floats(result))


def _coefficients(roots: Sequence[Fraction]) -> list[Fraction]:
    """Return the polynomial with these roots, its constant term first."""
    found = [Fraction(1)]
    for root in roots:
        found = [low - root * high for low, high in zip([Fraction(0), *found], [*found, Fraction(0)], strict=True)]
    return found


def _floats(rows: Sequence[Sequence[Fraction]]) -> Matrix:
    return tuple(tuple(float(value) for value in row) for row in rows)


def combine(factors: Sequence[float], value: Callable[[int], Expr]) -> Expr:
    """Sum ``factors[k] * value(k)``, the even and the odd terms apart: rows for the points ``p`` and ``-p`` have
    the same even terms and opposite odd ones, so that each sum is computed once for both."""
    halves = [[(k, factors[k]) for k in reversed(range(start, len(factors), 2)) if factors[k]] for start in (0, 1)]
    return _joined([_factored(terms, value) for terms in halves if terms])


def combine_paired(factors: Sequence[float], value: Callable[[int], Expr]) -> Expr:
    """Sum as :func:`combine` for a row over the points ``0, p, -p, q, -q, .., infinity``: the two of a pair have
    the same factor but for its sign, so that their sum, or their difference, is shared by several rows."""
    groups = [[0], *([k, k + 1] for k in range(1, len(factors) - 1, 2)), [len(factors) - 1]]
    kept = [[(k, factors[k]) for k in group if factors[k]] for group in groups]
    return _joined([_factored(terms, value) for terms in kept if terms])


def _joined(parts: Sequence[tuple[float, Expr]]) -> Expr:
    total: Expr | None = None
    for factor, part in parts:
        scaled = part if abs(factor) == 1 else part * const(abs(factor), part.dtype)
        if total is None:
            total = scaled if factor > 0 else -scaled
        else:
            total = total + scaled if factor > 0 else total - scaled
    assert total is not None
    return total


def _factored(terms: Sequence[tuple[int, float]], value: Callable[[int], Expr]) -> tuple[float, Expr]:
    """Factor a sum: return the factor of its first term, and the rest divided by it."""
    factor = terms[0][1]
    return factor, _joined([(weight / factor, value(k)) for k, weight in terms])
