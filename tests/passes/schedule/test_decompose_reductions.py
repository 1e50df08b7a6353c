"""DecomposeReductions: a reduction starts before its loops."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.passes.schedule import DecomposeReductions
from tilewright.tensorir import assert_structural_equal, interpret, parse
from tilewright.tensorir.stmt import Block, PrimFunc, SeqStmt

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


def remarks_on(text: str) -> tuple[PrimFunc, list[str]]:
    """The function after the pass, and what the pass had to say."""
    func = parse(text)
    with tw.PassContext() as ctx:
        found = DecomposeReductions()(IRModule({func.name: func}))[func.name]
    assert isinstance(found, PrimFunc)
    return found, [remark.message for remark in ctx.remarks]


def test_start_moves_before_the_outermost_of_several_reduction_loops() -> None:
    func, _ = remarks_on("""
primfunc @total(a: Buffer[(3, 4), float32], out: Buffer[(1,), float32]) attrs {"num_outputs": 1} {
  for i in range(3) {
    for k in range(4) {
      block total(vi: reduction(3) = i, vk: reduction(4) = k) {
        init { out[0] = 0.0 }
        out[0] = out[0] + a[vi, vk]
      }
    }
  }
}
""")
    assert isinstance(func.body, SeqStmt)
    first = func.body.stmts[0]
    assert isinstance(first, Block) and first.name == "total_init"
    values, out = np.arange(12, dtype="f4").reshape(3, 4), np.full(1, np.nan, "f4")
    interpret(func, values, out)
    assert out[0] == 66


@pytest.mark.parametrize("step", ["k", "0"])
def test_block_that_has_nothing_to_move_stays_without_remark(step: str) -> None:
    """Without a start, and with one but without a loop that it could move before."""
    init = "init { out[vi] = 0.0 }" if step == "0" else ""
    text = f"""
primfunc @total(a: Buffer[(3, 1), float32], out: Buffer[(3,), float32]) attrs {{"num_outputs": 1}} {{
  for i in range(3) {{
    for k in range(1) {{
      block total(vi: spatial(3) = i, vk: reduction(1) = {step}) {{
        {init}
        out[vi] = out[vi] + a[vi, vk]
      }}
    }}
  }}
}}
"""
    found, remarks = remarks_on(text)
    assert_structural_equal(found, parse(text))
    assert remarks == []


def test_start_that_cannot_move_stays_with_a_remark() -> None:
    """The outer loop steps through the results and through the sum of each."""
    text = """
primfunc @total(a: Buffer[(2, 3, 4), float32], out: Buffer[(2,), float32]) attrs {"num_outputs": 1} {
  for t in range(6) {
    for k in range(4) {
      block total(vi: spatial(2) = t // 3, vj: reduction(3) = t % 3, vk: reduction(4) = k) {
        init { out[vi] = 0.0 }
        out[vi] = out[vi] + a[vi, vj, vk]
      }
    }
  }
}
"""
    found, remarks = remarks_on(text)
    assert_structural_equal(found, parse(text))
    assert len(remarks) == 1
    assert remarks[0].startswith(
        "total is initialized in the first step of its reduction: cannot decompose the reduction"
    )


def test_function_that_skips_optimization_is_decomposed() -> None:
    func = parse(BEFORE)
    skipping = PrimFunc(func.name, func.params, func.body, {**func.attrs, "SkipOptimization": True})
    found = DecomposeReductions()(IRModule({"total": skipping}))["total"]
    assert "total_init" in str(found)
