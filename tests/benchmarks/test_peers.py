"""The suite beside other libraries, as far as it runs without them: beside Tilewright itself."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from bench.peers.worker import settle

ROOT = Path(__file__).resolve().parents[2]


def test_a_case_beside_another_checkout_becomes_a_row_a_table_and_a_picture(tmp_path: Path) -> None:
    found, page, picture = tmp_path / "found.json", tmp_path / "page.md", tmp_path / "picture.svg"
    command = [sys.executable, "-m", "bench.peers", "--only", "a call of a tiny operator", "--threads", "1"]
    command += [
        "--before",
        str(ROOT),
        "--peers",
        "",
        "--seconds",
        "0.05",
        "--json",
        str(found),
        "--markdown",
        str(page),
        "--plot",
        str(picture),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(found.read_text())["rows"]
    assert row["failed"] == {}
    assert list(row["libraries"]) == ["tilewright", "before"]
    assert 0 < row["libraries"]["tilewright"]["median"] < 1e-2
    assert row["libraries"]["tilewright"]["error"] < 1e-6
    assert "| a call of a tiny operator | 1 |" in page.read_text()
    assert picture.read_text().startswith("<svg")


def test_a_worker_is_not_ready_before_its_threads_rest() -> None:
    def work() -> None:
        while time.thread_time() < 0.3:
            pass

    thread = threading.Thread(target=work)
    thread.start()
    settle()
    assert not thread.is_alive()


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed: make torch")
def test_a_pytorch_program_is_compared_with_eager_results_and_an_empty_backend(tmp_path: Path) -> None:
    found, page = tmp_path / "found.json", tmp_path / "page.md"
    command = [sys.executable, "-m", "bench.peers", "--only", "a call of x . 1", "--threads", "1", "--seconds", "0.05"]
    command += ["--peers", "torch_empty", "--json", str(found), "--markdown", str(page)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    written = json.loads(found.read_text())
    (row,) = written["rows"]
    assert row["failed"] == {}
    assert list(row["libraries"]) == ["tilewright", "torch_empty"]
    assert row["reference"] == "PyTorch, float64"
    assert row["libraries"]["tilewright"]["error"] < 1e-6
    (goal,) = written["goals"]
    assert goal["measured"].endswith("above an empty backend")
    assert "| a call of x + 1 | 1 |" in page.read_text()
