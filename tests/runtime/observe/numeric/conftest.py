"""Provide ``check``: a ``NumericCheck`` with random inputs that writes no file."""

from __future__ import annotations

import pytest

import tilewright as tw


@pytest.fixture
def check() -> tw.NumericCheck:
    return tw.NumericCheck(seed=1, folder=None)
