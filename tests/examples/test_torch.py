"""The PyTorch examples: each script does its job, and nothing that is said to be compiled runs in PyTorch."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: make torch")

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "torch"
#: What examples/digits counts with the same weights, in NumPy.
RIGHT = "Right: 892 of 897 held-out images (99.44%)"


def output(name: str, *args: str, status: int = 0) -> str:
    command = [sys.executable, str(EXAMPLE / f"{name}.py"), *args]
    found = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert found.returncode == status, found.stderr
    assert "runs in PyTorch" not in found.stderr
    return found.stdout if status == 0 else found.stderr


def test_the_compiled_network_classifies_as_the_one_in_numpy() -> None:
    found = output("compile")
    assert RIGHT in found
    assert len(re.findall(r"A batch of \d+: [\d.]+ ms compiled", found)) == 3


def test_the_artifact_runs_where_pytorch_cannot_be_imported(tmp_path: Path) -> None:
    path = tmp_path / "network.tw"
    found = output("export", str(path))
    assert path.exists()
    assert f"{RIGHT}, without PyTorch" in found
    with_import = f"import runpy; runpy.run_path({str(EXAMPLE / 'run_artifact.py')!r}); import torch"
    refused = subprocess.run([sys.executable, "-c", with_import], capture_output=True, text=True, check=False)
    assert "import of torch halted" in refused.stderr


def test_compiled_training_lowers_the_loss() -> None:
    losses = [float(found) for found in re.findall(r"loss ([\d.]+)", output("train", "--epochs", "3"))]
    assert len(losses) == 3
    assert losses[2] < losses[1] < losses[0]
    assert losses[2] < 0.6
