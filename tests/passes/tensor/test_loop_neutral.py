"""Conditions around the steps of reductions in place of neutral elements."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.passes.tensor.loop_neutral import without_neutral_steps
from tilewright.passes.tensor.loop_partition import partition_loops
from tilewright.tensorir import interpret, parse, verify
from tilewright.tensorir.stmt import PrimFunc


def rewritten(func: PrimFunc) -> PrimFunc:
    return func.with_body(without_neutral_steps(func.body))


@pytest.mark.parametrize(
    ("dtype", "step", "neutral"),
    [
        ("float32", "S[0] + ", "0.0"),
        ("int32", "S[0] + ", "0"),
        ("float32", "S[0] * ", "1.0"),
        ("float32", "max(S[0], ", "float32(-inf)"),
        ("float32", "min(S[0], ", "float32(inf)"),
        ("int8", "max(S[0], ", "int8(-128)"),
    ],
)
def test_a_step_that_adds_the_neutral_element_is_left_out(rewrites, dtype: str, step: str, neutral: str) -> None:
    end = ")" if "(" in step else ""
    text = f"""
    primfunc @f(S: Buffer[(1,), {dtype}], X: Buffer[(8,), {dtype}], n: int64) {{
      for i in range(8) {{
        STEP
      }}
    }}
    """
    inside = "i >= 1 and i < n"
    before = text.replace("STEP", f"S[0] = {step}select({inside}, X[i where {inside}], {neutral}){end}")
    expected = text.replace("STEP", f"if {inside} {{ S[0] = {step}X[i where True]{end} }}")
    rewrites(rewritten, before, expected)


@pytest.mark.parametrize(
    "step",
    [
        "S[0] = S[0] + select(i >= 1, X[i where i >= 1], 1.0)",  # not neutral
        "S[0] = max(S[0], select(i >= 1, X[i where i >= 1], 0.0))",
        "S[0] = S[0] - select(i >= 1, X[i where i >= 1], 0.0)",
        "S[0] = S[1] + select(i >= 1, X[i where i >= 1], 0.0)",  # no reduction
        "S[0] = X[0] + select(i >= 1, X[i where i >= 1], 0.0)",
        "S[0] = S[0 where X[0] > 0.0] + select(i >= 1, X[i where i >= 1], 0.0)",  # also writes what it does not read
        "for l in vectorized(2) { S[l] = S[l] + select(i + l >= 1, X[i where i + l >= 1], 0.0) }",  # lanes differ
    ],
)
def test_other_steps_stay(step: str) -> None:
    func = parse(f"""
    primfunc @f(S: Buffer[(2,), float32], X: Buffer[(8,), float32]) {{
      for i in range(8) {{
        {step}
      }}
    }}
    """)
    assert isinstance(func, PrimFunc)
    assert rewritten(func) is func


def test_lanes_go_on_to_select_where_the_step_is_taken(rewrites) -> None:
    text = """
    primfunc @f(S: Buffer[(4,), float32], X: Buffer[(8,), float32], n: int64) {
      for i in range(8) {
        for l in vectorized(4) {
          STEP
        }
      }
    }
    """
    both = "i < n and i + l >= 1"
    before = text.replace("STEP", f"S[l] = S[l] + select({both}, X[i where {both}], 0.0)")
    expected = text.replace("STEP", "if i < n { S[l] = S[l] + select(i + l >= 1, X[i where i + l >= 1], 0.0) }")
    rewrites(rewritten, before, expected)


WINDOWS = """
primfunc @f(X: Buffer[(10,), float32], Y: Buffer[(10,), float32]) attrs {"num_outputs": 1} {
  for i in range(10) {
    Y[i] = float32(-inf)
    for k in range(5) {
      Y[i] = max(Y[i], select(i + k >= 2 and i + k < 12, X[i + k - 2 where i + k >= 2 and i + k < 12], float32(-inf)))
    }
  }
}
"""


def test_windows_at_the_ends_have_fewer_steps() -> None:
    func = parse(WINDOWS)
    assert isinstance(func, PrimFunc)
    found = partition_loops(func)
    verify(found)
    assert "select" not in str(found)
    x = np.random.default_rng(0).standard_normal(10).astype("f4")
    y = np.zeros(10, "f4")
    interpret(found, x, y)
    wide = np.pad(x, 2, constant_values=-np.inf)
    np.testing.assert_array_equal(y, [wide[i : i + 5].max() for i in range(10)])
