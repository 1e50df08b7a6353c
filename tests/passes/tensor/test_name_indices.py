"""NameIndices: name the parts of a fused loop's variable, with their known ranges."""

from __future__ import annotations

import pytest

from tilewright.passes.tensor.name_indices import name_indices
from tilewright.passes.tensor.simplify import simplify
from tilewright.tensorir import parse
from tilewright.tensorir.expr import BinaryOp
from tilewright.tensorir.functor import walk
from tilewright.tensorir.stmt import IfThenElse, LetStmt

TRANSPOSE = """
primfunc @f(A: Buffer[(m, n, 4), float32], B: Buffer[(n, m, 4), float32], m: int64, n: int64) attrs {"num_outputs": 1} {
  for i in parallel(m * n) {
    for j in range(4) {
      if i // n < m and i % n < n {
        B[i % n, i // n, j] = A[i // n, i % n, j]
      }
    }
  }
}
"""


@pytest.mark.parametrize("sizes", [(0, 3), (3, 0), (1, 1), (3, 5)])
def test_names_keep_what_is_computed(keeps_results, sizes) -> None:
    m, n = sizes
    keeps_results(name_indices, TRANSPOSE, m=m, n=n)


def test_each_quotient_and_remainder_is_computed_once() -> None:
    after = name_indices(parse(TRANSPOSE))
    assert sum(isinstance(node, LetStmt) for node in walk(after.body)) == 2
    assert sum(isinstance(node, BinaryOp) and node.op in ("floordiv", "floormod") for node in walk(after.body)) == 2


def test_the_ranges_of_names_are_known() -> None:
    after = simplify(name_indices(parse(TRANSPOSE)))
    assert not any(isinstance(node, IfThenElse) for node in walk(after.body))


def test_a_division_that_may_trap_stays_under_its_condition() -> None:
    func = parse("""
primfunc @f(A: Buffer[(m,), int64], m: int64, n: int64) attrs {"num_outputs": 1} {
  for i in parallel(m) {
    for j in range(2) {
      if n > 0 {
        A[i] = i // n
      }
    }
  }
}
""")
    assert name_indices(func).body is func.body


def test_a_formula_of_an_inner_loop_stays() -> None:
    func = parse("""
primfunc @f(A: Buffer[(m, 2), int64], m: int64) attrs {"num_outputs": 1} {
  for i in parallel(m) {
    for j in range(2) {
      A[i, j] = (i + j) // 3
    }
  }
}
""")
    assert name_indices(func).body is func.body
