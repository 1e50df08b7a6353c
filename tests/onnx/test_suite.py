"""The cases of the onnx package's backend test-suite that pass (``passing.txt``) go on passing.

Every fourth runs compiled for ``llvm``, every 32nd for ``numba``, which takes about a second for each, and two of the
nine networks; all of them run with ``--all-combinations``. The table of everything, ``docs/onnx.md``, is written by
``python -m tests.onnx.guarded``.
"""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from tests.onnx.cases import all_cases, run_case

#: The release of the onnx package whose cases ``passing.txt`` lists. Older ones lack seventy of them, and expect of
#: others what was a mistake: NaN in LpNormalization, integers that wrap in QLinearMatMul.
LISTED = (1, 23)

pytestmark = [
    pytest.mark.combinations,
    pytest.mark.skipif(
        tuple(map(int, onnx.__version__.split(".")[:2])) < LISTED, reason=f"onnx {onnx.__version__} has other cases"
    ),
]

NETWORKS = [
    "test_shufflenet",
    "test_squeezenet",
    "test_bvlc_alexnet",
    "test_densenet121",
    "test_inception_v1",
    "test_inception_v2",
    "test_resnet50",
    "test_vgg19",
    "test_zfnet512",
]
NAMES = Path(__file__).with_name("passing.txt").read_text(encoding="utf-8").split()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The cases of each test."""
    if metafunc.function is test_network_passes:
        names, quick = NETWORKS, NETWORKS[:2]
    else:
        names, quick = NAMES, NAMES[:: 4 if metafunc.function is test_case_passes_on_llvm else 32]
    if not metafunc.config.getoption("--all-combinations"):
        names = quick
    elif metafunc.config.getoption("--exhaustive-part") and metafunc.function is not test_case_passes_on_numba:
        # numba optimizes the code of all cases with --all-combinations, so it does more for each; LLVM does the same.
        names = [name for name in names if name not in quick]
    metafunc.parametrize("name", names)


def test_network_passes(name: str) -> None:
    outcome = run_case(all_cases()[name], "llvm")
    assert outcome.status == "passed", outcome.reason


def test_case_passes_on_llvm(name: str) -> None:
    outcome = run_case(all_cases()[name], "llvm")
    assert outcome.status == "passed", outcome.reason


def test_case_passes_on_numba(name: str) -> None:
    outcome = run_case(all_cases()[name], "numba")
    assert outcome.status == "passed", outcome.reason
