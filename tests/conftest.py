"""Options of the test run."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest

# Tests see the passes at work; those of kept builds name a folder of their own. Also for the processes that they start.
os.environ["TILEWRIGHT_CACHE"] = "off"


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--all-combinations``: what is too slow for every run."""
    parser.addoption(
        "--all-combinations",
        action="store_true",
        help="operators through numba with every element type in every case, rather than each type and each case once",
    )


@pytest.fixture(autouse=True, scope="session")
def _new_entries_compiled() -> Iterator[None]:
    """numba compiles an entry of a model at once if it has a form that no earlier one had."""
    from compiled_entries import new_entries_compiled  # here: tests are collected without what it imports

    with new_entries_compiled():
        yield


@pytest.fixture(autouse=True, scope="session")
def _short_probes() -> Iterator[None]:
    """Each profile measures what the machine does at best, for half a second of processor time. No test compares
    anything with how fast it really is."""
    from tilewright.runtime.observe.profile import roofs  # here: as above

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(roofs, "_RUNS", 2)
        patch.setattr(roofs, "_LEAST_BYTES", 4 << 20)
        yield


@pytest.fixture(autouse=True, scope="module")
def _settled() -> Iterator[None]:
    """What the tests of a file leave (code, which numba never forgets) is not looked through again and again."""
    yield
    gc.collect()
    gc.freeze()


def pytest_collection_finish() -> None:
    """What is there before the first test stays to the end: thousands of tests and all modules, which the collector of
    garbage need not look through again and again. A build makes some hundred thousand nodes, of which few are garbage
    that needs the collector: it looks more rarely than by default, where it takes a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
