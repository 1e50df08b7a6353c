"""WidenHalves: the factors of products of half types are converted once."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.passes.graph import WidenHalves

BEFORE = """
def @main(%a: Tensor[(ROWS, 8), float16], %b: Tensor[(8, 7), float16]) {
  %0 = matmul(%a, %b)
  %0
}
"""
EXPECTED = """
def @main(%a: Tensor[(ROWS, 8), float16], %b: Tensor[(8, 7), float16]) {
  %0 = cast(%a, dtype="float32")
  %1 = cast(%b, dtype="float32")
  %2 = matmul(%0, %1)
  %3 = cast(%2, dtype="float16")
  %3
}
"""


@pytest.mark.parametrize("rows", ["16", "n"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_factors_of_many_results_are_converted_once(rewrites: Any, rows: str, dtype: str) -> None:
    before, expected = (text.replace("ROWS", rows).replace("float16", dtype) for text in (BEFORE, EXPECTED))
    rewrites(WidenHalves(), before, expected)


@pytest.mark.parametrize(("old", "new"), [("ROWS", "15"), ("float16", "float32")])
def test_few_rows_and_other_types_stay(rewrites: Any, old: str, new: str) -> None:
    text = BEFORE.replace(old, new).replace("ROWS", "64")
    rewrites(WidenHalves(), text, text)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("rows", [3, 40])
def test_results_are_rounded_once(dtype: str, rows: int) -> None:
    """Half a unit in the last place for the result, and the bound of a float32 sum."""
    rng = np.random.default_rng(1)
    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    a, b = rng.standard_normal((rows, 50)).astype(kind), rng.standard_normal((50, 33)).astype(kind)
    x = gi.var("x", shape=a.shape, dtype=dtype)
    with tw.PassContext(opt_level=2):
        model = tw.build(gi.Function([x], gi.matmul(x, gi.const(b))), target=tw.Target("llvm", num_threads=1))
    wide = [array.astype("f8") for array in (a, b)]
    exact, magnitude = wide[0] @ wide[1], np.abs(wide[0]) @ np.abs(wide[1])
    half = 2.0**-11 if dtype == "float16" else 2.0**-8
    error = np.abs(model(a).astype("f8") - exact)
    assert (error <= 1.01 * half * np.abs(exact) + 51 * 2.0**-24 * magnitude).all()
