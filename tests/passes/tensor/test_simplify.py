"""Simplify: decide conditions that follow from ranges and other conditions."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from hypothesis import HealthCheck, given, settings
from strategies import make_arguments, prim_funcs

from tilewright.graphir.module import IRModule
from tilewright.passes.context import PassContext
from tilewright.passes.tensor.simplify import Simplify, simplify
from tilewright.tensorir import interpret, parse, verify


def test_ranges_decide_conditions_and_divisions(rewrites):
    before = """
    primfunc @f(A: Buffer[(4,), float32], B: Buffer[(64,), float32]) attrs {"num_outputs": 1} {
      for i in range(4) {
        for j in range(16) {
          if i * 16 + j < 64 {
            B[i * 16 + j] = A[(i * 16 + j) // 16]
          }
        }
      }
    }
    """
    expected = """
    primfunc @f(A: Buffer[(4,), float32], B: Buffer[(64,), float32]) attrs {"num_outputs": 1} {
      for i in range(4) {
        for j in range(16) {
          B[i * 16 + j] = A[i]
        }
      }
    }
    """
    rewrites(simplify, before, expected)


def test_loops_of_one_iteration_and_none_go_away(rewrites):
    before = """
    primfunc @f(B: Buffer[(8,), float32]) attrs {"num_outputs": 1} {
      for i in range(3, extent=1) {
        B[i + 1] = 1.0
      }
      for i in range(0) {
        B[i] = 2.0
      }
    }
    """
    expected = """
    primfunc @f(B: Buffer[(8,), float32]) attrs {"num_outputs": 1} {
      B[4] = 1.0
    }
    """
    rewrites(simplify, before, expected)


def test_nested_conditions_become_one(rewrites):
    before = """
    primfunc @f(B: Buffer[(8,), float32], n: int64, m: int64) {
      for i in range(8) {
        if i < n {
          if i < m {
            B[i] = 1.0
          }
        }
      }
    }
    """
    expected = """
    primfunc @f(B: Buffer[(8,), float32], n: int64, m: int64) {
      for i in range(8) {
        if i < n and i < m {
          B[i] = 1.0
        }
      }
    }
    """
    rewrites(simplify, before, expected)


def test_a_condition_holds_inside_its_branch_and_not_in_the_other(rewrites):
    before = """
    primfunc @f(B: Buffer[(8,), float32], n: int64) {
      if n < 3 {
        if n < 5 {
          B[0] = 1.0
        }
      } else {
        if n < 3 {
          B[1] = 1.0
        }
      }
    }
    """
    expected = """
    primfunc @f(B: Buffer[(8,), float32], n: int64) {
      if n < 3 {
        B[0] = 1.0
      }
    }
    """
    rewrites(simplify, before, expected)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(prim_funcs(), st.integers(0, 2**32 - 1))
def test_results_of_random_programs_stay(func, seed):
    after = simplify(func)
    assert simplify(after) is after  # the pass leaves its own results alone
    verify(after)
    arguments = make_arguments(func, seed)
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
    interpret(func, *arguments)
    interpret(after, *copies)
    for a, b in zip(arguments, copies, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_result_is_simplified_again_by_the_rules_of_another_level():
    func = parse("primfunc @f(a: Buffer[(4,), float32], b: Buffer[(4,), float32]) { b[0] = a[0] * 0.0 }")
    mod = IRModule({"f": func})
    with PassContext(opt_level=2):
        exact = Simplify()(mod)
    with PassContext(opt_level=3):
        assert "a[0]" not in str(Simplify()(exact)["f"].body)
    assert "a[0]" in str(exact["f"].body)
