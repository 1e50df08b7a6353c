"""Convert factorizations of matrices, and what is solved with them."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.graphir.expr import Expr, const
from tilewright.graphir.frontend.torch.converters.matrices import (
    cholesky_factor,
    column,
    exponential,
    identity_like,
    least,
    lu_factors,
    lu_solved,
    permuted,
    product_of_reflections,
    reflections,
    transposed,
    triangular_solved,
    with_batch,
)
from tilewright.graphir.frontend.torch.node import Node, axis_places, cast_to, reshaped, shape_of
from tilewright.graphir.frontend.torch.registry import converter
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import add, log, matmul, multiply, sum, where
from tilewright.tensorir.dtype import FLOAT64, INT64


def _as_results(node: Node, *values: Expr) -> list[Expr]:
    """Return values with the element types of the results."""
    return [cast_to(value, node.result(number).dtype) for number, value in enumerate(values)]


# Factors of general matrices.


@converter("aten.linalg_lu_factor_ex.default")
def lu_factor(node: Node, a: Expr, pivot: bool, check_errors: bool) -> list[Expr]:
    """Return the triangular factors in one matrix, the exchanged rows, and the number of a pivot that is 0."""
    return _as_results(node, *lu_factors(a, pivot))


@converter("aten.linalg_lu.default")
def lu(node: Node, a: Expr, pivot: bool) -> list[Expr]:
    """Return the permutation and both triangular factors; without pivoting the permutation is empty."""
    factors, pivots, _ = lu_factors(a, pivot)
    return _as_results(node, *_unpacked(node, factors, pivots, True, pivot))


@converter("aten.lu_unpack.default")
def lu_unpack(node: Node, data: Expr, pivots: Expr, unpack_data: bool, unpack_pivots: bool) -> list[Expr]:
    """Return the permutation and both triangular factors of a factorization; empty those that are not asked for."""
    return _as_results(
        node, *_unpacked(node, cast_to(data, FLOAT64), cast_to(pivots, INT64), unpack_data, unpack_pivots)
    )


def _unpacked(node: Node, factors: Expr, pivots: Expr, data: bool, permutation: bool) -> list[Expr]:
    rows, columns = shape_of(factors)[-2:]
    results = [get_operator("zeros")(shape=node.result(number).shape, dtype=FLOAT64) for number in range(3)]
    if permutation:
        results[0] = transposed(permuted(identity_like(factors, rows, rows), pivots))
    if data:
        size = least(rows, columns)
        lower = get_operator("slice")(get_operator("tril")(factors, -1), begin=(0,), end=(size,), axes=(-1,))
        results[1] = add(lower, identity_like(factors, rows, size))
        results[2] = get_operator("slice")(get_operator("triu")(factors), begin=(0,), end=(size,), axes=(-2,))
    return results


@converter("aten._linalg_det.default")
def determinant(node: Node, a: Expr) -> list[Expr]:
    """Return determinants; the factors behind are only for gradients."""
    factors, pivots, _ = lu_factors(a)
    made = multiply(get_operator("prod")(_diagonal(factors), axis=(-1,)), _parity(pivots))
    return _as_results(node, made, factors, pivots)


@converter("aten._linalg_slogdet.default")
def log_determinant(node: Node, a: Expr) -> list[Expr]:
    """Return the signs of determinants and the logarithms of their absolute values; the factors behind are only for
    gradients."""
    factors, pivots, _ = lu_factors(a)
    entries = _diagonal(factors)
    signs = multiply(get_operator("prod")(get_operator("sign")(entries), axis=(-1,)), _parity(pivots))
    logs = sum(log(get_operator("abs")(entries)), axis=(-1,))
    return _as_results(node, signs, logs, factors, pivots)


def _diagonal(x: Expr) -> Expr:
    rank = len(shape_of(x))
    return get_operator("diagonal")(x, axis1=rank - 2, axis2=rank - 1)


def _parity(pivots: Expr) -> Expr:
    """Return -1 for an odd number of exchanged rows."""
    own = add(axis_places(shape_of(pivots)[-1]), 1)
    factor = where(get_operator("equal")(pivots, own), const(1.0, FLOAT64), const(-1.0, FLOAT64))
    return get_operator("prod")(factor, axis=(-1,))


@converter("aten.linalg_inv_ex.default")
def inverse(node: Node, a: Expr, check_errors: bool) -> list[Expr]:
    """Return inverses, and the number of a pivot that is 0."""
    factors, pivots, info = lu_factors(a)
    size = shape_of(a)[-1]
    return _as_results(node, lu_solved(factors, pivots, identity_like(a, size, size)), info)


@converter("aten._linalg_solve_ex.default")
def solve(node: Node, a: Expr, b: Expr, left: bool, check_errors: bool) -> list[Expr]:
    """Return the solutions of ``a @ x = b``, or ``x @ a = b``, and the factors of ``a``."""
    shape = node.result(0).shape
    is_vector = len(shape_of(b)) == 1 or (
        len(shape_of(b)) == len(shape_of(a)) - 1 and len(shape) == len(shape_of(a)) - 1
    )
    right = column(b) if is_vector else b
    wanted = (*shape, 1) if is_vector else shape
    matrix = a if left else transposed(a)
    factors, pivots, info = lu_factors(matrix)
    if not left:
        wanted, right = (*wanted[:-2], wanted[-1], wanted[-2]), transposed(right)
    spread, values = with_batch(factors, right, wanted)
    order = get_operator("broadcast_to")(pivots, shape=(*wanted[:-2], shape_of(pivots)[-1]))
    found = lu_solved(spread, order, values)
    found = found if left else transposed(found)
    kept, kept_pivots = (factors, pivots) if left else lu_factors(a)[:2]
    return _as_results(node, reshaped(found, shape), kept, kept_pivots, info)


@converter("aten.linalg_lu_solve.default")
def solve_by_factors(node: Node, data: Expr, pivots: Expr, b: Expr, left: bool, adjoint: bool) -> Expr:
    """Return the solutions of systems whose matrices, or their transposes, have these factors."""
    shape = node.shape
    is_transposed = adjoint == left  # x @ a = b is a^T @ x^T = b^T
    wanted, right = (shape, b) if left else ((*shape[:-2], shape[-1], shape[-2]), transposed(b))
    factors, values = with_batch(data, right, wanted)
    order = get_operator("broadcast_to")(cast_to(pivots, INT64), shape=(*wanted[:-2], shape_of(pivots)[-1]))
    if is_transposed:
        upper = triangular_solved(transposed(factors), values, upper=False, unit=False)
        lower = triangular_solved(transposed(factors), upper, upper=True, unit=True)
        found = permuted(lower, order, backwards=True)
    else:
        found = lu_solved(factors, order, values)
    return cast_to(found if left else transposed(found), node.dtype)


# Triangular and positive definite matrices.


@converter("aten.linalg_solve_triangular.default")
def solve_triangular(node: Node, a: Expr, b: Expr, upper: bool, left: bool, unitriangular: bool) -> Expr:
    """Return the solutions of ``a @ x = b``, or ``x @ a = b``, for triangular matrices."""
    shape = node.shape
    if not left:
        a, b, upper, shape = transposed(a), transposed(b), not upper, (*shape[:-2], shape[-1], shape[-2])
    found = triangular_solved(*with_batch(a, b, shape), upper=upper, unit=unitriangular)
    return cast_to(found if left else transposed(found), node.dtype)


@converter("aten.triangular_solve.default")
def solve_triangular_pair(
    node: Node, b: Expr, a: Expr, upper: bool, transpose: bool, unitriangular: bool
) -> Sequence[Expr]:
    """Return the solutions of ``a @ x = b`` for triangular matrices, and these."""
    shape = node.result(0).shape
    matrix, values = with_batch(transposed(a) if transpose else a, b, shape)
    found = triangular_solved(matrix, values, upper=upper != transpose, unit=unitriangular)
    return _as_results(node, found, get_operator("broadcast_to")(a, shape=node.result(1).shape))


@converter("aten.linalg_cholesky_ex.default")
def cholesky_with_info(node: Node, a: Expr, upper: bool, check_errors: bool) -> list[Expr]:
    """Return triangular factors of positive definite matrices, and the number of a minor that is not positive."""
    found, info = cholesky_factor(transposed(a) if upper else a)
    return _as_results(node, transposed(found) if upper else found, info)


@converter("aten.cholesky.default")
def cholesky(node: Node, a: Expr, upper: bool) -> Expr:
    """Return triangular factors of positive definite matrices."""
    found, _ = cholesky_factor(transposed(a) if upper else a)
    return cast_to(transposed(found) if upper else found, node.dtype)


@converter("aten.cholesky_solve.default")
def cholesky_solve(node: Node, b: Expr, factor: Expr, upper: bool) -> Expr:
    """Return the solutions of systems whose matrices have these factors."""
    matrix, values = with_batch(factor, b, node.shape)
    return cast_to(_by_cholesky(matrix, values, upper), node.dtype)


@converter("aten.cholesky_inverse.default")
def cholesky_inverse(node: Node, factor: Expr, upper: bool) -> Expr:
    """Return the inverses of matrices that have these factors."""
    size = shape_of(factor)[-1]
    wide = cast_to(factor, FLOAT64)
    return cast_to(_by_cholesky(wide, identity_like(factor, size, size), upper), node.dtype)


def _by_cholesky(factor: Expr, b: Expr, upper: bool) -> Expr:
    lower = transposed(factor) if upper else factor
    found = triangular_solved(lower, b, upper=False, unit=False)
    return triangular_solved(transposed(lower), found, upper=True, unit=False)


# Orthogonal factors.


@converter("aten.geqrf.default")
def geqrf(node: Node, a: Expr) -> list[Expr]:
    """Return the triangular factors with the vectors of reflections below, and their factors."""
    return _as_results(node, *reflections(a))


@converter("aten.linalg_householder_product.default")
def householder_product(node: Node, vectors: Expr, taus: Expr) -> Expr:
    """Return the first columns of the product of reflections."""
    rows, columns = shape_of(vectors)[-2:]
    start = identity_like(vectors, rows, columns)
    found = product_of_reflections(cast_to(vectors, FLOAT64), cast_to(taus, FLOAT64), start)
    return cast_to(found, node.dtype)


@converter("aten.ormqr.default")
def multiply_by_reflections(node: Node, vectors: Expr, taus: Expr, other: Expr, left: bool, transpose: bool) -> Expr:
    """Multiply by the product of reflections, from either side."""
    rows = shape_of(vectors)[-2]
    q = product_of_reflections(cast_to(vectors, FLOAT64), cast_to(taus, FLOAT64), identity_like(vectors, rows, rows))
    factor = transposed(q) if transpose else q
    wide = cast_to(other, FLOAT64)
    return cast_to(matmul(factor, wide) if left else matmul(wide, factor), node.dtype)


@converter("aten.linalg_qr.default")
def qr(node: Node, a: Expr, mode: str) -> list[Expr]:
    """Return orthogonal and triangular factors; only as many columns as there are, or all."""
    rows, columns = shape_of(a)[-2:]
    found, taus = reflections(a)
    size = rows if mode == "complete" else least(rows, columns)
    r = get_operator("slice")(get_operator("triu")(found), begin=(0,), end=(size,), axes=(-2,))
    if mode == "r":
        return _as_results(node, get_operator("zeros")(shape=(0,), dtype=FLOAT64), r)
    return _as_results(node, product_of_reflections(found, taus, identity_like(a, rows, size)), r)


@converter("aten.linalg_matrix_exp.default")
def matrix_exponential(node: Node, a: Expr) -> Expr:
    """Return the exponentials of matrices."""
    return cast_to(exponential(cast_to(a, FLOAT64)), node.dtype)
