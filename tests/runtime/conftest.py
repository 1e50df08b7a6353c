"""Run tests that request ``kind`` or ``target`` on both targets: run-time behaviour does not depend on the target.

For numba ``target`` has one thread, as numba takes three to five times as long to compile a parallel loop. Results of
parallel loops are compared in test_numba_target.py; tests of threads request ``kind``.
"""

from __future__ import annotations

import pytest

import tilewright as tw


@pytest.fixture(scope="module", params=["llvm", "numba"])
def kind(request: pytest.FixtureRequest) -> str:
    """A kind of target."""
    return str(request.param)


@pytest.fixture(scope="module")
def target(kind: str) -> tw.Target:
    """A target of that kind."""
    return tw.Target(kind, num_threads=1 if kind == "numba" else None)
