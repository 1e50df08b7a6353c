"""Results of operators on half types are rounded to their type, also inside of a fused kernel."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from both_targets import on_both_targets

import tilewright as tw
from tilewright import graphir as gi


@on_both_targets
@pytest.mark.parametrize("level", range(3))
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16], ids=["bfloat16", "float16"])
def test_sum_is_rounded_before_its_softmax(target: tw.Target, level: int, dtype: type) -> None:
    """Near 90, a sum of bfloat16 is rounded by up to .25, and a probability changes by as much."""
    numbers = np.random.default_rng(0)
    arrays = [(88 + 4 * numbers.random((4, 33))).astype(dtype), numbers.random((4, 33)).astype(dtype)]
    x, y = (gi.var(name, shape=("n", 33), dtype=np.dtype(dtype).name) for name in "xy")
    with tw.PassContext(opt_level=level):
        model = tw.build(gi.Function([x, y], gi.nn.softmax(gi.add(x, y))), target=target)

    def softmax(sums: np.ndarray) -> np.ndarray:
        powers = np.exp(sums - sums.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)

    exact = arrays[0].astype("f8") + arrays[1].astype("f8")
    rounded, kept = softmax(exact.astype(dtype).astype("f8")), softmax(exact)
    bound = 1.01 * float(ml_dtypes.finfo(dtype).eps) * rounded + 1e-7
    assert (np.abs(kept - rounded) > 2 * bound).any()  # the test tells one from the other
    assert (np.abs(model(*arrays).astype("f8") - rounded) <= bound).all()
