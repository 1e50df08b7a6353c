"""Run-time behaviour is the same whatever a model is compiled to: tests that ask for ``kind`` or ``target`` run on both
targets.

``target`` is numba on one thread, which takes three to five times as long to compile a parallel loop. What those loops
compute is compared in test_numba_target.py; tests whose claim is of threads ask for ``kind``.
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
