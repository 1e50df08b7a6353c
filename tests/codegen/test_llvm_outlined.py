"""Test loops that the annotation ``outline`` turns into functions."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tilewright.codegen.llvm import call_primfunc, compile_module, emit_llvm_ir
from tilewright.tensorir import parse
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.target import Target

#: A tile of memory, and behind it a loop that takes from around it a variable, a vector, a tile and parameters.
TEXT = """
primfunc @f(A: Buffer[(n, 8), float32], S: Buffer[(8,), float32], B: Buffer[(n, 8), float32], n: int64) {
  for i in KIND(n) {
    allocate tile: Buffer[(2, 8), float32, register]
    let s: float32x8 = S[ramp(0, 1, 8)]
    let row: int64 = i * 1
    tile[0, ramp(0, 1, 8)] = A[row, ramp(0, 1, 8)] + s
    tile[1, ramp(0, 1, 8)] = A[row, ramp(0, 1, 8)] - s
    for k in range(2) ANNOTATIONS {
      for j in range(8) {
        tile[k, j] = tile[k, j] * 2.0 + S[j]
      }
    }
    B[row, ramp(0, 1, 8)] = tile[0, ramp(0, 1, 8)] * tile[1, ramp(0, 1, 8)] + s
  }
}
"""


def program(kind: str = "serial", annotations: str = 'annotations {"outline": True}') -> PrimFunc:
    text = TEXT.replace("KIND", "range" if kind == "serial" else kind).replace("ANNOTATIONS", annotations)
    return parse(text)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", ["serial", "parallel"])
def test_an_outlined_loop_computes_what_it_did_in_its_place(kind: str, threads: int) -> None:
    func, target = program(kind), Target("llvm", num_threads=threads)
    rng = np.random.default_rng(2)
    a, s = rng.standard_normal((5, 8)).astype(np.float32), rng.standard_normal(8).astype(np.float32)
    b = np.full_like(a, np.nan)
    call_primfunc(compile_module([func], target), func, a, s, b, 5)
    wide = [each.astype(np.float64) for each in (a, s)]
    expected = ((wide[0] + wide[1]) * 2 + wide[1]) * ((wide[0] - wide[1]) * 2 + wide[1]) + wide[1]
    np.testing.assert_allclose(b, expected, rtol=1e-5, atol=1e-5)


def test_its_function_is_called_and_not_inlined() -> None:
    text = emit_llvm_ir([program()], Target("llvm", num_threads=1), packed=False)
    (header,) = re.findall(r"^define internal void (\S+)\(.*\) noinline", text, re.MULTILINE)
    assert text.count(f"call void {header}(") == 1
    assert "noinline" not in emit_llvm_ir([program(annotations="")], Target("llvm", num_threads=1), packed=False)


def test_values_of_memory_that_it_writes_are_loaded_again() -> None:
    text = emit_llvm_ir([program()], Target("llvm", num_threads=1))
    body = text[text.index("call void @tw.f.part0(") :]
    assert len(re.findall(r"%tile\.\d+ = load <8 x float>", body)) == 2
