"""DecomposeReductions: a reduction starts before its loops."""

from __future__ import annotations

import numpy as np

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.passes.schedule import DecomposeReductions
from tilewright.tensorir import assert_structural_equal, interpret, parse

BEFORE = """
primfunc @total(a: Buffer[(m, n), float32], out: Buffer[(m,), float32], m: int64, n: int64) {
  for i in range(m) {
    for k in range(n) {
      block total(vi: spatial(m) = i, vk: reduction(n) = k) {
        reads a[vi, vk]
        writes out[vi]
        init { out[vi] = 0.0 }
        out[vi] = out[vi] + a[vi, vk]
      }
    }
  }
}
"""

EXPECTED = """
primfunc @total(a: Buffer[(m, n), float32], out: Buffer[(m,), float32], m: int64, n: int64) {
  for i in range(m) {
    block total_init(vi: spatial(m) = i) {
      writes out[vi]
      out[vi] = 0.0
    }
    for k in range(n) {
      block total(vi: spatial(m) = i, vk: reduction(n) = k) {
        reads out[vi], a[vi, vk]
        writes out[vi]
        out[vi] = out[vi] + a[vi, vk]
      }
    }
  }
}
"""


def decomposed() -> object:
    return DecomposeReductions()(IRModule({"total": parse(BEFORE)}))["total"]


def test_start_moves_before_the_reduction_loop() -> None:
    assert_structural_equal(decomposed(), parse(EXPECTED))


def test_sum_keeps_its_value() -> None:
    values = np.arange(12, dtype="f4").reshape(3, 4)
    out = np.full(3, np.nan, "f4")
    interpret(decomposed(), values, out, 3, 4)
    np.testing.assert_array_equal(out, values.sum(axis=1))


def test_sum_over_nothing_is_zero_at_every_level() -> None:
    x = gi.var("x", shape=(3, "n"))
    for opt_level in range(4):
        with tw.PassContext(opt_level=opt_level):
            model = tw.build(gi.Function([x], gi.sum(x, axis=1)), target="llvm")
        np.testing.assert_array_equal(model(np.empty((3, 0), "f4")), np.zeros(3, "f4"))
