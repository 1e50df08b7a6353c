"""DropUnitDims: drop last dimensions of one element; kernels compute the same on the same memory."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.passes import Remarks
from tilewright.passes.schedule import DropUnitDims, ScheduleKernels
from tilewright.tensorir import assert_structural_equal, parse, verify

BEFORE = """
primfunc @scale(x: Buffer[(24, 3, 1), float32], w: Buffer[(3, 24), float32], y: Buffer[(24, 3, 1), float32])
    attrs {"num_outputs": 1} {
  for i in range(24) {
    for j in range(3) {
      for k in range(1) {
        block scale(vi: spatial(24) = i, vj: spatial(3) = j, vk: spatial(1) = k) {
          reads x[vi, vj, vk], w[vj, vi]
          writes y[vi, vj, vk]
          y[vi, vj, vk] = x[vi, vj, vk] * w[vj, vi]
        }
      }
    }
  }
}
"""
EXPECTED = """
primfunc @scale(x: Buffer[(24, 3), float32], w: Buffer[(3, 24), float32], y: Buffer[(24, 3), float32])
    attrs {"num_outputs": 1} {
  for i in range(24) {
    for j in range(3) {
      block scale(vi: spatial(24) = i, vj: spatial(3) = j) {
        reads x[vi, vj], w[vj, vi]
        writes y[vi, vj]
        y[vi, vj] = x[vi, vj] * w[vj, vi]
      }
    }
  }
}
"""


def dropped(text: str) -> tw.tensorir.PrimFunc:
    func = parse(text)
    after = DropUnitDims()(IRModule({func.name: func}))[func.name]
    verify(after)
    return after


def test_a_last_dimension_of_one_element_is_dropped_from_loops_and_buffers() -> None:
    assert_structural_equal(dropped(BEFORE), parse(EXPECTED))


def test_a_dimension_of_one_element_before_a_longer_one_stays() -> None:
    text = BEFORE.replace("range(3)", "range(1)").replace("range(1) {\n        block", "range(3) {\n        block")
    text = text.replace("(24, 3, 1)", "(24, 1, 3)").replace("(3, 24)", "(1, 24)")
    text = text.replace("spatial(3) = j, vk: spatial(1)", "spatial(1) = j, vk: spatial(3)")
    assert_structural_equal(dropped(text), parse(text))


def test_a_kernel_with_a_sum_of_products_keeps_its_dimensions() -> None:
    rows, column = gi.var("rows", shape=(8, 16)), gi.var("column", shape=(1, 16))
    mod = tw.IRModule.from_expr(gi.Function([rows, column], gi.nn.dense(rows, column)))
    remarks = Remarks(passes="DropUnitDims")
    with tw.PassContext(opt_level=2, instruments=[remarks]):
        tw.build(mod)
    assert not remarks.remarks


@pytest.fixture
def pooled() -> tw.IRModule:
    """Return a maximum that keeps its dimension, of blocks of channels: the end of a network of 1-D convolutions."""
    x = gi.var("x", shape=("n", 4, 9, 16))
    blocked = gi.reshape(gi.transpose(x, axes=(0, 1, 3, 2)), newshape=(-1, 64, 9))
    return tw.IRModule.from_expr(gi.Function([x], gi.max(gi.tanh(blocked), axis=(2,), keepdims=True)))


def test_a_reduction_that_keeps_its_dimension_runs_in_vectors(pooled: tw.IRModule) -> None:
    model = tw.build(pooled)
    assert "vectorized(1)" not in model.ir("scheduled")
    x = np.random.default_rng(2).standard_normal((3, 4, 9, 16)).astype("f4")
    expected = np.tanh(x.astype("f8")).max(axis=2).reshape(3, 64, 1)
    np.testing.assert_allclose(model(x), expected, rtol=2e-6)


def test_lanes_along_one_element_are_remarked() -> None:
    func = parse(BEFORE)
    remarks = Remarks(passes="ScheduleKernels", kinds="missed")
    with tw.PassContext(opt_level=2, instruments=[remarks]), tw.Target("llvm"):
        ScheduleKernels()(IRModule({func.name: func}))
    assert "block scale is not vectorized: its lane dimension k has extent 1" in remarks.render()
