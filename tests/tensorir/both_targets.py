"""The targets of tests that compare values: both, numba on one thread. It takes two to three times as long to compile a
parallel loop; those are compared in tests/runtime/test_numba_target.py and tests/codegen/test_numba_source.py."""

from __future__ import annotations

import pytest

from tilewright.tensorir.target import Target

LLVM, NUMBA = Target("llvm", num_threads=2), Target("numba", num_threads=1)

#: Runs a test on both, as its argument ``target``.
on_both_targets = pytest.mark.parametrize("target", [LLVM, NUMBA], ids=["llvm", "numba"])
