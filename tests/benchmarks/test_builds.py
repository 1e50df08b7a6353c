"""The benchmark of builds, as far as it runs without what it compares with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parents[2] / "bench"


def test_the_digits_network_fills_the_tables(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    command = [sys.executable, str(BENCH / "bench_builds.py"), "digits", "--repeat", "1", "--pieces", "1"]
    command += ["--markdown", str(page), "--tables", "builds", "code", "nodes"]
    # The byte code of the tree serves as well: in a folder of its own all modules would be compiled anew.
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": ""}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    assert page.read_text(encoding="utf-8").strip() == done.stdout.strip()
    rows = [line.strip("| ").split("|") for line in done.stdout.splitlines() if line.startswith("| digits ")]
    builds, kept, code, nodes = ([cell.strip() for cell in row] for row in rows)
    read, cpu, _, units, *_ = (float(cell) for cell in builds[1:6])
    assert 0 < read < cpu
    assert units > 1
    assert builds[6:] == ["-"] * 4  # no library reads that network
    cold, _, whole = float(kept[2]), kept[3], float(kept[5])
    assert whole < cold
    kernels, _, lowered, llvm, size = (int(cell.replace(",", "")) for cell in code[1:])
    assert 1 < kernels < llvm < size < lowered
    assert all(float(cell) >= 0 for cell in nodes[1:])
    made, visited = (float(cell) for cell in nodes[-2:])
    assert 1 < made < visited


def test_a_build_that_fails_is_said_to_have_failed() -> None:
    job = json.dumps({"kind": "build", "model": "no such file"})
    done = subprocess.run([sys.executable, str(BENCH / "build_worker.py"), job], capture_output=True, text=True)
    assert "no such file" in json.loads(done.stdout)["failed"]
