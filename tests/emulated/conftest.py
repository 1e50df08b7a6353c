"""Provide the emulator, or skip the tests that need it."""

from __future__ import annotations

import pytest

from tests.emulated.emulator import Emulator, missing_tools


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Emulator:
    """Runs models for AArch64."""
    missing = missing_tools()
    if missing:
        pytest.skip(f"{', '.join(missing)} not found: make emulated installs what Debian has")
    return Emulator(tmp_path_factory.mktemp("emulated"))
