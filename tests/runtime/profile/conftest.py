"""What the machine does at best is measured shortly: the tests compare nothing with how fast it really is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tilewright.runtime.profile import roofs


@pytest.fixture(autouse=True, scope="package")
def _short_probes() -> Iterator[None]:
    """Each profile measures the roofs anew, which takes half a second of processor time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(roofs, "_RUNS", 2)
        patch.setattr(roofs, "_LEAST_BYTES", 4 << 20)
        yield
