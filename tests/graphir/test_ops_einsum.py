"""Sums of products in Einstein's notation, diagonals and BLAS's product, against NumPy in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.graphir.together import together
from tilewright import graphir as gi
from tilewright.graphir.ops.common import ANY
from tilewright.tensorir.errors import TypeInferenceError

N = ({"n": 2}, {"n": 3})


def loops(equation: str, *operands: Any) -> Any:
    """The sum over all letters of the products, as the notation says: one operand axis is one axis of a product."""
    sources, target = equation.split("->")
    letters = sorted(set(sources) - {","})
    terms = sources.split(",")
    sizes = dict(pair for term, x in zip(terms, operands, strict=True) for pair in zip(term, x.shape, strict=True))
    result = np.zeros([sizes[c] for c in target])
    for place in np.ndindex(*[sizes[c] for c in letters]):
        at = dict(zip(letters, place, strict=True))
        factors = [x[tuple(at[c] for c in term)] for term, x in zip(sources.split(","), operands, strict=True)]
        result[tuple(at[c] for c in target)] += np.prod(factors)
    return result


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij->ji", [("n", 3)]),
        ("ij->i", [("n", 3)]),
        ("ij->", [("n", 3)]),
        ("bii->bi", [(2, "n", "n")]),
        ("iii->i", [(3, 3, 3)]),
        ("i,i->", [("n",), ("n",)]),
        ("i,j->ji", [("n",), (3,)]),
        ("bij,bjk->bik", [("n", 2, 3), ("n", 3, 4)]),
        ("bhid,bhjd->bhij", [(2, 2, "n", 3), (2, 2, 4, 3)]),
        ("ijk,jil->kl", [(2, 3, 4), (3, 2, 5)]),
        ("ij,jk,kl->il", [(2, 3), (3, "n"), ("n", 2)]),
        ("ij,k->i", [(2, 3), (4,)]),
        ("ij,jk->ik", [(2, 0), (0, 3)]),
    ],
    ids=str,
)  # fmt: skip
def test_einsum_is_the_sum_over_all_letters(check: Any, equation: str, shapes: Any) -> None:
    types = [(shape, "float32") for shape in shapes]
    check("einsum", types, {"equation": equation}, lambda *x: loops(equation, *x), None, N, 10)


def test_an_ellipsis_broadcasts(check: Any) -> None:
    types = [((2, 1, 3, 4), "float64"), ((5, 4, 2), "float64")]
    check("einsum", types, {"equation": "...ij,...jk->...ik"}, np.matmul)
    check("einsum", types[:1], {"equation": "...ij"}, lambda x: x)
    check("einsum", [((2, 3), "float64")], {"equation": "ba"}, lambda x: x.T)


@together("dtype", ["bfloat16", "int32", "uint8"])
def test_einsum_of_other_types(check: Any, dtype: str) -> None:
    check("einsum", [((2, 3), dtype), ((3, 2), dtype)], {"equation": "ij,jk->ik"}, np.matmul, scale=10)


@together("dtype", ANY)
def test_diagonals_agree_with_numpy(check: Any, dtype: str) -> None:
    attrs = {"axis1": 0, "axis2": -1}
    check("diagonal", [(("n", 2, "n"), dtype)], attrs, lambda x: np.diagonal(x, 0, 0, -1), None, N)


@together("dtype", ["float16", "float32", "int32"])
@pytest.mark.parametrize("flags", [(False, True), (True, False)])
def test_gemm_scales_product_and_summand(check: Any, dtype: str, flags: tuple[bool, bool]) -> None:
    attrs = {"alpha": 2.0, "beta": 3.0, "transpose_a": flags[0], "transpose_b": flags[1]}
    a, b = ((4, "n") if flags[0] else ("n", 4)), ((3, 4) if flags[1] else (4, 3))

    def expected(a: Any, b: Any, c: Any = 0) -> Any:
        return 2 * (a.T if flags[0] else a) @ (b.T if flags[1] else b) + 3 * c

    check("gemm", [(a, dtype), (b, dtype)], attrs, expected, None, N, 20)
    check("gemm", [(a, dtype), (b, dtype), ((3,), dtype)], attrs, expected, None, N, 20)


@pytest.mark.parametrize(
    ("equation", "shapes", "message"),
    [
        ("ij,jk->ik", [(2, 3)], "terms for 1 operands"),
        ("ijk->i", [(2, 3)], "operand: expected as many axes as 'ijk' has letters"),
        ("ij->k", [(2, 3)], "each letter of the result once"),
        ("ij,jk->ik", [(2, 3), (4, 5)], "expected extent 3 for 'j'"),
        ("i1->i", [(2, 3)], "expected letters"),
    ],
)
def test_wrong_equations_are_named(equation: str, shapes: Any, message: str) -> None:
    with pytest.raises(TypeInferenceError, match=message):
        gi.get_operator("einsum")(*[gi.var(f"x{n}", shape=s) for n, s in enumerate(shapes)], equation=equation)
