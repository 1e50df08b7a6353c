"""LowerBlocks: turn blocks into statements under their conditions."""

from __future__ import annotations

import pytest

from tilewright.graphir.module import IRModule
from tilewright.passes import get_pass
from tilewright.passes.tensor.lower_blocks import lower_blocks
from tilewright.tensorir import parse
from tilewright.tensorir.errors import VerifyError
from tilewright.tensorir.target import Target

SUM = """
primfunc @sum(A: Buffer[(n, 8), float32], B: Buffer[(n,), float32], n: int64) attrs {"num_outputs": 1} {
  for i in range(n) {
    for ko in range(2) {
      for ki in range(4) {
        block sum(vi: spatial(n) = i, vk: reduction(8) = ko * 4 + ki) {
          reads A[vi, vk]
          writes B[vi]
          init {
            B[vi] = 0.0
          }
          B[vi] = B[vi] + A[vi, vk]
        }
      }
    }
  }
}
"""


def test_init_runs_at_the_least_value_of_the_reduction(rewrites):
    expected = """
    primfunc @sum(A: Buffer[(n, 8), float32], B: Buffer[(n,), float32], n: int64) attrs {"num_outputs": 1} {
      for i in range(n) {
        for ko in range(2) {
          for ki in range(4) {
            if ko * 4 + ki == 0 {
              B[i] = 0.0
            }
            B[i] = B[i] + A[i, ko * 4 + ki]
          }
        }
      }
    }
    """
    rewrites(lower_blocks, SUM, expected)


def test_formulas_chosen_by_their_place_become_selections(rewrites):
    before = """
    primfunc @f(A: Buffer[(8,), float32], B: Buffer[(8,), float32]) attrs {"num_outputs": 1} {
      for i in range(8) {
        block b(v: spatial(8) = i) {
          reads A[v]
          writes B[v]
          B[v] = choose(v % 4, A[v], 0.0, A[v] * 2.0)
        }
      }
    }
    """
    expected = """
    primfunc @f(A: Buffer[(8,), float32], B: Buffer[(8,), float32]) attrs {"num_outputs": 1} {
      for i in range(8) {
        B[i] = select(i % 4 == 0, A[i], select(i % 4 == 1, 0.0, A[i] * 2.0))
      }
    }
    """
    rewrites(lower_blocks, before, expected)


def test_choices_outside_of_blocks_become_selections(rewrites):
    before = """
    primfunc @f(A: Buffer[(8,), float32], B: Buffer[(8,), float32]) attrs {"num_outputs": 1} {
      for i in range(8) {
        B[i] = choose(i % 2, A[i], 0.0)
      }
    }
    """
    rewrites(lower_blocks, before, before.replace("choose(i % 2, A[i], 0.0)", "select(i % 2 == 0, A[i], 0.0)"))


def test_predicate_becomes_a_condition_around_init_and_body(rewrites):
    before = """
    primfunc @f(A: Buffer[(n,), float32], n: int64) {
      for io in range((n + 3) // 4) {
        for ii in range(4) {
          block b(v: spatial(n) = io * 4 + ii) where io * 4 + ii < n {
            writes A[v]
            A[v] = 1.0
          }
        }
      }
    }
    """
    expected = """
    primfunc @f(A: Buffer[(n,), float32], n: int64) {
      for io in range((n + 3) // 4) {
        for ii in range(4) {
          if io * 4 + ii < n {
            A[io * 4 + ii] = 1.0
          }
        }
      }
    }
    """
    rewrites(lower_blocks, before, expected)


def test_results_stay(keeps_results):
    keeps_results(lower_blocks, SUM, n=5)


@pytest.mark.parametrize("name", ["CompactBuffer", "VectorizeLoop", "FlattenBuffer", "UnrollLoop"])
def test_a_pass_that_would_break_a_block_names_the_pass_that_was_left_out(name: str) -> None:
    """Such a pass replaces buffers that regions keep, widens the value of an iteration variable, or copies."""
    func = parse("""
    primfunc @f(A: Buffer[(2, 8), float32], C: Buffer[(2, 8), float32]) attrs {"num_outputs": 1} {
      allocate T: Buffer[(2, 8), float32, arena]
      for i in unrolled(2) {
        for j in vectorized(8) {
          block t(vi: spatial(2) = i, vj: spatial(8) = j) {
            reads A[vi, vj]
            writes T[vi, vj]
            T[vi, vj] = A[vi, vj] + 1.0
          }
        }
        for j in vectorized(8) {
          block c(vi: spatial(2) = i, vj: spatial(8) = j) {
            reads T[vi, vj]
            writes C[vi, vj]
            C[vi, vj] = T[vi, vj] * 2.0
          }
        }
      }
    }
    """)
    with Target("llvm", num_threads=2), pytest.raises(VerifyError, match=r"found block [tc]; run LowerBlocks first"):
        get_pass(name)(IRModule({"f": func}))
