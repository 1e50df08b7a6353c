"""Run-time behaviour is the same whatever a model is compiled to: tests that ask for ``kind`` run on both targets."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", params=["llvm", "numba"])
def kind(request: pytest.FixtureRequest) -> str:
    """A target."""
    return str(request.param)
