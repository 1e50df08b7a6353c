"""Products of narrow numbers: the instructions that they use, and how far the results are from exact ones."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi

TARGET = tw.Target("llvm", num_threads=1)
RNG = np.random.default_rng(5)


def bfloat16(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize(
    ("rows", "steps", "columns"), [(40, 64, 48), (33, 30, 70), (16, 31, 20), (3, 64, 40), (20, 2, 1)]
)
@pytest.mark.parametrize("opt_level", [2, 3])
def test_product_of_bfloat16_is_summed_in_float32(rows: int, steps: int, columns: int, opt_level: int) -> None:
    """Half a unit in the last place of bfloat16 for the result, and the bound of a float32 sum."""
    a, b = bfloat16(rows, steps), bfloat16(steps, columns)
    x, y = gi.var("x", shape=a.shape, dtype="bfloat16"), gi.var("y", shape=b.shape, dtype="bfloat16")
    with tw.PassContext(opt_level=opt_level):
        model = tw.build(gi.Function([x, y], gi.matmul(x, y)), target=TARGET)
    wide = [array.astype("f8") for array in (a, b)]
    exact, magnitude = wide[0] @ wide[1], np.abs(wide[0]) @ np.abs(wide[1])
    error = np.abs(model(a, b).astype("f8") - exact)
    assert (error <= 2.0**-8 * np.abs(exact) * 1.01 + (steps + 1) * 2.0**-24 * magnitude).all()


@pytest.mark.skipif("avx512bf16" not in TARGET.features, reason="no dot products of bfloat16 on this machine")
def test_product_of_bfloat16_uses_dot_products_where_rounding_may_differ() -> None:
    x, y = (gi.var(name, shape=(64, 64), dtype="bfloat16") for name in "xy")
    for opt_level, expected in ((2, False), (3, True)):
        with tw.PassContext(opt_level=opt_level):
            model = tw.build(gi.Function([x, y], gi.matmul(x, y)), target=TARGET)
        assert ("vdpbf16ps" in model.ir("assembly")) is expected
