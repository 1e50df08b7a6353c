"""Kernels for AArch64 compute what NumPy does, and write nowhere else. They run under QEMU."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulated.emulator import Array, Emulator
from tests.emulated.kernels import KERNELS
from tilewright import graphir as gi
from tilewright.graphir.types import TensorType

#: By element type of the result: of its greatest value, or of each value if that is more.
TOLERANCE = {"bfloat16": 1.6e-2, "float16": 2e-3, "float32": 2e-5, "float64": 1e-11}
#: The symbolic dimension: one vector and a rest, and many.
SIZES = (7, 131)


def draw(rng: np.random.Generator, kind: TensorType, size: int) -> Array:
    """Numbers for an input."""
    shape = [dim if isinstance(dim, int) else size for dim in kind.shape]
    if kind.dtype.is_integer:
        return rng.integers(0 if kind.dtype.is_uint else -6, 7, shape).astype(kind.dtype.numpy)
    return rng.standard_normal(shape).astype(kind.dtype.numpy)


@pytest.mark.parametrize("name", KERNELS)
def test_kernel_computes_what_numpy_does(emulator: Emulator, name: str) -> None:
    function = KERNELS[name]()
    model = emulator.build(function)
    rng = np.random.default_rng(5)
    symbolic = any(not isinstance(dim, int) for param in function.params for dim in param.shape)
    for size in SIZES if symbolic else SIZES[:1]:
        inputs = [draw(rng, param.type, size) for param in function.params]
        found, expected = model(*inputs), gi.evaluate(function, *inputs, dtype="float64")
        assert found.shape == expected.shape
        tolerance = TOLERANCE.get(found.dtype.name, 0)
        scale = max(1.0, float(np.abs(expected.astype(np.float64)).max(initial=0)))
        np.testing.assert_allclose(
            found.astype(np.float64), expected.astype(np.float64), rtol=tolerance, atol=tolerance * scale
        )
