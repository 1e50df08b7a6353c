"""The smallest graphs of what random models have found."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.fuzz.check import Build, check
from tilewright import graphir as gi

LEVELS = tuple(Build(level) for level in range(4))


def _check(text: str, *inputs: object, builds: tuple[Build, ...] = LEVELS) -> None:
    check(gi.parse(text), [lambda: inputs], builds)


def test_a_let_beside_a_run_time_size_is_built_at_level_0() -> None:
    _check(
        """
        def @main(%x: Tensor[(5,), float32], %k: Tensor[(), int64]) {
          let %v = negative(%x)
          %0 = slice(%x, begin=(0,), end=(dim[size],), strides=(1,), axes=(0,))
          %1 = bind_size(%0, %k, dim=dim[size])
          %2 = (%1, %v)
          %2
        }""",
        np.arange(5, dtype="float32"),
        np.int64(3),
    )
