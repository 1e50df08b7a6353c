"""Compute factors of matrices and solve systems with them, as loops over columns for all matrices of a batch at once.

The algorithms are those of Golub and Van Loan, "Matrix Computations", chapters 3 to 5, in double precision. A singular
matrix gives infinities or NaN, as code in a graph cannot raise an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.graphir.dims import Dim, as_dim
from tilewright.graphir.expr import Expr, Function, Loop, Tuple, TupleGetItem, Var, const
from tilewright.graphir.frontend.runtime_sizes import as_number
from tilewright.graphir.frontend.torch.node import axis_places, cast_to, shape_of
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import (
    add,
    divide,
    expand_dims,
    matmul,
    multiply,
    sqrt,
    square,
    subtract,
    sum,
    take,
    transpose,
    where,
)
from tilewright.graphir.types import TensorType
from tilewright.tensorir.dtype import FLOAT64, INT64
from tilewright.tensorir.expr import as_expr, minimum

_equal, _less, _greater = (get_operator(name) for name in ("equal", "less", "greater"))


def repeated(count: Dim | Expr, state: Sequence[Expr], step: Callable[..., Sequence[Expr]]) -> list[Expr]:
    """Return the state after ``state = step(k, *state)`` for ``k`` from 0 to ``count - 1``."""
    number = Var("k", TensorType((), INT64))
    params = [Var(f"state_{place}", value.type) for place, value in enumerate(state)]
    body = Function([number, *params], Tuple(list(step(number, *params))))
    trips = count if isinstance(count, Expr) else as_number(count)
    made = Loop(trips, None, body, list(state))
    return [TupleGetItem(made, place) for place in range(len(state))]


def column(vector: Expr) -> Expr:
    """Return vectors as matrices of one column."""
    return expand_dims(vector, axis=len(shape_of(vector)))


def row(vector: Expr) -> Expr:
    """Return vectors as matrices of one row."""
    return expand_dims(vector, axis=len(shape_of(vector)) - 1)


def transposed(x: Expr) -> Expr:
    """Return the transposed matrices."""
    rank = len(shape_of(x))
    return transpose(x, axes=(*range(rank - 2), rank - 1, rank - 2))


def least(a: Dim, b: Dim) -> Dim:
    """Return the lesser of two sizes."""
    return as_dim(minimum(as_expr(a), b))


def identity_like(x: Expr, rows: Dim, columns: Dim) -> Expr:
    """Return ones on the diagonal, for each matrix of a batch like that of ``x``."""
    eye = get_operator("eye")(n=rows, m=columns, k=0, dtype=FLOAT64)
    return get_operator("broadcast_to")(eye, shape=(*shape_of(x)[:-2], rows, columns))


def exchanged(x: Expr, first: Expr, second: Expr) -> Expr:
    """Exchange row ``first``, a number, with row ``second``, one for each matrix of the batch."""
    rows = axis_places(shape_of(x)[-2])
    other = expand_dims(second, axis=len(shape_of(second)))
    index = where(_equal(rows, first), other, where(_equal(rows, other), first, rows))
    spread = get_operator("broadcast_to")(column(index), shape=shape_of(x))
    return get_operator("gather_elements")(x, spread, axis=-2)


def lu_factors(x: Expr, pivot: bool = True) -> tuple[Expr, Expr, Expr]:
    """Return both triangular factors in one matrix, the row that each step exchanged with its own (counted from 1), and
    the number of the first pivot that is 0 (counted from 1), or 0."""
    rows, columns = shape_of(x)[-2:]
    steps = least(rows, columns)
    down, across = axis_places(rows), axis_places(columns)
    batch = shape_of(x)[:-2]
    pivots = get_operator("zeros")(shape=(*batch, steps), dtype=INT64)
    info = get_operator("zeros")(shape=batch, dtype=INT64)

    def step(k: Expr, a: Expr, chosen: Expr, first: Expr) -> list[Expr]:
        candidates = get_operator("abs")(take(a, k, axis=-1))
        below = where(_less(down, k), const(-1.0, FLOAT64), candidates)
        best = get_operator("argmax")(below, axis=-1) if pivot else get_operator("broadcast_to")(k, shape=batch)
        a = exchanged(a, k, best)
        upper = take(a, k, axis=-2)
        head = take(upper, k, axis=-1)
        factor = where(
            _greater(down, k), divide(take(a, k, axis=-1), expand_dims(head, axis=len(batch))), const(0.0, FLOAT64)
        )
        is_zero = _equal(head, const(0.0, FLOAT64))
        factor = where(expand_dims(is_zero, axis=len(batch)), const(0.0, FLOAT64), factor)
        changed = where(_greater(across, k), multiply(column(factor), row(upper)), const(0.0, FLOAT64))
        a = subtract(a, changed)
        stored = get_operator("logical_and")(_equal(row(across), k), _greater(column(down), k))
        a = where(stored, column(factor), a)
        chosen = where(_equal(axis_places(steps), k), expand_dims(add(best, 1), axis=len(batch)), chosen)
        unset = get_operator("logical_and")(is_zero, _equal(first, 0))
        return [a, chosen, where(unset, add(k, 1), first)]

    if isinstance(steps, int) and steps == 0:  # there is no first pivot to look for
        return cast_to(x, FLOAT64), pivots, info
    a, chosen, first = repeated(steps, [cast_to(x, FLOAT64), pivots, info], step)
    return a, chosen, first


def permuted(x: Expr, pivots: Expr, backwards: bool = False) -> Expr:
    """Exchange the rows of ``x`` as the steps of a factorization did, or undo that."""
    count = shape_of(pivots)[-1]

    def step(k: Expr, rows: Expr) -> list[Expr]:
        number = subtract(subtract(as_number(count), 1), k) if backwards else k
        return [exchanged(rows, number, subtract(take(pivots, number, axis=-1), 1))]

    return repeated(count, [x], step)[0]


def triangular_solved(a: Expr, b: Expr, upper: bool, unit: bool) -> Expr:
    """Return the solutions of ``a @ x = b`` for triangular matrices ``a``."""
    size = shape_of(a)[-1]
    down = axis_places(size)

    def step(k: Expr, x: Expr) -> list[Expr]:
        number = subtract(subtract(as_number(size), 1), k) if upper else k
        factors = take(a, number, axis=-1)
        known = take(x, number, axis=-2)
        if not unit:
            known = divide(known, column(take(factors, number, axis=-1)))
        left = _less(down, number) if upper else _greater(down, number)
        changed = multiply(column(where(left, factors, const(0.0, FLOAT64))), row(known))
        return [where(column(_equal(down, number)), row(known), subtract(x, changed))]

    return repeated(size, [b], step)[0]


def with_batch(a: Expr, b: Expr, shape: Sequence[Dim]) -> tuple[Expr, Expr]:
    """Return matrices in double precision, with the leading axes of a result of that shape."""
    return tuple(  # type: ignore[return-value]
        get_operator("broadcast_to")(cast_to(x, FLOAT64), shape=(*shape[:-2], *shape_of(x)[-2:])) for x in (a, b)
    )


def lu_solved(factors: Expr, pivots: Expr, b: Expr) -> Expr:
    """Return the solutions of systems whose matrices have these factors."""
    lower = triangular_solved(factors, permuted(b, pivots), upper=False, unit=True)
    return triangular_solved(factors, lower, upper=True, unit=False)


def cholesky_factor(x: Expr) -> tuple[Expr, Expr]:
    """Return the lower triangular factors of symmetric matrices, of which the lower triangles are read, and the number
    of the first minor that is not positive (counted from 1), or 0."""
    size = shape_of(x)[-1]
    down = axis_places(size)
    batch = shape_of(x)[:-2]
    lower = get_operator("tril")(cast_to(x, FLOAT64))
    info = get_operator("zeros")(shape=batch, dtype=INT64)

    def step(k: Expr, a: Expr, first: Expr) -> list[Expr]:
        head = take(take(a, k, axis=-2), k, axis=-1)
        bad = get_operator("logical_not")(_greater(head, const(0.0, FLOAT64)))
        root = expand_dims(sqrt(head), axis=len(batch))
        factor = where(_less(down, k), const(0.0, FLOAT64), divide(take(a, k, axis=-1), root))
        behind = get_operator("logical_and")(
            _greater(row(down), k), _greater(get_operator("add")(column(down), 1), row(down))
        )
        a = subtract(a, where(behind, multiply(column(factor), row(factor)), const(0.0, FLOAT64)))
        stored = get_operator("logical_and")(_equal(row(down), k), _greater(get_operator("add")(column(down), 1), k))
        unset = get_operator("logical_and")(bad, _equal(first, 0))
        return [where(stored, column(factor), a), where(unset, add(k, 1), first)]

    found, first = repeated(size, [lower, info], step)
    return found, first


def reflections(x: Expr) -> tuple[Expr, Expr]:
    """Return the triangular factors with the vectors of the reflections below, and their factors, as LAPACK's
    ``geqrf`` has them."""
    rows, columns = shape_of(x)[-2:]
    steps = least(rows, columns)
    down, across = axis_places(rows), axis_places(columns)
    batch = shape_of(x)[:-2]
    factors = get_operator("zeros")(shape=(*batch, steps), dtype=FLOAT64)

    def step(k: Expr, a: Expr, taus: Expr) -> list[Expr]:
        entries = take(a, k, axis=-1)
        head = take(entries, k, axis=-1)
        below = where(_greater(down, k), entries, const(0.0, FLOAT64))
        rest = sum(square(below), axis=(-1,))
        size = sqrt(add(square(head), rest))
        beta = where(_less(head, const(0.0, FLOAT64)), size, get_operator("negative")(size))
        is_zero = _equal(rest, const(0.0, FLOAT64))
        beta = where(is_zero, head, beta)
        one = const(1.0, FLOAT64)
        tau = where(is_zero, const(0.0, FLOAT64), divide(subtract(beta, head), where(is_zero, one, beta)))
        scale = where(is_zero, one, subtract(head, beta))
        vector = where(_equal(down, k), one, divide(below, expand_dims(scale, axis=len(batch))))
        projected = matmul(row(vector), a)
        changed = multiply(multiply(column(vector), projected), column(expand_dims(tau, axis=len(batch))))
        a = subtract(a, where(_greater(across, k), changed, const(0.0, FLOAT64)))
        here = _equal(row(across), k)
        stored = get_operator("logical_and")(here, _greater(column(down), k))
        a = where(stored, column(vector), a)
        corner = get_operator("logical_and")(here, _equal(column(down), k))
        a = where(corner, column(expand_dims(beta, axis=len(batch))), a)
        return [a, where(_equal(axis_places(steps), k), expand_dims(tau, axis=len(batch)), taus)]

    found, taus = repeated(steps, [cast_to(x, FLOAT64), factors], step)
    return found, taus


def product_of_reflections(x: Expr, taus: Expr, start: Expr) -> Expr:
    """Multiply ``start`` by the reflections whose vectors are below the diagonal of ``x``, the last one first."""
    down = axis_places(shape_of(x)[-2])
    count = shape_of(taus)[-1]

    def step(k: Expr, q: Expr) -> list[Expr]:
        number = subtract(subtract(as_number(count), 1), k)
        entries = take(x, number, axis=-1)
        vector = where(
            _equal(down, number), const(1.0, FLOAT64), where(_greater(down, number), entries, const(0.0, FLOAT64))
        )
        tau = column(column(take(taus, number, axis=-1)))
        return [subtract(q, multiply(multiply(column(vector), matmul(row(vector), q)), tau))]

    return repeated(count, [start], step)[0]


#: Terms of the series of an exponential of norm 1 at most that reach double precision.
_TERMS = 19


def exponential(x: Expr) -> Expr:
    """Return the exponentials of matrices by scaling, a series, and squaring (Moler and Van Loan, "Nineteen dubious
    ways to compute the exponential of a matrix", 2003, method 3)."""
    size = shape_of(x)[-1]
    norms = sum(get_operator("abs")(x), axis=(-1,))
    axes = tuple(range(len(shape_of(norms))))
    greatest = get_operator("max")(norms, axis=axes, initial=1.0)
    squarings = cast_to(get_operator("ceil")(get_operator("log2")(greatest)), INT64)
    scaled = multiply(x, get_operator("exp2")(cast_to(get_operator("negative")(squarings), FLOAT64)))
    eye = identity_like(x, size, size)
    total = eye
    for k in range(_TERMS, 0, -1):
        total = add(eye, matmul(multiply(scaled, const(1.0 / k, FLOAT64)), total))
    return repeated(squarings, [total], lambda k, e: [matmul(e, e)])[0]
