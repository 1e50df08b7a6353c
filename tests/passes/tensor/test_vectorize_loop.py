"""VectorizeLoop: turn loop iterations into vector lanes."""

from __future__ import annotations

import functools

import pytest

from tilewright.passes.context import PassContext
from tilewright.passes.tensor.vectorize_loop import vectorize_loops
from tilewright.tensorir.expr import Expr, Ramp
from tilewright.tensorir.functor import walk
from tilewright.tensorir.stmt import For
from tilewright.tensorir.target import Target

AVX512 = Target("llvm", mcpu="x86-64-v4")
on_avx512 = functools.partial(vectorize_loops, target=AVX512)


def is_vector_code(func):
    return any(isinstance(node, Expr) and node.dtype.lanes > 1 for node in walk(func.body))


def test_a_power_of_two_becomes_one_vector(rewrites):
    before = """
    primfunc @f(A: Buffer[(4, 16), float32], B: Buffer[(4, 16), float32]) attrs {"num_outputs": 1} {
      for i in range(4) {
        for j in vectorized(16) {
          B[i, j] = A[i, j] * A[i, 0] + 1.0
        }
      }
    }
    """
    expected = """
    primfunc @f(A: Buffer[(4, 16), float32], B: Buffer[(4, 16), float32]) attrs {"num_outputs": 1} {
      for i in range(4) {
        B[i, ramp(0, 1, 16)] = A[i, ramp(0, 1, 16)] * broadcast(A[i, 0], 16) + broadcast(1.0, 16)
      }
    }
    """
    rewrites(on_avx512, before, expected)


def test_a_symbolic_extent_becomes_vectors_and_a_masked_tail(rewrites):
    before = """
    primfunc @f(A: Buffer[(n,), float32], B: Buffer[(n,), float32], n: int64) attrs {"num_outputs": 1} {
      for i in vectorized(n) {
        B[i] = A[i]
      }
    }
    """
    expected = """
    primfunc @f(A: Buffer[(n,), float32], B: Buffer[(n,), float32], n: int64) attrs {"num_outputs": 1} {
      for io in range(n // 16) {
        B[ramp(io * 16, 1, 16)] = A[ramp(io * 16, 1, 16)]
      }
      if n % 16 > 0 {
        let tail: boolx16 = ramp(int32(0), int32(1), 16) < broadcast(int32(n % 16), 16)
        B[ramp(n // 16 * 16, 1, 16) where tail] = A[ramp(n // 16 * 16, 1, 16) where tail]
      }
    }
    """
    rewrites(on_avx512, before, expected)


ELEMENTWISE = """
primfunc @f(A: Buffer[(n,), float32], B: Buffer[(n,), float32], n: int64) attrs {"num_outputs": 1} {
  for i in vectorized(n) {
    let x: float32 = A[i]
    if x > 0.0 {
      B[i] = sqrt(x) + A[n - 1 - i]
    } else {
      B[i] = x * 0.5
    }
  }
}
"""


@pytest.mark.parametrize("tail", ["mask", "peel"])
@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 40])
def test_lets_and_conditions_per_lane(keeps_results, tail, n):
    with PassContext(config={"tensorir.VectorizeLoop": {"tail": tail}}):
        after = keeps_results(on_avx512, ELEMENTWISE, n=n)
    assert is_vector_code(after)


def test_a_buffer_inside_the_loop_gets_one_element_for_each_lane(keeps_results):
    after = keeps_results(
        on_avx512,
        """
        primfunc @f(A: Buffer[(8, n), float32], B: Buffer[(n,), float32], n: int64) attrs {"num_outputs": 1} {
          for j in vectorized(n) {
            allocate acc: Buffer[(1,), float32, register]
            acc[0] = 0.0
            for k in range(8) {
              acc[0] = acc[0] + A[k, j]
            }
            B[j] = acc[0]
          }
        }
        """,
        n=21,
    )
    assert "Buffer[(1, 16), float32, register" in str(after)


SUM = """
primfunc @f(A: Buffer[(3, n), float32], B: Buffer[(3,), float32], n: int64) attrs {"num_outputs": 1} {
  for i in range(3) {
    B[i] = 0.0
    for j in vectorized(n) {
      B[i] = B[i] OP A[i, j]
    }
  }
}
"""


@pytest.mark.parametrize("n", [0, 1, 16, 63, 200])
def test_a_maximum_over_the_loop_is_exact(keeps_results, n):
    program = SUM.replace("B[i] OP A[i, j]", "max(B[i], A[i, j])")
    assert "reduce_max" in str(keeps_results(on_avx512, program, n=n))


def test_a_float_sum_over_the_loop_needs_leave_to_round_differently(keeps_results):
    program = SUM.replace("OP", "+")
    with PassContext() as ctx:
        after = keeps_results(on_avx512, program, n=50)
    assert not is_vector_code(after)
    assert any("rounds differently" in remark.message for remark in ctx.remarks)
    with PassContext(opt_level=3):
        after = keeps_results(on_avx512, program, rtol=1e-5, n=50)
    assert "reduce_add" in str(after)


def test_row_and_column_of_a_fused_index_stay_contiguous(keeps_results):
    after = keeps_results(
        on_avx512,
        """
        primfunc @f(A: Buffer[(32,), float32], B: Buffer[(8, 32), float32]) attrs {"num_outputs": 1} {
          for f in vectorized(256) {
            B[f // 32, f % 32] = A[f % 32]
          }
        }
        """,
    )
    ramps = [node for node in walk(after.body) if isinstance(node, Ramp)]
    assert ramps and "floormod" not in str(after) and all(ramp.stride.value == 1 for ramp in ramps)


def test_division_by_zero_in_lanes_that_do_not_count_is_avoided(keeps_results):
    keeps_results(
        on_avx512,
        """
        primfunc @f(B: Buffer[(n,), int32], n: int64) attrs {"num_outputs": 1} {
          for i in vectorized(n) {
            B[i] = int32(100 // (n - i))
          }
        }
        """,
        n=21,
    )


def test_a_predicate_per_lane_on_a_buffer_without_dimensions(keeps_results):
    after = keeps_results(
        on_avx512,
        """
        primfunc @f(A: Buffer[(), float32], B: Buffer[(n,), float32], n: int64) attrs {"num_outputs": 1} {
          for i in vectorized(n) {
            B[i] = A[() where i % 3 > 0] + 1.0
          }
        }
        """,
        n=21,
    )
    assert is_vector_code(after)


def test_a_store_of_all_iterations_to_one_element_keeps_the_loop_serial(keeps_results):
    with PassContext() as ctx:
        after = keeps_results(
            on_avx512,
            """
            primfunc @f(A: Buffer[(8,), float32], B: Buffer[(1,), float32]) attrs {"num_outputs": 1} {
              for i in vectorized(8) {
                B[0] = A[i] * 2.0
              }
            }
            """,
        )
    assert isinstance(after.body, For) and after.body.kind == "serial"
    assert any("same element of B" in remark.message for remark in ctx.remarks)


def test_a_loop_around_vectors_stays_a_loop(keeps_results):
    after = keeps_results(
        on_avx512,
        """
        primfunc @f(B: Buffer[(4, 16), float32]) attrs {"num_outputs": 1} {
          for i in vectorized(4) {
            for j in vectorized(16) {
              B[i, j] = float32(i * 16 + j)
            }
          }
        }
        """,
    )
    assert isinstance(after.body, For) and after.body.kind == "serial" and is_vector_code(after)


LOOP = """
primfunc @f(A: Buffer[(32,), float32], B: Buffer[(32,), float32]) attrs {"num_outputs": 1} {
  for i in vectorized(32) { BODY }
}
"""


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            "allocate t: Buffer[(i + 1,), float32, stack] t[0] = A[i] B[i] = t[0]",
            "the shape of t differs between lanes",
        ),
        ("for j in parallel(2) { B[i] = A[i] }", "it contains the parallel loop j"),
        ("for j in range(i + 1) { B[i] = A[j] }", "the bounds of the inner loop j differ between lanes"),
        ("B[0] = max(B[0], A[i]) B[1] = B[0]", "it reduces into B and accesses it elsewhere in its body"),
    ],
)
def test_what_has_no_vectors_stays_a_loop_and_says_why(keeps_results, body, reason):
    with PassContext() as ctx:
        after = keeps_results(on_avx512, LOOP.replace("BODY", body))
    assert not is_vector_code(after)
    assert any(reason in remark.message for remark in ctx.remarks), [remark.message for remark in ctx.remarks]
