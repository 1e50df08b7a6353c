"""CompactBuffer: move and shrink intermediate buffers."""

from __future__ import annotations

import pytest

from tilewright.passes.tensor.compact_buffer import compact_buffers
from tilewright.tensorir import parse
from tilewright.tensorir.functor import walk
from tilewright.tensorir.stmt import Allocate, For

TILED = """
primfunc @f(A: Buffer[(n, 64), float32], C: Buffer[(n, 64), float32], n: int64) attrs {"num_outputs": 1} {
  allocate T: Buffer[(n, 64), float32, arena]
  for io in range((n + 5) // 6) {
    for jo in range(4) {
      for ii in range(6) {
        for ji in range(16) {
          if io * 6 + ii < n {
            T[io * 6 + ii, jo * 16 + ji] = 0.0
          }
        }
      }
      for k in range(64) {
        for ii in range(6) {
          for ji in range(16) {
            if io * 6 + ii < n {
              T[io * 6 + ii, jo * 16 + ji] = T[io * 6 + ii, jo * 16 + ji] + A[io * 6 + ii, k]
            }
          }
        }
      }
      for ii in range(6) {
        for ji in range(16) {
          if io * 6 + ii < n {
            C[io * 6 + ii, jo * 16 + ji] = T[io * 6 + ii, jo * 16 + ji] * 2.0
          }
        }
      }
    }
  }
}
"""


def allocated(func):
    return [node.buffer for node in walk(func.body) if isinstance(node, Allocate)]


def test_an_accumulator_becomes_a_tile_outside_of_the_reduction_loop(rewrites):
    expected = """
    primfunc @f(A: Buffer[(n, 64), float32], C: Buffer[(n, 64), float32], n: int64) attrs {"num_outputs": 1} {
      for io in range((n + 5) // 6) {
        for jo in range(4) {
          allocate T: Buffer[(6, 16), float32, stack]
          for ii in range(6) {
            for ji in range(16) {
              if io * 6 + ii < n {
                T[ii, ji] = 0.0
              }
            }
          }
          for k in range(64) {
            for ii in range(6) {
              for ji in range(16) {
                if io * 6 + ii < n {
                  T[ii, ji] = T[ii, ji] + A[io * 6 + ii, k]
                }
              }
            }
          }
          for ii in range(6) {
            for ji in range(16) {
              if io * 6 + ii < n {
                C[io * 6 + ii, jo * 16 + ji] = T[ii, ji] * 2.0
              }
            }
          }
        }
      }
    }
    """
    rewrites(compact_buffers, TILED, expected)


def test_results_stay(keeps_results):
    keeps_results(compact_buffers, TILED, n=8)


def test_an_init_under_the_reduction_loop_keeps_the_buffer_outside_of_it():
    before = parse("""
    primfunc @f(A: Buffer[(n, 8), float32], C: Buffer[(n,), float32], n: int64) attrs {"num_outputs": 1} {
      allocate T: Buffer[(n,), float32, arena]
      for i in range(n) {
        for k in range(8) {
          if k == 0 {
            T[i] = 0.0
          }
          T[i] = T[i] + A[i, k]
        }
        C[i] = T[i]
      }
    }
    """)
    (buffer,) = allocated(compact_buffers(before))
    assert (buffer.shape[0].value, buffer.scope) == (1, "stack")


def test_a_buffer_that_carries_values_between_iterations_stays(rewrites):
    before = """
    primfunc @f(C: Buffer[(8,), float32]) attrs {"num_outputs": 1} {
      allocate T: Buffer[(8,), float32, arena]
      T[0] = 1.0
      for i in range(1, extent=7) {
        T[i] = T[i - 1] * 2.0
        C[i] = T[i]
      }
    }
    """
    rewrites(compact_buffers, before, before)


@pytest.mark.parametrize(
    "body",
    [
        # read before it is written, so it is the value of the iteration before
        "if i > 0 { C[i] = T[0] }  T[0] = A[i]",
        # written in the even iterations only
        "if i % 2 == 0 { T[0] = A[i] }  C[i] = T[0]",
        # four elements are written in each iteration, the fifth in the first one
        "if i == 0 { T[4] = 1.0 }  for j in range(4) { T[j] = A[j] }  for j in range(5) { C[i] = C[i] + T[j] }",
    ],
)
def test_what_an_iteration_does_not_write_before_reading_is_not_its_own(keeps_results, body):
    program = f"""
    primfunc @f(A: Buffer[(8,), float32], C: Buffer[(8,), float32]) attrs {{"num_outputs": 1}} {{
      allocate T: Buffer[(5,), float32, arena]
      for i in range(8) {{
        {body}
      }}
    }}
    """
    after = keeps_results(compact_buffers, program)
    (loop,) = (node for node in walk(after.body) if isinstance(node, For) and node.var.name == "i")
    assert not any(isinstance(node, Allocate) for node in walk(loop))


def test_a_sliding_window_keeps_its_rows(keeps_results):
    after = keeps_results(
        compact_buffers,
        """
        primfunc @f(A: Buffer[(10, 16), float32], C: Buffer[(8, 16), float32]) attrs {"num_outputs": 1} {
          allocate T: Buffer[(10, 16), float32, arena]
          for i in range(8) {
            for r in range(3) {
              for j in range(16) {
                T[i + r, j] = A[i + r, j] * 2.0
              }
            }
            for j in range(16) {
              C[i, j] = T[i, j] + T[i + 2, j]
            }
          }
        }
        """,
    )
    (buffer,) = allocated(after)
    assert [extent.value for extent in buffer.shape] == [3, 16]


def test_a_large_tile_stays_in_the_arena():
    before = parse("""
    primfunc @f(C: Buffer[(4, 8192), float32]) attrs {"num_outputs": 1} {
      allocate T: Buffer[(4, 8192), float32, arena]
      for i in range(4) {
        for j in range(8192) {
          T[i, j] = 1.0
        }
        for j in range(8192) {
          C[i, j] = T[i, j]
        }
      }
    }
    """)
    (buffer,) = allocated(compact_buffers(before))
    assert ([extent.value for extent in buffer.shape], buffer.scope) == ([1, 8192], "arena")


def test_short_rows_of_registers_are_vectors_of_a_power_of_two():
    """Vectors of three numbers have four lanes, of which the last must not lie in the next row."""
    func = parse("""
    primfunc @f(A: Buffer[(8, 5, 3), float32], C: Buffer[(8, 5, 3), float32]) attrs {"num_outputs": 1} {
      allocate T: Buffer[(8, 5, 3), float32, register]
      for i in range(8) {
        for j in range(5) { for k in range(3) { T[i, j, k] = A[i, j, k] } }
        for j in range(5) { for k in range(3) { C[i, j, k] = T[i, j, k] * 2.0 } }
      }
    }
    """)
    (buffer,) = allocated(compact_buffers(func))
    assert [extent.value for extent in buffer.shape] == [1, 5, 4]
