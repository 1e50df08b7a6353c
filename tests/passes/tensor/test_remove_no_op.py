"""RemoveNoOp: remove statements without an effect, and keep others."""

from __future__ import annotations

from tilewright.passes.tensor.remove_no_op import remove_no_ops


def test_unused_values_and_stores_to_their_own_place_go_away(rewrites):
    before = """
    primfunc @f(A: Buffer[(8,), float32], B: Buffer[(8,), float32]) {
      let x: float32 = A[0]
      allocate T: Buffer[(8,), float32, stack]
      for i in range(8) {
        T[i] = x
      }
      for i in range(8) {
        B[i] = B[i]
      }
      if A[1] > 0.0 {
        B[2] = B[2]
      }
      evaluate exp(A[0])
      B[0] = 1.0
    }
    """
    expected = """
    primfunc @f(A: Buffer[(8,), float32], B: Buffer[(8,), float32]) {
      B[0] = 1.0
    }
    """
    rewrites(remove_no_ops, before, expected)


def test_masked_stores_to_their_own_place_go_away_where_the_masks_are_equal(rewrites):
    before = """
    primfunc @f(B: Buffer[(8,), float32], n: int64) {
      B[ramp(0, 1, 8) where ramp(0, 1, 8) < broadcast(n, 8)] = B[ramp(0, 1, 8) where ramp(0, 1, 8) < broadcast(n, 8)]
      B[ramp(0, 1, 8) where ramp(0, 1, 8) < broadcast(n, 8)] = B[ramp(0, 1, 8)]
      B[ramp(0, 1, 8)] = B[ramp(0, 1, 8) where ramp(0, 1, 8) < broadcast(n, 8)]
    }
    """
    expected = """
    primfunc @f(B: Buffer[(8,), float32], n: int64) {
      B[ramp(0, 1, 8)] = B[ramp(0, 1, 8) where ramp(0, 1, 8) < broadcast(n, 8)]
    }
    """
    rewrites(remove_no_ops, before, expected)


def test_a_buffer_that_is_read_stays(rewrites):
    before = """
    primfunc @f(B: Buffer[(8,), float32]) {
      allocate T: Buffer[(1,), float32, stack]
      T[0] = 2.0
      B[0] = T[0]
    }
    """
    rewrites(remove_no_ops, before, before)
