"""Name strides of buffers with unknown sizes, and change nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.codegen.llvm import call_primfunc, compile_module
from tilewright.graphir.module import IRModule
from tilewright.passes.tensor.flatten_buffer import flatten_buffers
from tilewright.passes.tensor.pipeline import tensor_pipeline
from tilewright.tensorir import assert_structural_equal, interpret, parse
from tilewright.tensorir.target import Target


def test_products_of_sizes_are_computed_at_the_top(rewrites: Any) -> None:
    before = """
    primfunc @f(A: Buffer[(b, 8, h + 2, w + 2, 16), float32], b: int64, h: int64, w: int64) {
      for i in range(b) { for c in range(8) { for y in range(h) { for x in range(w) {
        A[i, c, y + 1, x + 1, 0] = 0.0
      } } } }
    }
    """
    expected = """
    primfunc @f(
      A: Buffer[(b * 512 + b * h * 256 + b * w * 256 + b * h * w * 128,), float32], b: int64, h: int64, w: int64
    ) {
      let row: int64 = w * 16 + 32
      let plane: int64 = row * 2 + h * row
      let image: int64 = plane * 8
      for i in range(b) { for c in range(8) { for y in range(h) { for x in range(w) {
        A[x * 16 + row + image * i + plane * c + row * y + 16] = 0.0
      } } } }
    }
    """
    rewrites(flatten_buffers, before, expected)


def test_equal_strides_have_one_name(rewrites: Any) -> None:
    before = """
    primfunc @f(A: Buffer[(b, h, w), float32], B: Buffer[(9, w * h), float32], b: int64, h: int64, w: int64) {
      for i in range(b) {
        B[i, 0] = A[i, 1, 0]
      }
    }
    """
    expected = """
    primfunc @f(A: Buffer[(b * h * w,), float32], B: Buffer[(h * w * 9,), float32], b: int64, h: int64, w: int64) {
      let stride: int64 = h * w
      for i in range(b) {
        B[stride * i] = A[w + stride * i]
      }
    }
    """
    rewrites(flatten_buffers, before, expected)


@pytest.mark.parametrize(
    ("shape", "index", "offset"),
    [
        ("n, 8, 4", "i, j, 2", "i * 32 + j * 4 + 2"),  # numbers
        ("4, m, n", "0, i, j", "n * i + j"),  # one size
        ("4, n, 8", "i, j, 2", "n * i * 8 + j * 8 + 2"),  # a multiple of one size
        ("4, m * n", "0, j", "j"),  # a stride that no index is multiplied by
    ],
)
def test_short_strides_and_unused_ones_stay(rewrites: Any, shape: str, index: str, offset: str) -> None:
    text = """
    primfunc @f(A: Buffer[(SHAPE,), float32], n: int64, m: int64) {
      for i in range(n) { for j in range(m) {
        A[INDEX] = 0.0
      } }
    }
    """
    size = {"n, 8, 4": "n * 32", "4, m, n": "n * m * 4", "4, n, 8": "n * 32", "4, m * n": "n * m * 4"}[shape]
    rewrites(
        flatten_buffers,
        text.replace("SHAPE", shape).replace("INDEX", index),
        text.replace("SHAPE", size).replace("INDEX", offset),
    )


@pytest.mark.parametrize("extent", ["n // m", "n % (m + 1)", "n * (m // (n - 1))"])
def test_divisions_that_may_be_guarded_stay_where_they_are(extent: str) -> None:
    func = parse(f"""
    primfunc @f(A: Buffer[(4, {extent}), float32], n: int64, m: int64) {{
      if m > 0 and n > 1 {{
        A[3, 0] = 0.0
      }}
    }}
    """)
    assert "let" not in str(flatten_buffers(func))


def test_what_a_loop_defines_is_no_size() -> None:
    func = parse("""
    primfunc @f(B: Buffer[(n, 9), float32], n: int64) {
      for i in range(n) {
        allocate T: Buffer[(3, i * n + 1), float32, arena]
        T[2, 0] = 1.0
        B[i, 0] = T[2, 0]
      }
    }
    """)
    assert "let" not in str(flatten_buffers(func))


def test_strides_of_a_buffer_are_named(rewrites: Any) -> None:
    before = """
    primfunc @f(A: Buffer[(n, 3), float32, strides=(m * 2 + 1, 1)], n: int64, m: int64) {
      for i in range(n) {
        A[i, 2] = 0.0
      }
    }
    """
    expected = """
    primfunc @f(A: Buffer[(n * m * 2 + n - m * 2 + 2,), float32], n: int64, m: int64) {
      let stride: int64 = m * 2 + 1
      for i in range(n) {
        A[stride * i + 2] = 0.0
      }
    }
    """
    rewrites(flatten_buffers, before, expected)


PADDED = """
primfunc @f(
  A: Buffer[(n, (h + 1) // 2, w + 1, 3), float32], B: Buffer[(n, w + 3, h * 2 + 5), float32],
  n: int64, h: int64, w: int64
) attrs {"num_outputs": 1} {
  for stride in range(n) { for y in range((h + 1) // 2) { for x in range(w + 1) { for c in range(3) {
    allocate T: Buffer[((h + 1) // 2, w + 2), float32, arena]
    T[y, x] = A[stride, y, x, c] * 2.0
    T[y, x + 1] = 1.0
    B[stride, x + 1, y * 3 + c] = T[y, x] + B[stride, x + 2, h * 2 - y * 3 + c]
  } } } }
}
"""


def test_names_are_other_ones_than_those_in_the_function() -> None:
    after = flatten_buffers(parse(PADDED))
    assert_structural_equal(parse(str(after)), after)


def test_equal_programs_become_equal_text() -> None:
    assert str(flatten_buffers(parse(PADDED))) == str(flatten_buffers(parse(PADDED)))


@pytest.mark.parametrize("sizes", [(1, 1, 1), (2, 5, 3), (3, 7, 6), (0, 3, 2)])
def test_results_stay(keeps_results: Any, sizes: tuple[int, int, int]) -> None:
    n, h, w = sizes
    keeps_results(flatten_buffers, PADDED, n=n, h=h, w=w)


CONVOLUTION = """
primfunc @f(
  A: Buffer[(n, 2, h + 2, w + 2, 16), float32], K: Buffer[(2, 3, 3, 16), float32],
  B: Buffer[(n, (h + 1) // 2, (w + 1) // 2, 16), float32], n: int64, h: int64, w: int64
) attrs {"num_outputs": 1} {
  for i in parallel(n) {
    for y in range((h + 1) // 2) { for x in range((w + 1) // 2) {
      for v in vectorized(16) {
        B[i, y, x, v] = 0.0
      }
      for c in range(2) { for ky in range(3) { for kx in range(3) {
        for v in vectorized(16) {
          B[i, y, x, v] = B[i, y, x, v] + A[i, c, y * 2 + ky, x * 2 + kx, v] * K[c, ky, kx, v]
        }
      } } }
    } }
  }
}
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_compiled_code_computes_what_the_formula_says(threads: int) -> None:
    func, target = parse(CONVOLUTION), Target("llvm", num_threads=threads)
    made = tensor_pipeline(target)(IRModule({"f": func}))["f"]
    assert "let stride" in str(made)
    code = compile_module([made], target)
    random = np.random.default_rng(3)
    for n, h, w in ((1, 1, 1), (2, 5, 3), (3, 4, 7)):
        data = random.standard_normal((n, 2, h + 2, w + 2, 16)).astype(np.float32)
        kernel = random.standard_normal((2, 3, 3, 16)).astype(np.float32)
        expected = np.zeros((n, (h + 1) // 2, (w + 1) // 2, 16), np.float32)
        found = expected.copy()
        interpret(func, data, kernel, expected, n, h, w)
        call_primfunc(code, made, *(array.reshape(-1) for array in (data, kernel, found)), n, h, w)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
