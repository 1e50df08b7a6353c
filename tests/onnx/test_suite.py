"""The cases of the onnx package's backend test-suite that pass (``passing.txt``) go on passing.

All of them run compiled for ``llvm``; for ``numba``, which takes about a second for each, every eighth does (all with
``--all-combinations``). The table of everything, ``docs/onnx.md``, is written by ``python -m tests.onnx.guarded``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.onnx.cases import all_cases, run_case

NAMES = Path(__file__).with_name("passing.txt").read_text(encoding="utf-8").split()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The cases of each test."""
    everything = metafunc.function is test_case_passes_on_llvm or metafunc.config.getoption("--all-combinations")
    metafunc.parametrize("name", NAMES if everything else NAMES[::8])


def test_case_passes_on_llvm(name: str) -> None:
    outcome = run_case(all_cases()[name], "llvm")
    assert outcome.status == "passed", outcome.reason


def test_case_passes_on_numba(name: str) -> None:
    outcome = run_case(all_cases()[name], "numba")
    assert outcome.status == "passed", outcome.reason
