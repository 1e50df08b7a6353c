"""VerifyMemory: reject invalid memory accesses of lowered functions."""

from __future__ import annotations

import pytest

from tilewright.passes.tensor.verify_memory import verify_memory
from tilewright.tensorir import parse
from tilewright.tensorir.errors import VerifyError

HEAD = "primfunc @f(A: Buffer[(8,), float32], n: int64) {\n"


@pytest.mark.parametrize(
    "body, message",
    [
        ("block b(v: spatial(8) = 0) { writes A[v] A[v] = 1.0 }", "found block b"),
        ("A[0] = choose(n, 1.0, 2.0)", "choose() expression"),
        ("allocate T: Buffer[(8,), float32, arena]\nT[0] = 1.0", "scope arena"),
        ("allocate T: Buffer[(n,), float32, stack]\nT[0] = 1.0", "size is not constant"),
        ("allocate T: Buffer[(100000,), float32, stack]\nT[0] = 1.0", "400000 bytes"),
        ("for i in range(8) { A[i + 1] = 0.0 }", "reaches 8"),
        ("for i in range(8) { A[i - 1] = 0.0 }", "reaches -1"),
        ("A[ramp(4, 1, 8)] = broadcast(0.0, 8)", "reaches 11"),
        ("A[ramp(4, -1, 8)] = broadcast(0.0, 8)", "reaches -3"),
        ("for i in range(2) { A[ramp(0, 1, 4) + broadcast(i * 8, 4)] = broadcast(0.0, 4) }", "reaches 11"),
        ("for i in parallel(8) { A[3] = 0.0 }", "write the same element of A"),
    ],
)
def test_what_is_refused_is_named_and_underlined(body, message):
    with pytest.raises(VerifyError) as error:
        verify_memory(parse(HEAD + body + "\n}"))
    assert message in str(error.value) and "^" in str(error.value)


@pytest.mark.parametrize(
    "body",
    [
        "for i in range(8) { A[i] = 0.0 }",
        "for i in range(n) { A[i] = 0.0 }",
        "for i in range(9) { if i < 8 { A[i] = 0.0 } }",
        "for i in parallel(min(n, 1)) { A[3] = 0.0 }",
        "allocate T: Buffer[(8,), float32, stack]\nT[7] = 1.0",
    ],
)
def test_what_may_be_right_is_accepted(body):
    verify_memory(parse(HEAD + body + "\n}"))


def test_names_of_strides_are_seen_through() -> None:
    with pytest.raises(VerifyError, match=r"reaches n \* m \* 4"):
        verify_memory(
            parse("""
            primfunc @f(A: Buffer[(n * m * 4,), float32], n: int64, m: int64) {
              let half: int64 = n * m
              let stride: int64 = half * 2
              for i in range(3) { A[i * stride] = 0.0 }
            }
            """)
        )


def test_a_stride_that_is_a_sum_is_multiplied_as_a_whole() -> None:
    # With the stride multiplied out, the greatest of ``i * n * 12`` and that of ``-i * 8`` belong to two values of i.
    verify_memory(
        parse("""
        primfunc @f(A: Buffer[(n * 24 - 16,), float32], n: int64) {
          let stride: int64 = n * 12 - 8
          for i in range(2) { for k in range(1) { A[stride * i + k] = 0.0 } }
        }
        """)
    )


def test_loop_whose_bounds_depend_on_another_loop_is_accepted() -> None:
    func = parse("""
primfunc @skewed(b: Buffer[(3,), float32]) {
  for i in range(2) {
    for j in range(i * -1 // 2 + 3) {
      b[i + j] = 0.0
    }
  }
}
""")
    verify_memory(func)
